/* Rotation of feature pairs (j, j + f/2) by their position (core/graph/ops/sequence.c). */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_ROPE_H
#define DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_ROPE_H

#include <cuda_runtime_api.h>

#include "executor/cuda/kernels/nest.h"
#include "executor/device/bound/rope.h"

typedef struct dtp_cuda_rope_call {
    dtp_rope_numbers numbers;
    dtp_cuda_nest rest; /* dims other than position and feature; views: x, y */
} dtp_cuda_rope_call;

#ifdef __cplusplus
extern "C" {
#endif

/* y may be x; neither is empty. */
cudaError_t dtp_cuda_rope_run(cudaStream_t queue, const dtp_cuda_rope_call *call, void *y,
                              const void *x);

#ifdef __cplusplus
}
#endif

#endif
