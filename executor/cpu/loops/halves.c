/* 16-bit floats in kernels that compute in f32: elements are widened, a block or row at a time,
 * and results are rounded to nearest even once. */
#include "executor/cpu/loops/halves.h"

#include "executor/cpu/loops/widen.h"

#define CONVERSIONS(type)                                                                          \
    DTP_CPU_CLONES static void widen_##type(int64_t n, const uint16_t *restrict x,                 \
                                            float *restrict y)                                     \
    {                                                                                              \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            y[i] = dtp_from_##type(x[i]);                                                          \
        }                                                                                          \
    }                                                                                              \
    DTP_CPU_CLONES static void narrow_##type(int64_t n, const float *restrict x,                   \
                                             uint16_t *restrict y)                                 \
    {                                                                                              \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            y[i] = dtp_to_##type(x[i]);                                                            \
        }                                                                                          \
    }

CONVERSIONS(bf16)
CONVERSIONS(f16)

float dtp_float_at(dtp_dtype dtype, const void *data, int64_t index)
{
    return dtype == DTP_F32    ? ((const float *)data)[index]
           : dtype == DTP_BF16 ? dtp_from_bf16(((const uint16_t *)data)[index])
                               : dtp_from_f16(((const uint16_t *)data)[index]);
}

void dtp_float_put(dtp_dtype dtype, void *data, int64_t index, float value)
{
    if (dtype == DTP_F32) {
        ((float *)data)[index] = value;
    } else {
        ((uint16_t *)data)[index] = dtype == DTP_BF16 ? dtp_to_bf16(value) : dtp_to_f16(value);
    }
}

void dtp_widen(dtp_dtype dtype, int64_t n, const void *src, int64_t step, float *dst)
{
    if (step == 1) {
        (dtype == DTP_BF16 ? widen_bf16 : widen_f16)(n, src, dst);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        dst[i] = dtp_float_at(dtype, src, i * step);
    }
}

void dtp_narrow(dtp_dtype dtype, int64_t n, const float *src, void *dst, int64_t step)
{
    if (step == 1) {
        (dtype == DTP_BF16 ? narrow_bf16 : narrow_f16)(n, src, dst);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        dtp_float_put(dtype, dst, i * step, src[i]);
    }
}

const float *dtp_floats(dtp_dtype dtype, int64_t n, const void *data, int64_t at, float *buffer)
{
    if (dtype == DTP_F32) {
        return (const float *)data + at;
    }
    dtp_widen(dtype, n, (const uint16_t *)data + at, 1, buffer);
    return buffer;
}
