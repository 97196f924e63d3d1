/* Statistics of rows: logsumexp, vector norms, variance and standard deviation (views: x, out);
 * cumulative sums; the gradient of a product; argmax, argmin, arg_first and topk. */
#include <math.h>
#include <string.h>

#include "executor/cpu/rows.h"
#include "executor/device/convert.h"

static void logsumexp_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float m = dtp_row_job_max(job, row);
    double s = dtp_row_job_exp_sum(job, row, m);
    job->data[1][row[1]] = s > 0.0 ? (float)((double)m + log(s)) : m;
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

static void norm_1_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    job->data[1][row[1]] = (float)sum_runs(job, row, run_abs);
}

static void norm_2_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    job->data[1][row[1]] = (float)sqrt(sum_runs(job, row, run_squares));
}

/* NaN wins. */
static void norm_inf_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float m = 0.0f;
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS];
        dtp_row_run(job, row, r, at);
        for (int64_t i = 0; i < job->over.inner; i++) {
            float a = fabsf(at[0][i * job->step[0]]);
            m = a > m || a != a ? a : m;
        }
    }
    job->data[1][row[1]] = m;
}

typedef struct spread {
    double divisor; /* elements less the correction */
    bool root;
} spread;

/* Two passes: the mean, then the squares of what is left. */
static void var_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const spread *how = job->user;
    float mean = (float)(sum_runs(job, row, dtp_row_sum) / (double)job->dims.count);
    double s = 0.0;
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS];
        dtp_row_run(job, row, r, at);
        s += dtp_row_square(job->over.inner, at[0], job->step[0], mean);
    }
    s /= how->divisor;
    job->data[1][row[1]] = (float)(how->root ? sqrt(s) : s);
}

DTP_ROW_KERNEL(logsumexp)

static dtp_status norm_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const char *ord = dtp_call_choice(args->call, "ord");
    dtp_row_fn fn = strcmp(ord, "1") == 0   ? norm_1_row
                    : strcmp(ord, "2") == 0 ? norm_2_row
                                            : norm_inf_row;
    return dtp_row_job_run(args, "over", fn, NULL);
}

static dtp_status run_spread(const dtp_kernel_args *args, bool root)
{
    dtp_cpu_over over;
    dtp_cpu_split(args->call, "over", &args->in[0], &over);
    const spread how = {(double)(over.global_count - dtp_call_int(args->call, "correction")), root};
    return dtp_row_job_run(args, "over", var_row, &how);
}

static dtp_status var_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    return run_spread(args, false);
}

static dtp_status std_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    return run_spread(args, true);
}

/* ---- scans ---- */

/* Views: x, y; user: whether the sums go backwards. The row is one run. Sums of f32 run in double,
 * sums of integers wrap around. */
static void cumsum_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const bool reverse = *(const bool *)job->user;
    const dtp_dtype dtype = job->views[0]->local.dtype;
    const int64_t n = job->over.inner;
    double sum = 0.0;
    uint64_t int_sum = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = reverse ? n - 1 - k : k;
        const int64_t x = row[0] + i * job->step[0], y = row[1] + i * job->step[1];
        if (dtype == DTP_F32) {
            sum += (double)job->data[0][x];
            job->data[1][y] = (float)sum;
        } else {
            int_sum += (uint64_t)dtp_element_int(dtype, job->views[0]->data, x);
            dtp_element_set_int(dtype, job->views[1]->data, y, (int64_t)int_sum);
        }
    }
}

static dtp_status cumsum_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const bool reverse = dtp_call_int(args->call, "reverse") != 0;
    return dtp_row_job_run(args, "dim", cumsum_row, &reverse);
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

DTP_ROW_KERNEL(prod_grad)

/* ---- positions of large and small elements: a NaN counts as the largest of the large and the
 * smallest of the small; of equals the first wins ---- */

/* Does a come strictly before b? */
static bool better(float a, float b, bool largest)
{
    if (a != a || b != b) {
        return a != a && b == b;
    }
    return largest ? a > b : a < b;
}

static void store_index(const dtp_row_job *job, int32_t view, int64_t at, int64_t index)
{
    dtp_element_set_int(job->views[view]->local.dtype, job->views[view]->data, at, index);
}

/* Views: x, out. */
static void arg_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const bool largest = *(const bool *)job->user;
    const float *x = job->data[0] + row[0];
    int64_t best = 0;
    for (int64_t i = 1; i < job->over.inner; i++) {
        best = better(x[i * job->step[0]], x[best * job->step[0]], largest) ? i : best;
    }
    store_index(job, 1, row[1], best);
}

static dtp_status run_arg_kernel(const dtp_kernel_args *args, bool largest)
{
    return dtp_row_job_run(args, "over", arg_row, &largest);
}

static dtp_status argmax_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    return run_arg_kernel(args, true);
}

static dtp_status argmin_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    return run_arg_kernel(args, false);
}

/* Views: x, m, out; user: global index of the first element. */
static void arg_first_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const int64_t none = job->views[2]->local.dtype == DTP_I64 ? INT64_MAX : INT32_MAX;
    const float *x = job->data[0] + row[0], m = job->data[1][row[1]];
    int64_t i = 0;
    while (i < job->over.inner) {
        float v = x[i * job->step[0]];
        if (v == m || (v != v && m != m)) {
            break;
        }
        i++;
    }
    store_index(job, 2, row[2], i < job->over.inner ? *(const int64_t *)job->user + i : none);
}

static dtp_status arg_first_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const int64_t first = dtp_cpu_offset(&args->in[0], dtp_call_dim(args->call, "over"));
    return dtp_row_job_run(args, "over", arg_first_row, &first);
}

/* The k elements kept so far, in the outputs: a heap whose root is the one to give up first. */
typedef struct heap {
    float *value;
    int32_t *index;
    int64_t n, step_value, step_index;
    bool largest;
} heap;

/* Does element i of the heap come before element j? */
static bool before(const heap *h, int64_t i, int64_t j)
{
    float a = h->value[i * h->step_value], b = h->value[j * h->step_value];
    if (better(a, b, h->largest) || better(b, a, h->largest)) {
        return better(a, b, h->largest);
    }
    return h->index[i * h->step_index] < h->index[j * h->step_index];
}

static void swap(const heap *h, int64_t i, int64_t j)
{
    float *a = &h->value[i * h->step_value], *b = &h->value[j * h->step_value], v = *a;
    int32_t *c = &h->index[i * h->step_index], *d = &h->index[j * h->step_index], w = *c;
    *a = *b;
    *b = v;
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

/* Views: x, values, indices; user: the heap without its data. */
static void topk_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    heap h = *(const heap *)job->user;
    const float *x = job->data[0] + row[0];
    h.value += row[1];
    h.index += row[2];
    for (int64_t i = 0; i < h.n; i++) {
        h.value[i * h.step_value] = x[i * job->step[0]];
        h.index[i * h.step_index] = (int32_t)i;
    }
    for (int64_t i = h.n / 2; i > 0; i--) {
        sift_down(&h, i - 1);
    }
    for (int64_t i = h.n; i < job->over.inner; i++) {
        if (better(x[i * job->step[0]], h.value[0], h.largest)) {
            h.value[0] = x[i * job->step[0]];
            h.index[0] = (int32_t)i;
            sift_down(&h, 0);
        }
    }
    while (h.n > 1) {
        h.n--;
        swap(&h, 0, h.n);
        sift_down(&h, 0);
    }
}

static dtp_status check_topk(const dtp_op_call *call, dtp_err *err)
{
    const int32_t axis = dtp_ttype_find(&call->in[0], dtp_call_dim(call, "over"));
    if (call->in[0].dims[axis].size > INT32_MAX) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "topk: indices of a dim of more than 2^31 elements");
    }
    return dtp_cpu_check_f32(call, err);
}

static dtp_status topk_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *out = args->out;
    const dtp_dim_id over = dtp_call_dim(args->call, "over");
    const heap h = {.value = out[0].data,
                    .index = out[1].data,
                    .n = dtp_call_int(args->call, "k"),
                    .step_value = dtp_view_stride(&out[0], over),
                    .step_index = dtp_view_stride(&out[1], over),
                    .largest = dtp_call_int(args->call, "largest") != 0};
    return dtp_row_job_run(args, "over", topk_row, &h);
}

const dtp_cpu_row dtp_cpu_row_stats[] = {{"logsumexp", logsumexp_kernel, dtp_cpu_check_all_f32},
                                         {"norm", norm_kernel, dtp_cpu_check_all_f32},
                                         {"var", var_kernel, dtp_cpu_check_all_f32},
                                         {"std", std_kernel, dtp_cpu_check_all_f32},
                                         {"cumsum", cumsum_kernel, dtp_cpu_check_f32},
                                         {"prod_grad", prod_grad_kernel, dtp_cpu_check_all_f32},
                                         {"argmax", argmax_kernel, dtp_cpu_check_f32},
                                         {"argmin", argmin_kernel, dtp_cpu_check_f32},
                                         {"arg_first", arg_first_kernel, dtp_cpu_check_f32},
                                         {"topk", topk_kernel, check_topk},
                                         {.op = NULL}};
