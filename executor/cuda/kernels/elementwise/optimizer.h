/* Optimizer updates of many tensors in one launch. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_OPTIMIZER_H
#define DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_OPTIMIZER_H

#include <cuda_runtime_api.h>

#include "dtp/op.h"

typedef enum dtp_cuda_rule {
    DTP_CUDA_SGD,
    DTP_CUDA_MOMENTUM,
    DTP_CUDA_ADAM,
    DTP_CUDA_ADAMW,
    DTP_CUDA_ACCUMULATE /* p: the sum so far, g: what is added */
} dtp_cuda_rule;

/* One tensor: parameter, gradient and the slots that the rule has, all of one dtype. Outputs may be
 * the operands. */
typedef struct dtp_cuda_update {
    int64_t n; /* elements */
    dtp_cuda_rule rule;
    int32_t dtype;
    const void *p, *g, *m, *v;
    const void *factor; /* of the gradient, one number; NULL: 1. At 0 outputs are the operands. */
    void *p_out, *m_out, *v_out;
    double lr, beta1, beta2; /* lr before the step's lr_scale */
    float decay, momentum, eps;
} dtp_cuda_update;

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
cudaError_t dtp_cuda_update_tensors(cudaStream_t queue, int32_t n, const dtp_cuda_update *updates,
                                    const dtp_step_record *record);
/* dtp_loss_scale_next (executor/device/loss_scale.h). */
cudaError_t dtp_cuda_loss_scale_next(cudaStream_t queue, const dtp_cuda_loss_scale *s);

#ifdef __cplusplus
}
#endif

#endif
