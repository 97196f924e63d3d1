/* bfloat16 of device code: storage and conversions, rounded to nearest even. Nothing in C. */
#ifndef CUDA_EMU_CUDA_BF16_H
#define CUDA_EMU_CUDA_BF16_H

#ifdef __cplusplus

#include "cuda_emu_vector.h"
#include "cuda_runtime.h"

inline unsigned short cuda_emu_float_to_bf16(float value)
{
    unsigned bits = cuda_emu_bits<unsigned>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fff;
    }
    return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
inline float cuda_emu_bf16_to_float(unsigned short bits)
{
    return cuda_emu_bits<float>(static_cast<unsigned>(bits) << 16);
}

struct alignas(2) __nv_bfloat16 {
    unsigned short __x;
    __nv_bfloat16() = default;
    __nv_bfloat16(float value) : __x(cuda_emu_float_to_bf16(value))
    {
    }
    __nv_bfloat16(double value) : __x(cuda_emu_float_to_bf16(static_cast<float>(value)))
    {
    }
    operator float() const
    {
        return cuda_emu_bf16_to_float(__x);
    }
};
typedef __nv_bfloat16 nv_bfloat16;
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
typedef __nv_bfloat162 nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    return __nv_bfloat16(value);
}
inline __nv_bfloat16 __float2bfloat16(float value)
{
    return __nv_bfloat16(value);
}
inline float __bfloat162float(__nv_bfloat16 value)
{
    return cuda_emu_bf16_to_float(value.__x);
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return cuda_emu_bits<__nv_bfloat16>(bits);
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.__x;
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return __nv_bfloat162{__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline float2 __bfloat1622float2(__nv_bfloat162 value)
{
    return float2{__bfloat162float(value.x), __bfloat162float(value.y)};
}

#endif
#endif
