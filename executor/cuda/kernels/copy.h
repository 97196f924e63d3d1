/* Copies of elements between views of one dtype. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_COPY_H
#define DTP_EXECUTOR_CUDA_KERNELS_COPY_H

#include <cuda_runtime_api.h>

#include "executor/cuda/kernels/nest.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dst[nest] = src[nest] for elements of 1, 2, 4 or 8 bytes; view 0 is dst, view 1 src. */
cudaError_t dtp_cuda_copy(cudaStream_t queue, const dtp_cuda_nest *nest, int32_t elem_bytes,
                          void *dst, const void *src);

#ifdef __cplusplus
}
#endif

#endif
