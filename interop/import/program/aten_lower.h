/* Nodes of ours for ATen ops, one function for each family (aten_ops.c names them). */
#ifndef DTP_INTEROP_IMPORT_PROGRAM_ATEN_LOWER_H
#define DTP_INTEROP_IMPORT_PROGRAM_ATEN_LOWER_H

#include "interop/import/program/importer.h"

typedef dtp_status dtp_lower_op(dtp_lowering *l, dtp_err *err);

/* Elementwise; rows */
dtp_lower_op dtp_lower_unary, dtp_lower_gelu, dtp_lower_pow, dtp_lower_cast, dtp_lower_dropout,
    dtp_lower_binary, dtp_lower_compare, dtp_lower_select, dtp_lower_softmax, dtp_lower_reduce,
    dtp_lower_layer_norm, dtp_lower_rms_norm, dtp_lower_embedding, dtp_lower_cross_entropy;
/* Products; views; pieces */
dtp_lower_op dtp_lower_linear, dtp_lower_matmul, dtp_lower_attention, dtp_lower_rope,
    dtp_lower_view, dtp_lower_permute, dtp_lower_cat, dtp_lower_slice, dtp_lower_pieces,
    dtp_lower_pad, dtp_lower_stack, dtp_lower_patches;

#endif
