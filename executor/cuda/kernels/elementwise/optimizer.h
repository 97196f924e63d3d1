/* Optimizer updates of many tensors in one launch. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_OPTIMIZER_H
#define DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_OPTIMIZER_H

#include <cuda_runtime_api.h>

#include "executor/device/bound/update.h"

typedef struct dtp_cuda_loss_scale {
    double growth, backoff, interval;
    const float *in[4];
    float *out[4];
} dtp_cuda_loss_scale;

#ifdef __cplusplus
extern "C" {
#endif

/* Updates that are independent of each other. What changes from step to step is read on the device.
 */
cudaError_t dtp_cuda_update_tensors(cudaStream_t queue, int32_t n, const dtp_bound_update *updates,
                                    const dtp_step_record *record);
/* dtp_loss_scale_next (executor/device/loss_scale.h). */
cudaError_t dtp_cuda_loss_scale_next(cudaStream_t queue, const dtp_cuda_loss_scale *s);

#ifdef __cplusplus
}
#endif

#endif
