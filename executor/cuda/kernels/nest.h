/* A loop nest over the dims of several views, as kernels take it (executor/device/nest.h). */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_NEST_H
#define DTP_EXECUTOR_CUDA_KERNELS_NEST_H

#include <stdint.h>

enum { DTP_CUDA_VIEWS = 8, DTP_CUDA_DIMS = 8 };

/* Sizes and, per view, element strides (0 where the view lacks the dim); row-major, rank >= 1. */
typedef struct dtp_cuda_nest {
    int32_t rank, n_views;
    int64_t total; /* elements */
    int64_t size[DTP_CUDA_DIMS];
    int64_t stride[DTP_CUDA_VIEWS][DTP_CUDA_DIMS];
} dtp_cuda_nest;

#endif
