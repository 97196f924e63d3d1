/* Vectorised passes over one row of f32, the parts that softmax, norms, losses and attention are
 * made of. `step` is the element distance within the row; 1 is fast. Sums are made of blocks of
 * 1024 elements in float, which are added in double. */
#ifndef DTP_EXECUTOR_CPU_ROWS_H
#define DTP_EXECUTOR_CPU_ROWS_H

#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/nest.h"
#include "executor/device/bound/rows.h"

/* Sum, maximum (-inf when empty), minimum (inf); a NaN makes each NaN. */
double dtp_row_sum(int64_t n, const float *x, int64_t step);
float dtp_row_max(int64_t n, const float *x, int64_t step);
float dtp_row_min(int64_t n, const float *x, int64_t step);
/* Sum of a*b. */
double dtp_row_dot(int64_t n, const float *a, int64_t step_a, const float *b, int64_t step_b);
/* Adds the sums of x - shift and of (x - shift)^2. */
void dtp_row_add_moments(int64_t n, const float *x, int64_t step, float shift, double sums[2]);
/* Of n elements with these sums: their mean, and the sum of the squares of what is left. */
typedef struct dtp_moments {
    double mean, squares;
} dtp_moments;
dtp_moments dtp_moments_of(double n, float shift, const double sums[2]);
/* Sum of exp(x - m). */
double dtp_row_exp_sum(int64_t n, const float *x, int64_t step, float m);
/* log sum exp of a row with maximum m and that sum s. An infinite m is the answer itself, as there
 * is no x - m. */
double dtp_row_lse(float m, double s);
/* y = exp(x - m), returns the sum; x may be y. Contiguous. */
double dtp_row_exp(int64_t n, const float *x, float m, float *y);
/* y = exp(x - m) * factor; y = x + add; y = x * factor. Steps of both rows. */
void dtp_row_exp_scale(int64_t n, const float *x, float *y, int64_t step, float m, float factor);
void dtp_row_add(int64_t n, const float *x, float *y, int64_t step, float add);
void dtp_row_scale(int64_t n, const float *x, float *y, int64_t step, float factor);

/* acc[j] += sum over i < rows of x[i * ld + j], j < n; in double. */
void dtp_cols_sum(int64_t rows, int64_t n, const float *x, int64_t ld, double *acc);
/* acc[j] += sum over i < rows of a[i * ld_a + j] * b[i * ld_b + j]. */
void dtp_cols_dot(int64_t rows, int64_t n, const float *a, int64_t ld_a, const float *b,
                  int64_t ld_b, double *acc);

/* ---- Kernels that treat one row at a time (executor/device/bound/rows.h) ---- */

/* A row is a number of runs of equal length; within a run the elements of view v are step[v] apart.
 * What a row has of a 16-bit view is widened into a buffer of the thread before its function is
 * called, and narrowed from there behind it when the view is an output: functions see f32 alone. */
typedef struct dtp_row_job {
    dtp_bound_rows of;
    dtp_nest rows;   /* all rows: dtp_nest_total(rows) of them */
    dtp_nest over;   /* of one row: over.rows runs of over.inner elements; 16-bit views: buffers */
    dtp_nest stored; /* the same, all views in memory */
    uint32_t halves, outs;                  /* sets of views: 16-bit ones, outputs */
    int64_t buffer[DTP_NEST_VIEWS], floats; /* where a thread has the buffers; size of all */
    int64_t step[DTP_NEST_VIEWS];           /* within a run */
    float *data[DTP_NEST_VIEWS];            /* of views that are f32 */
    void (*fn)(const struct dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS]);
    const void *user; /* of fn */
} dtp_row_job;

/* Views are operands and outputs of the call. */
dtp_status dtp_row_job_make(dtp_row_job *job, const dtp_kernel_args *args, const dtp_bound_rows *of,
                            dtp_err *err) DTP_MUST_CHECK;

/* First elements of run r of a row, by view; `row` holds the offsets of the row. */
void dtp_row_run(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], int64_t r,
                 float *at[DTP_NEST_VIEWS]);

/* Calls job->fn for every row. */
typedef void (*dtp_row_fn)(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS]);
void dtp_row_job_each(const dtp_row_job *job, const dtp_kernel_args *args);
/* Takes the addresses of the views' data as they are now. */
void dtp_row_job_load(dtp_row_job *job);

/* What dtp_row_job_each does for one thread. The job itself, or *copy with the thread's buffers. */
const dtp_row_job *dtp_row_job_mine(const dtp_row_job *job, const dtp_kernel_args *args,
                                    dtp_row_job *copy);
/* Before and behind the function of row number i; the offsets that it needs. */
void dtp_row_enter(const dtp_row_job *mine, int64_t i, int64_t row[DTP_NEST_VIEWS]);
void dtp_row_leave(const dtp_row_job *mine, int64_t i);

/* Binds a kernel that calls fn for every row of a call. */
dtp_status dtp_row_job_bind(const dtp_kernel_args *args, dtp_row_op op, dtp_row_fn fn,
                            dtp_arena *arena, void **state, dtp_err *err) DTP_MUST_CHECK;
/* Runs it. */
dtp_status dtp_row_job_kernel(const dtp_kernel_args *args, dtp_err *err) DTP_MUST_CHECK;
/* The bind function of an op with a row function, and its row in the kernel table. */
#define DTP_ROW_BIND(op, fn, dtypes) DTP_BIND(op, dtp_row_job_bind, DTP_ROW_##op, fn)
#define DTP_ROW_KERNEL(op, fn, dtypes) {#op, dtp_row_job_kernel, op##_bind, dtypes},

/* Sums of x - shift and (x - shift)^2 of a row of view 0. Its moments, in two passes: a shift near
 * the mean, then the sums about it. */
void dtp_row_job_sums(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], float shift,
                      double sums[2]);
dtp_moments dtp_row_job_moments(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS]);
/* Maximum of a row of view 0 (-inf when empty), and its sum of exp(x - m). */
float dtp_row_job_max(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS]);
double dtp_row_job_exp_sum(const dtp_row_job *job, const int64_t row[DTP_NEST_VIEWS], float m);

#endif
