/* Elements of every dtype as double: conversions between any two, and numbers into any. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_CONVERT_CUH
#define DTP_EXECUTOR_CUDA_KERNELS_CONVERT_CUH

#include "executor/cuda/kernels/common.cuh"

static __device__ __forceinline__ bool dtp_is_int(int dtype)
{
    return dtype == DTP_I32 || dtype == DTP_I64 || dtype == DTP_BOOL;
}

static __device__ __forceinline__ double dtp_load_double(const void *data, int dtype, int64_t i)
{
    return dtype == DTP_F64    ? ((const double *)data)[i]
           : dtp_is_int(dtype) ? (double)dtp_load_int(data, dtype, i)
                               : (double)dtp_load(data, dtype, i);
}

/* Truncates to integers, into bool x != 0; rounds to floats once, to nearest even: to 16 bits by
 * way of an f32 that is rounded to odd, which keeps on which side of a tie x is. */
static __device__ __forceinline__ void dtp_store_double(void *data, int dtype, int64_t i, double x)
{
    if (dtype == DTP_F64) {
        ((double *)data)[i] = x;
    } else if (dtype == DTP_BOOL) {
        ((uint8_t *)data)[i] = (uint8_t)(x != 0.0);
    } else if (dtp_is_int(dtype)) {
        dtp_store_int(data, dtype, i, dtype == DTP_I32 ? (int64_t)(int32_t)x : (int64_t)x);
    } else {
        float f = (float)x;
        const uint32_t bits = __float_as_uint(f);
        if (dtype != DTP_F32 && (double)f != x && isfinite(f) && (bits & 1u) == 0) {
            f = __uint_as_float(fabs((double)f) < fabs(x) ? bits + 1u : bits - 1u);
        }
        dtp_store(data, dtype, i, f);
    }
}

#endif
