/* Row passes. Every function has a contiguous loop that vectorises and a strided one. */
#include "executor/cpu/rows.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "executor/cpu/loops/halves.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/loops/simd.h"

enum { BLOCK = 1024 };

static int64_t block_of(int64_t n, int64_t at)
{
    return n - at < BLOCK ? n - at : BLOCK;
}

/* Sums have four accumulators, one per quarter of the block: one would wait for itself. */
DTP_CPU_CLONES static float block_sum(int64_t n, const float *x)
{
    int64_t q = n / 4;
    const float *x1 = x + q, *x2 = x1 + q, *x3 = x2 + q;
    float s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t i = 0; i < q; i++) {
        s0 += x[i];
        s1 += x1[i];
        s2 += x2[i];
        s3 += x3[i];
    }
    for (int64_t i = 4 * q; i < n; i++) {
        s0 += x[i];
    }
    return (s0 + s1) + (s2 + s3);
}

double dtp_row_sum(int64_t n, const float *x, int64_t step)
{
    double s = 0.0;
    if (step == 1) {
        for (int64_t at = 0; at < n; at += BLOCK) {
            s += (double)block_sum(block_of(n, at), x + at);
        }
        return s;
    }
    for (int64_t i = 0; i < n; i++) {
        s += (double)x[i * step];
    }
    return s;
}

/* A maximum instruction drops NaN: it is looked for apart. */
DTP_CPU_CLONES static float run_max(int64_t n, const float *x)
{
    int64_t h = n / 2;
    const float *x1 = x + h;
    float m = -INFINITY, m1 = -INFINITY;
    int32_t nan = 0;
#pragma omp simd reduction(max : m, m1) reduction(| : nan)
    for (int64_t i = 0; i < h; i++) {
        m = x[i] > m ? x[i] : m;
        m1 = x1[i] > m1 ? x1[i] : m1;
        nan |= isunordered(x[i], x1[i]);
    }
    if (n > 2 * h) {
        m1 = dtp_larger(m1, x[n - 1]);
    }
    return nan ? NAN : dtp_larger(m, m1);
}

float dtp_row_max(int64_t n, const float *x, int64_t step)
{
    if (step == 1) {
        return run_max(n, x);
    }
    float m = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        m = dtp_larger(m, x[i * step]);
    }
    return m;
}

DTP_CPU_CLONES static float run_min(int64_t n, const float *x)
{
    float m = INFINITY;
    int32_t nan = 0;
#pragma omp simd reduction(min : m) reduction(| : nan)
    for (int64_t i = 0; i < n; i++) {
        m = x[i] < m ? x[i] : m;
        nan |= x[i] != x[i];
    }
    return nan ? NAN : m;
}

float dtp_row_min(int64_t n, const float *x, int64_t step)
{
    if (step == 1) {
        return run_min(n, x);
    }
    float m = INFINITY;
    for (int64_t i = 0; i < n; i++) {
        m = dtp_smaller(m, x[i * step]);
    }
    return m;
}

DTP_CPU_CLONES static float block_dot(int64_t n, const float *a, const float *b)
{
    int64_t h = n / 2;
    const float *a1 = a + h, *b1 = b + h;
    float s0 = 0.0f, s1 = 0.0f;
#pragma omp simd reduction(+ : s0, s1)
    for (int64_t i = 0; i < h; i++) {
        s0 += a[i] * b[i];
        s1 += a1[i] * b1[i];
    }
    if (n > 2 * h) {
        s0 += a[n - 1] * b[n - 1];
    }
    return s0 + s1;
}

double dtp_row_dot(int64_t n, const float *a, int64_t step_a, const float *b, int64_t step_b)
{
    double s = 0.0;
    if (step_a == 1 && step_b == 1) {
        for (int64_t at = 0; at < n; at += BLOCK) {
            s += (double)block_dot(block_of(n, at), a + at, b + at);
        }
        return s;
    }
    for (int64_t i = 0; i < n; i++) {
        s += (double)(a[i * step_a] * b[i * step_b]);
    }
    return s;
}

DTP_CPU_CLONES static void block_moments(int64_t n, const float *x, float shift, float out[2])
{
    int64_t h = n / 2;
    const float *x1 = x + h;
    float s0 = 0.0f, s1 = 0.0f, q0 = 0.0f, q1 = 0.0f;
#pragma omp simd reduction(+ : s0, s1, q0, q1)
    for (int64_t i = 0; i < h; i++) {
        float d0 = x[i] - shift, d1 = x1[i] - shift;
        s0 += d0;
        s1 += d1;
        q0 += d0 * d0;
        q1 += d1 * d1;
    }
    if (n > 2 * h) {
        float d = x[n - 1] - shift;
        s0 += d;
        q0 += d * d;
    }
    out[0] = s0 + s1;
    out[1] = q0 + q1;
}

void dtp_row_add_moments(int64_t n, const float *x, int64_t step, float shift, double sums[2])
{
    for (int64_t at = 0; step == 1 && at < n; at += BLOCK) {
        float part[2];
        block_moments(block_of(n, at), x + at, shift, part);
        sums[0] += (double)part[0];
        sums[1] += (double)part[1];
    }
    for (int64_t i = 0; step != 1 && i < n; i++) {
        float d = x[i * step] - shift;
        sums[0] += (double)d;
        sums[1] += (double)(d * d);
    }
}

dtp_moments dtp_moments_of(double n, float shift, const double sums[2])
{
    const double squares = sums[1] - sums[0] * sums[0] / n;
    return (dtp_moments){(double)shift + sums[0] / n, squares < 0.0 ? 0.0 : squares};
}

DTP_CPU_CLONES static float block_exp_sum(int64_t n, const float *x, float m)
{
    float s = 0.0f;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) {
        s += dtp_simd_exp(x[i] - m);
    }
    return s;
}

double dtp_row_exp_sum(int64_t n, const float *x, int64_t step, float m)
{
    double s = 0.0;
    if (step == 1) {
        for (int64_t at = 0; at < n; at += BLOCK) {
            s += (double)block_exp_sum(block_of(n, at), x + at, m);
        }
        return s;
    }
    for (int64_t i = 0; i < n; i++) {
        s += (double)dtp_simd_exp(x[i * step] - m);
    }
    return s;
}

DTP_CPU_CLONES static float block_exp(int64_t n, const float *x, float m, float *y)
{
    float s = 0.0f;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++) {
        float e = dtp_simd_exp(x[i] - m);
        y[i] = e;
        s += e;
    }
    return s;
}

double dtp_row_exp(int64_t n, const float *x, float m, float *y)
{
    double s = 0.0;
    for (int64_t at = 0; at < n; at += BLOCK) {
        s += (double)block_exp(block_of(n, at), x + at, m, y + at);
    }
    return s;
}

DTP_CPU_CLONES static void run_exp_scale(int64_t n, const float *x, float *y, float m, float factor)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = dtp_simd_exp(x[i] - m) * factor;
    }
}

void dtp_row_exp_scale(int64_t n, const float *x, float *y, int64_t step, float m, float factor)
{
    if (step == 1) {
        run_exp_scale(n, x, y, m, factor);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        y[i * step] = dtp_simd_exp(x[i * step] - m) * factor;
    }
}

DTP_CPU_CLONES static void run_affine(int64_t n, const float *x, float *y, float factor, float add)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * factor + add;
    }
}

void dtp_row_add(int64_t n, const float *x, float *y, int64_t step, float add)
{
    if (step == 1) {
        run_affine(n, x, y, 1.0f, add);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        y[i * step] = x[i * step] + add;
    }
}

void dtp_row_scale(int64_t n, const float *x, float *y, int64_t step, float factor)
{
    if (step == 1) {
        run_affine(n, x, y, factor, 0.0f);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        y[i * step] = x[i * step] * factor;
    }
}

double dtp_row_lse(float m, double s)
{
    return isinf(m) ? (double)m : (double)m + log(s);
}

DTP_CPU_CLONES static void cols_add4(int64_t n, const float *x, int64_t ld, double *acc)
{
    const float *x1 = x + ld, *x2 = x1 + ld, *x3 = x2 + ld;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        acc[j] += (double)((x[j] + x1[j]) + (x2[j] + x3[j]));
    }
}

void dtp_cols_sum(int64_t rows, int64_t n, const float *x, int64_t ld, double *acc)
{
    int64_t i = 0;
    for (; i + 4 <= rows; i += 4) {
        cols_add4(n, x + i * ld, ld, acc);
    }
    for (; i < rows; i++) {
        for (int64_t j = 0; j < n; j++) {
            acc[j] += (double)x[i * ld + j];
        }
    }
}

DTP_CPU_CLONES static void cols_add_product(int64_t n, const float *a, const float *b, double *acc)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        acc[j] += (double)(a[j] * b[j]);
    }
}

void dtp_cols_dot(int64_t rows, int64_t n, const float *a, int64_t ld_a, const float *b,
                  int64_t ld_b, double *acc)
{
    for (int64_t i = 0; i < rows; i++) {
        cols_add_product(n, a + i * ld_a, b + i * ld_b, acc);
    }
}

/* ---- row jobs ---- */

/* Gives a 16-bit view a buffer for what a row has of it. */
static void make_buffer(dtp_row_job *job, int32_t v)
{
    int64_t n = 1;
    for (int32_t i = job->over.rank - 1; i >= 0; i--) {
        const bool has = job->over.stride[v][i] != 0;
        job->over.stride[v][i] = has ? n : 0;
        n *= has ? job->over.size[i] : 1;
    }
    job->halves |= 1U << v;
    job->buffer[v] = job->floats;
    job->floats += (n + 15) / 16 * 16;
}

dtp_status dtp_row_job_make(dtp_row_job *job, const dtp_kernel_args *args, const dtp_bound_rows *of,
                            dtp_err *err)
{
    memset(job, 0, sizeof *job);
    job->of = *of;
    dtp_nest_make(&job->rows, of->dims.n_rows, of->dims.rows, of->n_views, of->views);
    dtp_nest_make(&job->over, of->dims.n_over, of->dims.over, of->n_views, of->views);
    job->stored = job->over;
    for (int32_t v = 0; v < of->n_views; v++) {
        const dtp_view *view = of->views[v];
        const bool is_out = view >= args->out && view < args->out + args->call->n_out;
        job->outs |= is_out ? 1U << v : 0;
        if (dtp_dtype_is_half(view->local.dtype)) {
            make_buffer(job, v);
        }
        job->step[v] = dtp_nest_step(&job->over, v);
    }
    return dtp_cpu_reserve(args->backend, job->floats, err);
}

void dtp_row_run(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], int64_t r,
                 float *at[DTP_NEST_VIEWS])
{
    int64_t run[DTP_NEST_VIEWS];
    assert(job->of.n_views > 0);
    for (int32_t v = 0; v < job->of.n_views; v++) {
        at[v] = job->data[v] + row[v];
    }
    if (r == 0) {
        return;
    }
    dtp_nest_row(&job->over, r, run);
    for (int32_t v = 0; v < job->of.n_views; v++) {
        at[v] += run[v];
    }
}

void dtp_row_job_load(dtp_row_job *job)
{
    for (int32_t v = 0; v < job->of.n_views; v++) {
        job->data[v] = job->of.views[v]->data;
    }
}

const dtp_row_job *dtp_row_job_mine(const dtp_row_job *job, const dtp_kernel_args *args,
                                    dtp_row_job *copy)
{
    int64_t stride;
    if (job->halves == 0) {
        return job;
    }
    float *base = dtp_cpu_scratch(args->backend, &stride);
    base += dtp_cpu_thread() * stride;
    *copy = *job;
    for (int32_t v = 0; v < job->of.n_views; v++) {
        copy->data[v] = (job->halves >> v & 1U) != 0 ? base + job->buffer[v] : job->data[v];
    }
    return copy;
}

/* Moves what a row has of 16-bit operands to the buffers, or of outputs from there. */
static void move_row(const dtp_row_job *mine, const int64_t row[DTP_NEST_VIEWS], uint32_t views)
{
    for (int64_t r = 0; r < mine->over.rows; r++) {
        int64_t stored[DTP_NEST_VIEWS], at[DTP_NEST_VIEWS];
        dtp_nest_row(&mine->stored, r, stored);
        dtp_nest_row(&mine->over, r, at);
        for (int32_t v = 0; v < mine->of.n_views; v++) {
            if ((views >> v & 1U) == 0) {
                continue;
            }
            const dtp_dtype dtype = mine->of.views[v]->local.dtype;
            const int64_t step = dtp_nest_step(&mine->stored, v);
            const int64_t n = step == 0 ? 1 : mine->over.inner;
            uint16_t *data = (uint16_t *)mine->of.views[v]->data + row[v] + stored[v];
            if ((mine->outs >> v & 1U) != 0) {
                dtp_narrow(dtype, n, mine->data[v] + at[v], data, step);
            } else {
                dtp_widen(dtype, n, data, step, mine->data[v] + at[v]);
            }
        }
    }
}

void dtp_row_enter(const dtp_row_job *mine, int64_t i, int64_t row[DTP_NEST_VIEWS])
{
    dtp_nest_elem(&mine->rows, i, row);
    if (mine->halves != 0) {
        move_row(mine, row, mine->halves & ~mine->outs);
        for (int32_t v = 0; v < mine->of.n_views; v++) {
            row[v] = (mine->halves >> v & 1U) != 0 ? 0 : row[v];
        }
    }
}

void dtp_row_leave(const dtp_row_job *mine, int64_t i)
{
    if ((mine->halves & mine->outs) != 0) {
        int64_t row[DTP_NEST_VIEWS];
        dtp_nest_elem(&mine->rows, i, row);
        move_row(mine, row, mine->halves & mine->outs);
    }
}

void dtp_row_job_each(const dtp_row_job *job, const dtp_kernel_args *args)
{
    int64_t n = dtp_nest_total(&job->rows);
    int32_t team = dtp_cpu_team(args->threads, n * job->of.dims.count);
#pragma omp parallel num_threads(team) if (team > 1)
    {
        dtp_row_job copy;
        const dtp_row_job *mine = dtp_row_job_mine(job, args, &copy);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n; i++) {
            int64_t row[DTP_NEST_VIEWS];
            dtp_row_enter(mine, i, row);
            mine->fn(mine, row);
            dtp_row_leave(mine, i);
        }
    }
}

dtp_status dtp_row_job_bind(const dtp_kernel_args *args, dtp_row_op op, dtp_row_fn fn,
                            dtp_arena *arena, void **state, dtp_err *err)
{
    dtp_bound_rows of;
    dtp_row_job *job;
    DTP_STATE(arena, state, job, err);
    DTP_TRY(dtp_bind_rows(args, op, &of, err));
    DTP_TRY(dtp_row_job_make(job, args, &of, err));
    job->fn = fn;
    return DTP_OK;
}

dtp_status dtp_row_job_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_row_job_load(args->state);
    dtp_row_job_each(args->state, args);
    return DTP_OK;
}

void dtp_row_job_sums(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], float shift,
                      double sums[2])
{
    sums[0] = sums[1] = 0.0;
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS] = {NULL};
        dtp_row_run(job, row, r, at);
        dtp_row_add_moments(job->over.inner, at[0], job->step[0], shift, sums);
    }
}

dtp_moments dtp_row_job_moments(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const double n = (double)job->of.dims.count;
    double sum = 0.0, sums[2];
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS] = {NULL};
        dtp_row_run(job, row, r, at);
        sum += dtp_row_sum(job->over.inner, at[0], job->step[0]);
    }
    const float shift = (float)(sum / n);
    dtp_row_job_sums(job, row, shift, sums);
    return dtp_moments_of(n, shift, sums);
}

float dtp_row_job_max(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float m = -INFINITY;
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS] = {NULL};
        dtp_row_run(job, row, r, at);
        m = dtp_larger(m, dtp_row_max(job->over.inner, at[0], job->step[0]));
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
