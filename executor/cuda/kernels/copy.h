/* Copies of elements between views of one dtype, and updates of step records. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_COPY_H
#define DTP_EXECUTOR_CUDA_KERNELS_COPY_H

#include <cuda_runtime_api.h>

#include "dtp/op.h"
#include "executor/cuda/kernels/nest.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dst[nest] = src[nest] for elements of 1, 2, 4 or 8 bytes; view 0 is dst, view 1 src. */
cudaError_t dtp_cuda_copy(cudaStream_t queue, const dtp_cuda_nest *nest, int32_t elem_bytes,
                          void *dst, const void *src);
/* *dst = record; it is read before the call returns. */
cudaError_t dtp_cuda_put_record(cudaStream_t queue, const dtp_step_record *record,
                                dtp_step_record *dst);
/* Stores a word in memory that the device reaches and that the host may read meanwhile. */
cudaError_t dtp_cuda_put_word(cudaStream_t queue, uint64_t word, void *dst);

#ifdef __cplusplus
}
#endif

#endif
