#include "executor/cuda/kernels/copy.h"
#include "executor/cuda/kernels/common.cuh"

template <class T> static __global__ void copy_kernel(dtp_cuda_nest nest, T *dst, const T *src)
{
    for (int64_t i = dtp_thread(); i < nest.total; i += dtp_threads()) {
        dst[dtp_offset(nest, 0, i)] = src[dtp_offset(nest, 1, i)];
    }
}

template <class T>
static cudaError_t copy(cudaStream_t queue, const dtp_cuda_nest *nest, void *dst, const void *src)
{
    return dtp_launch(copy_kernel<T>, dtp_grid(nest->total, DTP_CUDA_BLOCK, 4), DTP_CUDA_BLOCK, 0,
                      queue, *nest, (T *)dst, (const T *)src);
}

cudaError_t dtp_cuda_copy(cudaStream_t queue, const dtp_cuda_nest *nest, int32_t elem_bytes,
                          void *dst, const void *src)
{
    switch (elem_bytes) {
    case 1:
        return copy<uint8_t>(queue, nest, dst, src);
    case 2:
        return copy<uint16_t>(queue, nest, dst, src);
    case 4:
        return copy<uint32_t>(queue, nest, dst, src);
    default:
        return copy<uint64_t>(queue, nest, dst, src);
    }
}

static __global__ void scale_kernel(int64_t n, int dtype, float factor, void *dst, const void *src)
{
    for (int64_t i = dtp_thread(); i < n; i += dtp_threads()) {
        dtp_store(dst, dtype, i, factor * dtp_load(src, dtype, i));
    }
}

cudaError_t dtp_cuda_scale_elements(cudaStream_t queue, int64_t n, int32_t dtype, double factor,
                                    void *dst, const void *src)
{
    return dtp_launch(scale_kernel, dtp_grid(n, DTP_CUDA_BLOCK, 4), DTP_CUDA_BLOCK, 0, queue, n,
                      dtype, (float)factor, dst, src);
}

static __global__ void record_kernel(dtp_step_record record, dtp_step_record *dst)
{
    *dst = record;
}

cudaError_t dtp_cuda_put_record(cudaStream_t queue, const dtp_step_record *record,
                                dtp_step_record *dst)
{
    return dtp_launch(record_kernel, 1, 1, 0, queue, *record, dst);
}
