/* Random values by global element index (core/base/philox.h). */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_RANDOM_H
#define DTP_EXECUTOR_CUDA_KERNELS_ELEMENTWISE_RANDOM_H

#include <cuda_runtime_api.h>

#include "executor/cuda/kernels/nest.h"
#include "executor/device/bound/random.h"

typedef struct dtp_cuda_random_call {
    dtp_random_numbers numbers;
    dtp_cuda_nest nest; /* views: the elements, their global indices less `first` */
    int64_t first;      /* global index of element 0 */
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
