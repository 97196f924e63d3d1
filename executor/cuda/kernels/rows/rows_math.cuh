/* What a team computes of one row; every thread gets the result. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ROWS_ROWS_MATH_CUH
#define DTP_EXECUTOR_CUDA_KERNELS_ROWS_ROWS_MATH_CUH

#include "executor/cuda/kernels/rows/rows.cuh"

/* The fold of f(x) by `of` over a row. */
template <int V, class Team, class F, class Of>
static __device__ __forceinline__ float dtp_row_fold(const dtp_cuda_rows &job, const dtp_row &row,
                                                     const dtp_row_view &x, float none, F f, Of of)
{
    float a = none;
    DTP_ROW_EACH(i, V, Team, row)
    {
        float v[V];
        dtp_row_load(job, x, i, v);
        DTP_UNROLL
        for (int k = 0; k < V; k++) {
            a = of(a, f(v[k]));
        }
    }
    return Team::fold(a, none, of);
}

/* -inf of an empty row; a NaN stays. */
template <int V, class Team>
static __device__ __forceinline__ float dtp_row_max(const dtp_cuda_rows &job, const dtp_row &row,
                                                    const dtp_row_view &x)
{
    const auto same = [](float v) { return v; };
    return dtp_row_fold<V, Team>(job, row, x, -INFINITY, same, dtp_larger());
}

template <int V, class Team>
static __device__ __forceinline__ float dtp_row_sum(const dtp_cuda_rows &job, const dtp_row &row,
                                                    const dtp_row_view &x)
{
    const auto same = [](float v) { return v; };
    return dtp_row_fold<V, Team>(job, row, x, 0.0f, same, dtp_add());
}

/* Sum of exp(x - m). */
template <int V, class Team>
static __device__ __forceinline__ float
dtp_row_exp_sum(const dtp_cuda_rows &job, const dtp_row &row, const dtp_row_view &x, float m)
{
    const auto exp_of = [m](float v) { return expf(v - m); };
    return dtp_row_fold<V, Team>(job, row, x, 0.0f, exp_of, dtp_add());
}

template <int V, class Team>
static __device__ __forceinline__ float dtp_row_squares(const dtp_cuda_rows &job,
                                                        const dtp_row &row, const dtp_row_view &x)
{
    const auto square = [](float v) { return v * v; };
    return dtp_row_fold<V, Team>(job, row, x, 0.0f, square, dtp_add());
}

/* Sums of x - shift and (x - shift)^2. */
template <int V, class Team>
static __device__ __forceinline__ void dtp_row_sums(const dtp_cuda_rows &job, const dtp_row &row,
                                                    const dtp_row_view &x, float shift,
                                                    float (&s)[2])
{
    s[0] = s[1] = 0.0f;
    DTP_ROW_EACH(i, V, Team, row)
    {
        float v[V];
        dtp_row_load(job, x, i, v);
        DTP_UNROLL
        for (int k = 0; k < V; k++) {
            const float d = v[k] - shift;
            s[0] += d;
            s[1] += d * d;
        }
    }
    s[0] = Team::fold(s[0], 0.0f, dtp_add());
    s[1] = Team::fold(s[1], 0.0f, dtp_add());
}

/* Of a row of n elements: a shift near the mean, then the sums about it. */
template <int V, class Team>
static __device__ __forceinline__ dtp_moments dtp_row_moments(const dtp_cuda_rows &job,
                                                              const dtp_row &row,
                                                              const dtp_row_view &x, float n)
{
    const float shift = dtp_row_sum<V, Team>(job, row, x) / n;
    float s[2];
    dtp_row_sums<V, Team>(job, row, x, shift, s);
    return dtp_moments_of(n, shift, s);
}

/* Sum of a b. */
template <int V, class Team>
static __device__ __forceinline__ float dtp_row_dot(const dtp_cuda_rows &job, const dtp_row &row,
                                                    const dtp_row_view &a, const dtp_row_view &b)
{
    float sum = 0.0f;
    DTP_ROW_EACH(i, V, Team, row)
    {
        float u[V], v[V];
        dtp_row_load(job, a, i, u);
        dtp_row_load(job, b, i, v);
        DTP_UNROLL
        for (int k = 0; k < V; k++) {
            sum += u[k] * v[k];
        }
    }
    return Team::fold(sum, 0.0f, dtp_add());
}

#endif
