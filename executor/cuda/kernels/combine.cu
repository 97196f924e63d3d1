#include "executor/cuda/kernels/combine.h"
#include "dtp/layout.h"
#include "executor/cuda/kernels/common.cuh"

static __device__ __forceinline__ int64_t place(const dtp_cuda_part &part, int64_t i)
{
    return part.start + i / part.run * part.stride + i % part.run;
}

/* ---- element types: loads to and stores from the type that is computed in ---- */

template <class T> struct same {
    typedef T element, wide;
    static __device__ __forceinline__ T load(T x)
    {
        return x;
    }
    static __device__ __forceinline__ T store(T x)
    {
        return x;
    }
};
struct bf16 {
    typedef __nv_bfloat16 element;
    typedef float wide;
    static __device__ __forceinline__ float load(__nv_bfloat16 x)
    {
        return __bfloat162float(x);
    }
    static __device__ __forceinline__ __nv_bfloat16 store(float x)
    {
        return __float2bfloat16_rn(x);
    }
};
struct f16 {
    typedef __half element;
    typedef float wide;
    static __device__ __forceinline__ float load(__half x)
    {
        return __half2float(x);
    }
    static __device__ __forceinline__ __half store(float x)
    {
        return __float2half_rn(x);
    }
};
struct boolean {
    typedef uint8_t element;
    typedef bool wide;
    static __device__ __forceinline__ bool load(uint8_t x)
    {
        return x != 0;
    }
    static __device__ __forceinline__ uint8_t store(bool x)
    {
        return x ? 1 : 0;
    }
};

/* ---- operations ---- */

template <class W> static __device__ __forceinline__ W sum(W a, W b)
{
    return a + b;
}
template <class W> static __device__ __forceinline__ W product(W a, W b)
{
    return a * b;
}
/* Integers wrap around. */
static __device__ __forceinline__ int32_t sum(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}
static __device__ __forceinline__ int64_t sum(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static __device__ __forceinline__ int32_t product(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a * (uint32_t)b);
}
static __device__ __forceinline__ int64_t product(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* A NaN on either side of MIN and MAX stays. */
template <class W> static __device__ __forceinline__ W apply(int op, W a, W b)
{
    switch (op) {
    case DTP_REDUCE_SUM:
        return sum(a, b);
    case DTP_REDUCE_PROD:
        return product(a, b);
    case DTP_REDUCE_MIN:
        return b < a || b != b ? b : a;
    default:
        return b > a || b != b ? b : a;
    }
}
static __device__ __forceinline__ bool apply(int op, bool a, bool b)
{
    return op == DTP_REDUCE_MAX ? a || b : a && b;
}

template <class F>
static __global__ void combine_kernel(int op, int64_t count, dtp_cuda_part from, dtp_cuda_members m)
{
    typedef typename F::element T;
    for (int64_t i = dtp_thread(); i < count; i += dtp_threads()) {
        const int64_t at = place(from, i);
        typename F::wide acc = F::load(((const T *)m.in[0])[at]);
        for (int j = 1; j < m.n_in; j++) {
            acc = F::load(F::store(apply(op, acc, F::load(((const T *)m.in[j])[at]))));
        }
        for (int j = 0; j < m.n_out; j++) {
            ((T *)m.out[j])[i] = F::store(acc);
        }
    }
}

template <class F>
static cudaError_t combine(cudaStream_t queue, int32_t op, int64_t count, const dtp_cuda_part *from,
                           const dtp_cuda_members *members)
{
    return dtp_launch(combine_kernel<F>, dtp_grid(count, DTP_CUDA_BLOCK, 4), DTP_CUDA_BLOCK, 0,
                      queue, op, count, *from, *members);
}

cudaError_t dtp_cuda_combine(cudaStream_t queue, int32_t dtype, int32_t op, int64_t count,
                             const dtp_cuda_part *from, const dtp_cuda_members *members)
{
    switch (dtype) {
    case DTP_F32:
        return combine<same<float>>(queue, op, count, from, members);
    case DTP_F64:
        return combine<same<double>>(queue, op, count, from, members);
    case DTP_I32:
        return combine<same<int32_t>>(queue, op, count, from, members);
    case DTP_I64:
        return combine<same<int64_t>>(queue, op, count, from, members);
    case DTP_BOOL:
        return combine<boolean>(queue, op, count, from, members);
    case DTP_BF16:
        return combine<bf16>(queue, op, count, from, members);
    default:
        return combine<f16>(queue, op, count, from, members);
    }
}

/* ---- keys ---- */

static __device__ __forceinline__ int32_t bits_of(float x)
{
    return (int32_t)__float_as_uint(x);
}
static __device__ __forceinline__ int64_t bits_of(double x)
{
    return (int64_t)__double_as_longlong(x);
}
static __device__ __forceinline__ float float_of(int32_t bits)
{
    return __uint_as_float((uint32_t)bits);
}
static __device__ __forceinline__ double float_of(int64_t bits)
{
    return __longlong_as_double(bits);
}

/* Grows with the float; its own inverse. K: integers of the width of the float. */
template <class K> static __device__ __forceinline__ K ordered(K bits)
{
    const K most = (K)(~(K)0 ^ ((K)1 << (8 * sizeof(K) - 1)));
    return bits < 0 ? bits ^ most : bits;
}

template <class K> static __device__ __forceinline__ K key_of_nan(int op)
{
    const K most = (K)(~(K)0 ^ ((K)1 << (8 * sizeof(K) - 1)));
    return op == DTP_REDUCE_MAX ? most : ~most;
}

template <class F, class K>
static __global__ void to_keys_kernel(int op, int64_t count, const typename F::element *from,
                                      K *keys)
{
    for (int64_t i = dtp_thread(); i < count; i += dtp_threads()) {
        const typename F::wide x = F::load(from[i]);
        keys[i] = x != x ? key_of_nan<K>(op) : ordered(bits_of(x));
    }
}

template <class F, class K>
static __global__ void from_keys_kernel(int op, int64_t count, const K *keys,
                                        typename F::element *to)
{
    for (int64_t i = dtp_thread(); i < count; i += dtp_threads()) {
        const K key = keys[i];
        to[i] = F::store(key == key_of_nan<K>(op) ? (typename F::wide)NAN : float_of(ordered(key)));
    }
}

template <class F, class K>
static cudaError_t to_keys(cudaStream_t queue, int op, int64_t count, const void *from, void *keys)
{
    return dtp_launch(to_keys_kernel<F, K>, dtp_grid(count, DTP_CUDA_BLOCK, 4), DTP_CUDA_BLOCK, 0,
                      queue, op, count, (const typename F::element *)from, (K *)keys);
}

template <class F, class K>
static cudaError_t from_keys(cudaStream_t queue, int op, int64_t count, const void *keys, void *to)
{
    return dtp_launch(from_keys_kernel<F, K>, dtp_grid(count, DTP_CUDA_BLOCK, 4), DTP_CUDA_BLOCK, 0,
                      queue, op, count, (const K *)keys, (typename F::element *)to);
}

cudaError_t dtp_cuda_to_keys(cudaStream_t queue, int32_t dtype, int32_t op, int64_t count,
                             const void *from, void *keys)
{
    return dtype == DTP_F32    ? to_keys<same<float>, int32_t>(queue, op, count, from, keys)
           : dtype == DTP_F64  ? to_keys<same<double>, int64_t>(queue, op, count, from, keys)
           : dtype == DTP_BF16 ? to_keys<bf16, int32_t>(queue, op, count, from, keys)
                               : to_keys<f16, int32_t>(queue, op, count, from, keys);
}

cudaError_t dtp_cuda_from_keys(cudaStream_t queue, int32_t dtype, int32_t op, int64_t count,
                               const void *keys, void *to)
{
    return dtype == DTP_F32    ? from_keys<same<float>, int32_t>(queue, op, count, keys, to)
           : dtype == DTP_F64  ? from_keys<same<double>, int64_t>(queue, op, count, keys, to)
           : dtype == DTP_BF16 ? from_keys<bf16, int32_t>(queue, op, count, keys, to)
                               : from_keys<f16, int32_t>(queue, op, count, keys, to);
}

template <class T>
static __global__ void move_kernel(int64_t count, T *to, dtp_cuda_part to_part, const T *from,
                                   dtp_cuda_part from_part)
{
    for (int64_t i = dtp_thread(); i < count; i += dtp_threads()) {
        to[place(to_part, i)] = from[place(from_part, i)];
    }
}

template <class T>
static cudaError_t move(cudaStream_t queue, int64_t count, void *to, const dtp_cuda_part *to_part,
                        const void *from, const dtp_cuda_part *from_part)
{
    return dtp_launch(move_kernel<T>, dtp_grid(count, DTP_CUDA_BLOCK, 4), DTP_CUDA_BLOCK, 0, queue,
                      count, (T *)to, *to_part, (const T *)from, *from_part);
}

cudaError_t dtp_cuda_move_part(cudaStream_t queue, int32_t elem_bytes, int64_t count, void *to,
                               const dtp_cuda_part *to_part, const void *from,
                               const dtp_cuda_part *from_part)
{
    switch (elem_bytes) {
    case 1:
        return move<uint8_t>(queue, count, to, to_part, from, from_part);
    case 2:
        return move<uint16_t>(queue, count, to, to_part, from, from_part);
    case 4:
        return move<uint32_t>(queue, count, to, to_part, from, from_part);
    default:
        return move<uint64_t>(queue, count, to, to_part, from, from_part);
    }
}
