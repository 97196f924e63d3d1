/* Statistics of rows, scans along rows, positions of extreme elements. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ROWS_ROW_STATS_H
#define DTP_EXECUTOR_CUDA_KERNELS_ROWS_ROW_STATS_H

#include "executor/cuda/kernels/rows/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Views: x, out. */
cudaError_t dtp_cuda_logsumexp(cudaStream_t queue, const dtp_cuda_rows *rows);
/* The norm of order 1 or 2, or, with 0, the largest magnitude; a NaN stays. */
cudaError_t dtp_cuda_norm_of_order(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t order);
/* Sum of (x - mean)^2 over the divisor, or its root. */
cudaError_t dtp_cuda_variance(cudaStream_t queue, const dtp_cuda_rows *rows, double divisor,
                              int32_t root);
/* The first of these from the moments of so many elements; views: moments, out. */
cudaError_t dtp_cuda_var_finish(cudaStream_t queue, const dtp_cuda_rows *rows, double count,
                                double divisor);
/* Sums of the elements up to each, or from each on; integers wrap around. */
cudaError_t dtp_cuda_cumsum(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t ints,
                            int32_t reverse);
/* dx = dy times the product of the other elements; views: x, dy, dx. */
cudaError_t dtp_cuda_prod_grad(cudaStream_t queue, const dtp_cuda_rows *rows);

/* A NaN counts as the largest of the large and the smallest of the small; of equals the first wins.
 * Rows have less than 2^32 elements. */
cudaError_t dtp_cuda_arg(cudaStream_t queue, const dtp_cuda_rows *rows, int32_t largest);
/* offset + the first i with x[i] = m, or `none`; views: x, m, out. */
cudaError_t dtp_cuda_arg_first(cudaStream_t queue, const dtp_cuda_rows *rows, int64_t offset,
                               int64_t none);
/* The k first elements in order and their indices; views: x, values, indices. */
cudaError_t dtp_cuda_topk(cudaStream_t queue, const dtp_cuda_rows *rows, int64_t k,
                          int32_t largest);

#ifdef __cplusplus
}
#endif

#endif
