/* pool, pool_grad. */
#include "executor/cuda/kernels.h"

#include "executor/cuda/kernels/pool.h"
#include "executor/device/bound/pool.h"

static dtp_status pool_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    dtp_bound_pool bound;
    dtp_cuda_pool_form *p;
    DTP_STATE(arena, state, p, err);
    dtp_bind_pool(args, &bound);
    p->max = bound.max;
    p->inside = bound.inside;
    p->grad = bound.grad;
    p->taps = bound.taps;
    p->places = bound.places;
    p->elems = bound.results;
    p->dtype = (int32_t)args->in[0].local.dtype;
    for (int32_t i = 0; i < DTP_CUDA_POOL_AXES; i++) {
        const dtp_conv_axis *a = &bound.axis[i];
        p->axis[i] =
            (dtp_cuda_pool_axis){a->in,     a->size,       a->out,         a->stride, a->dilation,
                                 a->before, bound.kept[i], bound.first[i], {0}};
        for (int32_t v = 0; v < DTP_POOL_VIEWS; v++) {
            p->axis[i].step[v] = bound.step[v][i];
        }
    }
    return dtp_cuda_nest_of(&bound.rows, &p->rows, err);
}

static dtp_status pool_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_cuda_pool_form *p = args->state;
    if (dtp_ttype_elems(&args->out[0].local) > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_pool_run(dtp_cuda_stream(args), p, args->out[0].data,
                                            args->in[0].data, p->grad ? args->in[1].data : NULL));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_pool[] = {{"pool", pool_kernel, pool_bind, DTP_FLOATS},
                                    {"pool_grad", pool_kernel, pool_bind, DTP_FLOATS},
                                    {.op = NULL}};
