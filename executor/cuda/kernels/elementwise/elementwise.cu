#include "executor/cuda/kernels/elementwise/elementwise.cuh"
#include "executor/cuda/kernels/convert.cuh"

/* Of one or two operands of one dtype. */
template <class Out, class In, class F, int V>
static __global__ void elementwise_kernel(dtp_cuda_elementwise_call e, Out *out, const In *in0,
                                          const In *in1)
{
    typedef typename F::C C;
    const dtp_cuda_nest &nest = e.nest;
    const int last = nest.rank - 1;
    const int64_t groups = (nest.total + V - 1) / V;
    for (int64_t g = dtp_thread(); g < groups; g += dtp_threads()) {
        const int n = dtp_group_size<V>(g * V, nest.total);
        int64_t at[3];
        C x[V], y[V], r[V];
        dtp_offsets(nest, g * V, at);
        dtp_load_values(x, in0 + at[1], nest.stride[1][last], n, true);
        if (e.n_in == 2) {
            dtp_load_values(y, in1 + at[2], nest.stride[2][last], n, true);
        } else {
            DTP_UNROLL
            for (int j = 0; j < V; j++) {
                y[j] = x[j];
            }
        }
        F::of(e.op, x, y, e.a, e.b, r);
        dtp_store_values(out + at[0], r, nest.stride[0][last], n, true);
    }
}

static bool grouped(const dtp_cuda_elementwise_call *e, const void *out, const void *const *in,
                    size_t out_bytes, const size_t *in_bytes, int v)
{
    bool fits = dtp_grouped(&e->nest, 0, out, out_bytes, v);
    for (int k = 0; k < e->n_in; k++) {
        fits = fits && dtp_grouped(&e->nest, k + 1, in[k], in_bytes[k], v);
    }
    return fits;
}

template <class Out, class In, class F>
static cudaError_t run(cudaStream_t queue, const dtp_cuda_elementwise_call *e, void *out,
                       const void *const *in)
{
    enum {
        WIDEST = sizeof(Out) > sizeof(In) ? sizeof(Out) : sizeof(In),
        V = WIDEST < 2 ? 8 : 16 / WIDEST
    };
    const size_t bytes[] = {sizeof(In), sizeof(In)};
    const bool wide = grouped(e, out, in, sizeof(Out), bytes, V);
    return dtp_launch(wide ? elementwise_kernel<Out, In, F, V> : elementwise_kernel<Out, In, F, 1>,
                      dtp_grid(e->nest.total, DTP_CUDA_BLOCK, wide ? V : 1), DTP_CUDA_BLOCK, 0,
                      queue, *e, (Out *)out, (const In *)in[0], (const In *)in[1]);
}

template <class In, class F>
static cudaError_t run_to_float(cudaStream_t queue, const dtp_cuda_elementwise_call *e, void *out,
                                const void *const *in)
{
    return e->dtype[0] == DTP_F32    ? run<float, In, F>(queue, e, out, in)
           : e->dtype[0] == DTP_BF16 ? run<__nv_bfloat16, In, F>(queue, e, out, in)
                                     : run<__half, In, F>(queue, e, out, in);
}

/* ---- select: elements are copied without looking at their type ---- */

template <class T, int V>
static __global__ void select_kernel(dtp_cuda_elementwise_call e, T *out, const uint8_t *c,
                                     const T *in1, const T *in2)
{
    const dtp_cuda_nest &nest = e.nest;
    const int last = nest.rank - 1;
    const int64_t groups = (nest.total + V - 1) / V;
    for (int64_t g = dtp_thread(); g < groups; g += dtp_threads()) {
        const int n = dtp_group_size<V>(g * V, nest.total);
        int64_t at[4];
        uint8_t which[V];
        T x[V], y[V];
        dtp_offsets(nest, g * V, at);
        dtp_load_group(which, c + at[1], nest.stride[1][last], n, true);
        dtp_load_group(x, in1 + at[2], nest.stride[2][last], n, true);
        dtp_load_group(y, in2 + at[3], nest.stride[3][last], n, true);
        DTP_UNROLL
        for (int j = 0; j < V; j++) {
            x[j] = which[j] != 0 ? x[j] : y[j];
        }
        dtp_store_group(out + at[0], x, nest.stride[0][last], n, true);
    }
}

template <class T>
static cudaError_t select_of(cudaStream_t queue, const dtp_cuda_elementwise_call *e, void *out,
                             const void *const *in)
{
    enum { V = sizeof(T) < 2 ? 8 : 16 / sizeof(T) };
    const size_t bytes[] = {1, sizeof(T), sizeof(T)};
    const bool wide = grouped(e, out, in, sizeof(T), bytes, V);
    return dtp_launch(wide ? select_kernel<T, V> : select_kernel<T, 1>,
                      dtp_grid(e->nest.total, DTP_CUDA_BLOCK, wide ? V : 1), DTP_CUDA_BLOCK, 0,
                      queue, *e, (T *)out, (const uint8_t *)in[0], (const T *)in[1],
                      (const T *)in[2]);
}

static cudaError_t run_select(cudaStream_t queue, const dtp_cuda_elementwise_call *e, void *out,
                              const void *const *in)
{
    switch (e->dtype[0]) {
    case DTP_F32:
    case DTP_I32:
        return select_of<uint32_t>(queue, e, out, in);
    case DTP_F64:
    case DTP_I64:
        return select_of<uint64_t>(queue, e, out, in);
    case DTP_BOOL:
        return select_of<uint8_t>(queue, e, out, in);
    default:
        return select_of<uint16_t>(queue, e, out, in);
    }
}

/* ---- cast ---- */

/* Any dtypes: integers by way of int64_t, all else by way of double. */
static __global__ void convert_kernel(dtp_cuda_elementwise_call e, void *out, const void *x)
{
    const int to = e.dtype[0], from = e.dtype[1];
    const bool ints = dtp_is_int(from) && dtp_is_int(to);
    for (int64_t i = dtp_thread(); i < e.nest.total; i += dtp_threads()) {
        int64_t at[2];
        dtp_offsets(e.nest, i, at);
        if (ints) {
            dtp_store_int(out, to, at[0], dtp_load_int(x, from, at[1]));
        } else {
            dtp_store_double(out, to, at[0], dtp_load_double(x, from, at[1]));
        }
    }
}

static cudaError_t run_cast(cudaStream_t queue, const dtp_cuda_elementwise_call *e, void *out,
                            const void *const *in)
{
    const bool to_float =
        e->dtype[0] == DTP_F32 || e->dtype[0] == DTP_BF16 || e->dtype[0] == DTP_F16;
    if (to_float && e->dtype[1] == DTP_F32) {
        return run_to_float<float, dtp_float_cast>(queue, e, out, in);
    }
    if (to_float && e->dtype[1] == DTP_BF16) {
        return run_to_float<__nv_bfloat16, dtp_float_cast>(queue, e, out, in);
    }
    if (to_float && e->dtype[1] == DTP_F16) {
        return run_to_float<__half, dtp_float_cast>(queue, e, out, in);
    }
    return dtp_launch(convert_kernel, dtp_grid(e->nest.total, DTP_CUDA_BLOCK, 1), DTP_CUDA_BLOCK, 0,
                      queue, *e, out, in[0]);
}

/* ---- functions and relations of two numbers of one dtype ---- */

cudaError_t dtp_cuda_elementwise_run(cudaStream_t queue, const dtp_cuda_elementwise_call *e,
                                     void *out, const void *const in[DTP_CUDA_OPERANDS])
{
    if (e->op == DTP_CUDA_OP_select) {
        return run_select(queue, e, out, in);
    }
    if (e->op == DTP_CUDA_OP_cast) {
        return run_cast(queue, e, out, in);
    }
    const bool relation = e->op >= DTP_CUDA_OP_lt && e->op <= DTP_CUDA_OP_ne;
    switch (e->dtype[1]) {
    case DTP_F32:
        return relation ? run<uint8_t, float, dtp_relations<float>>(queue, e, out, in)
                        : run<float, float, dtp_functions>(queue, e, out, in);
    case DTP_BF16:
        return relation ? run<uint8_t, __nv_bfloat16, dtp_relations<float>>(queue, e, out, in)
                        : run<__nv_bfloat16, __nv_bfloat16, dtp_functions>(queue, e, out, in);
    case DTP_F16:
        return relation ? run<uint8_t, __half, dtp_relations<float>>(queue, e, out, in)
                        : run<__half, __half, dtp_functions>(queue, e, out, in);
    case DTP_I32:
        return relation ? run<uint8_t, int32_t, dtp_relations<int64_t>>(queue, e, out, in)
                        : run<int32_t, int32_t, dtp_int_functions>(queue, e, out, in);
    case DTP_I64:
        return relation ? run<uint8_t, int64_t, dtp_relations<int64_t>>(queue, e, out, in)
                        : run<int64_t, int64_t, dtp_int_functions>(queue, e, out, in);
    default:
        return relation ? run<uint8_t, uint8_t, dtp_relations<int64_t>>(queue, e, out, in)
                        : run<uint8_t, uint8_t, dtp_int_functions>(queue, e, out, in);
    }
}
