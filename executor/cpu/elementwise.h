/* Elementwise ops with broadcasting by name: one function per op, called for runs of elements. */
#ifndef DTP_EXECUTOR_CPU_ELEMENTWISE_H
#define DTP_EXECUTOR_CPU_ELEMENTWISE_H

#include "executor/cpu/nest.h"

enum { DTP_RUN_OPERANDS = 3 };

/* n elements of every operand, `step` elements apart (0: the same one), and a contiguous output. */
typedef struct dtp_cpu_run {
    int64_t n, step[DTP_RUN_OPERANDS];
    const void *in[DTP_RUN_OPERANDS];
    void *out;
    float a, b;               /* attributes */
    const dtp_view *operands; /* whole, for their types */
    dtp_dtype dtype;          /* of the output */
} dtp_cpu_run;
typedef void (*dtp_cpu_run_fn)(const dtp_cpu_run *run);

/* Calls fn for runs that cover the output; a and b are handed on to it. */
void dtp_cpu_elementwise_runs(const dtp_kernel_args *args, dtp_cpu_run_fn fn, float a, float b);
/* y = a * b over a nest of the views y (inner step 1), a, b. */
void dtp_cpu_multiply(const dtp_nest *nest, int32_t threads, const float *a, const float *b,
                      float *y);

#endif
