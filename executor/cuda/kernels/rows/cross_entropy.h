/* cross_entropy, its gradient and parts (core/graph/ops/cross_entropy.h has the terms). */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ROWS_CROSS_ENTROPY_H
#define DTP_EXECUTOR_CUDA_KERNELS_ROWS_CROSS_ENTROPY_H

#include <cuda_runtime_api.h>

#include "executor/cuda/kernels/nest.h"
#include "executor/device/bound/labels.h"

/* A number of any float dtype; data NULL: none. */
typedef struct dtp_cuda_numbers {
    void *data;
    int32_t dtype;
} dtp_cuda_numbers;

typedef struct dtp_cuda_loss_call {
    dtp_cuda_nest rows;
    dtp_cuda_numbers view[DTP_LOSS_VIEWS];
    int64_t step[DTP_LOSS_VIEWS]; /* between the classes of a row: logits, dx */
    int64_t first, local, size;   /* classes: global index of class 0, here, all */
    double smoothing;
    int64_t ignore;
    bool has_ignore;
    dtp_cuda_numbers weights; /* of all `size` classes */
    dtp_cuda_numbers total;   /* gradient: divides it, instead of `factor` */
    double factor;
    float *row_loss, *row_weight; /* workspace: of every row; NULL: not wanted */
    int32_t operand;              /* number of the labels */
    dtp_error_word *error;
} dtp_cuda_loss_call;

/* loss = factor * sum of rows of `losses`, divided by total when it is given, or by the sum of
 * `weights`. */
typedef struct dtp_cuda_loss_sum {
    int64_t rows;
    const float *losses, *weights;
    dtp_cuda_numbers total, loss;
    double factor;
} dtp_cuda_loss_sum;

/* Rows of cross_entropy_finish; views: m, s, t, a, lse, loss. */
enum { DTP_CUDA_FINISH_VIEWS = 6 };
typedef struct dtp_cuda_finish_call {
    dtp_cuda_nest rows;
    dtp_cuda_numbers view[DTP_CUDA_FINISH_VIEWS]; /* a: may be missing; loss: of rows only */
    float *row_loss;                              /* workspace; NULL: not wanted */
} dtp_cuda_finish_call;

#ifdef __cplusplus
extern "C" {
#endif

/* Nests are not empty. */
cudaError_t dtp_cuda_loss_forward(cudaStream_t queue, const dtp_cuda_loss_call *call);
cudaError_t dtp_cuda_loss_backward(cudaStream_t queue, const dtp_cuda_loss_call *call);
cudaError_t dtp_cuda_loss_pick(cudaStream_t queue, const dtp_cuda_loss_call *call);
/* a of every row, and its weight to row_weight. */
cudaError_t dtp_cuda_loss_label_weight(cudaStream_t queue, const dtp_cuda_loss_call *call);
cudaError_t dtp_cuda_loss_finish(cudaStream_t queue, const dtp_cuda_finish_call *call);
cudaError_t dtp_cuda_loss_total(cudaStream_t queue, const dtp_cuda_loss_sum *sum);

#ifdef __cplusplus
}
#endif

#endif
