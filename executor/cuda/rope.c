/* rope: rotates feature pairs (j, j + f/2). */
#include "core/graph/ops/sequence.h"
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/attention/rope.h"

static dtp_status rope_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    const dtp_view *x = &args->in[0], *views[] = {x, &args->out[0]};
    const dtp_dim_id position = dtp_call_dim(args->call, "position");
    const dtp_dim_id feature = dtp_call_dim(args->call, "feature");
    const dtp_sequence order = dtp_sequence_of(args->call, dtp_view_global(x, position));
    dtp_tdim rest[DTP_MAX_RANK];
    dtp_cuda_rope_call *c;
    dtp_nest nest;
    int32_t n = 0;
    DTP_CUDA_STATE(arena, state, c, err);
    for (int32_t i = 0; i < x->local.rank; i++) {
        if (x->local.dims[i].id != position && x->local.dims[i].id != feature) {
            rest[n++] = x->local.dims[i];
        }
    }
    dtp_nest_make(&nest, n, rest, 2, views);
    for (int32_t v = 0; v < 2; v++) {
        c->position[v] = dtp_view_stride(views[v], position);
        c->feature[v] = dtp_view_stride(views[v], feature);
    }
    c->positions = dtp_ttype_size(&x->local, position);
    c->half = dtp_ttype_size(&x->local, feature) / 2;
    c->offset = dtp_call_int(args->call, "offset");
    c->size = order.size;
    c->run = order.run;
    c->base = dtp_call_float(args->call, "base");
    c->sign = dtp_call_int(args->call, "inverse") != 0 ? -1.0 : 1.0;
    c->dtype = (int32_t)x->local.dtype;
    return dtp_cuda_nest_of(&nest, &c->rest, err);
}

static dtp_status rope_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *x = &args->in[0];
    dtp_cuda_rope_call *c = args->state;
    c->first = dtp_view_offset(x, dtp_call_dim(args->call, "position"));
    if (dtp_ttype_elems(&x->local) > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_rope_run(dtp_cuda_stream(args), c, args->out[0].data, x->data));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_rope[] = {{"rope", rope_kernel, rope_bind, DTP_CUDA_FLOATS},
                                    {.op = NULL}};
