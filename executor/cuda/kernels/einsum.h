/* Sums and products of an einsum that are no matrix products. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_EINSUM_H
#define DTP_EXECUTOR_CUDA_KERNELS_EINSUM_H

#include <cuda_runtime_api.h>

#include "executor/cuda/kernels/nest.h"

#ifdef __cplusplus
extern "C" {
#endif

/* c[kept] = sum over `summed` of a[kept, summed] (times b, NULL: 1). The views of both nests are c,
 * a, b; c has stride 0 in `summed`, which may be empty (total 0) or one element (no sum). */
typedef struct dtp_cuda_einsum_loop {
    dtp_cuda_nest kept, summed;
    int32_t c_dtype, a_dtype, b_dtype;
} dtp_cuda_einsum_loop;

cudaError_t dtp_cuda_einsum_loop_run(cudaStream_t queue, const dtp_cuda_einsum_loop *loop, void *c,
                                     const void *a, const void *b);

#ifdef __cplusplus
}
#endif

#endif
