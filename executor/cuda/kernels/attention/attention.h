/* Attention and its gradient, a tile of scores at a time. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_ATTENTION_H
#define DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_ATTENTION_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "executor/cuda/kernels/nest.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DTP_CUDA_HEAD_MOST = 256 }; /* features, values */

/* Views of the nests over heads; dk and dv lie as k and v. */
enum {
    DTP_CUDA_Q,
    DTP_CUDA_K,
    DTP_CUDA_V,
    DTP_CUDA_ATTENTION_OUT,
    DTP_CUDA_LSE,
    DTP_CUDA_MASK,
    DTP_CUDA_DOUT,
    DTP_CUDA_DQ
};

/* The matrix [row dim, column dim] of a head: steps in elements. */
typedef struct dtp_cuda_mat {
    void *data;
    int64_t row_step, col_step;
} dtp_cuda_mat;

typedef struct dtp_cuda_attention_call {
    int32_t dtype, features, values;
    bool causal;
    float scale;
    int64_t queries, keys;
    dtp_cuda_nest shared, grouped; /* heads: dims in q, k and v; dims of q only */
    /* places and positions (executor/device/attention_shape.h) */
    int64_t chunks, local_chunks, first_chunk, shift, first_query, global_queries, ahead;
    int64_t order_size, order_run;
    dtp_cuda_mat q, k, v, out, dout, dq, dk, dv;
    dtp_cuda_mat mask; /* [query, key], of mask_dtype; data NULL: there is none */
    int32_t mask_dtype;
    float *lse;
    int64_t lse_step;
    float *dot; /* workspace of the gradient: dout . out per head and query, heads outermost */
} dtp_cuda_attention_call;

/* out and lse. */
cudaError_t dtp_cuda_attention_forward(cudaStream_t queue, const dtp_cuda_attention_call *a);
/* dq, dk and dv. */
cudaError_t dtp_cuda_attention_backward(cudaStream_t queue, const dtp_cuda_attention_call *a);

/* Views of both nests: out a, out b, out, lse a, lse b, lse; `rows` over lse, `values` over the
 * other dims of out. */
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
