/* Layouts in the words of other systems. For a tensor [batch, heads, d_ff] on the mesh x:2;y:2;z:2:
 *
 *   OURS         batch@x, d_ff@y+z, +sum(w)
 *   MTF          batch:x;d_ff:y;d_ff:z                      layout rules of Mesh TensorFlow
 *   TF           sharding_specs:x,unsharded,y, mesh:|x=2,y=2,z=2|*CPU        TensorFlow DTensor
 *                read also as Layout(['x', UNSHARDED, 'y'], mesh), Layout.from_string('...')
 *   TORCH        (Shard(dim=0), Replicate(), Partial(sum))                   one per mesh dim
 *   TORCH_SHORT  S0, R, P(sum)
 *   JAX          P('x', None, ('y', 'z'))
 *
 * Shard order. TORCH writes a split that is not in mesh order as a strided shard: its split factor
 * is the product of the sizes of the mesh dims that come later in the mesh but split before it.
 * TORCH_SHORT gives splits below the outermost their depth instead, "S0.1, S0"; S(0)[1] is read as
 * S0.1, SS0/2 as a strided shard. The other forms list mesh dims outermost first.
 */
#ifndef DTP_INTEROP_LAYOUT_FORMS_H
#define DTP_INTEROP_LAYOUT_FORMS_H

#include "core/layout/layout.h"
#include "core/base/strbuf.h"

typedef enum dtp_layout_form {
    DTP_FORM_OURS,
    DTP_FORM_MTF,
    DTP_FORM_TF,
    DTP_FORM_TORCH,
    DTP_FORM_TORCH_SHORT,
    DTP_FORM_JAX,
    DTP_N_LAYOUT_FORMS
} dtp_layout_form;

/* "dtp", "mtf", "tf", "torch", "torch-short", "jax". */
const char *dtp_layout_form_name(dtp_layout_form form);
/* The form that a text looks like, from its first characters and separators; TORCH stands for both
 * torch forms, and for whatever looks like none. */
dtp_layout_form dtp_layout_form_of(const char *text);

/* Reads a layout in any of the forms. The MTF form may speak of dims of `dims` that the tensor does
 * not have, as layout rules do. The mesh part of the TF form may be left out; when it is there it
 * must be `mesh` with devices in row-major order. dims NULL: the tensor's dims have no names, which
 * OURS and MTF need. DTP_INVALID naming the place in the text, also for the empty text;
 * DTP_UNSUPPORTED for what is legal there but is no layout here (a strided shard that is no order
 * of splits, TF's "any", "match", parted and maximal layouts). */
dtp_status dtp_layout_parse_any(const char *text, const dtp_mesh *mesh, const dtp_ttype *type,
                                const dtp_dims *dims, dtp_layout *out, dtp_err *err) DTP_MUST_CHECK;

/* Appends the layout in the given form. dims NULL: the dims have no names; OURS and MTF need them,
 * which is DTP_INVALID. DTP_UNSUPPORTED when the form has no words for it: partial
 * in MTF, TF and JAX, several mesh dims on one tensor dim in TF. Reading the text again gives the
 * same layout (TORCH: the same shards on every rank; the order of mesh dims of size 1 is lost), but
 * for the MTF form of a replicated layout, which is empty. */
dtp_status dtp_layout_print_as(dtp_layout_form form, const dtp_layout *layout, const dtp_mesh *mesh,
                               const dtp_ttype *type, const dtp_dims *dims, dtp_strbuf *out,
                               dtp_err *err) DTP_MUST_CHECK;
#endif
