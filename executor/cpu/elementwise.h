/* Products of elements, for einsum. */
#ifndef DTP_EXECUTOR_CPU_ELEMENTWISE_H
#define DTP_EXECUTOR_CPU_ELEMENTWISE_H

#include "executor/cpu/nest.h"

/* y = a * b over a nest of the views y (inner step 1), a, b. */
void dtp_cpu_multiply(const dtp_nest *nest, int32_t threads, const float *a, const float *b,
                      float *y);

#endif
