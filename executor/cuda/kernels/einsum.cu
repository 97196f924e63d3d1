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

enum { COLUMNS = DTP_CUDA_WARP, ROWS = DTP_CUDA_BLOCK / COLUMNS };

/* A warp per 32 neighbouring elements and share of the terms: loads of a warp are neighbours where
 * the elements are. */
static __global__ void sum_by_column_kernel(dtp_cuda_einsum_loop loop, void *c, const void *a,
                                            const void *b)
{
    DTP_SHARED(float, part, ROWS *COLUMNS);
    const int column = (int)threadIdx.x % COLUMNS, row = (int)threadIdx.x / COLUMNS;
    for (int64_t first = (int64_t)blockIdx.x * COLUMNS; first < loop.kept.total;
         first += (int64_t)gridDim.x * COLUMNS) {
        const int64_t i = first + column;
        float sum = 0.0f;
        if (i < loop.kept.total) {
            const int64_t first_a = dtp_offset(loop.kept, 1, i);
            const int64_t first_b = b == NULL ? 0 : dtp_offset(loop.kept, 2, i);
            for (int64_t k = row; k < loop.summed.total; k += ROWS) {
                const int64_t at_b = b == NULL ? 0 : first_b + dtp_offset(loop.summed, 2, k);
                sum += term(loop, a, b, first_a + dtp_offset(loop.summed, 1, k), at_b);
            }
        }
        part[threadIdx.x] = sum;
        for (int by = ROWS / 2; by > 0; by /= 2) {
            __syncthreads();
            if (row < by) {
                part[threadIdx.x] += part[threadIdx.x + by * COLUMNS];
            }
        }
        if (row == 0 && i < loop.kept.total) {
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
                           (kept->total >= COLUMNS && kept->stride[1][kept->rank - 1] == 1);
    if (by_column) {
        return dtp_launch(sum_by_column_kernel, dtp_grid(kept->total, COLUMNS, 1), DTP_CUDA_BLOCK,
                          0, queue, *loop, c, a, b);
    }
    return dtp_launch(sum_by_block_kernel, dtp_grid(kept->total, 1, 1), DTP_CUDA_BLOCK, 0, queue,
                      *loop, c, a, b);
}
