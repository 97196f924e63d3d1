/* cumsum, and the gradient of the product. */
#include "executor/cpu/kernels.h"
#include "executor/cpu/nest.h"
#include "executor/cpu/parallel.h"
#include "executor/cpu/row_job.h"

/* One line of n elements; steps and first elements of x and y. Sums of f32 run in double, sums of
 * integers wrap around. */
typedef struct line {
    int64_t n, x, y, step_x, step_y;
} line;

static void sum_floats(const line *l, const float *x, float *y)
{
    double s = 0.0;
    for (int64_t i = 0; i < l->n; i++) {
        s += (double)x[l->x + i * l->step_x];
        y[l->y + i * l->step_y] = (float)s;
    }
}

static void sum_ints(const line *l, dtp_dtype dtype, const void *x, void *y)
{
    uint64_t s = 0;
    for (int64_t i = 0; i < l->n; i++) {
        s += (uint64_t)dtp_cpu_int_at(dtype, x, l->x + i * l->step_x);
        dtp_cpu_int_set(dtype, y, l->y + i * l->step_y, (int64_t)s);
    }
}

/* Lines start at their other end when the sums go backwards. */
static line line_at(const dtp_view *x, const dtp_view *y, dtp_dim_id dim, bool reverse)
{
    line l = {.n = x->local.dims[dtp_ttype_find(&x->local, dim)].size,
              .step_x = dtp_view_stride(x, dim),
              .step_y = dtp_view_stride(y, dim)};
    if (reverse) {
        l.x = (l.n - 1) * l.step_x;
        l.y = (l.n - 1) * l.step_y;
        l.step_x = -l.step_x;
        l.step_y = -l.step_y;
    }
    return l;
}

static dtp_status cumsum_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0], *y = &args->out[0], *views[] = {x, y};
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const line first = line_at(x, y, dim, dtp_call_int(args->call, "reverse") != 0);
    dtp_tdim dims[DTP_MAX_RANK];
    dtp_nest nest;
    int32_t n = 0;
    for (int32_t i = 0; i < x->local.rank; i++) {
        if (x->local.dims[i].id != dim) {
            dims[n++] = x->local.dims[i];
        }
    }
    dtp_nest_make(&nest, n, dims, 2, views);
    const int64_t lines = dtp_nest_total(&nest);
    const int32_t team = dtp_cpu_team(args->threads, lines * first.n);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t k = 0; k < lines; k++) {
        int64_t off[DTP_NEST_VIEWS];
        line l = first;
        dtp_nest_elem(&nest, k, off);
        l.x += off[0];
        l.y += off[1];
        if (x->local.dtype == DTP_F32) {
            sum_floats(&l, x->data, y->data);
        } else {
            sum_ints(&l, x->local.dtype, x->data, y->data);
        }
    }
    return DTP_OK;
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

static dtp_status prod_grad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *views[] = {&args->in[0], &args->in[1], &args->out[0]};
    dtp_row_job job;
    dtp_row_job_make(&job, args->call, 3, views);
    dtp_row_job_each(&job, args->threads, prod_grad_row);
    return DTP_OK;
}

static const dtp_cpu_row rows[] = {{"cumsum", cumsum_kernel, dtp_cpu_check_f32},
                                   {"prod_grad", prod_grad_kernel, dtp_cpu_check_all_f32}};
const dtp_cpu_family dtp_cpu_scan = {rows, sizeof rows / sizeof rows[0]};
