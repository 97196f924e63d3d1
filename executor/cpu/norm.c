/* layer_norm and rms_norm with their gradients. The variance takes a second pass over the row. */
#include "executor/cpu/norm.h"

#include <math.h>

#include "executor/cpu/rows.h"

typedef struct norm_form {
    bool centered;
    double eps;
} norm_form;

static void forward_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const norm_form *form = job->user;
    double count = (double)job->dims.count, sum = 0.0, square = 0.0;
    for (int64_t r = 0; form->centered && r < job->over.rows; r++) {
        int64_t run[DTP_NEST_VIEWS];
        dtp_nest_row(&job->over, r, run);
        sum += dtp_row_sum(job->over.inner, dtp_row_at(job, NORM_X, row, run), job->step[NORM_X]);
    }
    float mean = (float)(sum / count);
    for (int64_t r = 0; r < job->over.rows; r++) {
        int64_t run[DTP_NEST_VIEWS];
        dtp_nest_row(&job->over, r, run);
        square += dtp_row_square(job->over.inner, dtp_row_at(job, NORM_X, row, run),
                                 job->step[NORM_X], mean);
    }
    float rstd = (float)(1.0 / sqrt(square / count + form->eps));
    dtp_norm_write_row(job, row, form->centered, mean, rstd);
}

static dtp_status layer_norm_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *views[] = {&args->in[0],  &args->out[0], &args->in[1],
                               &args->out[2], &args->out[1], &args->in[2]};
    norm_form form = {true, dtp_call_float(args->call, "eps")};
    dtp_row_job job;
    dtp_row_job_make(&job, args->call, 6, views);
    job.user = &form;
    dtp_row_job_each(&job, args->threads, forward_row);
    return DTP_OK;
}

static dtp_status rms_norm_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *views[] = {&args->in[0], &args->out[0], &args->in[1], &args->out[1]};
    norm_form form = {false, dtp_call_float(args->call, "eps")};
    dtp_row_job job;
    dtp_row_job_make(&job, args->call, 4, views);
    job.user = &form;
    dtp_row_job_each(&job, args->threads, forward_row);
    return DTP_OK;
}

static void layer_norm_dx_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    dtp_norm_write_dx(job, row, true, dtp_norm_row_sums(job, row, true));
}

static void rms_norm_dx_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    dtp_norm_write_dx(job, row, false, dtp_norm_row_sums(job, row, false));
}

/* The sums over rows come first: dx may overwrite x or dy. */
static dtp_status layer_norm_grad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_row_job job;
    dtp_norm_grad_job(&job, args, true, &args->out[0], NULL);
    dtp_norm_dgamma(&job, &args->out[1], &args->out[2], args->threads);
    dtp_row_job_each(&job, args->threads, layer_norm_dx_row);
    return DTP_OK;
}

static dtp_status rms_norm_grad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_row_job job;
    dtp_norm_grad_job(&job, args, false, &args->out[0], NULL);
    dtp_norm_dgamma(&job, &args->out[1], NULL, args->threads);
    dtp_row_job_each(&job, args->threads, rms_norm_dx_row);
    return DTP_OK;
}

static const dtp_cpu_row rows[] = {
    {"layer_norm", layer_norm_kernel, dtp_cpu_check_all_f32},
    {"rms_norm", rms_norm_kernel, dtp_cpu_check_all_f32},
    {"layer_norm_grad", layer_norm_grad_kernel, dtp_cpu_check_all_f32},
    {"rms_norm_grad", rms_norm_grad_kernel, dtp_cpu_check_all_f32},
};
const dtp_cpu_family dtp_cpu_norm = {rows, sizeof rows / sizeof rows[0]};
