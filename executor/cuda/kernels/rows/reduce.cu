#include "executor/cuda/kernels/rows/reduce.h"
#include "executor/cuda/kernels/rows/rows.cuh"

template <class C> static __device__ __forceinline__ C combine(int fold, C a, C b)
{
    return fold == DTP_FOLD_SUM   ? a + b
           : fold == DTP_FOLD_MAX ? (a > b || a != a ? a : b)
           : fold == DTP_FOLD_MIN ? (a < b || a != a ? a : b)
                                  : a * b;
}

/* Products and sums of integers wrap around. */
template <> __device__ __forceinline__ int64_t combine<int64_t>(int fold, int64_t a, int64_t b)
{
    return fold == DTP_FOLD_SUM   ? (int64_t)((uint64_t)a + (uint64_t)b)
           : fold == DTP_FOLD_MAX ? (a > b ? a : b)
           : fold == DTP_FOLD_MIN ? (a < b ? a : b)
                                  : (int64_t)((uint64_t)a * (uint64_t)b);
}

template <class C> struct reduce_params {
    int fold;
    float factor;
    C none;
};

template <class C> struct reduce_fold {
    typedef C T;
    enum { N = 1 };
    const dtp_cuda_rows &job;
    const dtp_row row;
    const reduce_params<C> p;
    const dtp_row_view x;

    __device__ __forceinline__ reduce_fold(const dtp_cuda_rows &j, const dtp_row &r,
                                           const reduce_params<C> &params)
        : job(j), row(r), p(params), x(dtp_row_of(j, r, 0))
    {
    }
    __device__ __forceinline__ C operator()(C a, C b) const
    {
        return combine(p.fold, a, b);
    }
    __device__ __forceinline__ void start(C (&a)[1]) const
    {
        a[0] = p.none;
    }
    template <int V> __device__ __forceinline__ void add(int64_t i, C (&a)[1]) const
    {
        C v[V];
        dtp_row_load(job, x, i, v);
        DTP_UNROLL
        for (int k = 0; k < V; k++) {
            a[0] = combine(p.fold, a[0], v[k]);
        }
    }
    __device__ __forceinline__ void put(float a) const
    {
        dtp_row_put(job, row, 1, a * p.factor);
    }
    __device__ __forceinline__ void put(int64_t a) const
    {
        dtp_row_put_int(job, row, 1, a);
    }
    __device__ __forceinline__ void finish(const C (&a)[1]) const
    {
        put(a[0]);
    }
};

cudaError_t dtp_cuda_reduce_floats(cudaStream_t queue, const dtp_cuda_rows *rows, dtp_fold fold,
                                   float factor)
{
    const float none = fold == DTP_FOLD_SUM   ? 0.0f
                       : fold == DTP_FOLD_MAX ? -INFINITY
                       : fold == DTP_FOLD_MIN ? INFINITY
                                              : 1.0f;
    const reduce_params<float> params = {fold, factor, none};
    return dtp_rows_fold<reduce_fold<float>>(queue, rows, params);
}

cudaError_t dtp_cuda_reduce_ints(cudaStream_t queue, const dtp_cuda_rows *rows, dtp_fold fold,
                                 int64_t none)
{
    const reduce_params<int64_t> params = {fold, 1.0f, none};
    return dtp_rows_fold<reduce_fold<int64_t>>(queue, rows, params);
}
