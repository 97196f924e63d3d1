/* linear_loss and linear_loss_grad on any backend: chunk after chunk by the backend's own kernels
 * (spmd/target/linear_loss.h). */
#ifndef DTP_EXECUTOR_DEVICE_LINEAR_LOSS_H
#define DTP_EXECUTOR_DEVICE_LINEAR_LOSS_H

#include "core/graph/op.h"

dtp_status dtp_linear_loss_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                dtp_err *err);
dtp_status dtp_linear_loss_run(const dtp_kernel_args *args, dtp_err *err);

#endif
