/* attention, attention_part, their gradients and attention_merge. Kernels keep no scores
 * (kernels/attention). */
#include "executor/cuda/kernels/attention/attention.h"

#include <string.h>

#include "executor/cuda/kernels.h"
#include "executor/device/attention_shape.h"
#include "spmd/target/cuda_attention.h"

static dtp_cuda_mat mat_of(const dtp_view *view, dtp_dim_id row, dtp_dim_id col)
{
    return (dtp_cuda_mat){view->data, dtp_view_stride(view, row), dtp_view_stride(view, col)};
}

/* The matrices of k and v: two operands, or the two ends of the feature dim of one. */
static void kv_mats(const dtp_attention_shape *s, const dtp_view *k, const dtp_view *v,
                    dtp_cuda_mat *k_mat, dtp_cuda_mat *v_mat)
{
    *k_mat = mat_of(k, s->dims.key, s->dims.feature);
    if (!s->dims.packed) {
        *v_mat = mat_of(v, s->dims.key, s->dims.value);
        return;
    }
    *v_mat = *k_mat;
    v_mat->data =
        (char *)k_mat->data + s->features * k_mat->col_step * dtp_dtype_bytes(k->local.dtype);
}

/* What forward and gradient share; `of_query`: out, lse and, of the gradient, dout; dq or NULL. */
static dtp_status describe(const dtp_kernel_args *args, const dtp_view *of_query,
                           const dtp_view *dq, dtp_cuda_attention_call *a, dtp_err *err)
{
    dtp_attention_shape s;
    dtp_nest nest;
    dtp_attention_shape_of(&s, args);
    const dtp_view *q = &args->in[0], *k = &args->in[1], *v = s.dims.packed ? k : &args->in[2];
    const bool masked = s.dims.mask >= 0;
    const dtp_view *mask = masked ? &args->in[s.dims.mask] : q;
    const dtp_view *views[] = {q, k, v, &of_query[0], &of_query[1], mask, &of_query[2], dq};
    const int32_t n_views = dq == NULL ? DTP_CUDA_MASK + 1 : DTP_CUDA_DQ + 1;
    memset(a, 0, sizeof *a);
    a->dtype = (int32_t)q->local.dtype;
    a->features = (int32_t)s.features;
    a->values = (int32_t)s.values;
    a->causal = s.dims.causal;
    a->scale = (float)s.dims.scale;
    a->queries = s.queries;
    a->keys = s.keys;
    a->chunks = s.chunks;
    a->local_chunks = s.local_chunks;
    a->first_chunk = s.first_chunk;
    a->shift = s.dims.shift;
    a->first_query = s.first_query;
    a->global_queries = s.global_queries;
    a->ahead = s.ahead;
    a->order_size = s.order.size;
    a->order_run = s.order.run;
    a->q = mat_of(q, s.dims.query, s.dims.feature);
    kv_mats(&s, k, v, &a->k, &a->v);
    a->out = mat_of(&of_query[0], s.dims.query, s.dims.value);
    a->lse = of_query[1].data;
    a->lse_step = dtp_view_stride(&of_query[1], s.dims.query);
    if (masked) {
        a->mask = mat_of(mask, s.dims.query, s.dims.key);
        a->mask_dtype = (int32_t)mask->local.dtype;
    }
    if (dq != NULL) {
        a->dout = mat_of(&of_query[2], s.dims.query, s.dims.value);
        a->dq = mat_of(dq, s.dims.query, s.dims.feature);
        kv_mats(&s, &args->out[1], s.dims.packed ? &args->out[1] : &args->out[2], &a->dk, &a->dv);
        a->dot = args->workspace;
    }
    dtp_nest_make(&nest, s.n_shared, s.shared, n_views, views);
    DTP_TRY(dtp_cuda_nest_of(&nest, &a->shared, err));
    dtp_nest_make(&nest, s.n_grouped, s.grouped, n_views, views);
    return dtp_cuda_nest_of(&nest, &a->grouped, err);
}

static dtp_status attention_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                 dtp_err *err)
{
    dtp_attention_shape s;
    (void)arena, (void)state;
    dtp_attention_shape_of(&s, args);
    if (s.features > DTP_CUDA_HEAD_MOST || s.values > DTP_CUDA_HEAD_MOST) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "backend cuda: heads of %lld features and %lld values, at most %d",
                        (long long)s.features, (long long)s.values, DTP_CUDA_HEAD_MOST);
    }
    return DTP_OK;
}

static dtp_status attention_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    dtp_cuda_attention_call a;
    DTP_TRY(describe(args, args->out, NULL, &a, err));
    DTP_CUDA_TRY(err, dtp_cuda_attention_forward(dtp_cuda_stream(args), &a));
    return DTP_OK;
}

static dtp_status attention_grad_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                      dtp_err *err)
{
    const int64_t bytes = dtp_cuda_attention_grad_workspace(args->call);
    DTP_TRY(attention_bind(args, arena, state, err));
    if (args->workspace_bytes < bytes) {
        return DTP_FAIL(err, DTP_INTERNAL, "%s: workspace of %lld bytes, %lld are needed",
                        args->call->op->name, (long long)args->workspace_bytes, (long long)bytes);
    }
    return DTP_OK;
}

static dtp_status attention_grad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    dtp_cuda_attention_call a;
    const int32_t first = dtp_attention_dims_of(args->call).packed ? 2 : 3; /* out, lse, dout */
    DTP_TRY(describe(args, &args->in[first], &args->out[0], &a, err));
    DTP_CUDA_TRY(err, dtp_cuda_attention_backward(dtp_cuda_stream(args), &a));
    return DTP_OK;
}

static dtp_status attention_merge_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *in = args->in, *out = args->out;
    const dtp_view *views[] = {&in[0], &in[2], &out[0], &in[1], &in[3], &out[1]};
    dtp_cuda_attention_merge m = {.dtype = (int32_t)out[0].local.dtype,
                                  .a = in[0].data,
                                  .b = in[2].data,
                                  .lse_a = in[1].data,
                                  .lse_b = in[3].data,
                                  .out = out[0].data,
                                  .lse = out[1].data};
    dtp_tdim rest[DTP_MAX_RANK];
    dtp_nest nest;
    int32_t n_rest = 0;
    for (int32_t i = 0; i < out[0].local.rank; i++) {
        if (dtp_ttype_find(&out[1].local, out[0].local.dims[i].id) < 0) {
            rest[n_rest++] = out[0].local.dims[i];
        }
    }
    dtp_nest_make(&nest, out[1].local.rank, out[1].local.dims, 6, views);
    DTP_TRY(dtp_cuda_nest_of(&nest, &m.rows, err));
    dtp_nest_make(&nest, n_rest, rest, 6, views);
    DTP_TRY(dtp_cuda_nest_of(&nest, &m.values, err));
    if (m.rows.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_attention_merge_run(dtp_cuda_stream(args), &m));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_attention[] = {
    {"attention", attention_kernel, attention_bind, DTP_CUDA_FLOATS | DTP_DTYPE_BIT(DTP_BOOL)},
    {"attention_part", attention_kernel, attention_bind, DTP_CUDA_FLOATS},
    {"attention_grad", attention_grad_kernel, attention_grad_bind,
     DTP_CUDA_FLOATS | DTP_DTYPE_BIT(DTP_BOOL)},
    {"attention_part_grad", attention_grad_kernel, attention_grad_bind, DTP_CUDA_FLOATS},
    {"attention_merge", attention_merge_kernel, NULL, DTP_CUDA_FLOATS},
    {.op = NULL}};
