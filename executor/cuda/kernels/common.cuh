/* What the kernels share: element types, indices of nests, reductions of warps and blocks,
 * launches. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_COMMON_CUH
#define DTP_EXECUTOR_CUDA_KERNELS_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "dtp/op.h"
#include "executor/cuda/kernels/nest.h"

/* Shared memory of a block: an array of n elements; bytes whose number the launch says. */
#ifndef DTP_SHARED
#define DTP_SHARED(type, name, n) __shared__ type name[n]
#define DTP_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
/* Stores a word of 8 bytes that the host reads meanwhile: a volatile store is whole, for all of the
 * system (PTX: st.volatile is st.relaxed.sys). */
#define DTP_PUT_WORD(dst, word) (*(volatile uint64_t *)(dst) = (word))
#endif

/* Before a loop whose arrays are to stay in registers; before one whose code is to stay small. */
#ifdef __CUDACC__
#define DTP_UNROLL _Pragma("unroll")
#define DTP_ROLL _Pragma("unroll 1")
#else
#define DTP_UNROLL
#define DTP_ROLL
#endif

enum { DTP_CUDA_WARP = 32, DTP_CUDA_BLOCK = 256 };

/* ---- elements ---- */

/* Element i of a float array of any dtype of the backend (f32, bf16, f16), as float; a store rounds
 * to nearest even. */
static __device__ __forceinline__ float dtp_load(const void *data, int dtype, int64_t i)
{
    return dtype == DTP_F32    ? ((const float *)data)[i]
           : dtype == DTP_BF16 ? __bfloat162float(((const __nv_bfloat16 *)data)[i])
                               : __half2float(((const __half *)data)[i]);
}

static __device__ __forceinline__ void dtp_store(void *data, int dtype, int64_t i, float value)
{
    if (dtype == DTP_F32) {
        ((float *)data)[i] = value;
    } else if (dtype == DTP_BF16) {
        ((__nv_bfloat16 *)data)[i] = __float2bfloat16_rn(value);
    } else {
        ((__half *)data)[i] = __float2half_rn(value);
    }
}

/* Element i of an array of i32, i64 or bool. */
static __device__ __forceinline__ int64_t dtp_load_int(const void *data, int dtype, int64_t i)
{
    return dtype == DTP_I32   ? ((const int32_t *)data)[i]
           : dtype == DTP_I64 ? ((const int64_t *)data)[i]
                              : (int64_t)((const uint8_t *)data)[i];
}

static __device__ __forceinline__ void dtp_store_int(void *data, int dtype, int64_t i,
                                                     int64_t value)
{
    if (dtype == DTP_I32) {
        ((int32_t *)data)[i] = (int32_t)(uint32_t)(uint64_t)value;
    } else if (dtype == DTP_I64) {
        ((int64_t *)data)[i] = value;
    } else {
        ((uint8_t *)data)[i] = (uint8_t)(value != 0);
    }
}

/* ---- moments ---- */

/* Of n elements whose sums of x - shift and (x - shift)^2 are s: the mean, and the sum of the
 * squares of what is left. */
struct dtp_moments {
    float mean, squares;
};

static __device__ __forceinline__ dtp_moments dtp_moments_of(float n, float shift,
                                                             const float (&s)[2])
{
    const float d = s[0] / n, squares = s[1] - s[0] * d;
    return {shift + d, squares < 0.0f ? 0.0f : squares};
}

/* ---- indices ---- */

/* Number of this thread, and of all threads, of a launch in one dimension. */
static __device__ __forceinline__ int64_t dtp_thread(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ int64_t dtp_threads(void)
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* Element offsets of the first N views at element `index` of the nest. A division of two numbers
 * below 2^32 takes 32 bits, of others 64 (the compiler's choice at run time). */
template <int N>
static __device__ __forceinline__ void dtp_offsets(const dtp_cuda_nest &nest, int64_t index,
                                                   int64_t (&at)[N])
{
    DTP_UNROLL
    for (int v = 0; v < N; v++) {
        at[v] = 0;
    }
    DTP_ROLL
    for (int i = nest.rank - 1; i > 0; i--) {
        const int64_t rest = index / nest.size[i];
        const int64_t place = index - rest * nest.size[i];
        DTP_UNROLL
        for (int v = 0; v < N; v++) {
            at[v] += place * nest.stride[v][i];
        }
        index = rest;
    }
    DTP_UNROLL
    for (int v = 0; v < N; v++) {
        at[v] += index * nest.stride[v][0];
    }
}

/* Element offset of view v at element `index` of the nest. */
static __device__ __forceinline__ int64_t dtp_offset(const dtp_cuda_nest &nest, int v,
                                                     int64_t index)
{
    int64_t at = 0;
    DTP_ROLL
    for (int i = nest.rank - 1; i > 0; i--) {
        const int64_t rest = index / nest.size[i];
        at += (index - rest * nest.size[i]) * nest.stride[v][i];
        index = rest;
    }
    return at + index * nest.stride[v][0];
}

/* ---- reductions; every thread gets the result ---- */

struct dtp_sum {
    static __device__ __forceinline__ float of(float a, float b)
    {
        return a + b;
    }
    static __device__ __forceinline__ float none(void)
    {
        return 0.0f;
    }
};
/* A NaN on either side stays. */
struct dtp_max {
    static __device__ __forceinline__ float of(float a, float b)
    {
        return a > b || a != a ? a : b;
    }
    static __device__ __forceinline__ float none(void)
    {
        return -INFINITY;
    }
};
struct dtp_min {
    static __device__ __forceinline__ float of(float a, float b)
    {
        return a < b || a != a ? a : b;
    }
    static __device__ __forceinline__ float none(void)
    {
        return INFINITY;
    }
};

template <class Op> static __device__ __forceinline__ float dtp_warp_reduce(float x)
{
    for (int by = DTP_CUDA_WARP / 2; by > 0; by /= 2) {
        x = Op::of(x, __shfl_xor_sync(0xffffffffu, x, by));
    }
    return x;
}

/* Of all threads of a block whose size is a multiple of a warp. Ends with a barrier, so it may be
 * called again. */
template <class Op> static __device__ float dtp_block_reduce(float x)
{
    DTP_SHARED(float, of_warp, DTP_CUDA_WARP);
    const int lane = (int)threadIdx.x % DTP_CUDA_WARP, warps = (int)blockDim.x / DTP_CUDA_WARP;
    x = dtp_warp_reduce<Op>(x);
    if (lane == 0) {
        of_warp[threadIdx.x / DTP_CUDA_WARP] = x;
    }
    __syncthreads();
    x = dtp_warp_reduce<Op>(lane < warps ? of_warp[lane] : Op::none());
    __syncthreads();
    return x;
}

/* ---- errors in data ---- */

/* Sets the error word, unless it is set (dtp_kernel_refuse). */
static __device__ __forceinline__ void dtp_refuse(dtp_error_word *word, dtp_data_error code,
                                                  int32_t operand, int64_t value, int64_t limit)
{
    if (atomicCAS(&word->code, (int)DTP_DATA_OK, (int)code) == (int)DTP_DATA_OK) {
        word->operand = operand;
        word->value = value;
        word->limit = limit;
    }
}

/* ---- launches ---- */

/* Blocks of `block` threads for n elements, `each` per thread, in a grid-stride loop; at least one.
 */
static inline unsigned dtp_grid(int64_t n, unsigned block, int64_t each)
{
    const int64_t per_block = (int64_t)block * each, blocks = (n + per_block - 1) / per_block;
    return blocks < 1 ? 1u : blocks > 65535 ? 65535u : (unsigned)blocks;
}

template <class... P, class... A>
static inline cudaError_t dtp_launch(void (*kernel)(P...), unsigned grid, unsigned block,
                                     size_t shared, cudaStream_t queue, A... args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid);
    config.blockDim = dim3(block);
    config.dynamicSmemBytes = shared;
    config.stream = queue;
    return cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

#endif
