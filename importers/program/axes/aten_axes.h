/* Axes of the outputs of ATen ops, by family. */
#ifndef DTP_IMPORTERS_PROGRAM_AXES_ATEN_AXES_H
#define DTP_IMPORTERS_PROGRAM_AXES_ATEN_AXES_H

#include "importers/program/axes/axes.h"

/* Gives the outputs of a node their axes, and unifies what they share with those of the operands.
 */
typedef dtp_status dtp_axes_rule(dtp_axes *x, const dtp_aten_node *node, dtp_err *err);

dtp_axes_rule dtp_axes_same, dtp_axes_broadcast, dtp_axes_view, dtp_axes_permute, dtp_axes_repeat,
    dtp_axes_reduce, dtp_axes_product, dtp_axes_norm, dtp_axes_embedding, dtp_axes_lookup,
    dtp_axes_one_hot, dtp_axes_topk, dtp_axes_cat, dtp_axes_patches, dtp_axes_slice,
    dtp_axes_select, dtp_axes_slots, dtp_axes_entries, dtp_axes_split, dtp_axes_pad,
    dtp_axes_attention, dtp_axes_cross_entropy, dtp_axes_conv, dtp_axes_pool, dtp_axes_image;

/* Elements of x at integer positions along an axis: gather, index_select, x[:, ids]. */
typedef struct dtp_lookup {
    int32_t ids, over;        /* the positions; the axis of x */
    int32_t first;            /* the axis of the result that is axis 0 of the positions */
    int32_t to[DTP_MAX_RANK]; /* the axis of the result that each other axis of x is */
    uint32_t counted;         /* axes of x that go along with axis 0 of the positions */
    bool gathers;             /* the positions have all axes of the result */
} dtp_lookup;

dtp_status dtp_lookup_of(const dtp_aten *g, const dtp_const *consts, const dtp_aten_node *node,
                         dtp_lookup *out, dtp_err *err) DTP_MUST_CHECK;

#endif
