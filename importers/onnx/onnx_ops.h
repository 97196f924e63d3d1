/* The table of ONNX ops (onnx_ops.c): for each the ATen op that it becomes, and how. */
#ifndef DTP_IMPORTERS_ONNX_ONNX_OPS_H
#define DTP_IMPORTERS_ONNX_ONNX_OPS_H

#include "importers/onnx/onnx_graph.h"

typedef dtp_status dtp_onnx_rule(dtp_onnx_graph *o, dtp_err *err);

struct dtp_onnx_op {
    const char *name;
    dtp_onnx_rule *read;
    int32_t least, most; /* operands that it must and may have */
    const char *aten;
    const char *attrs;       /* attributes that it reads: "axis"; takes one value of: "group=1" */
    const char *operands[3]; /* names of its arguments, where they are those of the ATen op */
};

dtp_onnx_rule dtp_onnx__elements, dtp_onnx__truth, dtp_onnx__inverse, dtp_onnx__where,
    dtp_onnx__gelu, dtp_onnx__softmax, dtp_onnx__is_nan, dtp_onnx__identity, dtp_onnx__dropout,
    dtp_onnx__cast, dtp_onnx__shape, dtp_onnx__constant, dtp_onnx__filled, dtp_onnx__range,
    dtp_onnx__along, dtp_onnx__reshape, dtp_onnx__flatten, dtp_onnx__squeeze, dtp_onnx__unsqueeze,
    dtp_onnx__transpose, dtp_onnx__expand, dtp_onnx__tile, dtp_onnx__concat, dtp_onnx__split,
    dtp_onnx__slice, dtp_onnx__pad, dtp_onnx__gather, dtp_onnx__gather_nd,
    dtp_onnx__gather_elements, dtp_onnx__reduce, dtp_onnx__norm, dtp_onnx__loss, dtp_onnx__matmul,
    dtp_onnx__gemm, dtp_onnx__attention, dtp_onnx__conv, dtp_onnx__conv_transpose, dtp_onnx__pool,
    dtp_onnx__global_pool, dtp_onnx__batch_norm, dtp_onnx__resize;

/* NULL: not supported. */
const dtp_onnx_op *dtp_onnx_op_find(const dtp_onnx_node *n);
/* Operands and attributes of a node by the op's row. DTP_INVALID, DTP_UNSUPPORTED. */
dtp_status dtp_onnx_check(const dtp_onnx_node *n, const dtp_onnx_op *op,
                          dtp_err *err) DTP_MUST_CHECK;

#endif
