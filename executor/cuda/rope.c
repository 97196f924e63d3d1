/* rope: rotates feature pairs (j, j + f/2). */
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/attention/rope.h"

static dtp_status rope_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    dtp_cuda_rope_call *c;
    dtp_nest rest;
    DTP_STATE(arena, state, c, err);
    dtp_bind_rope(args, &c->numbers, &rest);
    return dtp_cuda_nest_of(&rest, &c->rest, err);
}

static dtp_status rope_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *x = &args->in[0];
    dtp_cuda_rope_call *c = args->state;
    c->numbers.first = dtp_view_offset(x, dtp_call_dim(args->call, "position"));
    if (dtp_ttype_elems(&x->local) > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_rope_run(dtp_cuda_stream(args), c, args->out[0].data, x->data));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_rope[] = {{"rope", rope_kernel, rope_bind, DTP_FLOATS}, {.op = NULL}};
