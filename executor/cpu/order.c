/* Positions of large and small elements: argmax, argmin, arg_first, topk. A NaN counts as the
 * largest of the large and the smallest of the small; of equals the first wins. */
#include <string.h>

#include "executor/cpu/kernels.h"
#include "executor/cpu/rows.h"

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
    dtp_cpu_int_set(job->views[view]->local.dtype, job->views[view]->data, at, index);
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

/* ---- topk ---- */

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

const dtp_cpu_row dtp_cpu_order[] = {{"argmax", argmax_kernel, dtp_cpu_check_f32},
                                     {"argmin", argmin_kernel, dtp_cpu_check_f32},
                                     {"arg_first", arg_first_kernel, dtp_cpu_check_f32},
                                     {"topk", topk_kernel, check_topk},
                                     {.op = NULL}};
