/* Tensors from nothing, and padding. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_SHAPE_H
#define DTP_EXECUTOR_CUDA_KERNELS_SHAPE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `bytes` > 0 bytes, the 16 of `pattern` again and again. */
cudaError_t dtp_cuda_fill(cudaStream_t queue, int64_t bytes, const uint8_t pattern[16], void *out);
/* Element i of n > 0 becomes first + i / inner % size, as dtype. */
cudaError_t dtp_cuda_iota(cudaStream_t queue, int64_t n, int64_t inner, int64_t size, int64_t first,
                          int32_t dtype, void *out);
/* Rows of `to` bytes, each `before` zeros, then n bytes of a row of x, which has `from`, behind
 * `skip` of it, then zeros. Every number of bytes is one of whole elements; `total` > 0 of out. */
typedef struct dtp_cuda_pad_rows {
    int64_t to, from, before, skip, n;
} dtp_cuda_pad_rows;
cudaError_t dtp_cuda_pad(cudaStream_t queue, int64_t total, const dtp_cuda_pad_rows *rows,
                         int32_t elem_bytes, void *out, const void *x);

#ifdef __cplusplus
}
#endif

#endif
