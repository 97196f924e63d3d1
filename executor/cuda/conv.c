/* conv, conv_transpose, conv_weight: the indices of the implicit matrix product, made when the call
 * is bound.
 *                  rows  columns                    terms
 *   conv           out   batch, places of y         in, kernel
 *   conv_transpose in    batch, places of x         out, kernel
 *   conv_weight    out   in, kernel                 batch, places of y */
#include "executor/cuda/kernels.h"

#include "executor/cuda/kernels/conv.h"
#include "spmd/target/conv_plan.h"

typedef struct conv_job {
    dtp_cuda_conv_form conv;
    int32_t operand[2]; /* a, b */
} conv_job;

/* Which tensors a, b and c are. */
typedef dtp_conv_part conv_parts[3];

static void add_run(dtp_cuda_conv_index *index, const dtp_conv_run *run, const conv_parts of)
{
    for (int32_t i = 0; i < run->n; i++, index->n++) {
        index->size[index->n] = run->size[i];
        index->axis[index->n] = -1;
        for (int32_t v = 0; v < 3; v++) {
            index->stride[v][index->n] = run->stride[of[v]][i];
        }
    }
    index->total *= run->total;
}

/* The axes of a tensor, which is a or c; `scale` counts coordinates of b. */
static void add_axes(dtp_cuda_conv_index *index, const dtp_conv_plan *p, dtp_conv_part part,
                     int32_t view, const int64_t scale[DTP_CONV_AXES])
{
    for (int32_t i = 0; i < DTP_CONV_AXES; i++, index->n++) {
        const dtp_conv_axis *a = &p->axis[i];
        index->size[index->n] = part == DTP_CONV_W ? a->size : part == DTP_CONV_X ? a->in : a->out;
        index->axis[index->n] = i;
        index->scale[index->n] = scale[i];
        index->stride[view][index->n] = p->step[part][i];
        index->total *= index->size[index->n];
    }
}

static dtp_status conv_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    static const conv_parts PARTS[] = {{DTP_CONV_W, DTP_CONV_Y, DTP_CONV_X},
                                       {DTP_CONV_Y, DTP_CONV_X, DTP_CONV_W},
                                       {DTP_CONV_W, DTP_CONV_X, DTP_CONV_Y}};
    dtp_conv_plan p;
    conv_job *job;
    DTP_STATE(arena, state, job, err);
    dtp_conv_plan_bind(args, &p);
    dtp_cuda_conv_form *c = &job->conv;
    const dtp_conv_part *of = PARTS[p.result];
    const bool by_x = p.result == DTP_CONV_X, by_w = p.result == DTP_CONV_W;
    int64_t places[DTP_CONV_AXES], taps[DTP_CONV_AXES];
    c->group.total = c->m.total = c->n.total = c->k.total = 1;
    for (int32_t i = 0; i < DTP_CONV_AXES; i++) {
        const dtp_conv_axis *a = &p.axis[i];
        places[i] = by_x ? 1 : a->stride;
        taps[i] = by_x ? -a->dilation : a->dilation;
        c->first[i] = by_x ? a->before : -a->before;
        c->every[i] = by_x ? a->stride : 1;
        c->limit[i] = by_x ? a->out : a->in;
        c->step[i] = p.step[of[1]][i];
    }
    for (int32_t v = 0; v < 3; v++) {
        c->dtype[v] = (int32_t)p.dtype[of[v]];
    }
    job->operand[0] = p.at[of[0]];
    job->operand[1] = p.at[of[1]];
    add_run(&c->group, &p.groups, of);
    add_run(&c->m, by_x ? &p.ins : &p.outs, of);
    add_run(&c->n, by_w ? &p.ins : &p.batch, of);
    add_run(&c->k, by_x ? &p.outs : by_w ? &p.batch : &p.ins, of);
    add_axes(&c->n, &p, of[2], 2, by_w ? taps : places);
    add_axes(&c->k, &p, of[0], 0, by_w ? places : taps);
    c->parts = dtp_cuda_conv_parts(&p);
    c->skips = by_x;
    return DTP_OK;
}

static dtp_status conv_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const conv_job *job = args->state;
    if (dtp_ttype_elems(&args->out[0].local) > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_conv_run(
                              dtp_cuda_stream(args), &job->conv, args->in[job->operand[0]].data,
                              args->in[job->operand[1]].data, args->out[0].data, args->workspace));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_conv[] = {{"conv", conv_kernel, conv_bind, DTP_FLOATS},
                                    {"conv_transpose", conv_kernel, conv_bind, DTP_FLOATS},
                                    {"conv_weight", conv_kernel, conv_bind, DTP_FLOATS},
                                    {.op = NULL}};
