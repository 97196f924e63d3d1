/* Statistics of rows: logsumexp, vector norms, variance and standard deviation (views: x, out);
 * cumulative sums; the gradient of a product; argmax, argmin, arg_first and topk. */
#include <math.h>

#include "executor/cpu/loops/halves.h"
#include "executor/cpu/loops/simd.h"
#include "executor/cpu/rows.h"
#include "executor/device/convert.h"

static void logsumexp_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float m = dtp_row_job_max(job, row);
    double s = dtp_row_job_exp_sum(job, row, m);
    job->data[1][row[1]] = (float)dtp_row_lse(m, s);
}

typedef double (*run_fn)(int64_t n, const float *x, int64_t step);

static double run_abs(int64_t n, const float *x, int64_t step)
{
    double s = 0.0;
    for (int64_t i = 0; i < n; i++) {
        s += (double)fabsf(x[i * step]);
    }
    return s;
}

static double run_squares(int64_t n, const float *x, int64_t step)
{
    return dtp_row_dot(n, x, step, x, step);
}

/* Sum of what fn gives for the runs of a row. */
static double sum_runs(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], run_fn fn)
{
    double s = 0.0;
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS];
        dtp_row_run(job, row, r, at);
        s += fn(job->over.inner, at[0], job->step[0]);
    }
    return s;
}

static float largest_of(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float m = 0.0f;
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS];
        dtp_row_run(job, row, r, at);
        for (int64_t i = 0; i < job->over.inner; i++) {
            m = dtp_larger(m, fabsf(at[0][i * job->step[0]]));
        }
    }
    return m;
}

/* Option: the order. */
static void norm_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const int64_t order = job->of.option;
    job->data[1][row[1]] = order == 1   ? (float)sum_runs(job, row, run_abs)
                           : order == 2 ? (float)sqrt(sum_runs(job, row, run_squares))
                                        : largest_of(job, row);
}

/* Option: the divisor. */
static double variance(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    return dtp_row_job_moments(job, row).squares / (double)job->of.option;
}

static void var_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    job->data[1][row[1]] = (float)variance(job, row);
}

static void std_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    job->data[1][row[1]] = (float)sqrt(variance(job, row));
}

/* Views: moments, variance; the row is two sums. Option: their elements; factor: 1 / divisor. */
static void var_finish_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const float *s = job->data[0] + row[0];
    const double sums[2] = {(double)s[0], (double)s[job->step[0]]};
    const dtp_moments m = dtp_moments_of((double)job->of.option, 0.0f, sums);
    job->data[1][row[1]] = (float)(m.squares * job->of.factor);
}

/* ---- scans ---- */

/* Views: x, y; option: whether the sums go backwards. The row is one run. Sums of floats run in
 * double, sums of integers wrap around. */
static void cumsum_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const bool reverse = job->of.option != 0;
    const dtp_dtype dtype = job->of.views[0]->local.dtype;
    const int64_t n = job->over.inner;
    double sum = 0.0;
    uint64_t int_sum = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = reverse ? n - 1 - k : k;
        const int64_t x = row[0] + i * job->step[0], y = row[1] + i * job->step[1];
        if (dtp_dtype_is_float(dtype)) {
            sum += (double)job->data[0][x];
            job->data[1][y] = (float)sum;
        } else {
            int_sum += (uint64_t)dtp_element_int(dtype, job->of.views[0]->data, x);
            dtp_element_set_int(dtype, job->of.views[1]->data, y, (int64_t)int_sum);
        }
    }
}

/* Views: x, dy, dx. Products of what comes before, times products of what comes after, so that
 * zeros need no division. */
static void prod_grad_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    int64_t n = dtp_nest_total(&job->over);
    double before = 1.0, after = (double)job->data[1][row[1]];
    for (int64_t i = 0; i < n; i++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_elem(&job->over, i, off);
        job->data[2][row[2] + off[2]] = (float)before;
        before *= (double)job->data[0][row[0] + off[0]];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_elem(&job->over, i, off);
        float *dx = &job->data[2][row[2] + off[2]];
        *dx = (float)((double)*dx * after);
        after *= (double)job->data[0][row[0] + off[0]];
    }
}

/* positions of large and small elements; of equals the first wins. A NaN comes first in argmax
 * and argmin; topk takes it for the largest, as sorting does ---- */

/* Does a come strictly before b? */
static bool better(float a, float b, bool largest, bool nan_first)
{
    if (a != a || b != b) {
        return nan_first ? a != a && b == b : a == a && b != b;
    }
    return largest ? a > b : a < b;
}

static void store_index(const dtp_row_job *job, int32_t view, int64_t at, int64_t index)
{
    dtp_element_set_int(job->of.views[view]->local.dtype, job->of.views[view]->data, at, index);
}

/* Views: x, out; option: whether the largest. */
static void arg_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const bool largest = job->of.option != 0;
    const float *x = job->data[0] + row[0];
    int64_t best = 0;
    for (int64_t i = 1; i < job->over.inner; i++) {
        best = better(x[i * job->step[0]], x[best * job->step[0]], largest, true) ? i : best;
    }
    store_index(job, 1, row[1], best);
}

/* Views: x, m, out. */
static void arg_first_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const float *x = job->data[0] + row[0], m = job->data[1][row[1]];
    int64_t i = 0;
    while (i < job->over.inner) {
        float v = x[i * job->step[0]];
        if (v == m || (v != v && m != m)) {
            break;
        }
        i++;
    }
    const int64_t first = dtp_view_offset(job->of.views[0], job->of.dims.over[0].id);
    store_index(job, 2, row[2], i < job->over.inner ? first + i : job->of.none);
}

/* The k elements kept so far, by index in the output: a heap whose root is the one to give up
 * first. */
typedef struct heap {
    const float *x;
    int32_t *index;
    int64_t n, step_x, step_index;
    bool largest;
} heap;

/* Does element i of the heap come before element j? */
static bool before(const heap *h, int64_t i, int64_t j)
{
    const int32_t at = h->index[i * h->step_index], other = h->index[j * h->step_index];
    const float a = h->x[at * h->step_x], b = h->x[other * h->step_x];
    if (better(a, b, h->largest, h->largest)) {
        return true;
    }
    return !better(b, a, h->largest, h->largest) && at < other;
}

static void swap(const heap *h, int64_t i, int64_t j)
{
    int32_t *c = &h->index[i * h->step_index], *d = &h->index[j * h->step_index], w = *c;
    *c = *d;
    *d = w;
}

/* Restores the heap below i when all else is in order. */
static void sift_down(const heap *h, int64_t i)
{
    for (int64_t child = 2 * i + 1; child < h->n; child = 2 * i + 1) {
        if (child + 1 < h->n && before(h, child, child + 1)) {
            child++;
        }
        if (!before(h, i, child)) {
            return;
        }
        swap(h, i, child);
        i = child;
    }
}

/* Views: x, values, indices; option: whether the largest. The outputs hold k elements per row. */
static void topk_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const dtp_view *values = job->of.views[1], *indices = job->of.views[2];
    const dtp_dim_id over = job->of.dims.over[0].id;
    const int64_t k = dtp_ttype_size(&values->local, over), step = dtp_view_stride(values, over);
    heap h = {.x = job->data[0] + row[0],
              .index = (int32_t *)indices->data + row[2],
              .n = k,
              .step_x = job->step[0],
              .step_index = dtp_view_stride(indices, over),
              .largest = job->of.option != 0};
    for (int64_t i = 0; i < h.n; i++) {
        h.index[i * h.step_index] = (int32_t)i;
    }
    for (int64_t i = h.n / 2; i > 0; i--) {
        sift_down(&h, i - 1);
    }
    for (int64_t i = h.n; i < job->over.inner; i++) {
        if (better(h.x[i * h.step_x], h.x[h.index[0] * h.step_x], h.largest, h.largest)) {
            h.index[0] = (int32_t)i;
            sift_down(&h, 0);
        }
    }
    while (h.n > 1) {
        h.n--;
        swap(&h, 0, h.n);
        sift_down(&h, 0);
    }
    for (int64_t i = 0; i < k; i++) {
        dtp_float_put(values->local.dtype, values->data, row[1] + i * step,
                      h.x[h.index[i * h.step_index] * h.step_x]);
    }
}

static dtp_status bind_topk(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    DTP_TRY(dtp_row_job_bind(args, DTP_ROW_topk, topk_row, arena, state, err));
    ((dtp_row_job *)*state)->halves &= 1U; /* the function itself stores values */
    return DTP_OK;
}

#define OPS(OP)                                                                                    \
    OP(logsumexp, logsumexp_row, DTP_FLOATS)                                                       \
    OP(norm, norm_row, DTP_FLOATS)                                                                 \
    OP(amax, norm_row, DTP_FLOATS)                                                                 \
    OP(var, var_row, DTP_FLOATS)                                                                   \
    OP(std, std_row, DTP_FLOATS)                                                                   \
    OP(var_finish, var_finish_row, DTP_FLOATS)                                                     \
    OP(cumsum, cumsum_row, DTP_NUMBERS)                                                            \
    OP(prod_grad, prod_grad_row, DTP_FLOATS)                                                       \
    OP(argmax, arg_row, DTP_NUMBERS)                                                               \
    OP(argmin, arg_row, DTP_NUMBERS)                                                               \
    OP(arg_first, arg_first_row, DTP_NUMBERS)

OPS(DTP_ROW_BIND)

const dtp_kernel dtp_cpu_row_stats[] = {
    OPS(DTP_ROW_KERNEL){"topk", dtp_row_job_kernel, bind_topk, DTP_NUMBERS}, {.op = NULL}};
