/* Axes of the outputs of ATen ops, one function for each family (aten_ops.c names them). */
#ifndef DTP_INTEROP_IMPORT_PROGRAM_ATEN_AXES_H
#define DTP_INTEROP_IMPORT_PROGRAM_ATEN_AXES_H

#include "interop/import/program/axes.h"

typedef dtp_status dtp_axes_rule(dtp_axes *x, const dtp_aten_node *node, dtp_err *err);

dtp_axes_rule dtp_axes_same, dtp_axes_broadcast, dtp_axes_view, dtp_axes_permute, dtp_axes_reduce,
    dtp_axes_linear, dtp_axes_matmul, dtp_axes_addmm, dtp_axes_norm, dtp_axes_embedding,
    dtp_axes_cat, dtp_axes_stack, dtp_axes_patches, dtp_axes_slice, dtp_axes_select, dtp_axes_split,
    dtp_axes_pad, dtp_axes_attention, dtp_axes_cross_entropy;

/* Whether a reduction is over the axis. */
bool dtp_aten_reduces(const dtp_aten *g, const dtp_aten_node *node, int32_t axis);

#endif
