/* Statistics of rows: logsumexp, vector norms, variance and standard deviation. Views: x, out. */
#include <math.h>
#include <string.h>

#include "executor/cpu/kernels.h"
#include "executor/cpu/row_job.h"
#include "executor/cpu/rows.h"

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
        int64_t run[DTP_NEST_VIEWS];
        dtp_nest_row(&job->over, r, run);
        s += fn(job->over.inner, dtp_row_at(job, 0, row, run), job->step[0]);
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
        int64_t run[DTP_NEST_VIEWS];
        dtp_nest_row(&job->over, r, run);
        const float *x = dtp_row_at(job, 0, row, run);
        for (int64_t i = 0; i < job->over.inner; i++) {
            float a = fabsf(x[i * job->step[0]]);
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
        int64_t run[DTP_NEST_VIEWS];
        dtp_nest_row(&job->over, r, run);
        s += dtp_row_square(job->over.inner, dtp_row_at(job, 0, row, run), job->step[0], mean);
    }
    s /= how->divisor;
    job->data[1][row[1]] = (float)(how->root ? sqrt(s) : s);
}

static dtp_status run(const dtp_kernel_args *args, dtp_row_fn fn, const void *user, dtp_err *err)
{
    (void)err;
    const dtp_view *views[] = {&args->in[0], &args->out[0]};
    dtp_row_job job;
    dtp_row_job_make(&job, args->call, 2, views);
    job.user = user;
    dtp_row_job_each(&job, args->threads, fn);
    return DTP_OK;
}

static dtp_status logsumexp_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return run(args, logsumexp_row, NULL, err);
}

static dtp_status norm_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const char *ord = dtp_cpu_choice(args->call, "ord");
    dtp_row_fn fn = strcmp(ord, "1") == 0   ? norm_1_row
                    : strcmp(ord, "2") == 0 ? norm_2_row
                                            : norm_inf_row;
    return run(args, fn, NULL, err);
}

static dtp_status run_spread(const dtp_kernel_args *args, bool root, dtp_err *err)
{
    dtp_cpu_over over;
    dtp_cpu_split(args->call, &args->in[0], &over);
    const spread how = {(double)(over.global_count - dtp_call_int(args->call, "correction")), root};
    return run(args, var_row, &how, err);
}

static dtp_status var_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return run_spread(args, false, err);
}

static dtp_status std_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return run_spread(args, true, err);
}

static const dtp_cpu_row rows[] = {{"logsumexp", logsumexp_kernel, dtp_cpu_check_all_f32},
                                   {"norm", norm_kernel, dtp_cpu_check_all_f32},
                                   {"var", var_kernel, dtp_cpu_check_all_f32},
                                   {"std", std_kernel, dtp_cpu_check_all_f32}};
const dtp_cpu_family dtp_cpu_row_stats = {rows, sizeof rows / sizeof rows[0]};
