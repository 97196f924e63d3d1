/* dropout, uniform and normal. Values belong to global row-major element indices
 * (core/base/philox.h). */
#include <math.h>

#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/elementwise/random.h"

/* Walks the local elements of the output beside their global indices. */
static dtp_status bind_call(const dtp_kernel_args *args, const dtp_cuda_random_call *like,
                            dtp_arena *arena, void **state, dtp_err *err)
{
    const dtp_view *y = &args->out[0];
    int64_t sizes[DTP_NEST_DIMS], strides[2][DTP_NEST_DIMS], global = 1;
    dtp_cuda_random_call *r;
    dtp_nest nest;
    DTP_CUDA_STATE(arena, state, r, err);
    *r = *like;
    r->stream = (uint32_t)(uint64_t)dtp_call_int(args->call, "stream");
    r->dtype = (int32_t)y->local.dtype;
    dtp_view_strides(y, strides[0]);
    for (int32_t i = y->local.rank - 1; i >= 0; i--) {
        sizes[i] = y->local.dims[i].size;
        strides[1][i] = global;
        global *= y->global[i];
    }
    dtp_nest_raw(&nest, y->local.rank, sizes, 2, (const int64_t(*)[DTP_NEST_DIMS])strides);
    return dtp_cuda_nest_of(&nest, &r->nest, err);
}

static dtp_status dropout_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                               dtp_err *err)
{
    const double rate = dtp_call_float(args->call, "rate");
    /* u and this bound are multiples of 2^-24: u >= rate exactly when u >= bound. */
    const dtp_cuda_random_call r = {.distribution = DTP_CUDA_DROPOUT,
                                    .at_least = (float)(ceil(rate * 0x1p24) * 0x1p-24),
                                    .keep = (float)(1.0 / (1.0 - rate))};
    return bind_call(args, &r, arena, state, err);
}

static dtp_status uniform_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                               dtp_err *err)
{
    const dtp_cuda_random_call r = {.distribution = DTP_CUDA_UNIFORM,
                                    .a = dtp_call_float(args->call, "low"),
                                    .b = dtp_call_float(args->call, "high")};
    return bind_call(args, &r, arena, state, err);
}

static dtp_status normal_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                              dtp_err *err)
{
    const dtp_cuda_random_call r = {.distribution = DTP_CUDA_NORMAL,
                                    .a = dtp_call_float(args->call, "mean"),
                                    .b = dtp_call_float(args->call, "stddev")};
    return bind_call(args, &r, arena, state, err);
}

static dtp_status random_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    dtp_cuda_random_call r = *(const dtp_cuda_random_call *)args->state;
    if (r.nest.total > 0) {
        r.first = dtp_view_global_index(&args->out[0], 0);
        DTP_CUDA_TRY(err,
                     dtp_cuda_random_run(dtp_cuda_stream(args), &r, args->record, args->out[0].data,
                                         args->call->n_in > 0 ? args->in[0].data : NULL));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_random[] = {{"dropout", random_kernel, dropout_bind, DTP_CUDA_FLOATS},
                                      {"uniform", random_kernel, uniform_bind, DTP_CUDA_FLOATS},
                                      {"normal", random_kernel, normal_bind, DTP_CUDA_FLOATS},
                                      {.op = NULL}};
