/* Loops over elements, for einsum (dtypes are f32 or 16-bit) and for fused ops. */
#ifndef DTP_EXECUTOR_CPU_ELEMENTWISE_H
#define DTP_EXECUTOR_CPU_ELEMENTWISE_H

#include "executor/cpu/loops/nest.h"

enum { DTP_ELEMENTWISE_IN = 3 };

/* n elements of every operand, `step` elements apart (0: the same one), and a contiguous output. */
typedef struct dtp_elementwise_run {
    int64_t n, step[DTP_ELEMENTWISE_IN];
    const void *in[DTP_ELEMENTWISE_IN];
    void *out;
    float a, b;                                /* attributes */
    dtp_dtype dtype, from[DTP_ELEMENTWISE_IN]; /* of the output, of the operands */
} dtp_elementwise_run;
typedef void (*dtp_elementwise_fn)(const dtp_elementwise_run *run);

/* The function that an elementwise op is on f32; NULL: none of that name. */
dtp_elementwise_fn dtp_cpu_function(const char *name);

/* y = a * b over a nest of the views y (inner step 1), a, b with these dtypes. */
void dtp_cpu_multiply(const dtp_nest *nest, int32_t threads, const dtp_dtype dtype[3],
                      const void *a, const void *b, void *y);
/* y = x in another dtype, over a nest of the views y (inner step 1), x. */
void dtp_cpu_cast(const dtp_nest *nest, int32_t threads, dtp_dtype to, void *y, dtp_dtype from,
                  const void *x);

#endif
