/* reduce: the dims of x, merged where possible, are kept or folded. When the inner one is folded,
 * rows are folded to numbers (row mode); when it is kept, rows are added up element by element in
 * tiles of columns (column mode). Sums accumulate in double. Long folds with few results are cut
 * into a number of parts that depends on the shape only and combined in order. */
#include "executor/cpu/reduce.h"

#include <math.h>

#include "executor/cpu/loops/halves.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/nest.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/rows.h"
#include "executor/device/convert.h"

typedef dtp_cpu_fold_job fold_job;

static double start_value(dtp_fold fold)
{
    switch (fold) {
    case DTP_FOLD_SUM:
        return 0.0;
    case DTP_FOLD_PROD:
        return 1.0;
    case DTP_FOLD_MAX:
        return -(double)INFINITY;
    default:
        return (double)INFINITY;
    }
}

static double combine(dtp_fold fold, double a, double b)
{
    switch (fold) {
    case DTP_FOLD_SUM:
        return a + b;
    case DTP_FOLD_PROD:
        return a * b;
    case DTP_FOLD_MAX:
        return a >= b || a != a ? a : b; /* NaN when one is */
    default:
        return a <= b || a != a ? a : b;
    }
}

static double row_prod(int64_t n, const float *x, int64_t step)
{
    double p = 1.0;
    for (int64_t i = 0; i < n; i++) {
        p *= (double)x[i * step];
    }
    return p;
}

static double fold_row(dtp_fold fold, int64_t n, const float *x, int64_t step)
{
    switch (fold) {
    case DTP_FOLD_SUM:
        return dtp_row_sum(n, x, step);
    case DTP_FOLD_PROD:
        return row_prod(n, x, step);
    case DTP_FOLD_MAX:
        return (double)dtp_row_max(n, x, step);
    default:
        return (double)dtp_row_min(n, x, step);
    }
}

/* Folds n elements of x from element x_at on, or their products with those of b from b_at on. */
static double fold_run(const fold_job *job, int64_t n, int64_t x_at, int64_t b_at)
{
    const int64_t step = dtp_nest_step(&job->folded, 0);
    const int64_t step_b = job->b != NULL ? dtp_nest_step(&job->folded, 1) : 0;
    if (!dtp_dtype_is_half(job->dtype)) {
        const float *x = (const float *)job->x + x_at;
        return job->b != NULL ? dtp_row_dot(n, x, step, (const float *)job->b + b_at, step_b)
                              : fold_row(job->fold, n, x, step);
    }
    double acc = start_value(job->fold);
    for (int64_t at = 0; at < n; at += DTP_HALF_BLOCK) {
        const int64_t m = n - at < DTP_HALF_BLOCK ? n - at : DTP_HALF_BLOCK;
        float x[DTP_HALF_BLOCK], b[DTP_HALF_BLOCK];
        dtp_widen(job->dtype, m, (const uint16_t *)job->x + x_at + at * step, step, x);
        if (job->b != NULL) {
            dtp_widen(job->dtype, m, (const uint16_t *)job->b + b_at + at * step_b, step_b, b);
            acc += dtp_row_dot(m, x, 1, b, 1);
        } else {
            acc = combine(job->fold, acc, fold_row(job->fold, m, x, 1));
        }
    }
    return acc;
}

/* Folds elements [begin, end) of the inner dim of every row of the folded nest; `at` is where x and
 * b start. */
static double fold_part(const fold_job *job, const int64_t at[DTP_NEST_VIEWS], int64_t begin,
                        int64_t end)
{
    double acc = start_value(job->fold);
    for (int64_t r = 0; r < job->folded.rows; r++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_row(&job->folded, r, off);
        const int64_t x_at = at[0] + off[0] + begin * dtp_nest_step(&job->folded, 0);
        if (job->b != NULL) {
            acc += fold_run(job, end - begin, x_at,
                            at[2] + off[1] + begin * dtp_nest_step(&job->folded, 1));
        } else {
            acc = combine(job->fold, acc, fold_run(job, end - begin, x_at, 0));
        }
    }
    return acc;
}

static void store(const fold_job *job, int64_t at, double acc)
{
    dtp_float_put(job->y_dtype, job->y, at, (float)(acc * job->factor));
}

enum { LONG_ROW = 65536 };

/* Few results from long rows: the row is cut into parts. */
static void fold_long_rows(const fold_job *job)
{
    int64_t n = job->folded.inner, part = dtp_cpu_part(n, 16384);
    int64_t parts = (n + part - 1) / part;
    int32_t team = dtp_cpu_team(job->threads, n);
    for (int64_t k = 0; k < dtp_nest_total(&job->kept); k++) {
        int64_t off[DTP_NEST_VIEWS];
        double partial[DTP_CPU_PARTS], acc = start_value(job->fold);
        dtp_nest_elem(&job->kept, k, off);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
        for (int64_t p = 0; p < parts; p++) {
            int64_t end = (p + 1) * part < n ? (p + 1) * part : n;
            partial[p] = fold_part(job, off, p * part, end);
        }
        for (int64_t p = 0; p < parts; p++) {
            acc = combine(job->fold, acc, partial[p]);
        }
        store(job, off[1], acc);
    }
}

static void fold_rows(const fold_job *job)
{
    int64_t kept = dtp_nest_total(&job->kept);
    if (job->folded.inner >= LONG_ROW) {
        fold_long_rows(job);
        return;
    }
    int32_t team = dtp_cpu_team(job->threads, kept * dtp_nest_total(&job->folded));
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t k = 0; k < kept; k++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_elem(&job->kept, k, off);
        double acc = fold_part(job, off, 0, job->folded.inner);
        store(job, off[1], acc);
    }
}

enum { COL_TILE = 512, COL_PARTS = 16 };

/* Folds rows of n columns into acc; b may be NULL. */
static void fold_cols_rows(dtp_fold fold, int64_t rows, int64_t n, const float *x, int64_t ld,
                           const float *b, int64_t ld_b, double *acc)
{
    if (b != NULL) {
        dtp_cols_dot(rows, n, x, ld, b, ld_b, acc);
        return;
    }
    if (fold == DTP_FOLD_SUM) {
        dtp_cols_sum(rows, n, x, ld, acc);
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < n; j++) {
            acc[j] = combine(fold, acc[j], (double)x[i * ld + j]);
        }
    }
}

/* acc[j] = fold over the rows [begin, end) of the folded nest's inner dim. */
static void fold_cols_part(const fold_job *job, const int64_t at[DTP_NEST_VIEWS], int64_t n,
                           const int64_t range[2], double *acc)
{
    enum { ROWS = 4 }; /* that are widened at once */
    const int64_t ld = dtp_nest_step(&job->folded, 0), count = range[1] - range[0];
    const int64_t ld_b = job->b != NULL ? dtp_nest_step(&job->folded, 1) : 0;
    for (int64_t j = 0; j < n; j++) {
        acc[j] = start_value(job->fold);
    }
    for (int64_t r = 0; r < job->folded.rows; r++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_row(&job->folded, r, off);
        const int64_t x_at = at[0] + off[0] + range[0] * ld;
        const int64_t b_at = job->b != NULL ? at[2] + off[1] + range[0] * ld_b : 0;
        if (!dtp_dtype_is_half(job->dtype)) {
            fold_cols_rows(job->fold, count, n, (const float *)job->x + x_at, ld,
                           job->b != NULL ? (const float *)job->b + b_at : NULL, ld_b, acc);
            continue;
        }
        for (int64_t i = 0; i < count; i += ROWS) {
            const int64_t rows = count - i < ROWS ? count - i : ROWS;
            float x[ROWS][COL_TILE], b[ROWS][COL_TILE];
            for (int64_t k = 0; k < rows; k++) {
                dtp_widen(job->dtype, n, (const uint16_t *)job->x + x_at + (i + k) * ld, 1, x[k]);
                if (job->b != NULL) {
                    dtp_widen(job->dtype, n, (const uint16_t *)job->b + b_at + (i + k) * ld_b, 1,
                              b[k]);
                }
            }
            fold_cols_rows(job->fold, rows, n, x[0], COL_TILE, job->b != NULL ? b[0] : NULL,
                           COL_TILE, acc);
        }
    }
}

static void store_cols(const fold_job *job, int64_t at, int64_t n, const double *acc)
{
    int64_t step = dtp_nest_step(&job->kept, 1);
    for (int64_t j = 0; j < n && job->y_dtype != DTP_F32; j++) {
        store(job, at + j * step, acc[j]);
    }
    for (int64_t j = 0; j < n && job->y_dtype == DTP_F32; j++) {
        ((float *)job->y)[at + j * step] = (float)(acc[j] * job->factor);
    }
}

/* Few columns and many rows: the rows are cut into parts. */
static void fold_tall_tile(const fold_job *job, const int64_t off[DTP_NEST_VIEWS], int64_t n)
{
    double acc[COL_PARTS][COL_TILE];
    int64_t rows = job->folded.inner, part = (rows + COL_PARTS - 1) / COL_PARTS;
    int32_t team = dtp_cpu_team(job->threads, rows * n);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t p = 0; p < COL_PARTS; p++) {
        int64_t begin = p * part < rows ? p * part : rows;
        int64_t range[2] = {begin, begin + part < rows ? begin + part : rows};
        fold_cols_part(job, off, n, range, acc[p]);
    }
    for (int64_t p = 1; p < COL_PARTS; p++) {
        for (int64_t j = 0; j < n; j++) {
            acc[0][j] = combine(job->fold, acc[0][j], acc[p][j]);
        }
    }
    store_cols(job, off[1], n, acc[0]);
}

static void fold_cols(const fold_job *job)
{
    int64_t tiles = (job->kept.inner + COL_TILE - 1) / COL_TILE;
    int64_t units = job->kept.rows * tiles;
    bool tall = units < COL_PARTS && job->folded.inner >= 64 * COL_PARTS;
    int64_t work = dtp_nest_total(&job->kept) * dtp_nest_total(&job->folded);
    int32_t team = tall ? 1 : dtp_cpu_team(job->threads, work);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t u = 0; u < units; u++) {
        int64_t off[DTP_NEST_VIEWS], at = u % tiles * COL_TILE;
        int64_t left = job->kept.inner - at;
        int64_t n = left < COL_TILE ? left : COL_TILE;
        dtp_nest_row(&job->kept, u / tiles, off);
        for (int32_t v = 0; v < job->kept.n_views; v++) {
            off[v] += at * dtp_nest_step(&job->kept, v);
        }
        if (tall) {
            fold_tall_tile(job, off, n);
        } else {
            double acc[COL_TILE];
            int64_t range[2] = {0, job->folded.inner};
            fold_cols_part(job, off, n, range, acc);
            store_cols(job, off[1], n, acc);
        }
    }
}

void dtp_cpu_fold_run(const dtp_cpu_fold_job *job)
{
    bool columns = dtp_nest_total(&job->kept) > 1 && dtp_nest_step(&job->kept, 0) == 1;
    if (columns && (job->b == NULL || dtp_nest_step(&job->kept, 2) == 1)) {
        fold_cols(job);
    } else {
        fold_rows(job);
    }
}

/* ---- integers and truth values; sums and products wrap around; one thread ---- */

static int64_t int_combine(dtp_fold fold, int64_t a, int64_t b)
{
    switch (fold) {
    case DTP_FOLD_MAX:
        return a > b ? a : b;
    case DTP_FOLD_MIN:
        return a < b ? a : b;
    case DTP_FOLD_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

static void reduce_ints(const fold_job *job, const dtp_view *x, const dtp_view *out)
{
    const dtp_view *views[] = {x, out};
    const dtp_dtype dtype = x->local.dtype;
    dtp_nest nest;
    for (int64_t i = 0, n = dtp_ttype_elems(&out->local); i < n; i++) {
        dtp_element_set_int(dtype, out->data, i, job->none);
    }
    if (dtp_ttype_elems(&x->local) == 0) {
        return;
    }
    dtp_nest_like(&nest, 2, views);
    const int64_t step_x = dtp_nest_step(&nest, 0), step_out = dtp_nest_step(&nest, 1);
    for (int64_t r = 0; r < nest.rows; r++) {
        int64_t off[DTP_NEST_VIEWS];
        dtp_nest_row(&nest, r, off);
        for (int64_t i = 0; i < nest.inner; i++) {
            const int64_t at = off[1] + i * step_out;
            const int64_t v = dtp_element_int(dtype, x->data, off[0] + i * step_x);
            const int64_t so_far = dtp_element_int(dtype, out->data, at);
            dtp_element_set_int(dtype, out->data, at, int_combine(job->fold, so_far, v));
        }
    }
}

static dtp_status bind_fold(const dtp_kernel_args *args, dtp_row_op op, dtp_arena *arena,
                            void **state, dtp_err *err)
{
    dtp_bound_rows b;
    fold_job *job;
    DTP_STATE(arena, state, job, err);
    DTP_TRY(dtp_bind_rows(args, op, &b, err));
    *job = (fold_job){.fold = (dtp_fold)b.option,
                      .factor = b.factor,
                      .none = b.none,
                      .threads = args->threads,
                      .dtype = args->in[0].local.dtype,
                      .y_dtype = args->out[0].local.dtype};
    dtp_nest_make(&job->kept, b.dims.n_rows, b.dims.rows, 2, b.views);
    dtp_nest_make(&job->folded, b.dims.n_over, b.dims.over, 1, b.views);
    return DTP_OK;
}

static dtp_status reduce_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    fold_job *job = args->state;
    (void)err;
    if (!dtp_dtype_is_float(args->in[0].local.dtype)) {
        reduce_ints(job, &args->in[0], &args->out[0]);
        return DTP_OK;
    }
    job->x = args->in[0].data;
    job->y = args->out[0].data;
    dtp_cpu_fold_run(job);
    return DTP_OK;
}

#define OPS(OP)                                                                                    \
    OP(reduce, DTP_NUMBERS)                                                                        \
    OP(any, DTP_INTS)                                                                              \
    OP(all, DTP_INTS)
#define BIND(op, dtypes) DTP_BIND(op, bind_fold, DTP_ROW_##op)
#define KERNEL(op, dtypes) {#op, reduce_kernel, op##_bind, dtypes},

OPS(BIND)

const dtp_kernel dtp_cpu_reduce[] = {OPS(KERNEL){.op = NULL}};
