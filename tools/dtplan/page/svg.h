/* SVG, element by element: what drawings of the report are made of. Lengths are pixels; texts are
 * escaped. Colours are classes of drawing.css. */
#ifndef DTP_TOOLS_DTPLAN_PAGE_SVG_H
#define DTP_TOOLS_DTPLAN_PAGE_SVG_H

#include "core/base/strbuf.h"

enum { SVG_WIDTH = 1000 };

/* Appends a text with the characters of XML escaped, control characters and the like as
 * dtp_one_line has them; it is cut after 2000 bytes. */
void svg_escaped(dtp_strbuf *out, const char *text);

/* A drawing of SVG_WIDTH; `about` is its text for people who do not see it. */
void svg_begin(dtp_strbuf *out, double height, const char *title, const char *about);
void svg_end(dtp_strbuf *out);

/* tip: what is shown of it under the pointer, freed; NULL: nothing. */
void svg_rect(dtp_strbuf *out, const double box[4], const char *classes, dtp_strbuf *tip);
void svg_line(dtp_strbuf *out, const double ends[4], const char *classes);
/* Anchor 's', 'm' or 'e'. The text is cut to `room` pixels, with "…"; it is left out where fewer
 * than three characters fit. */
void svg_text(dtp_strbuf *out, double x, double y, char anchor, double room, const char *classes,
              const char *text);
/* Width of so many characters. */
double svg_width_of(const char *text);

/* The area between two rows of heights above `base`, upper and lower, over columns of equal width
 * from x on. */
typedef struct svg_area {
    double x, width, base;
    int32_t n;
    const double *lower, *upper;
} svg_area;
void svg_area_put(dtp_strbuf *out, const svg_area *area, const char *classes);

/* A square with its name, for legends; returns the x behind it. */
double svg_key(dtp_strbuf *out, double x, double y, const char *classes, const char *name);

/* The axis of time under lanes: a line with ticks from from_s to to_s. */
typedef struct svg_times {
    double x, width, from_s, to_s;
} svg_times;
double svg_at(const svg_times *t, double s);
void svg_axis(dtp_strbuf *out, const svg_times *t, double y);

#endif
