/* Maxima and means of windows, and their gradients. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_POOL_H
#define DTP_EXECUTOR_CUDA_KERNELS_POOL_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "executor/cuda/kernels/nest.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { DTP_CUDA_POOL_AXES = 3 };

typedef struct dtp_cuda_pool_axis {
    int64_t in, size, out, stride, dilation, before;
    int64_t kept, first; /* elements of dx, and where they begin in x */
    int64_t step[3];     /* of the result, x, dy */
} dtp_cuda_pool_axis;

/* Views of the rows: the result (y or dx), x, and of the gradient dy. */
typedef struct dtp_cuda_pool_form {
    bool max, inside, grad;
    dtp_cuda_nest rows;
    dtp_cuda_pool_axis axis[DTP_CUDA_POOL_AXES];
    int64_t taps, places, elems;
    int32_t dtype;
} dtp_cuda_pool_form;

/* A thread for each element of the result, of which there are some; dy NULL but for the gradient.
 */
cudaError_t dtp_cuda_pool_run(cudaStream_t queue, const dtp_cuda_pool_form *pool, void *out,
                              const void *x, const void *dy);

#ifdef __cplusplus
}
#endif

#endif
