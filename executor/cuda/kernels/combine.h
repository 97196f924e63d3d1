/* Collectives between members whose memory a kernel can reach. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_COMBINE_H
#define DTP_EXECUTOR_CUDA_KERNELS_COMBINE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DTP_CUDA_MEMBERS = 128 };

/* Inputs by member, and outputs, all of which get the result. Unused entries are NULL. */
typedef struct dtp_cuda_members {
    int32_t n_in, n_out;
    const void *in[DTP_CUDA_MEMBERS];
    void *out[DTP_CUDA_MEMBERS];
} dtp_cuda_members;

/* Where a part of a buffer lies, in elements: runs of `run` at start, start + stride, ... */
typedef struct dtp_cuda_part {
    int64_t start, run, stride;
} dtp_cuda_part;

/* out[j][i] = in[0] op in[1] op ... at element i of their part, in this order, for i < count.
 * Types, operations and rounding as dtp_comm__combine. Outputs may be inputs when their elements
 * lie at the same place. */
cudaError_t dtp_cuda_combine(cudaStream_t queue, int32_t dtype, int32_t op, int64_t count,
                             const dtp_cuda_part *from, const dtp_cuda_members *members);
/* Extrema over NCCL, which drops NaN: floats become integers of the same order, among which NaN is
 * the one that wins, and back. Keys are i32, those of f64 i64. */
cudaError_t dtp_cuda_to_keys(cudaStream_t queue, int32_t dtype, int32_t op, int64_t count,
                             const void *from, void *keys);
cudaError_t dtp_cuda_from_keys(cudaStream_t queue, int32_t dtype, int32_t op, int64_t count,
                               const void *keys, void *to);
/* Element i of one part to element i of another, for i < count; elements of 1, 2, 4 or 8 bytes. */
cudaError_t dtp_cuda_move_part(cudaStream_t queue, int32_t elem_bytes, int64_t count, void *to,
                               const dtp_cuda_part *to_part, const void *from,
                               const dtp_cuda_part *from_part);

#ifdef __cplusplus
}
#endif

#endif
