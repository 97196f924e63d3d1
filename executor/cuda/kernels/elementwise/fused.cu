#include "executor/cuda/kernels/elementwise/fused.h"
#include "executor/cuda/kernels/elementwise/elementwise.cuh"

/* Values of an expression lie in shared memory, a slot for every operand and step, so that steps
 * may name them: [slot][element of the group][thread]. Shared by no two threads. */

enum { THREADS = 128, WIDE = 4 };

template <int V>
static __device__ __forceinline__ void load_any(float (&x)[V], const void *p, int dtype, int64_t at,
                                                int64_t step, int n)
{
    if (dtype == DTP_F32) {
        dtp_load_values(x, (const float *)p + at, step, n, true);
    } else if (dtype == DTP_BF16) {
        dtp_load_values(x, (const __nv_bfloat16 *)p + at, step, n, true);
    } else {
        dtp_load_values(x, (const __half *)p + at, step, n, true);
    }
}

template <int V>
static __device__ __forceinline__ void store_any(const float (&x)[V], void *p, int dtype,
                                                 int64_t at, int n)
{
    if (dtype == DTP_F32) {
        dtp_store_values((float *)p + at, x, 1, n, true);
    } else if (dtype == DTP_BF16) {
        dtp_store_values((__nv_bfloat16 *)p + at, x, 1, n, true);
    } else {
        dtp_store_values((__half *)p + at, x, 1, n, true);
    }
}

template <int V>
static __device__ __forceinline__ void get_slot(float (&x)[V], const float *slots, int slot)
{
    DTP_UNROLL
    for (int j = 0; j < V; j++) {
        x[j] = slots[(slot * V + j) * THREADS + (int)threadIdx.x];
    }
}

template <int V>
static __device__ __forceinline__ void put_slot(const float (&x)[V], float *slots, int slot)
{
    DTP_UNROLL
    for (int j = 0; j < V; j++) {
        slots[(slot * V + j) * THREADS + (int)threadIdx.x] = x[j];
    }
}

/* The steps on the operands in the first slots; r: the last result. */
template <int V>
static __device__ __forceinline__ void evaluate(const dtp_cuda_expr &e, float *slots, float (&r)[V])
{
    for (int k = 0; k < e.n; k++) {
        float x[V], y[V];
        get_slot(x, slots, e.step[k].arg[0]);
        get_slot(y, slots, e.step[k].arg[1]);
        dtp_functions::of((dtp_cuda_op)e.step[k].op, x, y, e.step[k].constant, 0.0f, r);
        if (k < e.n - 1) {
            put_slot(r, slots, e.n_in + k);
        }
    }
}

template <int V> static __global__ void expr_kernel(dtp_cuda_expr e, dtp_cuda_expr_data data)
{
    DTP_DYNAMIC_SHARED(bytes);
    float *slots = (float *)bytes;
    const int last = e.nest.rank - 1;
    const int64_t groups = (e.nest.total + V - 1) / V;
    for (int64_t g = dtp_thread(); g < groups; g += dtp_threads()) {
        const int n = dtp_group_size<V>(g * V, e.nest.total);
        float r[V];
        for (int i = 0; i < e.n_in; i++) {
            const int v = e.n_out + i;
            load_any(r, data.at[v], e.dtype[v], dtp_offset(e.nest, v, g * V),
                     e.nest.stride[v][last], n);
            put_slot(r, slots, i);
        }
        evaluate(e, slots, r);
        store_any(r, data.at[0], e.dtype[0], dtp_offset(e.nest, 0, g * V), n);
        if (e.also >= 0) {
            get_slot(r, slots, e.n_in + e.also);
            store_any(r, data.at[1], e.dtype[1], dtp_offset(e.nest, 1, g * V), n);
        }
    }
}

static size_t slot_bytes(const dtp_cuda_expr *e, int v)
{
    return (size_t)(e->n_in + e->n) * (size_t)v * THREADS * sizeof(float);
}

cudaError_t dtp_cuda_expr_run(cudaStream_t queue, const dtp_cuda_expr *e,
                              const dtp_cuda_expr_data *data)
{
    bool wide = true;
    for (int v = 0; v < e->n_out + e->n_in; v++) {
        wide = wide && dtp_grouped(&e->nest, v, data->at[v], e->dtype[v] == DTP_F32 ? 4 : 2, WIDE);
    }
    const int each = wide ? WIDE : 1;
    return dtp_launch(wide ? expr_kernel<WIDE> : expr_kernel<1>,
                      dtp_grid(e->nest.total, THREADS, each), THREADS, slot_bytes(e, each), queue,
                      *e, *data);
}

/* ---- norms: a block a row; every thread comes back to its own elements ---- */

static __global__ void norm_kernel(dtp_cuda_fused_norm f, dtp_cuda_expr_data data,
                                   dtp_cuda_norm_data to)
{
    DTP_DYNAMIC_SHARED(bytes);
    float *slots = (float *)bytes;
    const dtp_cuda_expr &e = f.expr;
    const float n = (float)f.over.total;
    for (int64_t row = blockIdx.x; row < e.nest.total; row += gridDim.x) {
        const int64_t x_row = dtp_offset(e.nest, 0, row);
        float sum = 0.0f, shift = 0.0f, sums[2] = {0.0f, 0.0f};
        for (int64_t i = threadIdx.x; i < f.over.total; i += THREADS) {
            float r[1];
            const int64_t at = x_row + dtp_offset(f.over, 0, i);
            for (int k = 0; k < e.n_in; k++) {
                const int64_t from = dtp_offset(e.nest, k + 1, row) + dtp_offset(f.over, k + 1, i);
                r[0] = dtp_load(data.at[k + 1], e.dtype[k + 1], from);
                put_slot(r, slots, k);
            }
            evaluate(e, slots, r);
            dtp_store(data.at[0], e.dtype[0], at, r[0]);
            sum += dtp_load(data.at[0], e.dtype[0], at);
        }
        if (f.centred) {
            shift = dtp_block_reduce<dtp_sum>(sum) / n;
        }
        for (int64_t i = threadIdx.x; i < f.over.total; i += THREADS) {
            const float d =
                dtp_load(data.at[0], e.dtype[0], x_row + dtp_offset(f.over, 0, i)) - shift;
            sums[0] += d;
            sums[1] += d * d;
        }
        sums[0] = f.centred ? dtp_block_reduce<dtp_sum>(sums[0]) : 0.0f;
        sums[1] = dtp_block_reduce<dtp_sum>(sums[1]);
        const dtp_moments m = dtp_moments_of(n, shift, sums);
        const float mean = m.mean, rstd = 1.0f / sqrtf(m.squares / n + f.eps);
        const int64_t y_row = dtp_offset(f.norm_rows, DTP_CUDA_Y, row);
        for (int64_t i = threadIdx.x; i < f.over.total; i += THREADS) {
            const float x = dtp_load(data.at[0], e.dtype[0], x_row + dtp_offset(f.over, 0, i));
            float y = (x - mean) * rstd *
                      dtp_load(to.at[DTP_CUDA_GAMMA], f.dtype,
                               dtp_offset(f.norm_over, DTP_CUDA_GAMMA, i));
            if (f.centred) {
                y += dtp_load(to.at[DTP_CUDA_BETA], f.dtype,
                              dtp_offset(f.norm_over, DTP_CUDA_BETA, i));
            }
            dtp_store(to.at[DTP_CUDA_Y], f.dtype, y_row + dtp_offset(f.norm_over, DTP_CUDA_Y, i),
                      y);
        }
        if (threadIdx.x == 0) {
            ((float *)to.at[DTP_CUDA_RSTD])[dtp_offset(f.norm_rows, DTP_CUDA_RSTD, row)] = rstd;
            if (f.centred) {
                ((float *)to.at[DTP_CUDA_MEAN])[dtp_offset(f.norm_rows, DTP_CUDA_MEAN, row)] = mean;
            }
        }
    }
}

cudaError_t dtp_cuda_fused_norm_run(cudaStream_t queue, const dtp_cuda_fused_norm *f,
                                    const dtp_cuda_expr_data *data,
                                    const dtp_cuda_norm_data *norm_data)
{
    const int64_t rows = f->expr.nest.total;
    return dtp_launch(norm_kernel, rows < INT32_MAX ? (unsigned)rows : (unsigned)INT32_MAX, THREADS,
                      slot_bytes(&f->expr, 1), queue, *f, *data, *norm_data);
}
