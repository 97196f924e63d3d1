/* Functions of elements, over nests. Every op is one row of a list below: its name and its value
 * in device code (elementwise.cuh); a and b are the float attributes of the op. From the lists come
 * the numbers of the ops, their kernels and their rows in the kernel table. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_ELEMENTWISE_H
#define DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_ELEMENTWISE_H

#include <cuda_runtime_api.h>

#include "executor/cuda/kernels/nest.h"

/* Of x. NaN stays NaN. */
#define DTP_CUDA_UNARY(OP)                                                                         \
    OP(scale, (x * a))                                                                             \
    OP(neg, -x)                                                                                    \
    OP(exp, expf(x))                                                                               \
    OP(log, logf(x))                                                                               \
    OP(sqrt, sqrtf(x))                                                                             \
    OP(rsqrt, rsqrtf(x))                                                                           \
    OP(square, (x * x))                                                                            \
    OP(tanh, tanhf(x))                                                                             \
    OP(sigmoid, dtp_sigmoid(x))                                                                    \
    OP(relu, x < 0.0f ? 0.0f : x)                                                                  \
    OP(gelu, (x * dtp_gelu_gate(x)))                                                               \
    OP(erf, erff(x))                                                                               \
    OP(gelu_erf, (x * dtp_normal_below(x)))                                                        \
    OP(silu, (x * dtp_sigmoid(x)))                                                                 \
    OP(abs, fabsf(x))                                                                              \
    OP(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x)                                               \
    OP(floor, floorf(x))                                                                           \
    OP(reciprocal, 1.0f / x)                                                                       \
    OP(sin, sinf(x))                                                                               \
    OP(cos, cosf(x))                                                                               \
    OP(log1p, log1pf(x))                                                                           \
    OP(expm1, expm1f(x))                                                                           \
    OP(softplus, (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x))))                                  \
    OP(pow, powf(x, a))                                                                            \
    OP(leaky_relu, x > 0.0f ? x : a * x)                                                           \
    OP(elu, x > 0.0f ? x : a * expm1f(x))                                                          \
    OP(clamp, x<a ? a : x> b ? b : x)

/* Of x and y. Gradients: x is the operand of the function or its result, y the cotangent. */
#define DTP_CUDA_BINARY(OP)                                                                        \
    OP(div, x / y)                                                                                 \
    OP(tanh_grad, (y * (1.0f - x * x)))                                                            \
    OP(sigmoid_grad, (y * x * (1.0f - x)))                                                         \
    OP(relu_grad, x > 0.0f ? y : 0.0f)                                                             \
    OP(gelu_grad, (y * dtp_gelu_slope(x)))                                                         \
    OP(silu_grad, (y * dtp_silu_slope(x)))                                                         \
    OP(erf_grad, (y * 1.1283791670955126f * expf(-x * x)))                                         \
    OP(gelu_erf_grad, (y * dtp_gelu_erf_slope(x)))                                                 \
    OP(leaky_relu_grad, x > 0.0f ? y : a * y)                                                      \
    OP(elu_grad, x > 0.0f ? y : a * expf(x) * y)                                                   \
    OP(clamp_grad, x >= a && x <= b ? y : 0.0f)                                                    \
    OP(quantize_e4m3, dtp_quantized(x, y, 8, 121, 3))                                              \
    OP(quantize_e5m2, dtp_quantized(x, y, 15, 113, 2))                                             \
    OP(in_training, x)                                                                             \
    OP(follow, y)

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

/* `compare`, in the order of the choices of "cmp": numbers to truth values. */
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
