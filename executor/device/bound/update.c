/* Optimizer updates, bound for any device. */
#include "executor/device/bound/update.h"

#include "core/base/arena.h"

dtp_status dtp_bind_update(const dtp_kernel_args *args, dtp_update_rule rule, dtp_arena *arena,
                           void **state, dtp_err *err)
{
    const dtp_op_call *call = args->call;
    dtp_bound_update *u;
    DTP_TRY(DTP_NEW(arena, u, 1, err));
    *state = u;
    u->rule = rule;
    u->n = dtp_ttype_elems(&args->out[0].local);
    u->dtype = (int32_t)args->out[0].local.dtype;
    if (rule != DTP_UPDATE_ACCUMULATE) {
        u->lr = dtp_call_float(call, "lr");
        u->decay = (float)dtp_call_float(call, "weight_decay");
    }
    if (rule == DTP_UPDATE_MOMENTUM) {
        u->momentum = (float)dtp_call_float(call, "momentum");
    }
    if (rule == DTP_UPDATE_ADAM || rule == DTP_UPDATE_ADAMW) {
        u->beta1 = dtp_call_float(call, "beta1");
        u->beta2 = dtp_call_float(call, "beta2");
        u->eps = dtp_call_float(call, "eps");
    }
    return DTP_OK;
}

dtp_bound_update dtp_update_now(const dtp_kernel_args *args)
{
    const dtp_op_call *call = args->call;
    dtp_bound_update u = *(const dtp_bound_update *)args->state;
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
    return u;
}
