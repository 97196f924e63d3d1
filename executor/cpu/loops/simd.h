/* Building blocks of vectorised f32 loops.
 *
 * Hot loops are functions on plain pointers marked DTP_CPU_CLONES (core/base/clones.h). Loops
 * inside carry `omp simd`. Floating point stays IEEE (no -ffast-math); executor/CMakeLists.txt
 * allows fused multiply-adds, so the copies differ by them.
 *
 * Math functions here are branch-free, so that loops around them vectorise. */
#ifndef DTP_EXECUTOR_CPU_LOOPS_SIMD_H
#define DTP_EXECUTOR_CPU_LOOPS_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/base/clones.h"

#if defined(__GNUC__)
#define DTP_CPU_INLINE static inline __attribute__((always_inline))
#else
#define DTP_CPU_INLINE static inline
#endif

/* 2^k for -127 < k < 128. */
DTP_CPU_INLINE float dtp_simd_pow2(uint32_t k)
{
    uint32_t bits = (k + 127u) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* exp(x), error below 1.5 ulp; inf and underflow to 0 as expf, NaN stays NaN. x = k ln 2 + r with
 * |r| <= ln 2 / 2, k found by adding 1.5 * 2^23 (round to nearest); ln 2 in two parts; polynomial
 * of Cephes' expf; the factor 2^k is applied in two halves, so that k may reach 128 and denormals.
 */
DTP_CPU_INLINE float dtp_simd_exp(float x)
{
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    const float shift = 12582912.0f;
    float t = x * 1.44269504088896341f + shift;
    uint32_t k;
    memcpy(&k, &t, sizeof k);
    k -= 0x4B400000u;
    float n = t - shift;
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    uint32_t sign = k & 0x80000000u;
    uint32_t half = (k >> 1) | sign;
    return p * dtp_simd_pow2(half) * dtp_simd_pow2(k - half);
}

/* The larger, the smaller of two; NaN when one is. */
DTP_CPU_INLINE float dtp_larger(float a, float b)
{
    return a >= b || a != a ? a : b;
}

DTP_CPU_INLINE float dtp_smaller(float a, float b)
{
    return a <= b || a != a ? a : b;
}

/* 1 / (1 + exp(-x)). */
DTP_CPU_INLINE float dtp_simd_sigmoid(float x)
{
    return 1.0f / (1.0f + dtp_simd_exp(-x));
}

/* tanh(x), error below 3 ulp: Cephes' odd polynomial for |x| < 0.625, else 1 - 2 / (exp(2|x|) + 1)
 * with the sign of x. */
DTP_CPU_INLINE float dtp_simd_tanh(float x)
{
    float a = fabsf(x);
    float big = 1.0f - 2.0f / (dtp_simd_exp(a + a) + 1.0f);
    big = copysignf(big, x);
    float z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float small = p * z * x + x;
    return a < 0.625f ? small : big;
}

/* erf(x), error below 2 ulp: an odd polynomial for |x| < 0.9277, else 1 - exp(a polynomial of |x|)
 * with the sign of x; minimax coefficients. */
DTP_CPU_INLINE float dtp_simd_erf(float x)
{
    float a = fabsf(x);
    a = a > 4.0f ? 4.0f : a;
    const float z = a * a;
    float q = (-1.72853470e-5f * a + 3.83197126e-4f) * z + (-3.88396438e-3f * a + 2.42546219e-2f);
    q = q * a - 1.06777877e-1f;
    q = q * a - 6.34846687e-1f;
    q = q * a - 1.28717512e-1f;
    const float big = copysignf(1.0f - dtp_simd_exp(q * a - a), x);
    float p = -5.96761703e-4f;
    p = p * z + 4.99119423e-3f;
    p = p * z - 2.67681349e-2f;
    p = p * z + 1.12819925e-1f;
    p = p * z - 3.76125336e-1f;
    p = p * z + 1.28379166e-1f;
    return a > 0.927734375f ? big : p * x + x;
}

#endif
