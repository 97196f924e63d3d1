/* A text being read into a layout: the steps that every notation shares. */
#ifndef DTP_CORE_LAYOUT_LAYOUT_READER_H
#define DTP_CORE_LAYOUT_LAYOUT_READER_H

#include "core/layout/layout.h"

typedef struct dtp_layout_reader {
    const char *text, *at; /* the whole text, the next character */
    const dtp_mesh *mesh;
    const dtp_ttype *type;
    dtp_layout layout; /* starts replicated */
} dtp_layout_reader;

/* The first character that is neither blank nor tab nor newline. */
const char *dtp_layout_skip_blanks(const char *at);
/* Skips blanks; accepts `token` there when it stands there. */
bool dtp_layout_reader_accept(dtp_layout_reader *r, const char *token);
/* Skips blanks; is that the end of the text? */
bool dtp_layout_reader_at_end(dtp_layout_reader *r);
/* An integer of at most 9 digits with an optional minus. */
bool dtp_layout_reader_int(dtp_layout_reader *r, int64_t *out);
/* The n characters of the quoted string that stands here ('...' or "..."). */
dtp_status dtp_layout_reader_quoted(dtp_layout_reader *r, const char **text, size_t *n,
                                    dtp_err *err) DTP_MUST_CHECK;
/* The innermost split of `axis` over the mesh dim whose name is the n characters at `name`. */
dtp_status dtp_layout_reader_split(dtp_layout_reader *r, const char *name, size_t n, int32_t axis,
                                   dtp_err *err) DTP_MUST_CHECK;
/* DTP_INVALID "layout: expected <what> at character N, before '...'". */
dtp_status dtp_layout_reader_fail(const dtp_layout_reader *r, const char *what,
                                  dtp_err *err) DTP_MUST_CHECK;

#endif
