/* Math of device code. Functions of CUDA with the names of C come from <math.h>; their errors
 * are those of the host's library, within the bounds that CUDA gives. */
#ifndef CUDA_EMU_MATH_H
#define CUDA_EMU_MATH_H

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

template <typename To, typename From> inline To cuda_emu_bits(From value)
{
    static_assert(sizeof(To) == sizeof(From), "sizes");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}
inline int __float_as_int(float x)
{
    return cuda_emu_bits<int>(x);
}
inline unsigned __float_as_uint(float x)
{
    return cuda_emu_bits<unsigned>(x);
}
inline float __int_as_float(int x)
{
    return cuda_emu_bits<float>(x);
}
inline float __uint_as_float(unsigned x)
{
    return cuda_emu_bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return cuda_emu_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return cuda_emu_bits<double>(x);
}

#define CUDA_EMU_UNARY(T, name, expression)                                                        \
    inline T name(T x)                                                                             \
    {                                                                                              \
        return expression;                                                                         \
    }
#define CUDA_EMU_BINARY(T, name, expression)                                                       \
    inline T name(T x, T y)                                                                        \
    {                                                                                              \
        return expression;                                                                         \
    }
CUDA_EMU_UNARY(float, rsqrtf, 1.0f / sqrtf(x))
CUDA_EMU_UNARY(double, rsqrt, 1.0 / sqrt(x))
CUDA_EMU_UNARY(float, __expf, expf(x))
CUDA_EMU_UNARY(float, __exp10f, powf(10.0f, x))
CUDA_EMU_UNARY(float, __logf, logf(x))
CUDA_EMU_UNARY(float, __log2f, log2f(x))
CUDA_EMU_UNARY(float, __sinf, sinf(x))
CUDA_EMU_UNARY(float, __cosf, cosf(x))
CUDA_EMU_UNARY(float, __tanhf, tanhf(x))
CUDA_EMU_UNARY(float, __frcp_rn, 1.0f / x)
CUDA_EMU_UNARY(float, __fsqrt_rn, sqrtf(x))
CUDA_EMU_UNARY(float, __frsqrt_rn, static_cast<float>(1.0 / sqrt(static_cast<double>(x))))
CUDA_EMU_UNARY(float, __saturatef, x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f)
CUDA_EMU_UNARY(double, __drcp_rn, 1.0 / x)
CUDA_EMU_UNARY(double, __dsqrt_rn, sqrt(x))
CUDA_EMU_BINARY(float, __fadd_rn, x + y)
CUDA_EMU_BINARY(float, __fsub_rn, x - y)
CUDA_EMU_BINARY(float, __fmul_rn, x *y)
CUDA_EMU_BINARY(float, __fdiv_rn, x / y)
CUDA_EMU_BINARY(float, __fdividef, x / y)
CUDA_EMU_BINARY(float, __powf, powf(x, y))
CUDA_EMU_BINARY(double, __dadd_rn, x + y)
CUDA_EMU_BINARY(double, __dsub_rn, x - y)
CUDA_EMU_BINARY(double, __dmul_rn, x *y)
CUDA_EMU_BINARY(double, __ddiv_rn, x / y)
#undef CUDA_EMU_UNARY
#undef CUDA_EMU_BINARY

/* sin and cos of pi x, exact at multiples of 1/2. */
inline void sincospif(float x, float *s, float *c)
{
    double turn = std::fmod(static_cast<double>(x), 2.0);
    double quarter = std::rint(2 * turn);
    double rest = (turn - quarter / 2) * 3.14159265358979323846;
    int q = static_cast<int>(quarter) & 3;
    double sines[] = {std::sin(rest), std::cos(rest), -std::sin(rest), -std::cos(rest)};
    *s = static_cast<float>(sines[q]);
    *c = static_cast<float>(sines[(q + 1) & 3]);
}
inline float sinpif(float x)
{
    float s, c;
    sincospif(x, &s, &c);
    return s;
}
inline float cospif(float x)
{
    float s, c;
    sincospif(x, &s, &c);
    return c;
}
inline float normcdff(float x)
{
    return static_cast<float>(0.5 * std::erfc(-static_cast<double>(x) * 0.70710678118654752440));
}
inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}
inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}
inline void __sincosf(float x, float *s, float *c)
{
    *s = sinf(x);
    *c = cosf(x);
}
#ifndef _GNU_SOURCE
inline void sincosf(float x, float *s, float *c)
{
    *s = sinf(x);
    *c = cosf(x);
}
inline void sincos(double x, double *s, double *c)
{
    *s = sin(x);
    *c = cos(x);
}
#endif

inline unsigned __umulhi(unsigned x, unsigned y)
{
    return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
inline int __mulhi(int x, int y)
{
    return static_cast<int>(static_cast<long long>(x) * y >> 32);
}
__extension__ typedef unsigned __int128 cuda_emu_uint128;
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    return static_cast<unsigned long long>(static_cast<cuda_emu_uint128>(x) * y >> 64);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __clzll(long long x)
{
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline unsigned __brev(unsigned x)
{
    unsigned result = 0;
    for (int i = 0; i < 32; i++) {
        result = result << 1 | (x >> i & 1);
    }
    return result;
}
/* Values beyond the range give its ends, a NaN gives 0. */
template <typename T, typename F> inline T cuda_emu_saturate(F x)
{
    constexpr F two = 2;
    const F end = std::ldexp(two, std::numeric_limits<T>::digits - 1);
    return std::isnan(x)                                         ? 0
           : x >= end                                            ? std::numeric_limits<T>::max()
           : x <= (std::numeric_limits<T>::is_signed ? -end : 0) ? std::numeric_limits<T>::min()
                                                                 : static_cast<T>(x);
}
#define CUDA_EMU_ROUND(T, name, F)                                                                 \
    inline T __##name##_rn(F x)                                                                    \
    {                                                                                              \
        return cuda_emu_saturate<T>(std::rint(x));                                                 \
    }                                                                                              \
    inline T __##name##_rz(F x)                                                                    \
    {                                                                                              \
        return cuda_emu_saturate<T>(std::trunc(x));                                                \
    }                                                                                              \
    inline T __##name##_rd(F x)                                                                    \
    {                                                                                              \
        return cuda_emu_saturate<T>(std::floor(x));                                                \
    }                                                                                              \
    inline T __##name##_ru(F x)                                                                    \
    {                                                                                              \
        return cuda_emu_saturate<T>(std::ceil(x));                                                 \
    }
CUDA_EMU_ROUND(int, float2int, float)
CUDA_EMU_ROUND(unsigned, float2uint, float)
CUDA_EMU_ROUND(long long, float2ll, float)
CUDA_EMU_ROUND(unsigned long long, float2ull, float)
CUDA_EMU_ROUND(int, double2int, double)
CUDA_EMU_ROUND(long long, double2ll, double)
#undef CUDA_EMU_ROUND
#define CUDA_EMU_TO_FLOAT(name, x_type)                                                            \
    inline float __##name##_rn(x_type x)                                                           \
    {                                                                                              \
        return static_cast<float>(x);                                                              \
    }
CUDA_EMU_TO_FLOAT(int2float, int)
CUDA_EMU_TO_FLOAT(uint2float, unsigned)
CUDA_EMU_TO_FLOAT(ll2float, long long)
CUDA_EMU_TO_FLOAT(ull2float, unsigned long long)
CUDA_EMU_TO_FLOAT(double2float, double)
#undef CUDA_EMU_TO_FLOAT

/* Integers compare as they are; floats as fmin and fmax do: a NaN loses. */
#define CUDA_EMU_MIN_MAX(T, R)                                                                     \
    inline T min(T x, R y)                                                                         \
    {                                                                                              \
        return static_cast<T>(x) < static_cast<T>(y) ? static_cast<T>(x) : static_cast<T>(y);      \
    }                                                                                              \
    inline T max(T x, R y)                                                                         \
    {                                                                                              \
        return static_cast<T>(x) > static_cast<T>(y) ? static_cast<T>(x) : static_cast<T>(y);      \
    }
CUDA_EMU_MIN_MAX(int, int)
CUDA_EMU_MIN_MAX(unsigned, unsigned)
CUDA_EMU_MIN_MAX(unsigned, int)
CUDA_EMU_MIN_MAX(long, long)
CUDA_EMU_MIN_MAX(unsigned long, unsigned long)
CUDA_EMU_MIN_MAX(unsigned long, long)
CUDA_EMU_MIN_MAX(long long, long long)
CUDA_EMU_MIN_MAX(unsigned long long, unsigned long long)
CUDA_EMU_MIN_MAX(unsigned long long, long long)
#undef CUDA_EMU_MIN_MAX
inline unsigned min(int x, unsigned y)
{
    return min(static_cast<unsigned>(x), y);
}
inline unsigned max(int x, unsigned y)
{
    return max(static_cast<unsigned>(x), y);
}
#define CUDA_EMU_FLOAT_MIN_MAX(R, T, S)                                                            \
    inline R min(T x, S y)                                                                         \
    {                                                                                              \
        return std::fmin(static_cast<R>(x), static_cast<R>(y));                                    \
    }                                                                                              \
    inline R max(T x, S y)                                                                         \
    {                                                                                              \
        return std::fmax(static_cast<R>(x), static_cast<R>(y));                                    \
    }
CUDA_EMU_FLOAT_MIN_MAX(float, float, float)
CUDA_EMU_FLOAT_MIN_MAX(double, double, double)
CUDA_EMU_FLOAT_MIN_MAX(double, float, double)
CUDA_EMU_FLOAT_MIN_MAX(double, double, float)
#undef CUDA_EMU_FLOAT_MIN_MAX

#endif
