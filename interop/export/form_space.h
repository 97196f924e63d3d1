/* The plans of which nothing of some kinds is lost, for a search: which layouts must be equal, and
 * which layouts of single tensors may be. All are necessary, and sufficient but for products of a
 * module that are redistributed twice before and after their bias; whether a form loses nothing of
 * a plan only the form itself says (dtp_export_says_all). */
#ifndef DTP_INTEROP_EXPORT_FORM_SPACE_H
#define DTP_INTEROP_EXPORT_FORM_SPACE_H

#include "interop/export/forms.h"

/* A layout of a plan: in which a node reads or makes a tensor, or (node -1) in which it is kept. */
typedef struct dtp_layout_place {
    dtp_tensor_id tensor;
    dtp_node_id node;
    int32_t slot; /* operand i: i, output i: DTP_MAX_OP_IN + i */
} dtp_layout_place;

/* Two layouts that must be equal. */
typedef struct dtp_layout_tie {
    dtp_layout_place a, b;
} dtp_layout_tie;

typedef struct dtp_form_space {
    uint32_t loses;          /* bits of kinds */
    dtp_mesh_set data_dims;  /* mesh dims that are to split the batch alone (dtp_form_has_data) */
    const dtp_placements *p; /* of some plan for the graph: names, modules, readers */
    int32_t n_ties, capacity;
    dtp_layout_tie *ties;
} dtp_form_space;

/* Of plans for the graph of `p`; from its arena. */
dtp_status dtp_form_space_make(uint32_t loses, const dtp_placements *p, dtp_form_space *out,
                               dtp_err *err) DTP_MUST_CHECK;

/* Whether nothing is lost of a layout in which a tensor is kept, or (`kept` false) read by the
 * forward pass. */
bool dtp_form_takes_layout(const dtp_form_space *space, dtp_tensor_id t, const dtp_layout *layout,
                           bool kept);
/* Whether the data dims do in such a layout what those of fully_shard do: they split what has the
 * dim of the batch, which is the first of the inputs, and parameters are read whole over them. */
bool dtp_form_has_data(const dtp_form_space *space, dtp_tensor_id t, const dtp_layout *layout,
                       bool kept);

#endif
