/* Reference kernels of conv, conv_transpose and conv_weight. */
#include "core/graph/ops/conv.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

static const dtp_view *view_of(const dtp_kernel_args *args, const dtp_conv_form *f,
                               dtp_conv_part part)
{
    return f->at[part] < 0 ? &args->out[0] : &args->in[f->at[part]];
}

/* The loop with the places in x of the windows at the loop's places in y; false outside of x. */
static bool to_x(const dtp_conv_form *f, const dtp_ref_loop *l, dtp_ref_loop *x)
{
    bool inside = true;
    *x = *l;
    for (int32_t i = 0; i < f->n; i++) {
        const dtp_conv_axis *a = &f->axis[i];
        const int64_t at = dtp_ref__coord(l, a->spatial) * a->stride - a->before +
                           dtp_ref__coord(l, a->kernel) * a->dilation;
        inside = inside && at >= 0 && at < a->in;
        dtp_ref__put(x, a->spatial, at);
    }
    return inside;
}

/* The other way round: the place in y whose window meets a place in x with this tap. */
static bool to_y(const dtp_conv_form *f, const dtp_ref_loop *l, dtp_ref_loop *y)
{
    bool meets = true;
    *y = *l;
    for (int32_t i = 0; i < f->n; i++) {
        const dtp_conv_axis *a = &f->axis[i];
        const int64_t from =
            dtp_ref__coord(l, a->spatial) + a->before - dtp_ref__coord(l, a->kernel) * a->dilation;
        const int64_t at = from / a->stride;
        meets = meets && from >= 0 && from % a->stride == 0 && at < a->out;
        dtp_ref__put(y, a->spatial, at);
    }
    return meets;
}

/* Sums over what the result lacks: every operand at its own places. */
static dtp_status run_conv(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_conv_form f = dtp_conv_form_here(args);
    const bool by_x = f.at[DTP_CONV_X] < 0;
    dtp_ref_loop l = dtp_ref__over(&args->out[0].local), other;
    const int32_t kept = l.n;
    dtp_ref__add(&l, &args->in[0].local);
    dtp_ref__add(&l, &args->in[1].local);
    for (int32_t i = 0; i < f.n && f.at[DTP_CONV_W] < 0; i++) { /* over places of y, not of x */
        for (int32_t k = kept; k < l.n; k++) {
            l.size[k] = l.id[k] == f.axis[i].spatial ? f.axis[i].out : l.size[k];
        }
    }
    for (bool go = dtp_ref__first(&l, 0, kept); go; go = dtp_ref__next(&l, 0, kept)) {
        double sum = 0.0;
        for (bool in = dtp_ref__first(&l, kept, l.n); in; in = dtp_ref__next(&l, kept, l.n)) {
            const bool meets = by_x ? to_y(&f, &l, &other) : to_x(&f, &l, &other);
            double product = meets || by_x ? 1.0 : 0.0; /* outside of x is zero, */
            if (!meets && by_x) {
                continue; /* and what meets nothing is no term */
            }
            for (int32_t p = 0; p < DTP_CONV_PARTS; p++) {
                const bool moved = p == (by_x ? DTP_CONV_Y : DTP_CONV_X);
                product *=
                    f.at[p] < 0 || (moved && !meets)
                        ? 1.0
                        : dtp_ref__get(view_of(args, &f, (dtp_conv_part)p), moved ? &other : &l);
            }
            sum += product;
        }
        dtp_ref__set(&args->out[0], &l, sum);
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__conv[] = {{.op = "conv", .run = run_conv},
                                    {.op = "conv_transpose", .run = run_conv},
                                    {.op = "conv_weight", .run = run_conv},
                                    {.op = NULL}};
