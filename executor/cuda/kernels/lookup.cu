#include "executor/cuda/kernels/lookup.h"
#include "executor/cuda/kernels/common.cuh"

/* Position here of the id at an offset, -1 when it is elsewhere or refused. */
static __device__ __forceinline__ int64_t position(const dtp_bound_ids &ids, int64_t at)
{
    const int64_t id = dtp_load_int(ids.data, ids.dtype, at), here = id - ids.first;
    if (ids.error != NULL && (id < 0 || id >= ids.size)) {
        dtp_refuse(ids.error, DTP_DATA_ID, ids.operand, id, ids.size);
        return -1;
    }
    return here >= 0 && here < ids.local ? here : -1;
}

template <class W>
static __global__ void gather_kernel(dtp_cuda_nest nest, dtp_bound_ids ids, W *out, const W *x)
{
    for (int64_t i = dtp_thread(); i < nest.total; i += dtp_threads()) {
        int64_t off[3];
        dtp_offsets(nest, i, off);
        const int64_t at = position(ids, off[1]);
        out[off[0]] = at < 0 ? W() : x[off[2] + at * ids.stride];
    }
}

template <class W>
static cudaError_t gather(cudaStream_t queue, const dtp_cuda_nest *nest, const dtp_bound_ids *ids,
                          void *out, const void *x)
{
    return dtp_launch(gather_kernel<W>, dtp_grid(nest->total, DTP_CUDA_BLOCK, 4), DTP_CUDA_BLOCK, 0,
                      queue, *nest, *ids, (W *)out, (const W *)x);
}

cudaError_t dtp_cuda_gather_run(cudaStream_t queue, const dtp_cuda_nest *nest,
                                const dtp_bound_ids *ids, int32_t word_bytes, void *out,
                                const void *x)
{
    switch (word_bytes) {
    case 1:
        return gather<uint8_t>(queue, nest, ids, out, x);
    case 2:
        return gather<uint16_t>(queue, nest, ids, out, x);
    case 4:
        return gather<uint32_t>(queue, nest, ids, out, x);
    case 8:
        return gather<uint64_t>(queue, nest, ids, out, x);
    default:
        return gather<uint4>(queue, nest, ids, out, x);
    }
}

static __global__ void one_hot_kernel(dtp_cuda_nest nest, dtp_bound_ids ids, int dtype, float on,
                                      float off_value, void *y)
{
    for (int64_t i = dtp_thread(); i < nest.total; i += dtp_threads()) {
        int64_t off[3];
        dtp_offsets(nest, i, off);
        dtp_store(y, dtype, off[0], position(ids, off[1]) == off[2] ? on : off_value);
    }
}

cudaError_t dtp_cuda_one_hot_run(cudaStream_t queue, const dtp_cuda_nest *nest,
                                 const dtp_bound_ids *ids, int32_t dtype, float on, float off,
                                 void *y)
{
    return dtp_launch(one_hot_kernel, dtp_grid(nest->total, DTP_CUDA_BLOCK, 4), DTP_CUDA_BLOCK, 0,
                      queue, *nest, *ids, dtype, on, off, y);
}
