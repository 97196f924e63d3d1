/* TensorFlow DTensor's form of a layout. */
#ifndef DTP_INTEROP_LAYOUT_TF_H
#define DTP_INTEROP_LAYOUT_TF_H

#include "core/base/strbuf.h"
#include "core/layout/layout_reader.h"

/* Whether a text begins as TensorFlow's do. */
bool dtp_form__looks_like_tf(const char *text);
/* Reads the whole text. */
dtp_status dtp_form__read_tf(dtp_layout_reader *r, dtp_err *err) DTP_MUST_CHECK;
/* Appends the text of a layout without partial values; `dims` NULL: dims have no names. */
dtp_status dtp_form__write_tf(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_dims *dims, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;

#endif
