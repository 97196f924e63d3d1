/* Vector types of CUDA with its sizes and alignments. */
#ifndef CUDA_EMU_VECTOR_TYPES_H
#define CUDA_EMU_VECTOR_TYPES_H

#define CUDA_EMU_VECTORS(T, name, a2, a4)                                                          \
    typedef struct name##1                                                                         \
    {                                                                                              \
        T x;                                                                                       \
    }                                                                                              \
    name##1;                                                                                       \
    typedef struct __attribute__((aligned(a2))) name##2                                            \
    {                                                                                              \
        T x, y;                                                                                    \
    }                                                                                              \
    name##2;                                                                                       \
    typedef struct name##3                                                                         \
    {                                                                                              \
        T x, y, z;                                                                                 \
    }                                                                                              \
    name##3;                                                                                       \
    typedef struct __attribute__((aligned(a4))) name##4                                            \
    {                                                                                              \
        T x, y, z, w;                                                                              \
    }                                                                                              \
    name##4;

CUDA_EMU_VECTORS(signed char, char, 2, 4)
CUDA_EMU_VECTORS(unsigned char, uchar, 2, 4)
CUDA_EMU_VECTORS(short, short, 4, 8)
CUDA_EMU_VECTORS(unsigned short, ushort, 4, 8)
CUDA_EMU_VECTORS(int, int, 8, 16)
CUDA_EMU_VECTORS(unsigned int, uint, 8, 16)
CUDA_EMU_VECTORS(long long, longlong, 16, 16)
CUDA_EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
CUDA_EMU_VECTORS(float, float, 8, 16)
CUDA_EMU_VECTORS(double, double, 16, 16)
#undef CUDA_EMU_VECTORS

typedef struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
#endif
} dim3;

#endif
