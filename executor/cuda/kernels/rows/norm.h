/* layer_norm and rms_norm (without mean and beta), their gradients and parts. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ROWS_NORM_H
#define DTP_EXECUTOR_CUDA_KERNELS_ROWS_NORM_H

#include "executor/cuda/kernels/rows/rows.h"
#include "executor/device/bound/norm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y, rstd and mean; from moments when they are given. */
cudaError_t dtp_cuda_norm_rows(cudaStream_t queue, const dtp_cuda_rows *rows,
                               const dtp_norm_numbers *norm);
/* Sum of x^2 of a row; views: x, sum. When `centered`, sums of x - shift and (x - shift)^2; views:
 * x, shift, sums, the second `last` elements behind the first. */
cudaError_t dtp_cuda_norm_moments(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t centered,
                                  int64_t last);
/* dx; from the sums s0 and s1 when they are given. */
cudaError_t dtp_cuda_norm_dx(cudaStream_t queue, const dtp_cuda_rows *rows,
                             const dtp_norm_numbers *norm);
/* s0 and s1 alone. */
cudaError_t dtp_cuda_norm_grad_sums(cudaStream_t queue, const dtp_cuda_rows *rows,
                                    const dtp_norm_numbers *norm);
/* dgamma and, when centered, dbeta. */
cudaError_t dtp_cuda_norm_columns(cudaStream_t queue, const dtp_cuda_rows *columns,
                                  const dtp_norm_numbers *norm);

#ifdef __cplusplus
}
#endif

#endif
