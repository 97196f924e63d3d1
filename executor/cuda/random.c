/* dropout, uniform and normal. Values belong to global row-major element indices
 * (core/base/philox.h). */
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/elementwise/random.h"

static dtp_status bind_random(const dtp_kernel_args *args, dtp_distribution distribution,
                              dtp_arena *arena, void **state, dtp_err *err)
{
    dtp_cuda_random_call *r;
    dtp_nest nest;
    DTP_STATE(arena, state, r, err);
    dtp_bind_random(args, distribution, &r->numbers, &nest);
    return dtp_cuda_nest_of(&nest, &r->nest, err);
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

#define BIND(op, distribution) DTP_BIND(op, bind_random, distribution)
#define ROW(op, distribution) {#op, random_kernel, op##_bind, DTP_FLOATS},

DTP_RANDOM_OPS(BIND)

const dtp_kernel dtp_cuda_random[] = {DTP_RANDOM_OPS(ROW){.op = NULL}};
