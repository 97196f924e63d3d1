/* The values of elementwise.h in device code, for one element and for groups. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_ELEMENTWISE_CUH
#define DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_ELEMENTWISE_CUH

#include "executor/cuda/kernels/elementwise/elementwise.h"
#include "executor/cuda/kernels/vector.cuh"

static __device__ __forceinline__ float dtp_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static __device__ __forceinline__ float dtp_silu_slope(float x)
{
    const float s = dtp_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

/* gelu(x) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), which equals 0.5 x (1 + tanh u). */
static __device__ __forceinline__ float dtp_gelu_gate(float x)
{
    return dtp_sigmoid(x * (1.5957691216057308f + 0.07135481282742617f * x * x));
}

static __device__ __forceinline__ float dtp_gelu_slope(float x)
{
    const float s = dtp_gelu_gate(x);
    return s + x * s * (1.0f - s) * (1.5957691216057308f + 0.21406443848227851f * x * x);
}

/* The share of a standard normal below x; the slope of x times it. */
static __device__ __forceinline__ float dtp_normal_below(float x)
{
    return 0.5f + 0.5f * erff(x * 0.70710678118654752f);
}

static __device__ __forceinline__ float dtp_gelu_erf_slope(float x)
{
    return dtp_normal_below(x) + x * 0.3989422804014327f * expf(-0.5f * x * x);
}

static __device__ __forceinline__ float dtp_mod(float x, float y)
{
    const float r = fmodf(x, y);
    return r != 0.0f && (r < 0.0f) != (y < 0.0f) ? r + y : r == 0.0f ? copysignf(r, y) : r;
}

/* By 0: 0. -1 is apart, as the least integer has no opposite. */
static __device__ __forceinline__ int64_t dtp_mod(int64_t x, int64_t y)
{
    const int64_t r = y == 0 || y == -1 ? 0 : x % y;
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

/* As quantized() of executor/cpu/elementwise.c. */
static __device__ __forceinline__ float dtp_quantized(float x, float amax, uint32_t top,
                                                      uint32_t least, uint32_t digits)
{
    const uint32_t size = __float_as_uint(amax) & 0x7fffffffu, floor = 0x2b800000u; /* 2^-40 */
    const uint32_t back = (((size < floor ? floor : size) + 0x1fffffu) >> 23) - top;
    const float most = __uint_as_float((127u + top) << 23 | 0x600000u);
    float t = x * __uint_as_float((254u - back) << 23);
    t = t > most ? most : t;
    t = t < -most ? -most : t;
    uint32_t unit = __float_as_uint(t) & 0x7f800000u;
    unit = unit < least << 23 ? least << 23 : unit;
    const float shift = __uint_as_float((unit + ((23u - digits) << 23)) | 0x400000u);
    const float scale = __uint_as_float(size < 0x7f800000u ? back << 23 : 0x7fc00000u);
    return copysignf((t + shift) - shift, x) * scale;
}

/* r = op(x, y) for V elements, of a class of ops: C is what they compute in. */
#define DTP_CUDA_CASE(op, value)                                                                   \
    case DTP_CUDA_OP_##op:                                                                         \
        DTP_UNROLL                                                                                 \
        for (int j = 0; j < V; j++) {                                                              \
            const C x = xs[j], y = ys[j];                                                          \
            (void)x, (void)y;                                                                      \
            r[j] = (C)(value);                                                                     \
        }                                                                                          \
        break;
#define DTP_CUDA_FLOAT_CASE(op, value, int_value) DTP_CUDA_CASE(op, value)
#define DTP_CUDA_INT_CASE(op, value, int_value) DTP_CUDA_CASE(op, int_value)

/* Floats to floats. */
struct dtp_functions {
    typedef float C;
    template <int V>
    static __device__ __forceinline__ void of(dtp_cuda_op op, const C (&xs)[V], const C (&ys)[V],
                                              float a, float b, C (&r)[V])
    {
        switch (op) {
            DTP_CUDA_UNARY(DTP_CUDA_CASE)
            DTP_CUDA_BINARY(DTP_CUDA_CASE)
            DTP_CUDA_ARITHMETIC(DTP_CUDA_FLOAT_CASE)
        default:
            break;
        }
    }
};

/* Integers to integers, truth values to truth values. */
struct dtp_int_functions {
    typedef int64_t C;
    template <int V>
    static __device__ __forceinline__ void of(dtp_cuda_op op, const C (&xs)[V], const C (&ys)[V],
                                              float, float, C (&r)[V])
    {
        switch (op) {
            DTP_CUDA_ARITHMETIC(DTP_CUDA_INT_CASE)
            DTP_CUDA_LOGICAL(DTP_CUDA_CASE)
        default:
            break;
        }
    }
};

/* Numbers to truth values. */
template <class Number> struct dtp_relations {
    typedef Number C;
    template <int V>
    static __device__ __forceinline__ void of(dtp_cuda_op op, const C (&xs)[V], const C (&ys)[V],
                                              float, float, C (&r)[V])
    {
        switch (op) {
            DTP_CUDA_RELATIONS(DTP_CUDA_CASE)
        default:
            break;
        }
    }
};

/* A float dtype to another one. */
struct dtp_float_cast {
    typedef float C;
    template <int V>
    static __device__ __forceinline__ void of(dtp_cuda_op, const C (&xs)[V], const C (&)[V], float,
                                              float, C (&r)[V])
    {
        DTP_UNROLL
        for (int j = 0; j < V; j++) {
            r[j] = xs[j];
        }
    }
};

#endif
