/* The order in which a sequence is stored, on the device. */
#ifndef DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_SEQUENCE_CUH
#define DTP_EXECUTOR_CUDA_KERNELS_ATTENTION_SEQUENCE_CUH

#include "executor/cuda/kernels/common.cuh"

/* dtp_sequence_position (core/graph/ops/sequence.h). */
static __device__ __forceinline__ int64_t dtp_position_at(int64_t size, int64_t run, int64_t place)
{
    if (run == size) {
        return place;
    }
    const int64_t r = place / run, at = r % 2 == 0 ? r / 2 : size / run - 1 - r / 2;
    return at * run + place % run;
}

#endif
