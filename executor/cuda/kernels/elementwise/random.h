/* Random values by global element index (core/base/philox.h). */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_RANDOM_H
#define DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_RANDOM_H

#include <cuda_runtime_api.h>

#include "dtp/op.h"
#include "executor/cuda/kernels/nest.h"

typedef enum dtp_cuda_distribution {
    DTP_CUDA_DROPOUT,
    DTP_CUDA_UNIFORM,
    DTP_CUDA_NORMAL
} dtp_cuda_distribution;

typedef struct dtp_cuda_random_call {
    dtp_cuda_nest nest; /* views: the elements, their global indices less `first` */
    int64_t first;      /* global index of element 0 */
    uint32_t stream;
    dtp_cuda_distribution distribution;
    int32_t dtype;
    double a, b;    /* uniform: low, high; normal: mean, stddev */
    float keep;     /* dropout: 1 / (1 - rate) */
    float at_least; /* dropout: elements with u below it become 0 */
} dtp_cuda_random_call;

#ifdef __cplusplus
extern "C" {
#endif

/* y over a nest that is not empty; x: of dropout, may be y. The device reads seed and step. */
cudaError_t dtp_cuda_random_run(cudaStream_t queue, const dtp_cuda_random_call *r,
                                const dtp_step_record *record, void *y, const void *x);

#ifdef __cplusplus
}
#endif

#endif
