#include "executor/cuda/kernels/attention/rope.h"
#include "executor/cuda/kernels/attention/sequence.cuh"

/* Rows of a thread: so often is an angle used that is made in double. */
enum { ROWS = 16 };

/* dtp_rope_rate (core/graph/ops/sequence.h). */
static __device__ __forceinline__ double rate_of(const dtp_rope_rates &r, int64_t pair)
{
    const double rate = pow(r.base, -(double)pair / r.half);
    const double kept = fmin(fmax(r.by_rate * rate + r.by_pair * (double)pair + r.share, 0.0), 1.0);
    return rate * (kept + (1.0 - kept) * r.slowed);
}

/* A thread turns one pair at one position, in ROWS rows; neighbours have neighbouring pairs. */
static __global__ void rope_kernel(dtp_cuda_rope_call call, int64_t n, void *y, const void *x)
{
    const dtp_rope_numbers &c = call.numbers;
    for (int64_t i = dtp_thread(); i < n; i += dtp_threads()) {
        const int64_t pair = i % c.half, place = i / c.half % c.positions;
        const int64_t begin = i / c.half / c.positions * ROWS;
        const int64_t end = begin + ROWS < call.rest.total ? begin + ROWS : call.rest.total;
        const int64_t at = dtp_position_at(c.order.size, c.order.run, c.first + place) + c.offset;
        double sine, cosine;
        sincos((double)at * rate_of(c.rates, pair), &sine, &cosine);
        const float s = (float)(c.amplitude * c.sign * sine), k = (float)(c.amplitude * cosine);
        for (int64_t row = begin; row < end; row++) {
            int64_t off[2];
            dtp_offsets(call.rest, row, off);
            const int64_t from = off[0] + place * c.position[0] + pair * c.feature[0];
            const int64_t to = off[1] + place * c.position[1] + pair * c.feature[1];
            const float a = dtp_load(x, c.dtype, from);
            const float b = dtp_load(x, c.dtype, from + c.half * c.feature[0]);
            dtp_store(y, c.dtype, to, a * k - b * s);
            dtp_store(y, c.dtype, to + c.half * c.feature[1], a * s + b * k);
        }
    }
}

cudaError_t dtp_cuda_rope_run(cudaStream_t queue, const dtp_cuda_rope_call *call, void *y,
                              const void *x)
{
    const int64_t n =
        call->numbers.half * call->numbers.positions * ((call->rest.total + ROWS - 1) / ROWS);
    return dtp_launch(rope_kernel, dtp_grid(n, DTP_CUDA_BLOCK, 1), DTP_CUDA_BLOCK, 0, queue, *call,
                      n, y, x);
}
