/* Groups of V consecutive elements of a nest: one access to memory where the elements of a view lie
 * side by side and aligned. Typed elements and their conversion. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_VECTOR_CUH
#define DTP_EXECUTOR_CUDA_KERNELS_VECTOR_CUH

#include "executor/cuda/kernels/common.cuh"

/* ---- elements ---- */

static __device__ __forceinline__ float dtp_widen(float x)
{
    return x;
}
static __device__ __forceinline__ float dtp_widen(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
static __device__ __forceinline__ float dtp_widen(__half x)
{
    return __half2float(x);
}
static __device__ __forceinline__ int64_t dtp_widen(int32_t x)
{
    return x;
}
static __device__ __forceinline__ int64_t dtp_widen(int64_t x)
{
    return x;
}
static __device__ __forceinline__ int64_t dtp_widen(uint8_t x)
{
    return x;
}

static __device__ __forceinline__ void dtp_narrow(float x, float *out)
{
    *out = x;
}
static __device__ __forceinline__ void dtp_narrow(float x, __nv_bfloat16 *out)
{
    *out = __float2bfloat16_rn(x);
}
static __device__ __forceinline__ void dtp_narrow(float x, __half *out)
{
    *out = __float2half_rn(x);
}
/* Truth values. */
static __device__ __forceinline__ void dtp_narrow(float x, uint8_t *out)
{
    *out = (uint8_t)(x != 0.0f);
}
static __device__ __forceinline__ void dtp_narrow(int64_t x, uint8_t *out)
{
    *out = (uint8_t)(x != 0);
}
static __device__ __forceinline__ void dtp_narrow(int64_t x, int32_t *out)
{
    *out = (int32_t)(uint32_t)(uint64_t)x;
}
static __device__ __forceinline__ void dtp_narrow(int64_t x, int64_t *out)
{
    *out = x;
}

/* ---- groups ---- */

/* A group in memory: n words, each of one access. */
template <int bytes> struct dtp_word {
    typedef uint4 type;
    enum { n = bytes / 16 };
};
template <> struct dtp_word<1> {
    typedef uint8_t type;
    enum { n = 1 };
};
template <> struct dtp_word<2> {
    typedef uint16_t type;
    enum { n = 1 };
};
template <> struct dtp_word<4> {
    typedef uint32_t type;
    enum { n = 1 };
};
template <> struct dtp_word<8> {
    typedef uint2 type;
    enum { n = 1 };
};

/* The first n of V elements, `step` apart from p on. `packed`: a group that is whole and has step 1
 * is aligned. */
template <class T, int V>
static __device__ __forceinline__ void dtp_load_group(T (&x)[V], const T *p, int64_t step, int n,
                                                      bool packed)
{
    if (packed && step == 1 && n == V) {
        typedef dtp_word<sizeof(T) * V> words;
        typename words::type word[words::n];
        DTP_UNROLL
        for (int k = 0; k < words::n; k++) {
            word[k] = ((const typename words::type *)p)[k];
        }
        memcpy(x, word, sizeof word);
        return;
    }
    x[0] = p[0];
    DTP_UNROLL
    for (int j = 1; j < V; j++) {
        x[j] = step != 0 && j < n ? p[j * step] : x[0];
    }
}

template <class T, int V>
static __device__ __forceinline__ void dtp_store_group(T *p, const T (&x)[V], int64_t step, int n,
                                                       bool packed)
{
    if (packed && step == 1 && n == V) {
        typedef dtp_word<sizeof(T) * V> words;
        typename words::type word[words::n];
        memcpy(word, x, sizeof word);
        DTP_UNROLL
        for (int k = 0; k < words::n; k++) {
            __stwb((typename words::type *)p + k,
                   word[k]); /* the compiler may split an assignment */
        }
        return;
    }
    DTP_UNROLL
    for (int j = 0; j < V; j++) {
        if (j < n) {
            p[j * step] = x[j];
        }
    }
}

/* The same of values as float or int64_t. */
template <class T, class C, int V>
static __device__ __forceinline__ void dtp_load_values(C (&x)[V], const T *p, int64_t step, int n,
                                                       bool packed)
{
    T stored[V];
    dtp_load_group(stored, p, step, n, packed);
    DTP_UNROLL
    for (int j = 0; j < V; j++) {
        x[j] = dtp_widen(stored[j]);
    }
}

template <class T, class C, int V>
static __device__ __forceinline__ void dtp_store_values(T *p, const C (&x)[V], int64_t step, int n,
                                                        bool packed)
{
    T stored[V];
    DTP_UNROLL
    for (int j = 0; j < V; j++) {
        dtp_narrow(x[j], &stored[j]);
    }
    dtp_store_group(p, stored, step, n, packed);
}

/* dtp_load_floats of elements that do not lie side by side. Out of line: groups that are packed do
 * without the call, and beside V accesses it costs little. */
template <int V> struct dtp_apart {
    float x[V];
};

template <int V>
static __device__ __noinline__ dtp_apart<V> dtp_load_apart(const void *data, int dtype, int64_t at,
                                                           int64_t step)
{
    dtp_apart<V> out;
    DTP_UNROLL
    for (int j = 0; j < V; j++) {
        out.x[j] = dtp_load(data, dtype, at + j * step);
    }
    return out;
}

/* V elements, `step` apart from element `at` of a float array on; those of step 1 are aligned. */
template <int V>
static __device__ __forceinline__ void dtp_load_floats(float (&out)[V], const void *data, int dtype,
                                                       int64_t at, int64_t step)
{
    if (V == 1) {
        out[0] = dtp_load(data, dtype, at);
    } else if (step != 1) {
        const dtp_apart<V> values = dtp_load_apart<V>(data, dtype, at, step);
        memcpy(out, &values, sizeof out);
    } else if (dtype == DTP_F32) {
        dtp_load_values(out, (const float *)data + at, 1, V, true);
    } else if (dtype == DTP_BF16) {
        dtp_load_values(out, (const __nv_bfloat16 *)data + at, 1, V, true);
    } else {
        dtp_load_values(out, (const __half *)data + at, 1, V, true);
    }
}

template <int V>
static __device__ __forceinline__ void dtp_store_floats(void *data, int dtype, int64_t at,
                                                        int64_t step, const float (&in)[V])
{
    if (V == 1) {
        dtp_store(data, dtype, at, in[0]);
    } else if (dtype == DTP_F32) {
        dtp_store_values((float *)data + at, in, step, V, true);
    } else if (dtype == DTP_BF16) {
        dtp_store_values((__nv_bfloat16 *)data + at, in, step, V, true);
    } else {
        dtp_store_values((__half *)data + at, in, step, V, true);
    }
}

/* Elements of the group of V that begins at element `at` of n. */
template <int V> static __device__ __forceinline__ int dtp_group_size(int64_t at, int64_t n)
{
    return V == 1 || n - at >= V ? V : (int)(n - at);
}

/* Whether a nest may be walked in groups of V: none reaches beyond a row, and those of step 1 of
 * the view, which starts at p, are aligned. */
static inline bool dtp_grouped(const dtp_cuda_nest *nest, int view, const void *p, size_t bytes,
                               int v)
{
    const int last = nest->rank - 1;
    bool fits = nest->rank == 1 || nest->size[last] % v == 0;
    if (nest->stride[view][last] == 1) {
        fits = fits && (uintptr_t)p % (bytes * (size_t)v) == 0;
        for (int i = 0; i < last; i++) {
            fits = fits && nest->stride[view][i] % v == 0;
        }
    }
    return fits;
}

#endif
