/* softmax and log_softmax, their gradients, and the parts they decompose into. One pass per row for
 * the maximum, one for the exponentials and their sum, one for the scaling. */
#include <math.h>

#include "executor/cpu/kernels.h"
#include "executor/cpu/row_job.h"
#include "executor/cpu/rows.h"
#include "executor/cpu/simd.h"

/* Views: x, y. */
static void softmax_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float m = dtp_row_job_max(job, row);
    if (job->over.rows == 1 && job->step[0] == 1) {
        float *y = job->data[1] + row[1];
        double s = dtp_row_exp(job->over.inner, job->data[0] + row[0], m, y);
        dtp_row_scale(job->over.inner, y, y, 1, (float)(1.0 / s));
        return;
    }
    float factor = (float)(1.0 / dtp_row_job_exp_sum(job, row, m));
    for (int64_t r = 0; r < job->over.rows; r++) {
        int64_t run[DTP_NEST_VIEWS];
        dtp_nest_row(&job->over, r, run);
        dtp_row_exp_scale(job->over.inner, dtp_row_at(job, 0, row, run),
                          dtp_row_at(job, 1, row, run), job->step[0], m, factor);
    }
}

static void log_softmax_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float m = dtp_row_job_max(job, row);
    float lse = (float)((double)m + log(dtp_row_job_exp_sum(job, row, m)));
    for (int64_t r = 0; r < job->over.rows; r++) {
        int64_t run[DTP_NEST_VIEWS];
        dtp_nest_row(&job->over, r, run);
        dtp_row_add(job->over.inner, dtp_row_at(job, 0, row, run), dtp_row_at(job, 1, row, run),
                    job->step[0], -lse);
    }
}

/* The output has the dims of the first operand in its order. */
static dtp_status forward(const dtp_kernel_args *args, dtp_row_fn fn, dtp_err *err)
{
    (void)err;
    const dtp_view *views[] = {&args->in[0], &args->out[0]};
    dtp_row_job job;
    dtp_row_job_make(&job, args->call, 2, views);
    dtp_row_job_each(&job, args->threads, fn);
    return DTP_OK;
}

static dtp_status softmax_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return forward(args, softmax_row, err);
}

static dtp_status log_softmax_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return forward(args, log_softmax_row, err);
}

/* ---- gradients. Views: y, dy, dx, and for the applied part d (a value per row) ---- */

DTP_CPU_CLONES static void grad_run(int64_t n, const float *y, const float *dy, float *dx, float d)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dx[i] = y[i] * (dy[i] - d);
    }
}

DTP_CPU_CLONES static void log_grad_run(int64_t n, const float *y, const float *dy, float *dx,
                                        float d)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dx[i] = dy[i] - dtp_simd_exp(y[i]) * d;
    }
}

static void apply_grad(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], bool log_form,
                       float d)
{
    int64_t n = job->over.inner;
    const int64_t *step = job->step;
    for (int64_t r = 0; r < job->over.rows; r++) {
        int64_t run[DTP_NEST_VIEWS];
        dtp_nest_row(&job->over, r, run);
        const float *y = dtp_row_at(job, 0, row, run), *dy = dtp_row_at(job, 1, row, run);
        float *dx = dtp_row_at(job, 2, row, run);
        if (step[0] == 1 && step[1] == 1 && step[2] == 1) {
            (log_form ? log_grad_run : grad_run)(n, y, dy, dx, d);
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            float yi = y[i * step[0]], dyi = dy[i * step[1]];
            dx[i * step[2]] = log_form ? dyi - dtp_simd_exp(yi) * d : yi * (dyi - d);
        }
    }
}

/* Sum of dy * y, or of dy alone. */
static double grad_sum(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], bool log_form)
{
    double d = 0.0;
    for (int64_t r = 0; r < job->over.rows; r++) {
        int64_t run[DTP_NEST_VIEWS];
        dtp_nest_row(&job->over, r, run);
        const float *y = dtp_row_at(job, 0, row, run), *dy = dtp_row_at(job, 1, row, run);
        d += log_form ? dtp_row_sum(job->over.inner, dy, job->step[1])
                      : dtp_row_dot(job->over.inner, y, job->step[0], dy, job->step[1]);
    }
    return d;
}

static void softmax_grad_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    apply_grad(job, row, false, (float)grad_sum(job, row, false));
}

static void log_softmax_grad_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    apply_grad(job, row, true, (float)grad_sum(job, row, true));
}

static dtp_status backward(const dtp_kernel_args *args, dtp_row_fn fn, dtp_err *err)
{
    (void)err;
    const dtp_view *views[] = {&args->in[0], &args->in[1], &args->out[0]};
    dtp_row_job job;
    dtp_row_job_make(&job, args->call, 3, views);
    dtp_row_job_each(&job, args->threads, fn);
    return DTP_OK;
}

static dtp_status softmax_grad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return backward(args, softmax_grad_row, err);
}

static dtp_status log_softmax_grad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return backward(args, log_softmax_grad_row, err);
}

/* ---- parts of decompositions ---- */

/* Views: x, m, out. */
static void sum_exp_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    job->data[2][row[2]] = (float)dtp_row_job_exp_sum(job, row, job->data[1][row[1]]);
}

static dtp_status sum_exp_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return backward(args, sum_exp_row, err);
}

/* Views: a, b, out. */
static void row_dot_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    job->data[2][row[2]] = (float)grad_sum(job, row, false);
}

static dtp_status row_dot_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return backward(args, row_dot_row, err);
}

/* Views: x, y, m, s. */
static void softmax_apply_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    bool log_form = *(const bool *)job->user;
    float m = job->data[2][row[2]], s = job->data[3][row[3]];
    for (int64_t r = 0; r < job->over.rows; r++) {
        int64_t run[DTP_NEST_VIEWS];
        dtp_nest_row(&job->over, r, run);
        const float *x = dtp_row_at(job, 0, row, run);
        float *y = dtp_row_at(job, 1, row, run);
        if (log_form) {
            dtp_row_add(job->over.inner, x, y, job->step[0], (float)-((double)m + log((double)s)));
        } else {
            dtp_row_exp_scale(job->over.inner, x, y, job->step[0], m, 1.0f / s);
        }
    }
}

static dtp_status softmax_apply_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *views[] = {&args->in[0], &args->out[0], &args->in[1], &args->in[2]};
    bool log_form = dtp_call_int(args->call, "log") != 0;
    dtp_row_job job;
    dtp_row_job_make(&job, args->call, 4, views);
    job.user = &log_form;
    dtp_row_job_each(&job, args->threads, softmax_apply_row);
    return DTP_OK;
}

/* Views: y, dy, dx, d. */
static void softmax_grad_apply_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    apply_grad(job, row, *(const bool *)job->user, job->data[3][row[3]]);
}

static dtp_status softmax_grad_apply_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *views[] = {&args->in[0], &args->in[1], &args->out[0], &args->in[2]};
    bool log_form = dtp_call_int(args->call, "log") != 0;
    dtp_row_job job;
    dtp_row_job_make(&job, args->call, 4, views);
    job.user = &log_form;
    dtp_row_job_each(&job, args->threads, softmax_grad_apply_row);
    return DTP_OK;
}

static const dtp_cpu_row rows[] = {
    {"softmax", softmax_kernel, dtp_cpu_check_all_f32},
    {"log_softmax", log_softmax_kernel, dtp_cpu_check_all_f32},
    {"softmax_grad", softmax_grad_kernel, dtp_cpu_check_all_f32},
    {"log_softmax_grad", log_softmax_grad_kernel, dtp_cpu_check_all_f32},
    {"sum_exp", sum_exp_kernel, dtp_cpu_check_all_f32},
    {"row_dot", row_dot_kernel, dtp_cpu_check_all_f32},
    {"softmax_apply", softmax_apply_kernel, dtp_cpu_check_all_f32},
    {"softmax_grad_apply", softmax_grad_apply_kernel, dtp_cpu_check_all_f32},
};
const dtp_cpu_family dtp_cpu_softmax = {rows, sizeof rows / sizeof rows[0]};
