/* Dynamic loss scaling (core/transform/precision.h), the same on every backend. */
#ifndef DTP_EXECUTOR_DEVICE_LOSS_SCALE_H
#define DTP_EXECUTOR_DEVICE_LOSS_SCALE_H

#include "dtp/op.h"

/* in: scale, finite steps since it changed, steps skipped, sum over all gradients. out: the first
 * three after the step; the factor of its gradients, 1 / scale, 0 when the sum is not finite. */
void dtp_loss_scale_next(const dtp_op_call *call, const double in[4], double out[4]);

#endif
