/* softmax and log_softmax, their gradients, and the parts they decompose into; option: whether with
 * the logarithm. One pass per row for
 * the maximum, one for the exponentials and their sum, one for the scaling. */
#include <math.h>

#include "executor/cpu/rows.h"
#include "executor/cpu/loops/simd.h"

/* y = exp(x - m) * factor, or, with the logarithm, y = x + factor. */
static void write_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], int32_t y,
                      bool log_form, float m, float factor)
{
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS];
        dtp_row_run(job, row, r, at);
        if (log_form) {
            dtp_row_add(job->over.inner, at[0], at[y], job->step[0], factor);
        } else {
            dtp_row_exp_scale(job->over.inner, at[0], at[y], job->step[0], m, factor);
        }
    }
}

/* Views: x, y. The output has the dims of x in its order. */
static void softmax_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float m = dtp_row_job_max(job, row);
    if (job->over.rows == 1 && job->step[0] == 1) {
        float *y = job->data[1] + row[1];
        double s = dtp_row_exp(job->over.inner, job->data[0] + row[0], m, y);
        dtp_row_scale(job->over.inner, y, y, 1, (float)(1.0 / s));
        return;
    }
    write_row(job, row, 1, false, m, (float)(1.0 / dtp_row_job_exp_sum(job, row, m)));
}

static void log_softmax_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float m = dtp_row_job_max(job, row);
    float lse = (float)((double)m + log(dtp_row_job_exp_sum(job, row, m)));
    write_row(job, row, 1, true, m, -lse);
}

/* gradients: dx = y (dy - d), d = sum of y dy; with the logarithm dx = dy - exp(y) d, d = sum
 * of dy. Views: y, dy; last dx ---- */

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

static void write_grad(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], bool log_form,
                       float d)
{
    const int32_t to = job->of.n_views - 1;
    const int64_t n = job->over.inner, *step = job->step;
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS];
        dtp_row_run(job, row, r, at);
        if (step[0] == 1 && step[1] == 1 && step[to] == 1) {
            (log_form ? log_grad_run : grad_run)(n, at[0], at[1], at[to], d);
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            float y = at[0][i * step[0]], dy = at[1][i * step[1]];
            at[to][i * step[to]] = log_form ? dy - dtp_simd_exp(y) * d : y * (dy - d);
        }
    }
}

static double grad_sum(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], bool log_form)
{
    double d = 0.0;
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS];
        dtp_row_run(job, row, r, at);
        d += log_form ? dtp_row_sum(job->over.inner, at[1], job->step[1])
                      : dtp_row_dot(job->over.inner, at[0], job->step[0], at[1], job->step[1]);
    }
    return d;
}

static void softmax_grad_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const bool log_form = job->of.option != 0;
    write_grad(job, row, log_form, (float)grad_sum(job, row, log_form));
}

/* ---- parts of decompositions ---- */

/* Views: x, m, out. An infinite m counts as 0. */
static void sum_exp_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const float m = job->data[1][row[1]];
    job->data[2][row[2]] = (float)dtp_row_job_exp_sum(job, row, isinf(m) ? 0.0f : m);
}

/* Views: a, b, out. */
static void row_dot_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    job->data[2][row[2]] = (float)grad_sum(job, row, false);
}

/* Views: x, m, s, y. There is no result when m is infinite. */
static void softmax_apply_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const bool log_form = job->of.option != 0;
    const float m = job->data[1][row[1]], s = isinf(m) ? NAN : job->data[2][row[2]];
    write_row(job, row, 3, log_form, m, log_form ? (float)-((double)m + log((double)s)) : 1.0f / s);
}

/* Views: y, dy, d, dx. */
static void softmax_grad_apply_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    write_grad(job, row, job->of.option != 0, job->data[2][row[2]]);
}

#define OPS(OP)                                                                                    \
    OP(softmax, softmax_row, DTP_FLOATS)                                                           \
    OP(log_softmax, log_softmax_row, DTP_FLOATS)                                                   \
    OP(softmax_grad, softmax_grad_row, DTP_FLOATS)                                                 \
    OP(log_softmax_grad, softmax_grad_row, DTP_FLOATS)                                             \
    OP(sum_exp, sum_exp_row, DTP_FLOATS)                                                           \
    OP(row_dot, row_dot_row, DTP_FLOATS)                                                           \
    OP(softmax_apply, softmax_apply_row, DTP_FLOATS)                                               \
    OP(softmax_grad_apply, softmax_grad_apply_row, DTP_FLOATS)

OPS(DTP_ROW_BIND)

const dtp_kernel dtp_cpu_softmax[] = {OPS(DTP_ROW_KERNEL){.op = NULL}};
