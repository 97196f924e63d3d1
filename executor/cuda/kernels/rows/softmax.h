/* softmax, its gradient, and the parts they decompose into; with and without the logarithm. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ROWS_SOFTMAX_H
#define DTP_EXECUTOR_CUDA_KERNELS_ROWS_SOFTMAX_H

#include "executor/cuda/kernels/rows/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Views: x, y. */
cudaError_t dtp_cuda_softmax_rows(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t log_form);
/* Views: y, dy, dx. */
cudaError_t dtp_cuda_softmax_grad(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t log_form);
/* out = sum of exp(x - m); views: x, m, out. */
cudaError_t dtp_cuda_sum_exp(cudaStream_t queue, const dtp_cuda_rows *rows);
/* out = sum of a b; views: a, b, out. */
cudaError_t dtp_cuda_row_dot(cudaStream_t queue, const dtp_cuda_rows *rows);
/* From the maximum m and the sum s of exp(x - m); views: x, m, s, y. */
cudaError_t dtp_cuda_softmax_apply(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t log_form);
/* From the inner sum d of the gradient; views: y, dy, d, dx. */
cudaError_t dtp_cuda_softmax_grad_apply(cudaStream_t queue, const dtp_cuda_rows *rows,
                                        int32_t log_form);

#ifdef __cplusplus
}
#endif

#endif
