/* Expressions of elementwise functions that run as one kernel (core/graph/ops/fused.c). Plain data
 * for kernels of all backends. */
#ifndef DTP_CORE_GRAPH_OPS_FUSED_H
#define DTP_CORE_GRAPH_OPS_FUSED_H

#include "dtp/op.h"

/* The functions: ops of the elementwise family on floats, how many operands they have, and the
 * attribute that becomes a further one. OP(name, operands, attribute). */
#define DTP_FUSED_FUNCTIONS(OP)                                                                    \
    OP(cast, 1, NULL)                                                                              \
    OP(add, 2, NULL)                                                                               \
    OP(sub, 2, NULL)                                                                               \
    OP(mul, 2, NULL)                                                                               \
    OP(div, 2, NULL)                                                                               \
    OP(max, 2, NULL)                                                                               \
    OP(min, 2, NULL)                                                                               \
    OP(scale, 1, "factor")                                                                         \
    OP(neg, 1, NULL)                                                                               \
    OP(exp, 1, NULL)                                                                               \
    OP(log, 1, NULL)                                                                               \
    OP(sqrt, 1, NULL)                                                                              \
    OP(rsqrt, 1, NULL)                                                                             \
    OP(square, 1, NULL)                                                                            \
    OP(tanh, 1, NULL)                                                                              \
    OP(sigmoid, 1, NULL)                                                                           \
    OP(relu, 1, NULL)                                                                              \
    OP(gelu, 1, NULL)                                                                              \
    OP(silu, 1, NULL)                                                                              \
    OP(abs, 1, NULL)                                                                               \
    OP(sign, 1, NULL)                                                                              \
    OP(reciprocal, 1, NULL)                                                                        \
    OP(log1p, 1, NULL)                                                                             \
    OP(expm1, 1, NULL)                                                                             \
    OP(softplus, 1, NULL)                                                                          \
    OP(pow, 1, "exponent")                                                                         \
    OP(leaky_relu, 1, "slope")                                                                     \
    OP(elu, 1, "alpha")                                                                            \
    OP(tanh_grad, 2, NULL)                                                                         \
    OP(sigmoid_grad, 2, NULL)                                                                      \
    OP(relu_grad, 2, NULL)                                                                         \
    OP(gelu_grad, 2, NULL)                                                                         \
    OP(silu_grad, 2, NULL)                                                                         \
    OP(leaky_relu_grad, 2, "slope")                                                                \
    OP(elu_grad, 2, "alpha")                                                                       \
    OP(erf, 1, NULL)                                                                               \
    OP(gelu_erf, 1, NULL)                                                                          \
    OP(floor, 1, NULL)                                                                             \
    OP(erf_grad, 2, NULL)                                                                          \
    OP(gelu_erf_grad, 2, NULL)

#define DTP_FUSED_VALUE(name, operands, key) DTP_FUSED_##name,
typedef enum dtp_fused_function {
    DTP_FUSED_FUNCTIONS(DTP_FUSED_VALUE) DTP_N_FUSED
} dtp_fused_function;

enum {
    DTP_FUSED_IN = 6,     /* operands of an expression */
    DTP_FUSED_OUT = 2,    /* results */
    DTP_FUSED_STEPS = 12, /* functions */
    DTP_FUSED_ARGS = 2,   /* operands of a function */
    DTP_FUSED_CONSTANTS = 4
};

/* A function of operands of the expression (0 ..) or results of earlier steps (DTP_FUSED_IN ..). */
typedef struct dtp_fused_step {
    int32_t function, arg[DTP_FUSED_ARGS];
    double constant; /* the attribute of the function, 0 without */
} dtp_fused_step;

/* Result 0 is that of the last step. */
typedef struct dtp_fused_expr {
    int32_t n, also; /* steps; the step of result 1, -1 = one result */
    dtp_fused_step step[DTP_FUSED_STEPS];
} dtp_fused_expr;

#endif
