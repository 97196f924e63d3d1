/* Row jobs: construction and driver. */
#include "executor/cpu/row_job.h"

#include <math.h>
#include <string.h>

#include "executor/cpu/parallel.h"
#include "executor/cpu/rows.h"

void dtp_row_job_make(dtp_row_job *job, const dtp_op_call *call, const char *key, int32_t n_views,
                      const dtp_view *const *views)
{
    memset(job, 0, sizeof *job);
    dtp_cpu_split(call, key, views[0], &job->dims);
    dtp_nest_make(&job->rows, job->dims.n_rows, job->dims.rows, n_views, views);
    dtp_nest_make(&job->over, job->dims.n_over, job->dims.over, n_views, views);
    job->n_views = n_views;
    for (int32_t v = 0; v < n_views; v++) {
        job->views[v] = views[v];
        job->data[v] = views[v]->data;
        job->step[v] = dtp_nest_step(&job->over, v);
    }
}

void dtp_row_run(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], int64_t r,
                 float *at[DTP_NEST_VIEWS])
{
    int64_t run[DTP_NEST_VIEWS];
    for (int32_t v = 0; v < job->n_views; v++) {
        at[v] = job->data[v] + row[v];
    }
    if (r == 0) {
        return;
    }
    dtp_nest_row(&job->over, r, run);
    for (int32_t v = 0; v < job->n_views; v++) {
        at[v] += run[v];
    }
}

void dtp_row_job_each(const dtp_row_job *job, int32_t threads, dtp_row_fn fn)
{
    int64_t n = dtp_nest_total(&job->rows);
    int32_t team = dtp_cpu_team(threads, n * job->dims.count);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t i = 0; i < n; i++) {
        int64_t row[DTP_NEST_VIEWS];
        dtp_nest_elem(&job->rows, i, row);
        fn(job, row);
    }
}

dtp_status dtp_row_job_run(const dtp_kernel_args *args, const char *key, dtp_row_fn fn,
                           const void *user)
{
    const dtp_op_call *call = args->call;
    const dtp_view *views[DTP_NEST_VIEWS] = {NULL};
    for (int32_t i = 0; i < call->n_in + call->n_out; i++) {
        views[i] = i < call->n_in ? &args->in[i] : &args->out[i - call->n_in];
    }
    dtp_row_job job;
    dtp_row_job_make(&job, call, key, call->n_in + call->n_out, views);
    job.user = user;
    dtp_row_job_each(&job, args->threads, fn);
    return DTP_OK;
}

float dtp_row_job_max(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float m = -INFINITY;
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS] = {NULL};
        dtp_row_run(job, row, r, at);
        float part = dtp_row_max(job->over.inner, at[0], job->step[0]);
        m = part > m ? part : m;
    }
    return m;
}

double dtp_row_job_exp_sum(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], float m)
{
    double s = 0.0;
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS] = {NULL};
        dtp_row_run(job, row, r, at);
        s += dtp_row_exp_sum(job->over.inner, at[0], job->step[0], m);
    }
    return s;
}
