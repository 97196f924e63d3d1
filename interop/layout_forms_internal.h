/* What the readers and writers of the text forms share. */
#ifndef DTP_INTEROP_LAYOUT_FORMS_INTERNAL_H
#define DTP_INTEROP_LAYOUT_FORMS_INTERNAL_H

#include "core/layout/layout_reader.h"
#include "interop/layout_forms.h"

/* What a form needs to write a layout. */
typedef struct dtp_form_writer {
    const dtp_layout *layout;
    const dtp_mesh *mesh;
    const dtp_ttype *type;
    const dtp_dims *dims;
    dtp_strbuf *out;
} dtp_form_writer;

/* Begins the text as TensorFlow's do? */
bool dtp_form__looks_like_tf(const char *text);

/* Each reads the whole text. */
dtp_status dtp_form__read_tf(dtp_layout_reader *r, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_form__read_jax(dtp_layout_reader *r, dtp_err *err) DTP_MUST_CHECK;

dtp_status dtp_form__write_tf(const dtp_form_writer *w, dtp_err *err) DTP_MUST_CHECK;
void dtp_form__write_jax(const dtp_form_writer *w);

#endif
