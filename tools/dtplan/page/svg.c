/* SVG elements: see svg.h. */
#include "tools/dtplan/page/svg.h"

#include <math.h>
#include <string.h>

#include "core/base/text.h"
#include "core/base/units.h"

enum { TEXT_BYTES = 2000, TICKS = 8 };

static const double CHARACTER = 6.6; /* of the fonts at 12 pixels, on average */

void svg_escaped(dtp_strbuf *out, const char *text)
{
    char line[TEXT_BYTES];
    (void)dtp_one_line(text, line, sizeof line);
    dtp_strbuf_add_xml(out, line);
}

void svg_begin(dtp_strbuf *out, double height, const char *title, const char *about)
{
    dtp_strbuf_addf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"drawing\" role=\"img\" "
                    "viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\">\n<title>",
                    SVG_WIDTH, height, SVG_WIDTH, height);
    svg_escaped(out, title);
    dtp_strbuf_add(out, "</title>\n<desc>");
    svg_escaped(out, about);
    dtp_strbuf_add(out, "</desc>\n");
}

void svg_end(dtp_strbuf *out)
{
    dtp_strbuf_add(out, "</svg>\n");
}

void svg_rect(dtp_strbuf *out, const double box[4], const char *classes, dtp_strbuf *tip)
{
    dtp_strbuf_addf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" class=\"%s\"",
                    box[0], box[1], fmax(box[2], 0.0), fmax(box[3], 0.0), classes);
    if (tip != NULL) {
        dtp_strbuf_add(out, "><title>");
        svg_escaped(out, dtp_strbuf_text(tip));
        dtp_strbuf_add(out, "</title></rect>\n");
        out->failed = out->failed || tip->failed;
        dtp_strbuf_free(tip);
    } else {
        dtp_strbuf_add(out, "/>\n");
    }
}

void svg_line(dtp_strbuf *out, const double ends[4], const char *classes)
{
    dtp_strbuf_addf(out, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" class=\"%s\"/>\n",
                    ends[0], ends[1], ends[2], ends[3], classes);
}

/* Characters of a line, and the bytes of its first `most`. */
static size_t characters(const char *line, size_t most, size_t *bytes)
{
    const size_t length = strlen(line);
    size_t n = 0, at = 0;
    for (*bytes = 0; at < length; n++) {
        const size_t one = dtp_utf8_next(line + at, length - at, NULL);
        *bytes = n < most ? at + (one > 0 ? one : 1) : *bytes;
        at += one > 0 ? one : 1;
    }
    return n;
}

double svg_width_of(const char *text)
{
    size_t bytes;
    return CHARACTER * (double)characters(text, 0, &bytes);
}

void svg_text(dtp_strbuf *out, double x, double y, char anchor, double room, const char *classes,
              const char *text)
{
    char line[TEXT_BYTES];
    size_t bytes;
    const size_t fit = room > 0.0 ? (size_t)(room / CHARACTER) : 0;
    (void)dtp_one_line(text, line, sizeof line);
    const bool cut = characters(line, fit > 0 ? fit - 1 : 0, &bytes) > fit;
    if (fit < 3 || line[0] == '\0') {
        return;
    }
    if (cut) {
        line[bytes] = '\0';
    }
    dtp_strbuf_addf(out, "<text x=\"%.1f\" y=\"%.1f\"%s class=\"%s\">", x, y,
                    anchor == 'm'   ? " text-anchor=\"middle\""
                    : anchor == 'e' ? " text-anchor=\"end\""
                                    : "",
                    classes);
    dtp_strbuf_add_xml(out, line);
    dtp_strbuf_addf(out, "%s</text>\n", cut ? "…" : "");
}

void svg_area_put(dtp_strbuf *out, const svg_area *a, const char *classes)
{
    bool any = false;
    for (int32_t i = 0; i < a->n; i++) {
        any = any || a->upper[i] > a->lower[i];
    }
    if (!any) {
        return;
    }
    const double step = a->width / a->n;
    dtp_strbuf_addf(out, "<path class=\"%s\" d=\"M%.1f %.1f", classes, a->x, a->base);
    /* There along the upper edge, back along the lower one; equal heights are one step. */
    for (int32_t i = 0; i < a->n; i++) {
        if (i == 0 || a->upper[i] != a->upper[i - 1]) {
            dtp_strbuf_addf(out, "H%.1fV%.1f", a->x + step * i, a->base - a->upper[i]);
        }
    }
    dtp_strbuf_addf(out, "H%.1f", a->x + a->width);
    for (int32_t i = a->n - 1; i >= 0; i--) {
        if (i == a->n - 1 || a->lower[i] != a->lower[i + 1]) {
            dtp_strbuf_addf(out, "H%.1fV%.1f", a->x + step * (i + 1), a->base - a->lower[i]);
        }
    }
    dtp_strbuf_addf(out, "H%.1fZ\"/>\n", a->x);
}

double svg_key(dtp_strbuf *out, double x, double y, const char *classes, const char *name)
{
    svg_rect(out, (const double[]){x, y - 10.0, 12.0, 12.0}, classes, NULL);
    svg_text(out, x + 17.0, y, 's', 300.0, "small", name);
    return x + 17.0 + svg_width_of(name) + 18.0;
}

double svg_at(const svg_times *t, double s)
{
    return t->x + t->width * (s - t->from_s) / (t->to_s - t->from_s);
}

void svg_axis(dtp_strbuf *out, const svg_times *t, double y)
{
    const double span = t->to_s - t->from_s, power = pow(10.0, floor(log10(span / TICKS)));
    const double share = span / TICKS / power;
    const double step = power * (share <= 1.0 ? 1.0 : share <= 2.0 ? 2.0 : share <= 5.0 ? 5.0 : 10);
    svg_line(out, (const double[]){t->x, y, t->x + t->width, y}, "axis");
    const int64_t first = (int64_t)ceil(t->from_s / step - 1e-9);
    const int64_t last = (int64_t)floor(t->to_s / step + 1e-9);
    for (int64_t k = first; k <= last; k++) {
        const double s = step * (double)k, x = svg_at(t, s);
        svg_line(out, (const double[]){x, y, x, y + 4.0}, "axis");
        const bool edge = x > SVG_WIDTH - 30.0; /* its text would leave the drawing */
        svg_text(out, edge ? SVG_WIDTH : x, y + 16.0, edge ? 'e' : 'm', 90.0, "small",
                 dtp_seconds(s).text);
    }
}
