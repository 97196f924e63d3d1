/* Reductions, used by reduce and by the sums of einsum. */
#ifndef DTP_EXECUTOR_CPU_REDUCE_H
#define DTP_EXECUTOR_CPU_REDUCE_H

#include "executor/cpu/loops/nest.h"
#include "executor/device/bound/rows.h"

/* y[kept] = factor * fold over `folded` of x, or of x * b. Sums of 16-bit floats are f32 and double
 * as those of f32, and rounded once. */
typedef struct dtp_cpu_fold_job {
    dtp_fold fold;
    double factor;
    const void *x, *b; /* b may be NULL; not NULL: SUM only */
    void *y;
    dtp_dtype dtype, y_dtype; /* of x and b; of y: f32 or 16-bit */
    dtp_nest kept;            /* views: x, y and, with b, b */
    dtp_nest folded;          /* views: x and, with b, b */
    int64_t none;             /* of integers: what a fold of nothing gives */
    int32_t threads;
} dtp_cpu_fold_job;

void dtp_cpu_fold_run(const dtp_cpu_fold_job *job);

#endif
