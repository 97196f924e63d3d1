/* A growing text buffer. A failed allocation is remembered and reported once, at the end. */
#ifndef DTP_CORE_BASE_STRBUF_H
#define DTP_CORE_BASE_STRBUF_H

#include <stddef.h>

#include "core/base/status.h"

typedef struct dtp_strbuf {
    char *text; /* NUL-terminated; NULL while empty */
    size_t len, capacity;
    bool failed; /* an allocation failed: the text is incomplete */
} dtp_strbuf;

/* Start from `dtp_strbuf b = {0};`. */
void dtp_strbuf_add(dtp_strbuf *b, const char *text);
void dtp_strbuf_addf(dtp_strbuf *b, const char *fmt, ...) DTP_PRINTF(2, 3);
/* Adds a text with & < > " and ' as entities of XML and HTML. */
void dtp_strbuf_add_xml(dtp_strbuf *b, const char *text);
/* Adds the text of `from`, or that it is incomplete, and frees `from`. */
void dtp_strbuf_join(dtp_strbuf *b, dtp_strbuf *from);
void dtp_strbuf_free(dtp_strbuf *b);
/* "" while empty. Borrowed. */
const char *dtp_strbuf_text(const dtp_strbuf *b);

/* Breaks lines of more than `width` characters at spaces, from byte `from` of the text on, but not
 * between a number and its unit. What follows begins below the last column of a table, else it is
 * indented a little. Spaces at ends of lines go. */
void dtp_strbuf_wrap(dtp_strbuf *b, size_t from, size_t width);

#endif
