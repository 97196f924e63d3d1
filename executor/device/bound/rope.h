/* Rotation of feature pairs (j, j + f/2) by their position, bound for any device. */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_ROPE_H
#define DTP_EXECUTOR_DEVICE_BOUND_ROPE_H

#include "core/graph/ops/sequence.h"
#include "executor/device/nest.h"

typedef struct dtp_rope_numbers {
    int64_t position[2], feature[2]; /* element strides in x and y */
    int64_t positions, half;         /* places here; pairs of the feature dim */
    int64_t first, offset;           /* global place of place 0; added to every position */
    dtp_sequence order;
    dtp_rope_rates rates;
    double amplitude, sign;
    int32_t dtype;
} dtp_rope_numbers;

/* The nest: dims other than position and feature; views: x, y. */
void dtp_bind_rope(const dtp_kernel_args *args, dtp_rope_numbers *out, dtp_nest *rest);

#endif
