/* Functions of elements, bound for any device. */
#ifndef DTP_EXECUTOR_DEVICE_BOUND_ELEMENTWISE_H
#define DTP_EXECUTOR_DEVICE_BOUND_ELEMENTWISE_H

#include "executor/device/nest.h"

/* The nest of the output, then the operands, and what values of ops call a and b. */
typedef struct dtp_bound_elementwise {
    dtp_nest nest;
    float a, b;
} dtp_bound_elementwise;

void dtp_bind_elementwise(const dtp_kernel_args *args, dtp_bound_elementwise *out);
/* Float attribute number i of a call, in the order of the op's row, 0 when there are fewer;
 * infinite beyond the range of f32 (clamp's "no bound"). */
double dtp_float_attr(const dtp_op_call *call, int32_t i);

#endif
