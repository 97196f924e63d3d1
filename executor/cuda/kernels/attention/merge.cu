/* attention_merge: a warp per row; rows without keys have lse -inf and no share. */
#include "executor/cuda/kernels/attention/attention.h"
#include "executor/cuda/kernels/common.cuh"

static __device__ float share_of(float part, float all)
{
    return all == -INFINITY ? 0.0f : expf(part - all);
}

static __global__ void merge_kernel(dtp_cuda_attention_merge m)
{
    const int lane = (int)threadIdx.x % DTP_CUDA_WARP;
    const int64_t step = dtp_threads() / DTP_CUDA_WARP;
    for (int64_t i = dtp_thread() / DTP_CUDA_WARP; i < m.rows.total; i += step) {
        int64_t row[6];
        for (int v = 0; v < 6; v++) {
            row[v] = dtp_offset(m.rows, v, i);
        }
        const float la = m.lse_a[row[3]], lb = m.lse_b[row[4]], most = dtp_max::of(la, lb);
        const float lse = most + logf(share_of(la, most) + share_of(lb, most));
        const float of_a = share_of(la, lse), of_b = share_of(lb, lse);
        for (int64_t k = lane; k < m.values.total; k += DTP_CUDA_WARP) {
            const float x = dtp_load(m.a, m.dtype, row[0] + dtp_offset(m.values, 0, k));
            const float y = dtp_load(m.b, m.dtype, row[1] + dtp_offset(m.values, 1, k));
            dtp_store(m.out, m.dtype, row[2] + dtp_offset(m.values, 2, k), of_a * x + of_b * y);
        }
        __syncwarp(); /* lse may lie where lse_a does */
        if (lane == 0) {
            m.lse[row[5]] = lse;
        }
    }
}

cudaError_t dtp_cuda_attention_merge_run(cudaStream_t queue, const dtp_cuda_attention_merge *m)
{
    return dtp_launch(merge_kernel, dtp_grid(m->rows.total, DTP_CUDA_BLOCK / DTP_CUDA_WARP, 1),
                      DTP_CUDA_BLOCK, 0, queue, *m);
}
