/* attention, attention_part, their gradients and attention_merge. Kernels keep no scores
 * (kernels/attention). */
#include "executor/cuda/kernels/attention/attention.h"

#include "executor/cuda/kernels.h"
#include "spmd/target/cuda_attention.h"

static dtp_status describe(const dtp_kernel_args *args, bool grad, dtp_cuda_attention_call *a,
                           dtp_err *err)
{
    dtp_bound_attention b;
    dtp_bind_attention(args, grad, &b);
    *a = (dtp_cuda_attention_call){.dtype = (int32_t)b.mats.q.dtype,
                                   .features = (int32_t)b.shape.features,
                                   .values = (int32_t)b.shape.values,
                                   .scale = (float)b.shape.scale,
                                   .shape = b.shape,
                                   .mats = b.mats,
                                   .dot = grad ? args->workspace : NULL};
    DTP_TRY(dtp_cuda_nest_of(&b.shared, &a->shared, err));
    return dtp_cuda_nest_of(&b.grouped, &a->grouped, err);
}

static dtp_status attention_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                 dtp_err *err)
{
    const dtp_attention_dims d = dtp_attention_dims_of(args->call);
    const int64_t features = dtp_attention_features(args->call, &d);
    const int64_t values = dtp_attention_values(args->call, &d);
    (void)arena, (void)state;
    if (features > DTP_CUDA_HEAD_MOST || values > DTP_CUDA_HEAD_MOST) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "backend cuda: heads of %lld features and %lld values, at most %d",
                        (long long)features, (long long)values, DTP_CUDA_HEAD_MOST);
    }
    return DTP_OK;
}

static dtp_status attention_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    dtp_cuda_attention_call a;
    DTP_TRY(describe(args, false, &a, err));
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
    DTP_TRY(describe(args, true, &a, err));
    DTP_CUDA_TRY(err, dtp_cuda_attention_backward(dtp_cuda_stream(args), &a));
    return DTP_OK;
}

static dtp_status attention_merge_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *in = args->in, *out = args->out;
    dtp_cuda_attention_merge m = {.dtype = (int32_t)out[0].local.dtype,
                                  .a = in[0].data,
                                  .b = in[2].data,
                                  .lse_a = in[1].data,
                                  .lse_b = in[3].data,
                                  .out = out[0].data,
                                  .lse = out[1].data};
    dtp_nest rows, values;
    dtp_bind_attention_merge(args, &rows, &values);
    DTP_TRY(dtp_cuda_nest_of(&rows, &m.rows, err));
    DTP_TRY(dtp_cuda_nest_of(&values, &m.values, err));
    if (m.rows.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_attention_merge_run(dtp_cuda_stream(args), &m));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_attention[] = {
    {"attention", attention_kernel, attention_bind, DTP_FLOATS | DTP_DTYPE_BIT(DTP_BOOL)},
    {"attention_part", attention_kernel, attention_bind, DTP_FLOATS},
    {"attention_grad", attention_grad_kernel, attention_grad_bind,
     DTP_FLOATS | DTP_DTYPE_BIT(DTP_BOOL)},
    {"attention_part_grad", attention_grad_kernel, attention_grad_bind, DTP_FLOATS},
    {"attention_merge", attention_merge_kernel, NULL, DTP_FLOATS},
    {.op = NULL}};
