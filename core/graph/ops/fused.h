/* Expressions of elementwise functions that run as one kernel (core/graph/ops/fused.c). Plain data
 * for kernels of all backends. */
#ifndef DTP_CORE_GRAPH_OPS_FUSED_H
#define DTP_CORE_GRAPH_OPS_FUSED_H

#include "dtp/op.h"

enum {
    DTP_FUSED_IN = 6,     /* operands of an expression */
    DTP_FUSED_OUT = 2,    /* results */
    DTP_FUSED_STEPS = 12, /* functions */
    DTP_FUSED_ARGS = 2,   /* operands of a function */
    DTP_FUSED_CONSTANTS = 4
};

/* A function, an op with DTP_OP_FUSES, of operands of the expression (0 ..) or results of earlier
 * steps (DTP_FUSED_IN ..). */
typedef struct dtp_fused_step {
    const dtp_op_def *op;
    int32_t arg[DTP_FUSED_ARGS];
    double constant; /* the float attribute of the op, 0 without */
} dtp_fused_step;

/* Result 0 is that of the last step. */
typedef struct dtp_fused_expr {
    int32_t n, also; /* steps; the step of result 1, -1 = one result */
    dtp_fused_step step[DTP_FUSED_STEPS];
} dtp_fused_expr;

#endif
