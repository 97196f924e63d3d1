#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include "test_kernels.h"

#ifndef DTP_SHARED
#define DTP_SHARED(type, name, n) __shared__ type name[n]
#define DTP_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

namespace
{

constexpr int threads_of_row = 64;

template <typename... P, typename... A>
cudaError_t launch(void (*kernel)(P...), int blocks, int threads, size_t bytes, cudaStream_t stream,
                   A... arguments)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

__device__ float part_of_row(const float *x, int columns)
{
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < columns; i += threads_of_row) {
        sum += x[static_cast<int>(blockIdx.x) * columns + i];
    }
    return sum;
}

template <int kind>
__global__ void __launch_bounds__(threads_of_row)
    row_sum(const float *__restrict__ x, float *__restrict__ y, int columns)
{
    DTP_SHARED(float, parts, threads_of_row);
    unsigned t = threadIdx.x;
    parts[t] = part_of_row(x, columns);
    if (kind == ROW_SUM_BEYOND && t == 5) {
        parts[threads_of_row] = 1;
    }
    if (kind == ROW_SUM_DIVERGENT && t >= threads_of_row / 2) {
        return;
    }
    if (kind == ROW_SUM_TWO_LINES && t == 7) {
        __syncthreads();
    } else if (kind != ROW_SUM_NO_BARRIER) {
        __syncthreads();
    }
    if (kind == ROW_SUM_LANE_GONE && t < 16) {
        parts[t] += __shfl_xor_sync(0xffffffffu, parts[t], 1);
    }
    for (unsigned half = threads_of_row / 2; half > 0; half /= 2) {
        if (t < half) {
            parts[t] += parts[t + half];
        }
        __syncthreads();
    }
    if (t == 0) {
        y[blockIdx.x] = parts[0];
    }
}

__global__ void row_sum_shuffle(const float *x, float *y, int columns)
{
    DTP_SHARED(float, parts, threads_of_row / 32);
    float sum = part_of_row(x, columns);
    for (int half = 16; half > 0; half /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, static_cast<unsigned>(half));
    }
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        y[blockIdx.x] = parts[0] + parts[1];
    }
}

__global__ void add(float *x, float value, int n)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        x[i] += value;
    }
}

__global__ void copy(const float *x, float *y, int n, int beyond)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n + beyond) {
        y[i] = i < n ? x[i] : 0.0f;
    }
}

__global__ void votes(unsigned *out)
{
    unsigned t = threadIdx.x, lane = t % 32;
    const unsigned every = 0xffffffffu;
    unsigned ballot = __ballot_sync(every, lane % 3 == 0);
    unsigned any = __any_sync(every, lane == 9) ? 1u : 0u;
    unsigned all = __all_sync(every, lane < 31) ? 1u : 0u;
    unsigned sum = t;
    for (int mask = 1; mask < 32; mask *= 2) {
        sum += __shfl_xor_sync(every, sum, mask);
    }
    unsigned third = __shfl_sync(every, t * 10, 3);
    unsigned below = __shfl_up_sync(every, t, 1);
    unsigned above = __shfl_down_sync(every, t, 1, 8);
    unsigned count = static_cast<unsigned>(__syncthreads_count(lane < 4));
    if (lane == 8) {
        unsigned *o = out + t / 32 * 8;
        o[0] = ballot;
        o[1] = any;
        o[2] = all;
        o[3] = sum;
        o[4] = third;
        o[5] = below;
        o[6] = above;
        o[7] = count;
    }
}

template <typename T>
__device__ void wmma_product(const unsigned short *a, const unsigned short *b, float *c,
                             bool assumed)
{
    namespace w = nvcuda::wmma;
    w::fragment<w::matrix_a, 16, 16, 16, T, w::row_major> fa;
    w::fragment<w::matrix_b, 16, 16, 16, T, w::col_major> fb;
    w::fragment<w::accumulator, 16, 16, 16, float> fc;
    w::load_matrix_sync(fa, reinterpret_cast<const T *>(a), 16);
    w::load_matrix_sync(fb, reinterpret_cast<const T *>(b), 16);
    w::fill_fragment(fc, 0.0f);
    w::mma_sync(fc, fa, fb, fc);
    if (assumed) {
        for (int i = 0; i < fc.num_elements; i++) {
            c[static_cast<int>(threadIdx.x) * fc.num_elements + i] = fc.x[i];
        }
        return;
    }
    for (int i = 0; i < fc.num_elements; i++) {
        fc.x[i] *= 2.0f;
    }
    w::store_matrix_sync(c, fc, 16, w::mem_row_major);
}

__global__ void wmma_bf16(const unsigned short *a, const unsigned short *b, float *c, bool assumed)
{
    wmma_product<__nv_bfloat16>(a, b, c, assumed);
}

__global__ void wmma_half(const unsigned short *a, const unsigned short *b, float *c)
{
    wmma_product<__half>(a, b, c, false);
}

__global__ void wmma_tf32(const float *a, const float *b, float *c)
{
    namespace w = nvcuda::wmma;
    w::fragment<w::matrix_a, 16, 16, 8, w::precision::tf32, w::row_major> fa;
    w::fragment<w::matrix_b, 16, 16, 8, w::precision::tf32, w::row_major> fb;
    w::fragment<w::accumulator, 16, 16, 8, float> fc;
    w::load_matrix_sync(fa, a, 8);
    w::load_matrix_sync(fb, b, 16);
    for (int i = 0; i < fa.num_elements; i++) {
        fa.x[i] = w::__float_to_tf32(fa.x[i]);
        fb.x[i] = w::__float_to_tf32(fb.x[i]);
    }
    w::fill_fragment(fc, 0.0f);
    w::mma_sync(fc, fa, fb, fc);
    w::store_matrix_sync(c, fc, 16, w::mem_col_major);
}

__global__ void dynamic(float *y, int n)
{
    DTP_DYNAMIC_SHARED(bytes);
    float *x = reinterpret_cast<float *>(bytes);
    int t = static_cast<int>(threadIdx.x), all = static_cast<int>(blockDim.x);
    for (int i = t; i < n; i += all) {
        x[i] = static_cast<float>(i);
    }
    __syncthreads();
    for (int i = t; i < n; i += all) {
        y[i] = x[n - 1 - i];
    }
}

#ifdef CUDA_EMU
__global__ void too_much_static(float *y)
{
    DTP_SHARED(float, x, 12 * 1024 + 1);
    x[threadIdx.x] = 1;
    y[threadIdx.x] = x[threadIdx.x];
}
#endif

__global__ void uninitialised(float *y)
{
    DTP_SHARED(float, x, 32);
    y[threadIdx.x] = x[threadIdx.x];
}

__global__ void atomics(int *counter, unsigned *most)
{
    atomicAdd(counter, 1);
    atomicMax(most, blockIdx.x * blockDim.x + threadIdx.x);
}

__global__ void reductions(int *out)
{
    int value = static_cast<int>(threadIdx.x) % 5 - 2, *o = out + threadIdx.x * 4;
    o[0] = __reduce_add_sync(0xffffffffu, value);
    o[1] = __reduce_max_sync(0xffffffffu, value);
    o[2] = __reduce_min_sync(0xffffffffu, value);
    o[3] = static_cast<int>(__match_any_sync(0xffffffffu, value));
}

__global__ void integers(const float *x, int *out, int n)
{
    int i = static_cast<int>(threadIdx.x);
    if (i < n) {
        out[i * 3] = __float2int_rn(x[i]);
        out[i * 3 + 1] = __float2int_rd(x[i]);
        out[i * 3 + 2] = __float2int_rn(1000.0f * sinpif(x[i]));
    }
}

__global__ void trap()
{
    __syncthreads();
    if (threadIdx.x == 9) {
        __trap();
    }
    __syncthreads();
}

__global__ void empty()
{
}

__global__ void barriers(int n)
{
    for (int i = 0; i < n; i++) {
        __syncthreads();
    }
}

__global__ void convert(const float *x, unsigned short *bf16, unsigned short *fp16, int n)
{
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        bf16[i] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));
        fp16[i] = __half_as_ushort(__float2half_rn(x[i]));
    }
}

int blocks_of(int n)
{
    return (n + 127) / 128;
}

} // namespace

cudaError_t test_row_sum(enum row_sum_kind kind, const float *x, float *y, int rows, int columns,
                         cudaStream_t stream)
{
    void (*kernel)(const float *, float *, int) =
        kind == ROW_SUM_SHARED       ? row_sum<ROW_SUM_SHARED>
        : kind == ROW_SUM_SHUFFLE    ? row_sum_shuffle
        : kind == ROW_SUM_NO_BARRIER ? row_sum<ROW_SUM_NO_BARRIER>
        : kind == ROW_SUM_DIVERGENT  ? row_sum<ROW_SUM_DIVERGENT>
        : kind == ROW_SUM_TWO_LINES  ? row_sum<ROW_SUM_TWO_LINES>
        : kind == ROW_SUM_BEYOND     ? row_sum<ROW_SUM_BEYOND>
                                     : row_sum<ROW_SUM_LANE_GONE>;
    return launch(kernel, rows, threads_of_row, 0, stream, x, y, columns);
}

cudaError_t test_add(float *x, float value, int n, cudaStream_t stream)
{
    return launch(add, blocks_of(n), 128, 0, stream, x, value, n);
}

cudaError_t test_copy(const float *x, float *y, int n, int beyond, cudaStream_t stream)
{
    return launch(copy, blocks_of(n + beyond), 128, 0, stream, x, y, n, beyond);
}

cudaError_t test_votes(unsigned *out, int warps, cudaStream_t stream)
{
    return launch(votes, 1, warps * 32, 0, stream, out);
}

cudaError_t test_wmma_bf16(const unsigned short *a, const unsigned short *b, float *c,
                           cudaStream_t stream)
{
    return launch(wmma_bf16, 1, 32, 0, stream, a, b, c, false);
}

cudaError_t test_wmma_assumed(const unsigned short *a, const unsigned short *b, float *c,
                              cudaStream_t stream)
{
    return launch(wmma_bf16, 1, 32, 0, stream, a, b, c, true);
}

cudaError_t test_wmma_half(const unsigned short *a, const unsigned short *b, float *c,
                           cudaStream_t stream)
{
    return launch(wmma_half, 1, 32, 0, stream, a, b, c);
}

cudaError_t test_wmma_tf32(const float *a, const float *b, float *c, cudaStream_t stream)
{
    return launch(wmma_tf32, 1, 32, 0, stream, a, b, c);
}

cudaError_t test_dynamic(float *y, int n, size_t bytes, int raise_limit, cudaStream_t stream)
{
    if (raise_limit) {
        cudaError_t error = cudaFuncSetAttribute(
            dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
        if (error != cudaSuccess) {
            return error;
        }
    }
    return launch(dynamic, 1, 64, bytes, stream, y, n);
}

#ifdef CUDA_EMU
cudaError_t test_too_much_static(float *y, cudaStream_t stream)
{
    return launch(too_much_static, 1, 32, 0, stream, y);
}
#endif

cudaError_t test_uninitialised(float *y, cudaStream_t stream)
{
    return launch(uninitialised, 1, 32, 0, stream, y);
}

cudaError_t test_atomics(int *counter, unsigned *most, int blocks, int threads, cudaStream_t stream)
{
    return launch(atomics, blocks, threads, 0, stream, counter, most);
}

cudaError_t test_reductions(int *out, cudaStream_t stream)
{
    return launch(reductions, 1, 32, 0, stream, out);
}

cudaError_t test_integers(const float *x, int *out, int n, cudaStream_t stream)
{
    return launch(integers, 1, 32, 0, stream, x, out, n);
}

cudaError_t test_trap(cudaStream_t stream)
{
    return launch(trap, 2, 32, 0, stream);
}

cudaError_t test_empty(int blocks, int threads, cudaStream_t stream)
{
    return launch(empty, blocks, threads, 0, stream);
}

cudaError_t test_barriers(int blocks, int threads, int n, cudaStream_t stream)
{
    return launch(barriers, blocks, threads, 0, stream, n);
}

cudaError_t test_convert(const float *x, unsigned short *bf16, unsigned short *fp16, int n,
                         cudaStream_t stream)
{
    return launch(convert, blocks_of(n), 128, 0, stream, x, bf16, fp16, n);
}
