/* Functions of elements, over nests. Every op is one row of a list below: its name, the attributes
 * that its value calls a and b, its value in device code (elementwise.cuh). From the lists come the
 * numbers of the ops, their kernels and their rows in the kernel table. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_ELEMENTWISE_H
#define DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_ELEMENTWISE_H

#include <cuda_runtime_api.h>

#include "executor/cuda/kernels/nest.h"

/* Of x. NaN stays NaN. */
#define DTP_CUDA_UNARY(OP)                                                                         \
    OP(scale, "factor", NULL, (x * a))                                                             \
    OP(neg, NULL, NULL, -x)                                                                        \
    OP(exp, NULL, NULL, expf(x))                                                                   \
    OP(log, NULL, NULL, logf(x))                                                                   \
    OP(sqrt, NULL, NULL, sqrtf(x))                                                                 \
    OP(rsqrt, NULL, NULL, rsqrtf(x))                                                               \
    OP(square, NULL, NULL, (x * x))                                                                \
    OP(tanh, NULL, NULL, tanhf(x))                                                                 \
    OP(sigmoid, NULL, NULL, dtp_sigmoid(x))                                                        \
    OP(relu, NULL, NULL, x < 0.0f ? 0.0f : x)                                                      \
    OP(gelu, NULL, NULL, (x * dtp_gelu_gate(x)))                                                   \
    OP(erf, NULL, NULL, erff(x))                                                                   \
    OP(gelu_erf, NULL, NULL, (x * dtp_normal_below(x)))                                            \
    OP(silu, NULL, NULL, (x * dtp_sigmoid(x)))                                                     \
    OP(abs, NULL, NULL, fabsf(x))                                                                  \
    OP(sign, NULL, NULL, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x)                                   \
    OP(floor, NULL, NULL, floorf(x))                                                               \
    OP(reciprocal, NULL, NULL, 1.0f / x)                                                           \
    OP(sin, NULL, NULL, sinf(x))                                                                   \
    OP(cos, NULL, NULL, cosf(x))                                                                   \
    OP(log1p, NULL, NULL, log1pf(x))                                                               \
    OP(expm1, NULL, NULL, expm1f(x))                                                               \
    OP(softplus, NULL, NULL, (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x))))                      \
    OP(pow, "exponent", NULL, powf(x, a))                                                          \
    OP(leaky_relu, "slope", NULL, x > 0.0f ? x : a * x)                                            \
    OP(elu, "alpha", NULL, x > 0.0f ? x : a * expm1f(x))                                           \
    OP(clamp, "low", "high", x<a ? a : x> b ? b : x)

/* Of x and y. Gradients: x is the operand of the function or its result, y the cotangent. */
#define DTP_CUDA_BINARY(OP)                                                                        \
    OP(div, NULL, NULL, x / y)                                                                     \
    OP(tanh_grad, NULL, NULL, (y * (1.0f - x * x)))                                                \
    OP(sigmoid_grad, NULL, NULL, (y * x * (1.0f - x)))                                             \
    OP(relu_grad, NULL, NULL, x > 0.0f ? y : 0.0f)                                                 \
    OP(gelu_grad, NULL, NULL, (y * dtp_gelu_slope(x)))                                             \
    OP(silu_grad, NULL, NULL, (y * dtp_silu_slope(x)))                                             \
    OP(erf_grad, NULL, NULL, (y * 1.1283791670955126f * expf(-x * x)))                             \
    OP(gelu_erf_grad, NULL, NULL, (y * dtp_gelu_erf_slope(x)))                                     \
    OP(leaky_relu_grad, "slope", NULL, x > 0.0f ? y : a * y)                                       \
    OP(elu_grad, "alpha", NULL, x > 0.0f ? y : a * expf(x) * y)                                    \
    OP(clamp_grad, "low", "high", x >= a && x <= b ? y : 0.0f)

/* Of floats, where a NaN on either side wins, and of integers, which wrap around. */
#define DTP_CUDA_ARITHMETIC(OP)                                                                    \
    OP(add, x + y, (int64_t)((uint64_t)x + (uint64_t)y))                                           \
    OP(sub, x - y, (int64_t)((uint64_t)x - (uint64_t)y))                                           \
    OP(mul, (x * y), (int64_t)((uint64_t)x * (uint64_t)y))                                         \
    OP(max, dtp_max::of(x, y), x > y ? x : y)                                                      \
    OP(min, dtp_min::of(x, y), x < y ? x : y)                                                      \
    OP(mod, dtp_mod(x, y), dtp_mod(x, y))

/* Of truth values. */
#define DTP_CUDA_LOGICAL(OP)                                                                       \
    OP(logical_and, x != 0 && y != 0)                                                              \
    OP(logical_or, x != 0 || y != 0)                                                               \
    OP(logical_xor, (x != 0) != (y != 0))                                                          \
    OP(logical_not, x == 0)

/* Choices of `compare`: numbers to truth values. */
#define DTP_CUDA_RELATIONS(OP)                                                                     \
    OP(lt, x < y)                                                                                  \
    OP(le, x <= y)                                                                                 \
    OP(gt, x > y)                                                                                  \
    OP(ge, x >= y)                                                                                 \
    OP(eq, x == y)                                                                                 \
    OP(ne, x != y)

#define DTP_CUDA_OP_NUMBER(op, ...) DTP_CUDA_OP_##op,
typedef enum dtp_cuda_op {
    DTP_CUDA_UNARY(DTP_CUDA_OP_NUMBER) DTP_CUDA_BINARY(DTP_CUDA_OP_NUMBER)
        DTP_CUDA_ARITHMETIC(DTP_CUDA_OP_NUMBER) DTP_CUDA_LOGICAL(DTP_CUDA_OP_NUMBER)
            DTP_CUDA_RELATIONS(DTP_CUDA_OP_NUMBER) DTP_CUDA_OP_cast,
    DTP_CUDA_OP_select
} dtp_cuda_op;

enum { DTP_CUDA_OPERANDS = 3 };

typedef struct dtp_cuda_elementwise_call {
    dtp_cuda_nest nest; /* views: output, operands */
    dtp_cuda_op op;
    int32_t n_in;
    int32_t dtype[1 + DTP_CUDA_OPERANDS]; /* of the output, of the operands */
    float a, b;                           /* attributes */
} dtp_cuda_elementwise_call;

#ifdef __cplusplus
extern "C" {
#endif

/* out = op(in ..) over the nest, which is not empty. An operand may be the output when both are
 * walked alike. */
cudaError_t dtp_cuda_elementwise_run(cudaStream_t queue, const dtp_cuda_elementwise_call *e,
                                     void *out, const void *const in[DTP_CUDA_OPERANDS]);

#ifdef __cplusplus
}
#endif

#endif
