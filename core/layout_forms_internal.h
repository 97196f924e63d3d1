/* What the readers and writers of the text forms share. */
#ifndef DTP_CORE_LAYOUT_FORMS_INTERNAL_H
#define DTP_CORE_LAYOUT_FORMS_INTERNAL_H

#include "core/layout_forms.h"

/* A text being read into a layout. */
typedef struct dtp_form_reader {
    const char *text, *at; /* the whole text, the next character */
    const dtp_mesh *mesh;
    const dtp_ttype *type;
    dtp_layout layout; /* starts replicated */
} dtp_form_reader;

/* What a form needs to write a layout. */
typedef struct dtp_form_writer {
    const dtp_layout *layout;
    const dtp_mesh *mesh;
    const dtp_ttype *type;
    const dtp_dims *dims;
    dtp_strbuf *out;
} dtp_form_writer;

/* Index of a mesh dim that the layout does not use yet; DTP_INVALID names it when unknown or used.
 */
dtp_status dtp_layout__free_mesh_dim(const dtp_mesh *mesh, const dtp_layout *layout,
                                     const char *name, int32_t *m, dtp_err *err) DTP_MUST_CHECK;

/* Skips blanks; accepts `token` there when it stands there. */
bool dtp_form__accept(dtp_form_reader *r, const char *token);
/* Skips blanks; is that the end of the text? */
bool dtp_form__at_end(dtp_form_reader *r);
/* An integer of at most 9 digits with an optional minus. */
bool dtp_form__int(dtp_form_reader *r, int64_t *out);
/* The innermost split of `axis` over the mesh dim whose name is the n characters at `name`. */
dtp_status dtp_form__split(dtp_form_reader *r, const char *name, size_t n, int32_t axis,
                           dtp_err *err) DTP_MUST_CHECK;
/* The n characters of the quoted string that stands here ('...' or "..."). */
dtp_status dtp_form__quoted(dtp_form_reader *r, const char **text, size_t *n,
                            dtp_err *err) DTP_MUST_CHECK;
/* DTP_INVALID "layout: expected <what> at character N, before '...'". */
dtp_status dtp_form__fail(const dtp_form_reader *r, const char *what, dtp_err *err) DTP_MUST_CHECK;

/* Begins the text as TensorFlow's do? */
bool dtp_form__looks_like_tf(const char *text);

/* Each reads the whole text. */
dtp_status dtp_form__read_tf(dtp_form_reader *r, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_form__read_torch(dtp_form_reader *r, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_form__read_jax(dtp_form_reader *r, dtp_err *err) DTP_MUST_CHECK;

dtp_status dtp_form__write_tf(const dtp_form_writer *w, dtp_err *err) DTP_MUST_CHECK;
void dtp_form__write_torch(const dtp_form_writer *w);
void dtp_form__write_jax(const dtp_form_writer *w);

#endif
