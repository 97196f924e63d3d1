/* Reductions of floats, integers and truth values. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ROWS_REDUCE_H
#define DTP_EXECUTOR_CUDA_KERNELS_ROWS_REDUCE_H

#include "executor/cuda/kernels/rows/rows.h"
#include "executor/device/bound/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* factor * fold of each row of x; views: x, out. */
cudaError_t dtp_cuda_reduce_floats(cudaStream_t queue, const dtp_cuda_rows *rows, dtp_fold fold,
                                   float factor);
/* Sums and products wrap around; `none` is the result of an empty row. */
cudaError_t dtp_cuda_reduce_ints(cudaStream_t queue, const dtp_cuda_rows *rows, dtp_fold fold,
                                 int64_t none);

#ifdef __cplusplus
}
#endif

#endif
