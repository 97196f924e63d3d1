/* make_* of the vector types. */
#ifndef CUDA_EMU_VECTOR_H
#define CUDA_EMU_VECTOR_H

#include "vector_types.h"

#define CUDA_EMU_MAKE(T, name)                                                                     \
    inline name##1 make_##name##1(T x)                                                             \
    {                                                                                              \
        return name##1 {x};                                                                        \
    }                                                                                              \
    inline name##2 make_##name##2(T x, T y)                                                        \
    {                                                                                              \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    inline name##3 make_##name##3(T x, T y, T z)                                                   \
    {                                                                                              \
        return name##3 {x, y, z};                                                                  \
    }                                                                                              \
    inline name##4 make_##name##4(T x, T y, T z, T w)                                              \
    {                                                                                              \
        return name##4 {x, y, z, w};                                                               \
    }
CUDA_EMU_MAKE(signed char, char)
CUDA_EMU_MAKE(unsigned char, uchar)
CUDA_EMU_MAKE(short, short)
CUDA_EMU_MAKE(unsigned short, ushort)
CUDA_EMU_MAKE(int, int)
CUDA_EMU_MAKE(unsigned int, uint)
CUDA_EMU_MAKE(long long, longlong)
CUDA_EMU_MAKE(unsigned long long, ulonglong)
CUDA_EMU_MAKE(float, float)
CUDA_EMU_MAKE(double, double)
#undef CUDA_EMU_MAKE

#endif
