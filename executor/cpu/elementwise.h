/* Loops over elements, for einsum. Dtypes are f32 or 16-bit. */
#ifndef DTP_EXECUTOR_CPU_ELEMENTWISE_H
#define DTP_EXECUTOR_CPU_ELEMENTWISE_H

#include "executor/cpu/loops/nest.h"

/* y = a * b over a nest of the views y (inner step 1), a, b with these dtypes. */
void dtp_cpu_multiply(const dtp_nest *nest, int32_t threads, const dtp_dtype dtype[3],
                      const void *a, const void *b, void *y);
/* y = x in another dtype, over a nest of the views y (inner step 1), x. */
void dtp_cpu_cast(const dtp_nest *nest, int32_t threads, dtp_dtype to, void *y, dtp_dtype from,
                  const void *x);

#endif
