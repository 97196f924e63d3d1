/* layer_norm and rms_norm (without mean and beta), their gradients and parts. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ROWS_NORM_H
#define DTP_EXECUTOR_CUDA_KERNELS_ROWS_NORM_H

#include "executor/cuda/kernels/rows/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Views of rows, forward; backward dx and dy stand for y and beta. */
enum {
    DTP_NORM_X,
    DTP_NORM_Y,
    DTP_NORM_GAMMA,
    DTP_NORM_RSTD,
    DTP_NORM_MEAN,
    DTP_NORM_BETA,
    DTP_NORM_SUMS,
    DTP_NORM_VIEWS,
    DTP_NORM_DX = DTP_NORM_Y,
    DTP_NORM_DY = DTP_NORM_BETA
};
/* Views of the elements of gamma, each with all rows: x, dy, rstd, mean, and dgamma and dbeta. */
enum { DTP_NORM_DGAMMA = 4, DTP_NORM_DBETA, DTP_NORM_COLUMN_VIEWS };

typedef struct dtp_cuda_norm_form {
    int32_t centered; /* layer_norm */
    int32_t sums;     /* the sums of a row are an operand, or the only result */
    float eps;
    double count; /* elements of a row, on all ranks when there are sums and backward */
    int64_t last; /* elements from the first sum of a row to the last */
} dtp_cuda_norm_form;

/* y, rstd and mean; from the sums of x and x^2 when they are given. */
cudaError_t dtp_cuda_norm_rows(cudaStream_t queue, const dtp_cuda_rows *rows,
                               const dtp_cuda_norm_form *norm);
/* Sums of x (when centered) and x^2 of a row; views: x, sums. */
cudaError_t dtp_cuda_norm_moments(cudaStream_t queue, const dtp_cuda_rows *rows,
                                  const dtp_cuda_norm_form *norm);
/* dx; from the sums s0 and s1 when they are given. */
cudaError_t dtp_cuda_norm_dx(cudaStream_t queue, const dtp_cuda_rows *rows,
                             const dtp_cuda_norm_form *norm);
/* s0 and s1 alone. */
cudaError_t dtp_cuda_norm_grad_sums(cudaStream_t queue, const dtp_cuda_rows *rows,
                                    const dtp_cuda_norm_form *norm);
/* dgamma and, when centered, dbeta. */
cudaError_t dtp_cuda_norm_columns(cudaStream_t queue, const dtp_cuda_rows *columns,
                                  const dtp_cuda_norm_form *norm);

#ifdef __cplusplus
}
#endif

#endif
