/* Conversions between f32 and 16-bit floats, in integer arithmetic that vectorises on any
 * processor. Those of f16 follow F. Giesen's "half to float done quick". */
#include "executor/cpu/halves.h"

#include <string.h>

#include "executor/cpu/simd.h"

DTP_CPU_INLINE float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

DTP_CPU_INLINE uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

DTP_CPU_INLINE float from_bf16(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

DTP_CPU_INLINE uint16_t to_bf16(float f)
{
    const uint32_t u = bits_of(f);
    const uint32_t even = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16, nan = (u >> 16) | 0x40u;
    return (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? nan : even);
}

DTP_CPU_INLINE float from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = (uint32_t)(h & 0x7FFFu) << 13;
    const uint32_t exponent = rest & (31u << 23);
    const uint32_t normal = rest + (exponent == 31u << 23 ? 224u << 23 : 112u << 23);
    /* Subnormal: 2^-14 (1 + m) - 2^-14. */
    const float small = float_of(rest + (113u << 23)) - float_of(113u << 23);
    return float_of(sign | (exponent == 0 ? bits_of(small) : normal));
}

DTP_CPU_INLINE uint16_t to_f16(float f)
{
    const uint32_t u = bits_of(f), sign = u >> 16 & 0x8000u, a = u & 0x7FFFFFFFu;
    const uint32_t nan = 0x7E00u, inf = 0x7C00u;
    /* The exponent's bias and rounding; a carry into infinity is right. */
    const uint32_t normal = (a - (112u << 23) + 0xFFFu + (a >> 13 & 1u)) >> 13;
    /* Subnormal: adding 0.5 leaves what counts in the last bits, rounded. */
    const uint32_t small = bits_of(float_of(a) + 0.5f) - (126u << 23);
    const uint32_t finite = a < 113u << 23 ? small : normal;
    const uint32_t large = a > 255u << 23 ? nan : inf;
    return (uint16_t)(sign | (a >= 143u << 23 ? large : finite));
}

#define CONVERSIONS(type)                                                                          \
    DTP_CPU_CLONES static void widen_##type(int64_t n, const uint16_t *restrict x,                 \
                                            float *restrict y)                                     \
    {                                                                                              \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            y[i] = from_##type(x[i]);                                                              \
        }                                                                                          \
    }                                                                                              \
    DTP_CPU_CLONES static void narrow_##type(int64_t n, const float *restrict x,                   \
                                             uint16_t *restrict y)                                 \
    {                                                                                              \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                        \
        {                                                                                          \
            y[i] = to_##type(x[i]);                                                                \
        }                                                                                          \
    }

CONVERSIONS(bf16)
CONVERSIONS(f16)

float dtp_float_at(dtp_dtype dtype, const void *data, int64_t index)
{
    return dtype == DTP_F32    ? ((const float *)data)[index]
           : dtype == DTP_BF16 ? from_bf16(((const uint16_t *)data)[index])
                               : from_f16(((const uint16_t *)data)[index]);
}

void dtp_float_put(dtp_dtype dtype, void *data, int64_t index, float value)
{
    if (dtype == DTP_F32) {
        ((float *)data)[index] = value;
    } else {
        ((uint16_t *)data)[index] = dtype == DTP_BF16 ? to_bf16(value) : to_f16(value);
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
