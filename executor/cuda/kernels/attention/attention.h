/* Attention and its gradient, a tile of scores at a time. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_ATTENTION_H
#define DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_ATTENTION_H

#include <cuda_runtime_api.h>

#include "executor/cuda/kernels/nest.h"
#include "executor/device/bound/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DTP_CUDA_HEAD_MOST = 256 }; /* features, values */

typedef struct dtp_cuda_attention_call {
    int32_t dtype, features, values;
    float scale;
    dtp_attention_shape shape;
    dtp_attention_mats mats;
    dtp_cuda_nest shared, grouped; /* heads: dims in q, k and v; dims of q only */
    float *dot; /* workspace of the gradient: dout . out per head and query, heads outermost */
} dtp_cuda_attention_call;

/* out and lse. */
cudaError_t dtp_cuda_attention_forward(cudaStream_t queue, const dtp_cuda_attention_call *a);
/* dq, dk and dv. */
cudaError_t dtp_cuda_attention_backward(cudaStream_t queue, const dtp_cuda_attention_call *a);

/* Nests of dtp_bind_attention_merge. */
typedef struct dtp_cuda_attention_merge {
    int32_t dtype;
    dtp_cuda_nest rows, values;
    const void *a, *b;
    const float *lse_a, *lse_b;
    void *out;
    float *lse;
} dtp_cuda_attention_merge;

cudaError_t dtp_cuda_attention_merge_run(cudaStream_t queue, const dtp_cuda_attention_merge *m);

#ifdef __cplusplus
}
#endif

#endif
