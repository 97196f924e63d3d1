/* With xhat = (x - mean) * rstd:
 *   y  = xhat * gamma + beta
 *   dx = rstd (dy gamma - s0 / n - xhat s1 / n), s0 = sum of dy gamma, s1 = sum of dy gamma xhat
 *   dgamma = sum over rows of dy xhat, dbeta = sum over rows of dy */
#include "executor/cuda/kernels/rows/norm.h"
#include "executor/cuda/kernels/rows/rows_math.cuh"

/* The first and the last sum of a row. */
static __device__ __forceinline__ void load_sums(const dtp_cuda_rows &job, const dtp_row &row,
                                                 const dtp_norm_numbers &norm, float (&sums)[2])
{
    const dtp_row_view s = dtp_row_of(job, row, DTP_NORM_SUMS);
    sums[0] = dtp_load(s.data, s.dtype, s.at);
    sums[1] = dtp_load(s.data, s.dtype, s.at + norm.last);
}

static __device__ __forceinline__ void store_sums(const dtp_cuda_rows &job, const dtp_row &row,
                                                  int view, const dtp_norm_numbers &norm,
                                                  const float (&sums)[2])
{
    const dtp_row_view s = dtp_row_of(job, row, view);
    dtp_store(s.data, s.dtype, s.at, sums[0]);
    dtp_store(s.data, s.dtype, s.at + norm.last, sums[1]);
}

/* ---- forward ---- */

struct norm_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               const dtp_norm_numbers &norm)
    {
        const dtp_row_view x = dtp_row_of(job, row, DTP_NORM_X);
        const dtp_moments m = moments<V, Team>(job, row, norm, x);
        const float mean = m.mean;
        const float rstd = 1.0f / sqrtf(m.squares / (float)norm.count + (float)norm.eps);
        write<V, Team>(job, row, norm, x, mean, rstd);
        if (Team::lane() == 0) {
            dtp_row_put(job, row, DTP_NORM_RSTD, rstd);
        }
        if (Team::lane() == 0 && norm.centered) {
            dtp_row_put(job, row, DTP_NORM_MEAN, mean);
        }
    }

    template <int V, class Team>
    static __device__ __forceinline__ dtp_moments moments(const dtp_cuda_rows &job,
                                                          const dtp_row &row,
                                                          const dtp_norm_numbers &norm,
                                                          const dtp_row_view &x)
    {
        const float n = (float)norm.count;
        float sums[2];
        if (!norm.sums) {
            return norm.centered ? dtp_row_moments<V, Team>(job, row, x, n)
                                 : dtp_moments{0.0f, dtp_row_squares<V, Team>(job, row, x)};
        }
        load_sums(job, row, norm, sums);
        return norm.centered ? dtp_moments_of(n, dtp_row_value(job, row, DTP_NORM_SHIFT), sums)
                             : dtp_moments{0.0f, sums[1]};
    }

    template <int V, class Team>
    static __device__ __forceinline__ void write(const dtp_cuda_rows &job, const dtp_row &row,
                                                 const dtp_norm_numbers &norm,
                                                 const dtp_row_view &x, float mean, float rstd)
    {
        const dtp_row_view y = dtp_row_of(job, row, DTP_NORM_Y);
        const dtp_row_view gamma = dtp_row_of(job, row, DTP_NORM_GAMMA);
        const dtp_row_view beta = dtp_row_of(job, row, DTP_NORM_BETA);
        DTP_ROW_EACH(i, V, Team, row)
        {
            float v[V], g[V], b[V] = {};
            dtp_row_load(job, x, i, v);
            dtp_row_load(job, gamma, i, g);
            if (norm.centered) {
                dtp_row_load(job, beta, i, b);
            }
            DTP_UNROLL
            for (int k = 0; k < V; k++) {
                v[k] = (v[k] - mean) * rstd * g[k] + b[k];
            }
            dtp_row_store(job, y, i, v);
        }
    }
};

struct moments_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               const dtp_norm_numbers &norm)
    {
        const dtp_row_view x = dtp_row_of(job, row, 0);
        float sums[2];
        if (norm.centered) {
            dtp_row_sums<V, Team>(job, row, x, dtp_row_value(job, row, 1), sums);
        } else {
            sums[0] = sums[1] = dtp_row_squares<V, Team>(job, row, x);
        }
        if (Team::lane() == 0) {
            store_sums(job, row, norm.centered ? 2 : 1, norm, sums);
        }
    }
};

/* ---- backward: rows ---- */

/* Elements i to i + V of dy gamma and of xhat. */
struct grad_terms {
    const dtp_row_view x, dy, gamma;
    const float rstd, mean;

    __device__ __forceinline__ grad_terms(const dtp_cuda_rows &job, const dtp_row &row,
                                          const dtp_norm_numbers &norm)
        : x(dtp_row_of(job, row, DTP_NORM_X)), dy(dtp_row_of(job, row, DTP_NORM_DY)),
          gamma(dtp_row_of(job, row, DTP_NORM_GAMMA)), rstd(dtp_row_value(job, row, DTP_NORM_RSTD)),
          mean(norm.centered ? dtp_row_value(job, row, DTP_NORM_MEAN) : 0.0f)
    {
    }
    template <int V>
    __device__ __forceinline__ void load(const dtp_cuda_rows &job, int64_t i, float (&d)[V],
                                         float (&xhat)[V]) const
    {
        float g[V];
        dtp_row_load(job, dy, i, d);
        dtp_row_load(job, gamma, i, g);
        dtp_row_load(job, x, i, xhat);
        DTP_UNROLL
        for (int k = 0; k < V; k++) {
            d[k] *= g[k];
            xhat[k] = (xhat[k] - mean) * rstd;
        }
    }
    template <int V, class Team>
    __device__ __forceinline__ void sums(const dtp_cuda_rows &job, const dtp_row &row,
                                         float (&s)[2]) const
    {
        s[0] = s[1] = 0.0f;
        DTP_ROW_EACH(i, V, Team, row)
        {
            float d[V], xhat[V];
            load(job, i, d, xhat);
            DTP_UNROLL
            for (int k = 0; k < V; k++) {
                s[0] += d[k];
                s[1] += d[k] * xhat[k];
            }
        }
        s[0] = Team::fold(s[0], 0.0f, dtp_add());
        s[1] = Team::fold(s[1], 0.0f, dtp_add());
    }
};

struct dx_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               const dtp_norm_numbers &norm)
    {
        const grad_terms terms(job, row, norm);
        const dtp_row_view dx = dtp_row_of(job, row, DTP_NORM_DX);
        const float n = (float)norm.count;
        float s[2];
        if (norm.sums) {
            load_sums(job, row, norm, s);
        } else {
            terms.sums<V, Team>(job, row, s);
        }
        const float c0 = norm.centered ? s[0] / n : 0.0f, c1 = s[1] / n;
        DTP_ROW_EACH(i, V, Team, row)
        {
            float d[V], xhat[V];
            terms.load(job, i, d, xhat);
            DTP_UNROLL
            for (int k = 0; k < V; k++) {
                d[k] = terms.rstd * (d[k] - c0 - xhat[k] * c1);
            }
            dtp_row_store(job, dx, i, d);
        }
    }
};

struct grad_sums_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               const dtp_norm_numbers &norm)
    {
        const grad_terms terms(job, row, norm);
        float s[2];
        terms.sums<V, Team>(job, row, s);
        s[0] = norm.centered ? s[0] : s[1];
        if (Team::lane() == 0) {
            store_sums(job, row, DTP_NORM_SUMS, norm, s);
        }
    }
};

/* ---- backward: sums over rows ---- */

struct columns_fold {
    typedef float T;
    enum { N = 2 };
    const dtp_cuda_rows &job;
    const dtp_row row;
    const int centered;
    const dtp_row_view x, dy, rstd, mean;

    __device__ __forceinline__ columns_fold(const dtp_cuda_rows &j, const dtp_row &r,
                                            const dtp_norm_numbers &norm)
        : job(j), row(r), centered(norm.centered), x(dtp_row_of(j, r, 0)), dy(dtp_row_of(j, r, 1)),
          rstd(dtp_row_of(j, r, 2)), mean(dtp_row_of(j, r, 3))
    {
    }
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return a + b;
    }
    __device__ __forceinline__ void start(float (&a)[2]) const
    {
        a[0] = a[1] = 0.0f;
    }
    template <int V> __device__ __forceinline__ void add(int64_t i, float (&a)[2]) const
    {
        float v[V], d[V], r[V], m[V] = {};
        dtp_row_load(job, x, i, v);
        dtp_row_load(job, dy, i, d);
        dtp_row_load(job, rstd, i, r);
        if (centered) {
            dtp_row_load(job, mean, i, m);
        }
        DTP_UNROLL
        for (int k = 0; k < V; k++) {
            a[0] += d[k] * ((v[k] - m[k]) * r[k]);
            a[1] += d[k];
        }
    }
    __device__ __forceinline__ void finish(const float (&a)[2]) const
    {
        dtp_row_put(job, row, DTP_NORM_DGAMMA, a[0]);
        if (centered) {
            dtp_row_put(job, row, DTP_NORM_DBETA, a[1]);
        }
    }
};

cudaError_t dtp_cuda_norm_rows(cudaStream_t queue, const dtp_cuda_rows *rows,
                               const dtp_norm_numbers *norm)
{
    return dtp_rows_map<norm_map>(queue, rows, *norm);
}

cudaError_t dtp_cuda_norm_moments(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t centered,
                                  int64_t last)
{
    dtp_norm_numbers norm = {};
    norm.centered = centered;
    norm.last = last;
    return dtp_rows_map<moments_map>(queue, rows, norm);
}

cudaError_t dtp_cuda_norm_dx(cudaStream_t queue, const dtp_cuda_rows *rows,
                             const dtp_norm_numbers *norm)
{
    return dtp_rows_map<dx_map>(queue, rows, *norm);
}

cudaError_t dtp_cuda_norm_grad_sums(cudaStream_t queue, const dtp_cuda_rows *rows,
                                    const dtp_norm_numbers *norm)
{
    return dtp_rows_map<grad_sums_map>(queue, rows, *norm);
}

cudaError_t dtp_cuda_norm_columns(cudaStream_t queue, const dtp_cuda_rows *columns,
                                  const dtp_norm_numbers *norm)
{
    return dtp_rows_fold<columns_fold>(queue, columns, *norm);
}
