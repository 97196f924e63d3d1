/* The table of ATen ops (aten_ops.c): for every family a function for the axes of the outputs and
 * one for the nodes of ours. */
#ifndef DTP_INTEROP_IMPORT_PROGRAM_ATEN_OPS_H
#define DTP_INTEROP_IMPORT_PROGRAM_ATEN_OPS_H

#include "interop/import/program/importer.h"

typedef dtp_status dtp_axes_rule(dtp_axes *x, const dtp_aten_node *node, dtp_err *err);
typedef dtp_status dtp_lower_op(dtp_lowering *l, dtp_err *err);

struct dtp_aten_op {
    const char *name;    /* without "aten." and overload; "dtp.": of a pattern */
    dtp_axes_rule *axes; /* of the outputs, and what they share with those of the operands */
    dtp_lower_op *lower;
    /* The op of ours, where one row of code serves several, and its attributes, if it has some:
     * "clamp low=min high=6". */
    const char *ours;
};

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

/* NULL: not supported. */
const dtp_aten_op *dtp_aten_op_find(const dtp_aten_node *node);

dtp_axes_rule dtp_axes_same, dtp_axes_broadcast, dtp_axes_view, dtp_axes_permute, dtp_axes_repeat,
    dtp_axes_reduce, dtp_axes_product, dtp_axes_norm, dtp_axes_embedding, dtp_axes_lookup,
    dtp_axes_one_hot, dtp_axes_topk, dtp_axes_cat, dtp_axes_patches, dtp_axes_slice,
    dtp_axes_select, dtp_axes_split, dtp_axes_pad, dtp_axes_attention, dtp_axes_cross_entropy;

/* Elementwise; rows; tables */
dtp_lower_op dtp_lower_unary, dtp_lower_gelu, dtp_lower_pow, dtp_lower_cast, dtp_lower_binary,
    dtp_lower_compare, dtp_lower_select, dtp_lower_softmax, dtp_lower_reduce, dtp_lower_norm,
    dtp_lower_cross_entropy, dtp_lower_embedding, dtp_lower_lookup, dtp_lower_one_hot;
/* Products; views; pieces */
dtp_lower_op dtp_lower_product, dtp_lower_attention, dtp_lower_rope, dtp_lower_view,
    dtp_lower_permute, dtp_lower_repeat, dtp_lower_cat, dtp_lower_slice, dtp_lower_pieces,
    dtp_lower_along, dtp_lower_topk, dtp_lower_pad, dtp_lower_stack, dtp_lower_patches;

#endif
