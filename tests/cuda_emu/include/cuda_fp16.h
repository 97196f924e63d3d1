/* IEEE half precision of device code: storage and conversions, rounded to nearest even. Without the
 * short names half and half2, which local variables may have. Nothing in C. */
#ifndef CUDA_EMU_CUDA_FP16_H
#define CUDA_EMU_CUDA_FP16_H

#ifdef __cplusplus

#include "cuda_emu_vector.h"
#include "cuda_runtime.h"

inline unsigned short cuda_emu_float_to_half(float value)
{
    unsigned bits = cuda_emu_bits<unsigned>(value);
    unsigned sign = bits >> 16 & 0x8000u;
    unsigned magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return 0x7fff;
    }
    if (magnitude >= 0x477ff000u) { /* 65520 and more */
        return static_cast<unsigned short>(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* subnormal: the float addition rounds */
        float shifted = cuda_emu_bits<float>(magnitude) + 0.5f;
        return static_cast<unsigned short>(sign | (cuda_emu_bits<unsigned>(shifted) - 0x3f000000u));
    }
    unsigned odd = magnitude >> 13 & 1;
    return static_cast<unsigned short>(sign | ((magnitude + 0xc8000fffu + odd) >> 13));
}
inline float cuda_emu_half_to_float(unsigned short half)
{
    unsigned sign = (half & 0x8000u) << 16;
    unsigned magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) {
        return cuda_emu_bits<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    }
    if (magnitude >= 0x400u) {
        return cuda_emu_bits<float>(sign | ((magnitude << 13) + 0x38000000u));
    }
    float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign ? -value : value;
}

struct alignas(2) __half {
    unsigned short __x;
    __half() = default;
    __half(float value) : __x(cuda_emu_float_to_half(value))
    {
    }
    __half(double value) : __x(cuda_emu_float_to_half(static_cast<float>(value)))
    {
    }
    operator float() const
    {
        return cuda_emu_half_to_float(__x);
    }
};
struct alignas(4) __half2 {
    __half x, y;
};

inline __half __float2half_rn(float value)
{
    return __half(value);
}
inline __half __float2half(float value)
{
    return __half(value);
}
inline float __half2float(__half value)
{
    return cuda_emu_half_to_float(value.__x);
}
inline __half __ushort_as_half(unsigned short bits)
{
    return cuda_emu_bits<__half>(bits);
}
inline unsigned short __half_as_ushort(__half value)
{
    return value.__x;
}
inline __half2 __floats2half2_rn(float x, float y)
{
    return __half2{__half(x), __half(y)};
}
inline float2 __half22float2(__half2 value)
{
    return float2{__half2float(value.x), __half2float(value.y)};
}

#endif
#endif
