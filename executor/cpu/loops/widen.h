/* bf16 and f16 as bit patterns, to f32 and back. Branch-free, so that loops vectorise; the same
 * bits as dtp_convert (executor/device/convert.h). */
#ifndef DTP_EXECUTOR_CPU_LOOPS_WIDEN_H
#define DTP_EXECUTOR_CPU_LOOPS_WIDEN_H

#include "executor/cpu/loops/simd.h"

DTP_CPU_INLINE float dtp_float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

DTP_CPU_INLINE uint32_t dtp_bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

DTP_CPU_INLINE float dtp_from_bf16(uint16_t h)
{
    return dtp_float_of_bits((uint32_t)h << 16);
}

/* To nearest, ties to even; a NaN stays a quiet one. */
DTP_CPU_INLINE uint16_t dtp_to_bf16(float f)
{
    const uint32_t bits = dtp_bits_of_float(f);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded);
}

/* The exponent moves from bias 15 to 127; numbers below 2^-14 by subtracting 2^-14 from one with
 * their mantissa. A NaN becomes the quiet one without sign. */
DTP_CPU_INLINE float dtp_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    const float low = dtp_float_of_bits(rest + (113u << 23)) - dtp_float_of_bits(113u << 23);
    const uint32_t normal = rest + (112u << 23);
    uint32_t bits = rest < (1u << 23) ? dtp_bits_of_float(low) : normal;
    bits = rest >= (31u << 23) ? rest + (224u << 23) : bits;
    return dtp_float_of_bits(rest > (31u << 23) ? 0x7fc00000u : sign | bits);
}

/* To nearest, ties to even, beyond 65519 infinity. Below 2^-14 the sum with 0.5 has its last bit at
 * 2^-24, the least f16. */
DTP_CPU_INLINE uint16_t dtp_to_f16(float f)
{
    const uint32_t bits = dtp_bits_of_float(f), sign = bits >> 16 & 0x8000u;
    const uint32_t rest = bits & 0x7fffffffu;
    const float half = 0.5f;
    const uint32_t low =
        dtp_bits_of_float(dtp_float_of_bits(rest) + half) - dtp_bits_of_float(half);
    const uint32_t normal = (rest - (112u << 23) + 0xfffu + (rest >> 13 & 1u)) >> 13;
    uint32_t h = rest < (113u << 23) ? low : normal;
    h = rest >= (143u << 23) ? 0x7c00u : h;
    return (uint16_t)(sign | (rest > 0x7f800000u ? 0x7e00u : h));
}

#endif
