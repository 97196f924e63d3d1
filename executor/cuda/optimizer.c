/* Optimizer updates, one pass over parameter, gradient and slots each, and dynamic loss scaling.
 * Outputs may be the operands themselves: element i is read before it is written. */
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/elementwise/optimizer.h"

static dtp_status bind_update(const dtp_kernel_args *args, const dtp_cuda_update *like,
                              dtp_arena *arena, void **state, dtp_err *err)
{
    dtp_cuda_update *u;
    DTP_CUDA_STATE(arena, state, u, err);
    *u = *like;
    u->n = dtp_ttype_elems(&args->out[0].local);
    u->dtype = (int32_t)args->out[0].local.dtype;
    if (u->rule != DTP_CUDA_ACCUMULATE) {
        u->lr = dtp_call_float(args->call, "lr");
        u->decay = (float)dtp_call_float(args->call, "weight_decay");
    }
    return DTP_OK;
}

static dtp_status sgd_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                           dtp_err *err)
{
    return bind_update(args, &(dtp_cuda_update){.rule = DTP_CUDA_SGD}, arena, state, err);
}

static dtp_status momentum_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                dtp_err *err)
{
    const dtp_cuda_update u = {.rule = DTP_CUDA_MOMENTUM,
                               .momentum = (float)dtp_call_float(args->call, "momentum")};
    return bind_update(args, &u, arena, state, err);
}

static dtp_status accumulate_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                  dtp_err *err)
{
    return bind_update(args, &(dtp_cuda_update){.rule = DTP_CUDA_ACCUMULATE}, arena, state, err);
}

static dtp_status bind_either_adam(const dtp_kernel_args *args, dtp_cuda_rule rule,
                                   dtp_arena *arena, void **state, dtp_err *err)
{
    const dtp_cuda_update u = {.rule = rule,
                               .beta1 = dtp_call_float(args->call, "beta1"),
                               .beta2 = dtp_call_float(args->call, "beta2"),
                               .eps = (float)dtp_call_float(args->call, "eps")};
    return bind_update(args, &u, arena, state, err);
}

static dtp_status adam_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    return bind_either_adam(args, DTP_CUDA_ADAM, arena, state, err);
}

static dtp_status adamw_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                             dtp_err *err)
{
    return bind_either_adam(args, DTP_CUDA_ADAMW, arena, state, err);
}

static dtp_status update_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_op_call *call = args->call;
    dtp_cuda_update u = *(const dtp_cuda_update *)args->state;
    u.p = args->in[0].data;
    u.g = args->in[1].data;
    u.p_out = args->out[0].data;
    if (call->n_out > 1) {
        u.m = args->in[2].data;
        u.m_out = args->out[1].data;
    }
    if (call->n_out > 2) {
        u.v = args->in[3].data;
        u.v_out = args->out[2].data;
    }
    u.factor = call->n_in > call->n_out + 1 ? args->in[call->n_in - 1].data : NULL;
    dtp_cuda *c = dtp_cuda_of(args->backend);
    if (c->joining && c->n_joined < DTP_CUDA_UPDATES) {
        c->joined[c->n_joined++] = u;
        c->record = args->record;
        return DTP_OK;
    }
    DTP_CUDA_TRY(err, dtp_cuda_update_tensors(dtp_cuda_stream(args), 1, &u, args->record));
    return DTP_OK;
}

static dtp_status loss_scale_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    dtp_cuda_loss_scale s = {.growth = dtp_call_float(args->call, "growth"),
                             .backoff = dtp_call_float(args->call, "backoff"),
                             .interval = (double)dtp_call_int(args->call, "interval")};
    for (int32_t i = 0; i < 4; i++) {
        s.in[i] = args->in[i].data;
        s.out[i] = args->out[i].data;
    }
    DTP_CUDA_TRY(err, dtp_cuda_loss_scale_next(dtp_cuda_stream(args), &s));
    return DTP_OK;
}

const dtp_kernel dtp_cuda_optimizer[] = {
    {"sgd", update_kernel, sgd_bind, DTP_CUDA_FLOATS},
    {"momentum", update_kernel, momentum_bind, DTP_CUDA_FLOATS},
    {"adam", update_kernel, adam_bind, DTP_CUDA_FLOATS},
    {"adamw", update_kernel, adamw_bind, DTP_CUDA_FLOATS},
    {"accumulate", update_kernel, accumulate_bind, DTP_CUDA_BOTH},
    {"loss_scale", loss_scale_kernel, NULL, DTP_DTYPE_BIT(DTP_F32)},
    {.op = NULL}};
