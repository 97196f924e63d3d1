/* Profiler switches that do nothing. C17 and C++. */
#ifndef CUDA_EMU_CUDA_PROFILER_API_H
#define CUDA_EMU_CUDA_PROFILER_API_H

#include "cuda_runtime_api.h"

static inline cudaError_t cudaProfilerStart(void)
{
    return cudaSuccess;
}
static inline cudaError_t cudaProfilerStop(void)
{
    return cudaSuccess;
}

#endif
