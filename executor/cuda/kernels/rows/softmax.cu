#include "executor/cuda/kernels/rows/softmax.h"
#include "executor/cuda/kernels/rows/rows_math.cuh"

/* y = exp(x - m) * factor, or, with the logarithm, y = x + factor. */
template <int V, class Team>
static __device__ __forceinline__ void write_row(const dtp_cuda_rows &job, const dtp_row &row,
                                                 const dtp_row_view &x, int y_view, int log_form,
                                                 float m, float factor)
{
    const dtp_row_view y = dtp_row_of(job, row, y_view);
    DTP_ROW_EACH(i, V, Team, row)
    {
        float v[V];
        dtp_row_load(job, x, i, v);
        DTP_UNROLL
        for (int k = 0; k < V; k++) {
            v[k] = log_form ? v[k] + factor : expf(v[k] - m) * factor;
        }
        dtp_row_store(job, y, i, v);
    }
}

struct softmax_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               int log_form)
    {
        const dtp_row_view x = dtp_row_of(job, row, 0);
        const float m = dtp_row_max<V, Team>(job, row, x);
        const float s = dtp_row_exp_sum<V, Team>(job, row, x, m);
        write_row<V, Team>(job, row, x, 1, log_form, m, log_form ? -(m + logf(s)) : 1.0f / s);
    }
};

struct softmax_apply_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               int log_form)
    {
        const float m = dtp_row_value(job, row, 1);
        const float s = isinf(m) ? NAN : dtp_row_value(job, row, 2);
        const dtp_row_view x = dtp_row_of(job, row, 0);
        write_row<V, Team>(job, row, x, 3, log_form, m, log_form ? -(m + logf(s)) : 1.0f / s);
    }
};

/* gradients: dx = y (dy - d), d = sum of y dy; with the logarithm dx = dy - exp(y) d, d = sum
 * of dy ---- */

template <int V, class Team>
static __device__ __forceinline__ void write_grad(const dtp_cuda_rows &job, const dtp_row &row,
                                                  const dtp_row_view &y, const dtp_row_view &dy,
                                                  int dx_view, int log_form, float d)
{
    const dtp_row_view dx = dtp_row_of(job, row, dx_view);
    DTP_ROW_EACH(i, V, Team, row)
    {
        float v[V], g[V];
        dtp_row_load(job, y, i, v);
        dtp_row_load(job, dy, i, g);
        DTP_UNROLL
        for (int k = 0; k < V; k++) {
            g[k] = log_form ? g[k] - expf(v[k]) * d : v[k] * (g[k] - d);
        }
        dtp_row_store(job, dx, i, g);
    }
}

struct softmax_grad_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               int log_form)
    {
        const dtp_row_view y = dtp_row_of(job, row, 0), dy = dtp_row_of(job, row, 1);
        const float d =
            log_form ? dtp_row_sum<V, Team>(job, row, dy) : dtp_row_dot<V, Team>(job, row, y, dy);
        write_grad<V, Team>(job, row, y, dy, 2, log_form, d);
    }
};

struct softmax_grad_apply_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               int log_form)
    {
        const dtp_row_view y = dtp_row_of(job, row, 0), dy = dtp_row_of(job, row, 1);
        write_grad<V, Team>(job, row, y, dy, 3, log_form, dtp_row_value(job, row, 2));
    }
};

/* Views: two operands and the result; exponentials: sum of exp(x - m), where an infinite m counts
 * as 0, else of a b. */
struct pair_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               int exponentials)
    {
        const dtp_row_view x = dtp_row_of(job, row, 0), b = dtp_row_of(job, row, 1);
        const float m = exponentials ? dtp_row_value(job, row, 1) : 0.0f;
        const float s = exponentials ? dtp_row_exp_sum<V, Team>(job, row, x, isinf(m) ? 0.0f : m)
                                     : dtp_row_dot<V, Team>(job, row, x, b);
        if (Team::lane() == 0) {
            dtp_row_put(job, row, 2, s);
        }
    }
};

cudaError_t dtp_cuda_softmax_rows(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t log_form)
{
    return dtp_rows_map<softmax_map>(queue, rows, log_form);
}

cudaError_t dtp_cuda_softmax_grad(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t log_form)
{
    return dtp_rows_map<softmax_grad_map>(queue, rows, log_form);
}

cudaError_t dtp_cuda_sum_exp(cudaStream_t queue, const dtp_cuda_rows *rows)
{
    return dtp_rows_map<pair_map>(queue, rows, 1);
}

cudaError_t dtp_cuda_row_dot(cudaStream_t queue, const dtp_cuda_rows *rows)
{
    return dtp_rows_map<pair_map>(queue, rows, 0);
}

cudaError_t dtp_cuda_softmax_apply(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t log_form)
{
    return dtp_rows_map<softmax_apply_map>(queue, rows, log_form);
}

cudaError_t dtp_cuda_softmax_grad_apply(cudaStream_t queue, const dtp_cuda_rows *rows,
                                        int32_t log_form)
{
    return dtp_rows_map<softmax_grad_apply_map>(queue, rows, log_form);
}
