/* Optimizer updates, one pass over parameter, gradient and slots each, and dynamic loss scaling.
 * Outputs may be the operands themselves: element i is read before it is written. */
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/elementwise/optimizer.h"

static dtp_status update_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_bound_update u = dtp_update_now(args);
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

#define BIND(op, rule) DTP_BIND(op, dtp_bind_update, DTP_UPDATE_##rule)
#define KERNEL(op, rule) {#op, update_kernel, op##_bind, DTP_FLOATS},

DTP_UPDATE_OPS(BIND)
BIND(accumulate, ACCUMULATE)

const dtp_kernel dtp_cuda_optimizer[] = {
    DTP_UPDATE_OPS(KERNEL){"accumulate", update_kernel, accumulate_bind, DTP_NUMBERS},
    {"loss_scale", loss_scale_kernel, NULL, DTP_DTYPE_BIT(DTP_F32)},
    {.op = NULL}};
