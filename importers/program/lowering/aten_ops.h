/* The table of ATen ops (aten_ops.c): for every family a function for the axes of the outputs and
 * one for the nodes of ours. */
#ifndef DTP_IMPORTERS_PROGRAM_LOWERING_ATEN_OPS_H
#define DTP_IMPORTERS_PROGRAM_LOWERING_ATEN_OPS_H

#include "importers/program/axes/aten_axes.h"
#include "importers/program/lowering/importer.h"

typedef dtp_status dtp_lower_op(dtp_lowering *l, dtp_err *err);

struct dtp_aten_op {
    const char *name;    /* without "aten." and overload; "dtp.": of a pattern */
    dtp_axes_rule *axes; /* of the outputs, and what they share with those of the operands */
    dtp_lower_op *lower;
    /* The op of ours, where one row of code serves several, and its attributes, if it has some:
     * "clamp low=min high=6". */
    const char *ours;
    const char *args; /* what it reads of its arguments, and which values it takes: arg_rules.h */
};

/* NULL: not supported. */
const dtp_aten_op *dtp_aten_op_find(const dtp_aten_node *node);

/* Elementwise; rows; tables */
dtp_lower_op dtp_lower_unary, dtp_lower_gelu, dtp_lower_pow, dtp_lower_cast, dtp_lower_binary,
    dtp_lower_compare, dtp_lower_select, dtp_lower_softmax, dtp_lower_reduce, dtp_lower_norm,
    dtp_lower_cross_entropy, dtp_lower_embedding, dtp_lower_lookup, dtp_lower_one_hot,
    dtp_lower_slots, dtp_lower_entries;
/* Products; views; pieces */
dtp_lower_op dtp_lower_product, dtp_lower_attention, dtp_lower_rope, dtp_lower_view,
    dtp_lower_permute, dtp_lower_repeat, dtp_lower_cat, dtp_lower_slice, dtp_lower_pieces,
    dtp_lower_along, dtp_lower_topk, dtp_lower_pad, dtp_lower_stack, dtp_lower_patches,
    dtp_lower_conv, dtp_lower_pool, dtp_lower_image;

/* Whether an attention is products and a softmax, and these. */
dtp_status dtp_holds_scores(const dtp_lowering *l, bool *out, dtp_err *err) DTP_MUST_CHECK;
dtp_lower_op dtp_lower_scores;

#endif
