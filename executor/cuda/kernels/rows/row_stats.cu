#include "executor/cuda/kernels/rows/row_stats.h"
#include "executor/cuda/kernels/rows/rows_math.cuh"

struct logsumexp_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row, int)
    {
        const dtp_row_view x = dtp_row_of(job, row, 0);
        const float m = dtp_row_max<V, Team>(job, row, x);
        const float s = dtp_row_exp_sum<V, Team>(job, row, x, m);
        if (Team::lane() == 0) {
            dtp_row_put(job, row, 1, isinf(m) ? m : m + logf(s));
        }
    }
};

struct variance_params {
    float count, divisor;
    int root;
};

struct variance_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               const variance_params &p)
    {
        const dtp_row_view x = dtp_row_of(job, row, 0);
        const float var = dtp_row_moments<V, Team>(job, row, x, p.count).squares / p.divisor;
        if (Team::lane() == 0) {
            dtp_row_put(job, row, 1, p.root ? sqrtf(var) : var);
        }
    }
};

/* The row is the two sums. */
struct var_finish_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               const variance_params &p)
    {
        const dtp_row_view x = dtp_row_of(job, row, 0);
        const float s[2] = {dtp_load(x.data, x.dtype, x.at),
                            dtp_load(x.data, x.dtype, x.at + x.step)};
        if (Team::lane() == 0) {
            dtp_row_put(job, row, 1, dtp_moments_of(p.count, 0.0f, s).squares / p.divisor);
        }
    }
};

struct norm_fold {
    typedef float T;
    enum { N = 1 };
    const dtp_cuda_rows &job;
    const dtp_row row;
    const int order;
    const dtp_row_view x;

    __device__ __forceinline__ norm_fold(const dtp_cuda_rows &j, const dtp_row &r, int ord)
        : job(j), row(r), order(ord), x(dtp_row_of(j, r, 0))
    {
    }
    __device__ __forceinline__ float operator()(float a, float b) const
    {
        return order == 0 ? dtp_larger()(a, b) : a + b;
    }
    __device__ __forceinline__ void start(float (&a)[1]) const
    {
        a[0] = 0.0f;
    }
    template <int V> __device__ __forceinline__ void add(int64_t i, float (&a)[1]) const
    {
        float v[V];
        dtp_row_load(job, x, i, v);
        DTP_UNROLL
        for (int k = 0; k < V; k++) {
            a[0] = (*this)(a[0], order == 2 ? v[k] * v[k] : fabsf(v[k]));
        }
    }
    __device__ __forceinline__ void finish(const float (&a)[1]) const
    {
        dtp_row_put(job, row, 1, order == 2 ? sqrtf(a[0]) : a[0]);
    }
};

/* ---- scans ---- */

/* C: float or uint64_t, whose sums wrap around. */
template <class C> struct cumsum_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               int reverse)
    {
        const dtp_row_view x = dtp_row_of(job, row, 0), y = dtp_row_of(job, row, 1);
        const int64_t n = row.end, per_round = (int64_t)Team::lanes() * V;
        C carry = 0;
        for (int64_t base = 0; base < n; base += per_round) {
            const int64_t p = base + (int64_t)Team::lane() * V, i = reverse ? n - V - p : p;
            C v[V] = {}, sum = 0, total;
            if (p < n) {
                dtp_row_load(job, x, i, v);
            }
            DTP_UNROLL
            for (int k = 0; k < V; k++) {
                C &at = v[reverse ? V - 1 - k : k];
                sum += at;
                at = sum;
            }
            const C before = carry + Team::scan(sum, (C)0, dtp_add(), &total);
            carry += total;
            DTP_UNROLL
            for (int k = 0; k < V; k++) {
                v[k] += before;
            }
            if (p < n) {
                dtp_row_store(job, y, i, v);
            }
        }
    }
};

/* Products of what comes before times products of what comes after, so that zeros need no division.
 * A round is what the team holds at once; what comes after a round is read again. */
struct prod_grad_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row, int)
    {
        const dtp_row_view x = dtp_row_of(job, row, 0), dx = dtp_row_of(job, row, 2);
        const float dy = dtp_row_value(job, row, 1);
        const auto same = [](float v) { return v; };
        const int64_t n = row.end, per_round = (int64_t)Team::lanes() * V;
        float before = 1.0f;
        for (int64_t base = 0; base < n; base += per_round) {
            const int64_t i = base + (int64_t)Team::lane() * V;
            dtp_row rest = row;
            rest.begin = base + per_round;
            const float after = dtp_row_fold<V, Team>(job, rest, x, 1.0f, same, dtp_mul());
            float v[V], all = 1.0f, total;
            DTP_UNROLL
            for (int k = 0; k < V; k++) {
                v[k] = 1.0f;
            }
            if (i < n) {
                dtp_row_load(job, x, i, v);
            }
            DTP_UNROLL
            for (int k = 0; k < V; k++) {
                all *= v[k];
            }
            float left = before * Team::scan(all, 1.0f, dtp_mul(), &total);
            float right = Team::mirror(Team::scan(Team::mirror(all), 1.0f, dtp_mul(), &total));
            right *= after * dy;
            before *= total;
            float d[V];
            DTP_UNROLL
            for (int k = 0; k < V; k++) {
                d[k] = left;
                left *= v[k];
            }
            DTP_UNROLL
            for (int k = V - 1; k >= 0; k--) {
                d[k] *= right;
                right *= v[k];
            }
            if (i < n) {
                dtp_row_store(job, dx, i, d);
            }
        }
    }
};

/* ---- positions ---- */

/* Of index 0: keys lie between 0 and the largest number, neither of which is a key. */
enum { FIRST_INDEX = 0x7fffffff };

/* Grows with the order in which elements come: the value above, the index, inverted, below. `nan`:
 * the value of a NaN. */
static __device__ __forceinline__ uint64_t order_key(float v, int64_t i, int largest, uint32_t nan)
{
    const float w = v == 0.0f ? 0.0f : largest ? v : -v;
    const uint32_t bits = __float_as_uint(w), sign = 0x80000000u;
    const uint32_t value = v != v ? nan : (bits & sign) != 0 ? ~bits : bits | sign;
    return (uint64_t)value << 32 | (uint32_t)(FIRST_INDEX - i + 1);
}

static __device__ __forceinline__ int64_t key_index(uint64_t key)
{
    return (int64_t)FIRST_INDEX + 1 - (int64_t)(uint32_t)key;
}

/* A NaN comes first in argmax and argmin; topk takes it for the largest, as sorting does. */
static const uint32_t NAN_FIRST = 0xffffffffu, NAN_LAST = 0;

struct arg_fold {
    typedef uint64_t T;
    enum { N = 1 };
    const dtp_cuda_rows &job;
    const dtp_row row;
    const int largest;
    const dtp_row_view x;

    __device__ __forceinline__ arg_fold(const dtp_cuda_rows &j, const dtp_row &r, int large)
        : job(j), row(r), largest(large), x(dtp_row_of(j, r, 0))
    {
    }
    __device__ __forceinline__ uint64_t operator()(uint64_t a, uint64_t b) const
    {
        return a > b ? a : b;
    }
    __device__ __forceinline__ void start(uint64_t (&a)[1]) const
    {
        a[0] = 0;
    }
    template <int V> __device__ __forceinline__ void add(int64_t i, uint64_t (&a)[1]) const
    {
        float v[V];
        dtp_row_load(job, x, i, v);
        DTP_UNROLL
        for (int k = 0; k < V; k++) {
            a[0] = (*this)(a[0], order_key(v[k], i + k, largest, NAN_FIRST));
        }
    }
    __device__ __forceinline__ void finish(const uint64_t (&a)[1]) const
    {
        dtp_row_put_int(job, row, 1, a[0] == 0 ? 0 : key_index(a[0]));
    }
};

struct first_params {
    int64_t offset, none;
};

struct first_fold {
    typedef int64_t T;
    enum { N = 1 };
    const dtp_cuda_rows &job;
    const dtp_row row;
    const first_params p;
    const dtp_row_view x;
    const float m;

    __device__ __forceinline__ first_fold(const dtp_cuda_rows &j, const dtp_row &r,
                                          const first_params &params)
        : job(j), row(r), p(params), x(dtp_row_of(j, r, 0)), m(dtp_row_value(j, r, 1))
    {
    }
    __device__ __forceinline__ int64_t operator()(int64_t a, int64_t b) const
    {
        return a < b ? a : b;
    }
    __device__ __forceinline__ void start(int64_t (&a)[1]) const
    {
        a[0] = INT64_MAX;
    }
    template <int V> __device__ __forceinline__ void add(int64_t i, int64_t (&a)[1]) const
    {
        float v[V];
        dtp_row_load(job, x, i, v);
        DTP_UNROLL
        for (int k = 0; k < V; k++) {
            const bool equal = v[k] == m || (v[k] != v[k] && m != m);
            a[0] = equal && i + k < a[0] ? i + k : a[0];
        }
    }
    __device__ __forceinline__ void finish(const int64_t (&a)[1]) const
    {
        dtp_row_put_int(job, row, 2, a[0] == INT64_MAX ? p.none : p.offset + a[0]);
    }
};

struct topk_params {
    int64_t k;
    int largest;
};

/* One pass per result: the largest key below the last. */
struct topk_map {
    template <int V, class Team>
    static __device__ __forceinline__ void run(const dtp_cuda_rows &job, const dtp_row &row,
                                               const topk_params &p)
    {
        const dtp_row_view x = dtp_row_of(job, row, 0), values = dtp_row_of(job, row, 1);
        const dtp_row_view indices = dtp_row_of(job, row, 2);
        const auto larger = [](uint64_t a, uint64_t b) { return a > b ? a : b; };
        const uint32_t nan = p.largest ? NAN_FIRST : NAN_LAST;
        uint64_t last = ~(uint64_t)0;
        for (int64_t r = 0; r < p.k; r++) {
            uint64_t best = 0;
            DTP_ROW_EACH(i, V, Team, row)
            {
                float v[V];
                dtp_row_load(job, x, i, v);
                DTP_UNROLL
                for (int k = 0; k < V; k++) {
                    const uint64_t key = order_key(v[k], i + k, p.largest, nan);
                    best = key < last && key > best ? key : best;
                }
            }
            last = Team::fold(best, (uint64_t)0, larger);
            if (Team::lane() == 0) {
                const int64_t i = key_index(last);
                dtp_store(values.data, values.dtype, values.at + r * values.step,
                          dtp_load(x.data, x.dtype, dtp_row_at<V>(job, x, i)));
                dtp_store_int(indices.data, indices.dtype, indices.at + r * indices.step, i);
            }
        }
    }
};

cudaError_t dtp_cuda_logsumexp(cudaStream_t queue, const dtp_cuda_rows *rows)
{
    return dtp_rows_map<logsumexp_map>(queue, rows, 0);
}

cudaError_t dtp_cuda_norm_of_order(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t order)
{
    return dtp_rows_fold<norm_fold>(queue, rows, order);
}

cudaError_t dtp_cuda_variance(cudaStream_t queue, const dtp_cuda_rows *rows, double divisor,
                              int32_t root)
{
    const variance_params params = {(float)rows->over.total, (float)divisor, root};
    return dtp_rows_map<variance_map>(queue, rows, params);
}

cudaError_t dtp_cuda_var_finish(cudaStream_t queue, const dtp_cuda_rows *rows, double count,
                                double divisor)
{
    const variance_params params = {(float)count, (float)divisor, 0};
    return dtp_rows_map<var_finish_map>(queue, rows, params);
}

cudaError_t dtp_cuda_cumsum(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t ints,
                            int32_t reverse)
{
    return ints ? dtp_rows_map<cumsum_map<uint64_t>>(queue, rows, reverse)
                : dtp_rows_map<cumsum_map<float>>(queue, rows, reverse);
}

cudaError_t dtp_cuda_prod_grad(cudaStream_t queue, const dtp_cuda_rows *rows)
{
    return dtp_rows_map<prod_grad_map>(queue, rows, 0);
}

cudaError_t dtp_cuda_arg(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t largest)
{
    return dtp_rows_fold<arg_fold>(queue, rows, largest);
}

cudaError_t dtp_cuda_arg_first(cudaStream_t queue, const dtp_cuda_rows *rows, int64_t offset,
                               int64_t none)
{
    const first_params params = {offset, none};
    return dtp_rows_fold<first_fold>(queue, rows, params);
}

cudaError_t dtp_cuda_topk(cudaStream_t queue, const dtp_cuda_rows *rows, int64_t k, int32_t largest)
{
    const topk_params params = {k, largest};
    return dtp_rows_map<topk_map>(queue, rows, params);
}
