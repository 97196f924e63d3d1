/* Random values by global row-major element index (core/base/philox.h), bound for any device. */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_RANDOM_H
#define DTP_EXECUTOR_DEVICE_BOUND_RANDOM_H

#include "executor/device/nest.h"

typedef enum dtp_distribution { DTP_DROPOUT, DTP_UNIFORM, DTP_NORMAL } dtp_distribution;

#define DTP_RANDOM_OPS(OP)                                                                         \
    OP(dropout, DTP_DROPOUT)                                                                       \
    OP(uniform, DTP_UNIFORM)                                                                       \
    OP(normal, DTP_NORMAL)

typedef struct dtp_random_numbers {
    uint32_t stream;
    dtp_distribution distribution;
    int32_t dtype;
    double a, b;    /* uniform: low, high; normal: mean, stddev */
    float keep;     /* dropout: 1 / (1 - rate) */
    float at_least; /* dropout: elements with u below it become 0 */
} dtp_random_numbers;

/* The nest: the elements of the output, their global indices less that of the first. */
void dtp_bind_random(const dtp_kernel_args *args, dtp_distribution distribution,
                     dtp_random_numbers *out, dtp_nest *nest);

#endif
