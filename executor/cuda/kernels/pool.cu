#include "executor/cuda/kernels/pool.h"
#include "executor/cuda/kernels/common.cuh"

/* What a window has inside of x: elements, their sum, the maximum (of equals the first, a NaN
 * before all) and its tap. */
struct pool_found {
    int64_t n, tap;
    float max, sum;
};

static __device__ pool_found look(const dtp_cuda_pool_form &pool, const void *x, int64_t row,
                                  const int64_t (&o)[DTP_CUDA_POOL_AXES])
{
    pool_found f = {0, -1, -INFINITY, 0.0f};
    for (int64_t k = 0; k < pool.taps; k++) {
        int64_t rest = k, at = row;
        bool inside = true;
        for (int i = DTP_CUDA_POOL_AXES - 1; i >= 0; i--) {
            const dtp_cuda_pool_axis &a = pool.axis[i];
            const int64_t p = o[i] * a.stride - a.before + rest % a.size * a.dilation;
            rest /= a.size;
            inside = inside && p >= 0 && p < a.in;
            at += p * a.step[1];
        }
        if (!inside) {
            continue;
        }
        const float value = dtp_load(x, pool.dtype, at);
        f.sum += value;
        if (f.n == 0 || value > f.max || (isnan(value) && !isnan(f.max))) {
            f.tap = k;
            f.max = value;
        }
        f.n++;
    }
    return f;
}

static __device__ float divisor(const dtp_cuda_pool_form &pool, const pool_found &f)
{
    return (float)(pool.inside ? f.n : pool.taps);
}

static __global__ void pool_kernel(dtp_cuda_pool_form pool, void *out, const void *x)
{
    for (int64_t i = dtp_thread(); i < pool.rows.total * pool.places; i += dtp_threads()) {
        int64_t rest = i % pool.places, o[DTP_CUDA_POOL_AXES], off[2];
        dtp_offsets(pool.rows, i / pool.places, off);
        for (int k = DTP_CUDA_POOL_AXES - 1; k >= 0; k--) {
            o[k] = rest % pool.axis[k].out;
            rest /= pool.axis[k].out;
            off[0] += o[k] * pool.axis[k].step[0];
        }
        const pool_found f = look(pool, x, off[1], o);
        dtp_store(out, pool.dtype, off[0], pool.max ? f.max : f.sum / divisor(pool, f));
    }
}

/* An element of dx collects from the windows that it is in. */
static __global__ void pool_grad_kernel(dtp_cuda_pool_form pool, void *dx, const void *x,
                                        const void *dy)
{
    for (int64_t i = dtp_thread(); i < pool.rows.total * pool.elems; i += dtp_threads()) {
        int64_t rest = i % pool.elems, p[DTP_CUDA_POOL_AXES], off[3];
        dtp_offsets(pool.rows, i / pool.elems, off);
        for (int k = DTP_CUDA_POOL_AXES - 1; k >= 0; k--) {
            p[k] = rest % pool.axis[k].kept;
            rest /= pool.axis[k].kept;
            off[0] += p[k] * pool.axis[k].step[0];
            p[k] += pool.axis[k].first;
        }
        float sum = 0.0f;
        for (int64_t tap = 0; tap < pool.taps; tap++) {
            int64_t left = tap, at = off[2], o[DTP_CUDA_POOL_AXES];
            bool meets = true;
            for (int k = DTP_CUDA_POOL_AXES - 1; k >= 0; k--) {
                const dtp_cuda_pool_axis &a = pool.axis[k];
                const int64_t from = p[k] + a.before - left % a.size * a.dilation;
                left /= a.size;
                o[k] = from / a.stride;
                meets = meets && from >= 0 && o[k] * a.stride == from && o[k] < a.out;
                at += o[k] * a.step[2];
            }
            if (!meets) {
                continue;
            }
            const bool looks = pool.max || pool.inside;
            const pool_found f = looks ? look(pool, x, off[1], o) : pool_found{};
            const float value = dtp_load(dy, pool.dtype, at);
            sum += !pool.max ? value / divisor(pool, f) : f.tap == tap ? value : 0.0f;
        }
        dtp_store(dx, pool.dtype, off[0], sum);
    }
}

cudaError_t dtp_cuda_pool_run(cudaStream_t queue, const dtp_cuda_pool_form *pool, void *out,
                              const void *x, const void *dy)
{
    const int64_t n = pool->rows.total * (pool->grad ? pool->elems : pool->places);
    const unsigned grid = dtp_grid(n, DTP_CUDA_BLOCK, 1);
    return pool->grad
               ? dtp_launch(pool_grad_kernel, grid, DTP_CUDA_BLOCK, 0, queue, *pool, out, x, dy)
               : dtp_launch(pool_kernel, grid, DTP_CUDA_BLOCK, 0, queue, *pool, out, x);
}
