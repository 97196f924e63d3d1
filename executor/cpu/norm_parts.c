/* The parts that layer_norm and rms_norm decompose into when a dim of `over` is split. Sums over
 * the local part of a row are added up between ranks; counts are global. The statistics of a row
 * lie along the one dim ("_stat") that x does not have. */
#include <math.h>

#include "executor/cpu/norm.h"
#include "executor/cpu/rows.h"

/* Element stride and size of the statistics dim: the one of `stats` that is not in x. */
static int64_t stat_dim(const dtp_view *stats, const dtp_view *x, int64_t *size)
{
    for (int32_t i = 0; i < stats->local.rank; i++) {
        dtp_tdim dim = stats->local.dims[i];
        if (dtp_ttype_find(&x->local, dim.id) < 0) {
            *size = dim.size;
            return dtp_view_stride(stats, dim.id);
        }
    }
    *size = 1;
    return 1;
}

typedef struct parts_form {
    double eps;
    int64_t stat_stride, stat_size;
} parts_form;

/* Views: x, out. */
static void moments_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const parts_form *form = job->user;
    double sum = 0.0, square = 0.0;
    for (int64_t r = 0; r < job->over.rows; r++) {
        int64_t run[DTP_NEST_VIEWS];
        dtp_nest_row(&job->over, r, run);
        const float *x = dtp_row_at(job, 0, row, run);
        sum += form->stat_size > 1 ? dtp_row_sum(job->over.inner, x, job->step[0]) : 0.0;
        square += dtp_row_square(job->over.inner, x, job->step[0], 0.0f);
    }
    float *out = job->data[1] + row[1];
    if (form->stat_size > 1) {
        out[0] = (float)sum;
        out[form->stat_stride] = (float)square;
    } else {
        out[0] = (float)square;
    }
}

/* [rows.., 2]: sum of x, of x^2; or [rows.., 1]: sum of x^2. */
static dtp_status moments_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *views[] = {&args->in[0], &args->out[0]};
    parts_form form = {0};
    form.stat_stride = stat_dim(&args->out[0], &args->in[0], &form.stat_size);
    dtp_row_job job;
    dtp_row_job_make(&job, args->call, 2, views);
    job.user = &form;
    dtp_row_job_each(&job, args->threads, moments_row);
    return DTP_OK;
}

static void layer_norm_apply_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const parts_form *form = job->user;
    const float *sums = job->data[NORM_SUMS] + row[NORM_SUMS];
    double n = (double)job->dims.global_count;
    double mean = (double)sums[0] / n;
    double var = (double)sums[form->stat_stride] / n - mean * mean;
    var = var < 0.0 ? 0.0 : var;
    dtp_norm_write_row(job, row, true, (float)mean, (float)(1.0 / sqrt(var + form->eps)));
}

/* Operands x, moments, gamma, beta; outputs y, mean, rstd. */
static dtp_status layer_norm_apply_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *in = args->in, *out = args->out;
    const dtp_view *views[] = {&in[0], &out[0], &in[2], &out[2], &out[1], &in[3], &in[1]};
    parts_form form = {.eps = dtp_call_float(args->call, "eps")};
    form.stat_stride = stat_dim(&in[1], &in[0], &form.stat_size);
    dtp_row_job job;
    dtp_row_job_make(&job, args->call, 7, views);
    job.user = &form;
    dtp_row_job_each(&job, args->threads, layer_norm_apply_row);
    return DTP_OK;
}

static void rms_norm_apply_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const parts_form *form = job->user;
    double square = (double)job->data[NORM_SUMS][row[NORM_SUMS]] / (double)job->dims.global_count;
    dtp_norm_write_row(job, row, false, 0.0f, (float)(1.0 / sqrt(square + form->eps)));
}

/* Operands x, moments, gamma; outputs y, rstd. */
static dtp_status rms_norm_apply_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *in = args->in, *out = args->out;
    const dtp_view *views[] = {&in[0], &out[0], &in[2], &out[1], &out[1], &in[2], &in[1]};
    parts_form form = {.eps = dtp_call_float(args->call, "eps")};
    dtp_row_job job;
    dtp_row_job_make(&job, args->call, 7, views);
    job.user = &form;
    dtp_row_job_each(&job, args->threads, rms_norm_apply_row);
    return DTP_OK;
}

static void layer_norm_sums_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const parts_form *form = job->user;
    dtp_norm_sums sums = dtp_norm_row_sums(job, row, true);
    float *out = job->data[NORM_SUMS] + row[NORM_SUMS];
    out[0] = (float)sums.dyg;
    out[form->stat_stride] = (float)sums.dygx;
}

static void rms_norm_sums_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    job->data[NORM_SUMS][row[NORM_SUMS]] = (float)dtp_norm_row_sums(job, row, false).dygx;
}

static dtp_status grad_sums(const dtp_kernel_args *args, bool centered, dtp_row_fn fn, dtp_err *err)
{
    (void)err;
    parts_form form = {0};
    form.stat_stride = stat_dim(&args->out[0], &args->in[0], &form.stat_size);
    dtp_row_job job;
    dtp_norm_grad_job(&job, args, centered, &args->in[0], &args->out[0]);
    job.user = &form;
    dtp_row_job_each(&job, args->threads, fn);
    return DTP_OK;
}

static dtp_status layer_norm_grad_sums_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return grad_sums(args, true, layer_norm_sums_row, err);
}

static dtp_status rms_norm_grad_sums_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return grad_sums(args, false, rms_norm_sums_row, err);
}

static void layer_norm_apply_dx_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const parts_form *form = job->user;
    const float *s = job->data[NORM_SUMS] + row[NORM_SUMS];
    dtp_norm_sums sums = {(double)s[0], (double)s[form->stat_stride]};
    dtp_norm_write_dx(job, row, true, sums);
}

static void rms_norm_apply_dx_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    dtp_norm_sums sums = {0.0, (double)job->data[NORM_SUMS][row[NORM_SUMS]]};
    dtp_norm_write_dx(job, row, false, sums);
}

/* The sums are the last operand; dx may overwrite x or dy, so it comes last. */
static dtp_status grad_apply(const dtp_kernel_args *args, bool centered, dtp_row_fn fn,
                             dtp_err *err)
{
    (void)err;
    const dtp_view *sums = &args->in[args->call->n_in - 1];
    parts_form form = {0};
    form.stat_stride = stat_dim(sums, &args->in[0], &form.stat_size);
    dtp_row_job job;
    dtp_norm_grad_job(&job, args, centered, &args->out[0], sums);
    job.user = &form;
    dtp_norm_dgamma(&job, &args->out[1], centered ? &args->out[2] : NULL, args->threads);
    dtp_row_job_each(&job, args->threads, fn);
    return DTP_OK;
}

static dtp_status layer_norm_grad_apply_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return grad_apply(args, true, layer_norm_apply_dx_row, err);
}

static dtp_status rms_norm_grad_apply_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return grad_apply(args, false, rms_norm_apply_dx_row, err);
}

static const dtp_cpu_row rows[] = {
    {"moments", moments_kernel, dtp_cpu_check_all_f32},
    {"layer_norm_apply", layer_norm_apply_kernel, dtp_cpu_check_all_f32},
    {"rms_norm_apply", rms_norm_apply_kernel, dtp_cpu_check_all_f32},
    {"layer_norm_grad_sums", layer_norm_grad_sums_kernel, dtp_cpu_check_all_f32},
    {"rms_norm_grad_sums", rms_norm_grad_sums_kernel, dtp_cpu_check_all_f32},
    {"layer_norm_grad_apply", layer_norm_grad_apply_kernel, dtp_cpu_check_all_f32},
    {"rms_norm_grad_apply", rms_norm_grad_apply_kernel, dtp_cpu_check_all_f32},
};
const dtp_cpu_family dtp_cpu_norm_parts = {rows, sizeof rows / sizeof rows[0]};
