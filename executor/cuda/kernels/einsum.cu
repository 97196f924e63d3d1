#include "executor/cuda/kernels/einsum.h"
#include "executor/cuda/kernels/common.cuh"

static __device__ float term(const dtp_cuda_einsum_loop &loop, const void *a, const void *b,
                             int64_t at_a, int64_t at_b)
{
    const float x = dtp_load(a, loop.a_dtype, at_a);
    return b == NULL ? x : x * dtp_load(b, loop.b_dtype, at_b);
}

/* Nothing is summed: one thread per element. */
static __global__ void multiply_kernel(dtp_cuda_einsum_loop loop, void *c, const void *a,
                                       const void *b)
{
    for (int64_t i = dtp_thread(); i < loop.kept.total; i += dtp_threads()) {
        const int64_t at_b = b == NULL ? 0 : dtp_offset(loop.kept, 2, i);
        const float y = term(loop, a, b, dtp_offset(loop.kept, 1, i), at_b);
        dtp_store(c, loop.c_dtype, dtp_offset(loop.kept, 0, i), y);
    }
}

/* A block per element. */
static __global__ void sum_by_block_kernel(dtp_cuda_einsum_loop loop, void *c, const void *a,
                                           const void *b)
{
    for (int64_t i = blockIdx.x; i < loop.kept.total; i += gridDim.x) {
        const int64_t first_a = dtp_offset(loop.kept, 1, i);
        const int64_t first_b = b == NULL ? 0 : dtp_offset(loop.kept, 2, i);
        float sum = 0.0f;
        for (int64_t k = threadIdx.x; k < loop.summed.total; k += blockDim.x) {
            const int64_t at_b = b == NULL ? 0 : first_b + dtp_offset(loop.summed, 2, k);
            sum += term(loop, a, b, first_a + dtp_offset(loop.summed, 1, k), at_b);
        }
        sum = dtp_block_reduce<dtp_sum>(sum);
        if (threadIdx.x == 0) {
            dtp_store(c, loop.c_dtype, dtp_offset(loop.kept, 0, i), sum);
        }
    }
}

/* Columns are elements of the result, lanes share the terms of a column. Columns of a WIDE block
 * fill a warp's loads; a NARROW one, whose columns fill a sector, is for elements that are few. */
enum {
    WIDE = DTP_CUDA_WARP,
    WIDE_LANES = DTP_CUDA_BLOCK / WIDE,
    NARROW = 8,
    NARROW_LANES = 1024 / NARROW,
    FEW = 4,       /* terms of a lane */
    BUSY = 1 << 16 /* threads that keep a large device busy */
};

/* A block per COLUMNS neighbouring elements: loads of a warp are neighbours where the elements
 * are. The order of a sum depends on its shape alone. */
template <int COLUMNS, int LANES>
static __global__ void __launch_bounds__(COLUMNS *LANES, 1)
    sum_by_column_kernel(dtp_cuda_einsum_loop loop, void *c, const void *a, const void *b)
{
    DTP_SHARED(float, part, LANES *COLUMNS);
    const int column = (int)threadIdx.x % COLUMNS, lane = (int)threadIdx.x / COLUMNS;
    for (int64_t first = (int64_t)blockIdx.x * COLUMNS; first < loop.kept.total;
         first += (int64_t)gridDim.x * COLUMNS) {
        const int64_t i = first + column;
        float sum = 0.0f;
        if (i < loop.kept.total) {
            const int64_t first_a = dtp_offset(loop.kept, 1, i);
            const int64_t first_b = b == NULL ? 0 : dtp_offset(loop.kept, 2, i);
            for (int64_t k = lane; k < loop.summed.total; k += LANES) {
                const int64_t at_b = b == NULL ? 0 : first_b + dtp_offset(loop.summed, 2, k);
                sum += term(loop, a, b, first_a + dtp_offset(loop.summed, 1, k), at_b);
            }
        }
        part[threadIdx.x] = sum;
        for (int by = LANES / 2; by > 0; by /= 2) {
            __syncthreads();
            if (lane < by) {
                part[threadIdx.x] += part[threadIdx.x + by * COLUMNS];
            }
        }
        if (lane == 0 && i < loop.kept.total) {
            dtp_store(c, loop.c_dtype, dtp_offset(loop.kept, 0, i), part[threadIdx.x]);
        }
        __syncthreads();
    }
}

cudaError_t dtp_cuda_einsum_loop_run(cudaStream_t queue, const dtp_cuda_einsum_loop *loop, void *c,
                                     const void *a, const void *b)
{
    const dtp_cuda_nest *kept = &loop->kept, *summed = &loop->summed;
    if (summed->total == 1) {
        return dtp_launch(multiply_kernel, dtp_grid(kept->total, DTP_CUDA_BLOCK, 4), DTP_CUDA_BLOCK,
                          0, queue, *loop, c, a, b);
    }
    /* few terms, or terms that do not lie side by side but elements that do */
    const bool by_column = summed->total < DTP_CUDA_BLOCK ||
                           (kept->total >= WIDE && kept->stride[1][kept->rank - 1] == 1);
    if (by_column && kept->total < BUSY / WIDE_LANES && summed->total >= FEW * NARROW_LANES) {
        return dtp_launch(sum_by_column_kernel<NARROW, NARROW_LANES>,
                          dtp_grid(kept->total, NARROW, 1), NARROW * NARROW_LANES, 0, queue, *loop,
                          c, a, b);
    }
    if (by_column) {
        return dtp_launch(sum_by_column_kernel<WIDE, WIDE_LANES>, dtp_grid(kept->total, WIDE, 1),
                          DTP_CUDA_BLOCK, 0, queue, *loop, c, a, b);
    }
    return dtp_launch(sum_by_block_kernel, dtp_grid(kept->total, 1, 1), DTP_CUDA_BLOCK, 0, queue,
                      *loop, c, a, b);
}
