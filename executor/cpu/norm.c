/* layer_norm and rms_norm, their gradients, and the parts that they decompose into when a dim of
 * `over` is split. rms_norm is the case without mean and beta. With xhat = (x - mean) * rstd:
 *   y  = xhat * gamma + beta
 *   dx = rstd (dy gamma - s0 / n - xhat s1 / n), s0 = sum of dy gamma, s1 = sum of dy gamma xhat
 *   dgamma = sum over rows of dy xhat, dbeta = sum over rows of dy
 * Mean and variance are those of dtp_row_job_moments. Sums of a row: float within blocks of 1024
 * elements, double across. Sums over rows: float within 16 rows, double across, cut into parts of
 * rows that depend on the shape only. In the parts, sums over the local part of
 * a row are added up between ranks; counts are global. */
#include <math.h>
#include <string.h>

#include "executor/cpu/loops/halves.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/rows.h"
#include "executor/cpu/loops/simd.h"
#include "executor/device/bound/norm.h"

enum {
    X = DTP_NORM_X,
    Y = DTP_NORM_Y,
    GAMMA = DTP_NORM_GAMMA,
    RSTD = DTP_NORM_RSTD,
    MEAN = DTP_NORM_MEAN,
    BETA = DTP_NORM_BETA,
    SUMS = DTP_NORM_SUMS,
    SHIFT = DTP_NORM_SHIFT,
    DX = DTP_NORM_DX,
    DY = DTP_NORM_DY
};

/* A row job, first, and what its functions need besides. */
typedef struct norm_job {
    dtp_row_job rows;
    dtp_bound_norm of;
    dtp_nest to; /* backward: the elements of a row; views: x, dgamma, dbeta */
} norm_job;

static const dtp_norm_numbers *numbers_of(const dtp_row_job *rows)
{
    return rows->user;
}

/* One run of a row. */
typedef struct norm_run {
    int64_t n;
    const float *x, *g, *b, *dy;
    float *y; /* y or dx */
    float mean, rstd;
} norm_run;

/* ---- forward ---- */

DTP_CPU_CLONES static void write_centered(const norm_run *r)
{
    const float *x = r->x, *g = r->g, *b = r->b;
    float *y = r->y, mean = r->mean, rstd = r->rstd;
    int64_t n = r->n;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = (x[i] - mean) * rstd * g[i] + b[i];
    }
}

DTP_CPU_CLONES static void write_plain(const norm_run *r)
{
    const float *x = r->x, *g = r->g;
    float *y = r->y, rstd = r->rstd;
    int64_t n = r->n;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * rstd * g[i];
    }
}

/* y, mean and rstd of a row. */
static void write_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS],
                      const dtp_moments *of)
{
    const dtp_norm_numbers *norm = numbers_of(job);
    const bool centered = norm->centered;
    const float mean = (float)of->mean;
    const float rstd = (float)(1.0 / sqrt(of->squares / norm->count + norm->eps));
    const int64_t *s = job->step;
    const bool fast = s[X] == 1 && s[GAMMA] == 1 && (!centered || s[BETA] == 1);
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS];
        dtp_row_run(job, row, r, at);
        if (fast) {
            const norm_run run = {.n = job->over.inner,
                                  .x = at[X],
                                  .g = at[GAMMA],
                                  .b = centered ? at[BETA] : NULL,
                                  .y = at[Y],
                                  .mean = mean,
                                  .rstd = rstd};
            (centered ? write_centered : write_plain)(&run);
            continue;
        }
        for (int64_t i = 0; i < job->over.inner; i++) {
            float v = (at[X][i * s[X]] - mean) * rstd * at[GAMMA][i * s[GAMMA]];
            at[Y][i * s[Y]] = centered ? v + at[BETA][i * s[BETA]] : v;
        }
    }
    job->data[RSTD][row[RSTD]] = rstd;
    if (centered) {
        job->data[MEAN][row[MEAN]] = mean;
    }
}

static double row_squares(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    double squares = 0.0;
    for (int64_t r = 0; r < job->over.rows; r++) {
        float *at[DTP_NEST_VIEWS];
        dtp_row_run(job, row, r, at);
        squares += dtp_row_dot(job->over.inner, at[X], job->step[X], at[X], job->step[X]);
    }
    return squares;
}

static void norm_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const dtp_norm_numbers *norm = numbers_of(job);
    const dtp_moments m =
        norm->centered ? dtp_row_job_moments(job, row) : (dtp_moments){0.0, row_squares(job, row)};
    write_row(job, row, &m);
}

/* Views: x, [shift,] sums; option: elements from the first sum of a row to the last. */
static void moments_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const int32_t n = job->of.n_views;
    const bool centered = n > 2;
    double sums[2] = {0.0};
    if (centered) {
        dtp_row_job_sums(job, row, job->data[1][row[1]], sums);
    } else {
        sums[1] = row_squares(job, row);
    }
    float *out = job->data[n - 1] + row[n - 1];
    out[0] = (float)sums[0];
    out[job->of.option] = (float)sums[1];
}

static void norm_apply_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const dtp_norm_numbers *norm = numbers_of(job);
    const float *s = job->data[SUMS] + row[SUMS];
    const double sums[2] = {(double)s[0], (double)s[norm->last]};
    const dtp_moments m = norm->centered
                              ? dtp_moments_of(norm->count, job->data[SHIFT][row[SHIFT]], sums)
                              : (dtp_moments){0.0, sums[1]};
    write_row(job, row, &m);
}

/* ---- backward: rows ---- */

enum { BLOCK = 1024 };

DTP_CPU_CLONES static void block_sums(const norm_run *r, int64_t at, int64_t n, float out[2])
{
    const float *x = r->x + at, *g = r->g + at, *dy = r->dy + at;
    float mean = r->mean, rstd = r->rstd, s0 = 0.0f, s1 = 0.0f;
#pragma omp simd reduction(+ : s0, s1)
    for (int64_t i = 0; i < n; i++) {
        float d = dy[i] * g[i];
        s0 += d;
        s1 += d * ((x[i] - mean) * rstd);
    }
    out[0] = s0;
    out[1] = s1;
}

DTP_CPU_CLONES static void dx_run(const norm_run *r, float c0, float c1)
{
    const float *x = r->x, *g = r->g, *dy = r->dy;
    float *dx = r->y, mean = r->mean, rstd = r->rstd;
    int64_t n = r->n;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dx[i] = rstd * (dy[i] * g[i] - c0 - (x[i] - mean) * rstd * c1);
    }
}

/* Run r of a row; whether its operands are contiguous. */
static bool grad_run(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], int64_t r,
                     norm_run *out)
{
    const dtp_norm_numbers *norm = numbers_of(job);
    const int64_t *s = job->step;
    float *at[DTP_NEST_VIEWS];
    dtp_row_run(job, row, r, at);
    *out = (norm_run){.n = job->over.inner,
                      .x = at[X],
                      .g = at[GAMMA],
                      .dy = at[DY],
                      .y = at[DX],
                      .mean = norm->centered ? job->data[MEAN][row[MEAN]] : 0.0f,
                      .rstd = job->data[RSTD][row[RSTD]]};
    return s[X] == 1 && s[GAMMA] == 1 && s[DY] == 1 && s[DX] <= 1;
}

static void row_sums(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], double sums[2])
{
    const int64_t *s = job->step;
    sums[0] = sums[1] = 0.0;
    for (int64_t r = 0; r < job->over.rows; r++) {
        norm_run a;
        const bool fast = grad_run(job, row, r, &a);
        for (int64_t at = 0; fast && at < a.n; at += BLOCK) {
            float part[2];
            block_sums(&a, at, a.n - at < BLOCK ? a.n - at : BLOCK, part);
            sums[0] += (double)part[0];
            sums[1] += (double)part[1];
        }
        for (int64_t i = 0; !fast && i < a.n; i++) {
            float d = a.dy[i * s[DY]] * a.g[i * s[GAMMA]];
            sums[0] += (double)d;
            sums[1] += (double)(d * ((a.x[i * s[X]] - a.mean) * a.rstd));
        }
    }
}

static void write_dx(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS],
                     const double sums[2])
{
    const dtp_norm_numbers *norm = numbers_of(job);
    const int64_t *s = job->step;
    const double n = norm->count;
    const float c0 = norm->centered ? (float)(sums[0] / n) : 0.0f, c1 = (float)(sums[1] / n);
    for (int64_t r = 0; r < job->over.rows; r++) {
        norm_run a;
        if (grad_run(job, row, r, &a)) {
            dx_run(&a, c0, c1);
            continue;
        }
        for (int64_t i = 0; i < a.n; i++) {
            float d = a.dy[i * s[DY]] * a.g[i * s[GAMMA]];
            float xhat = (a.x[i * s[X]] - a.mean) * a.rstd;
            a.y[i * s[DX]] = a.rstd * (d - c0 - xhat * c1);
        }
    }
}

static void grad_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    double sums[2];
    row_sums(job, row, sums);
    write_dx(job, row, sums);
}

static void grad_sums_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    float *out = job->data[SUMS] + row[SUMS];
    double sums[2];
    row_sums(job, row, sums);
    out[0] = (float)sums[0];
    out[numbers_of(job)->last] = (float)sums[1];
}

static void grad_apply_row(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS])
{
    const float *s = job->data[SUMS] + row[SUMS];
    const double sums[2] = {(double)s[0], (double)s[numbers_of(job)->last]};
    write_dx(job, row, sums);
}

/* ---- backward: sums over rows ---- */

enum { COL_TILE = 1024, COL_PARTS = 8, FLUSH = 16 }; /* 128 KiB of sums on the stack */

typedef struct col_sums {
    double g[COL_TILE], b[COL_TILE];
} col_sums;

DTP_CPU_CLONES static void add_cols(const norm_run *r, float *restrict g, float *restrict b)
{
    const float *x = r->x, *dy = r->dy;
    float mean = r->mean, rstd = r->rstd;
    int64_t n = r->n;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        g[j] += dy[j] * ((x[j] - mean) * rstd);
        b[j] += dy[j];
    }
}

DTP_CPU_CLONES static void flush_cols(int64_t n, float *part, double *sum)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        sum[j] += (double)part[j];
        part[j] = 0.0f;
    }
}

/* n columns from column `at` on of run `index` of the rows. */
typedef struct column_run {
    int64_t index, at, n;
} column_run;

/* These columns of one row, as f32, and how far apart they are. */
static const float *columns(const dtp_row_job *job, int32_t v, const int64_t row[DTP_NEST_VIEWS],
                            const column_run *run, float *buffer, int64_t *step)
{
    const dtp_view *view = job->of.views[v];
    const int64_t stored = dtp_nest_step(&job->stored, v);
    int64_t off[DTP_NEST_VIEWS];
    dtp_nest_row(&job->stored, run->index, off);
    const int64_t first = row[v] + off[v] + run->at * stored;
    *step = dtp_dtype_is_half(view->local.dtype) ? 1 : stored;
    if (!dtp_dtype_is_half(view->local.dtype)) {
        return (const float *)view->data + first;
    }
    dtp_widen(view->local.dtype, run->n, (const uint16_t *)view->data + first, stored, buffer);
    return buffer;
}

static float statistic(const dtp_row_job *job, int32_t v, const int64_t row[DTP_NEST_VIEWS])
{
    return dtp_float_at(job->of.views[v]->local.dtype, job->of.views[v]->data, row[v]);
}

/* Adds up rows [begin, end) of a run. */
static void sum_rows(const dtp_row_job *job, const column_run *run, const int64_t range[2],
                     col_sums *out)
{
    float g[COL_TILE] = {0}, b[COL_TILE] = {0}, x[COL_TILE], dy[COL_TILE];
    const int64_t n = run->n;
    memset(out, 0, sizeof *out);
    for (int64_t i = range[0]; i < range[1]; i++) {
        int64_t row[DTP_NEST_VIEWS], step_x, step_dy;
        dtp_nest_elem(&job->rows, i, row);
        const norm_run a = {.n = n,
                            .x = columns(job, X, row, run, x, &step_x),
                            .dy = columns(job, DY, row, run, dy, &step_dy),
                            .mean = numbers_of(job)->centered ? statistic(job, MEAN, row) : 0.0f,
                            .rstd = statistic(job, RSTD, row)};
        if (step_x == 1 && step_dy == 1) {
            add_cols(&a, g, b);
        } else {
            for (int64_t j = 0; j < n; j++) {
                g[j] += a.dy[j * step_dy] * ((a.x[j * step_x] - a.mean) * a.rstd);
                b[j] += a.dy[j * step_dy];
            }
        }
        if ((i - range[0]) % FLUSH == FLUSH - 1 || i + 1 == range[1]) {
            flush_cols(n, g, out->g);
            flush_cols(n, b, out->b);
        }
    }
}

/* dgamma and, of layer_norm, dbeta. */
static void sum_over_rows(const norm_job *of, int32_t threads)
{
    const dtp_row_job *job = &of->rows;
    const dtp_view *dgamma = of->of.columns.views[DTP_NORM_DGAMMA];
    const bool centered = of->of.numbers.centered;
    const dtp_nest *to = &of->to;
    int64_t rows = dtp_nest_total(&job->rows), part = (rows + COL_PARTS - 1) / COL_PARTS;
    part = part < FLUSH ? FLUSH : part;
    int64_t parts = (rows + part - 1) / part;
    int64_t tiles = (job->over.inner + COL_TILE - 1) / COL_TILE;
    for (int64_t u = 0; u < job->over.rows * tiles; u++) {
        int64_t at = u % tiles * COL_TILE, left = job->over.inner - at;
        int64_t n = left < COL_TILE ? left : COL_TILE;
        col_sums sums[COL_PARTS];
        memset(&sums[0], 0, sizeof sums[0]);
        int32_t team = dtp_cpu_team(threads, rows * n);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
        for (int64_t p = 0; p < parts; p++) {
            int64_t range[2] = {p * part, (p + 1) * part < rows ? (p + 1) * part : rows};
            sum_rows(job, &(column_run){u / tiles, at, n}, range, &sums[p]);
        }
        for (int64_t j = 0; j < n; j++) {
            int64_t off[DTP_NEST_VIEWS];
            double g = 0.0, b = 0.0;
            for (int64_t p = 0; p < parts; p++) {
                g += sums[p].g[j];
                b += sums[p].b[j];
            }
            dtp_nest_elem(to, u / tiles * job->over.inner + at + j, off);
            dtp_float_put(dgamma->local.dtype, dgamma->data, off[1], (float)g);
            if (centered) {
                dtp_float_put(dgamma->local.dtype, dgamma[1].data, off[2], (float)b);
            }
        }
    }
}

static dtp_status bind_norm(const dtp_kernel_args *args, dtp_norm_part part, dtp_arena *arena,
                            void **state, dtp_err *err)
{
    static const dtp_row_fn row_fns[] = {[DTP_NORM_FORWARD] = norm_row,
                                         [DTP_NORM_APPLY] = norm_apply_row,
                                         [DTP_NORM_GRAD] = grad_row,
                                         [DTP_NORM_GRAD_SUMS] = grad_sums_row,
                                         [DTP_NORM_GRAD_APPLY] = grad_apply_row};
    norm_job *job;
    DTP_STATE(arena, state, job, err);
    dtp_bind_norm(args, part, &job->of);
    DTP_TRY(dtp_row_job_make(&job->rows, args, &job->of.rows, err));
    job->rows.fn = row_fns[part];
    job->rows.user = &job->of.numbers;
    if (job->of.columns.n_views > 0) {
        const dtp_view *const *of_columns = job->of.columns.views;
        const dtp_view *to[] = {of_columns[0], of_columns[DTP_NORM_DGAMMA],
                                of_columns[DTP_NORM_DBETA]};
        dtp_nest_make(&job->to, job->of.rows.dims.n_over, job->of.rows.dims.over, 3, to);
    }
    return DTP_OK;
}

/* The sums over rows come first: dx may overwrite x or dy. */
static dtp_status norm_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    norm_job *job = args->state;
    (void)err;
    dtp_row_job_load(&job->rows);
    if (job->of.columns.n_views > 0) {
        sum_over_rows(job, args->threads);
    }
    dtp_row_job_each(&job->rows, args);
    return DTP_OK;
}

#define BIND(op, part) DTP_BIND(op, bind_norm, DTP_NORM_##part)
#define KERNEL(op, part) {#op, norm_kernel, op##_bind, DTP_FLOATS},
#define MOMENTS(OP) OP(moments, moments_row, DTP_FLOATS)

DTP_NORM_OPS(BIND)
MOMENTS(DTP_ROW_BIND)

const dtp_kernel dtp_cpu_norm[] = {DTP_NORM_OPS(KERNEL) MOMENTS(DTP_ROW_KERNEL){.op = NULL}};
