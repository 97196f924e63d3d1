/* Look-ups by integer position, bound for any device. */
#include "executor/device/bound/ids.h"

dtp_bound_ids dtp_bind_ids(const dtp_kernel_args *args, int32_t operand, const dtp_view *at,
                           dtp_dim_id dim)
{
    const dtp_op_call *call = args->call;
    const bool refuses =
        dtp_op_attr(call->op, "outside") == NULL || dtp_call_int(call, "outside") == 0;
    return (dtp_bound_ids){
        .data = args->in[operand].data,
        .dtype = (int32_t)args->in[operand].local.dtype,
        .operand = operand,
        .first = dtp_view_offset(at, dim),
        .local = dtp_ttype_size(&at->local, dim),
        .size = dtp_view_global(at, dim),
        .stride = dtp_view_stride(at, dim),
        .skip = dtp_op_attr(call->op, "skip") != NULL ? dtp_call_int(call, "skip") : -1,
        .error = refuses ? args->error : NULL};
}

dtp_view dtp_view_without(const dtp_view *view, dtp_dim_id dim)
{
    dtp_view rest = *view;
    rest.local.dims[dtp_ttype_find(&view->local, dim)].id = -1;
    return rest;
}
