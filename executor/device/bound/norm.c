/* layer_norm and rms_norm (without mean and beta), their gradients and the parts that they
 * decompose into when a dim of `over` is split, bound for any device. */
#include "executor/device/bound/norm.h"

#include <string.h>

#include "core/graph/ops/norm.h"

/* x, [[shift,] moments,] gamma, [beta]; y, [mean,] rstd. */
static void bind_forward(const dtp_kernel_args *args, dtp_bound_norm *b)
{
    const bool centered = b->numbers.centered, sums = b->numbers.sums;
    const dtp_view *in = args->in, *out = args->out, *moments = &in[centered ? 2 : 1];
    const dtp_view *gamma = sums ? &moments[1] : &in[1];
    const dtp_view *views[] = {
        [DTP_NORM_X] = &in[0],     [DTP_NORM_Y] = &out[0],
        [DTP_NORM_GAMMA] = gamma,  [DTP_NORM_RSTD] = &out[centered ? 2 : 1],
        [DTP_NORM_MEAN] = &out[1], [DTP_NORM_BETA] = &gamma[centered ? 1 : 0],
        [DTP_NORM_SUMS] = moments, [DTP_NORM_SHIFT] = &in[1]};
    const int32_t n = sums       ? (centered ? DTP_NORM_VIEWS : DTP_NORM_SHIFT)
                      : centered ? DTP_NORM_SUMS
                                 : DTP_NORM_MEAN;
    dtp_bind_views(args->call, "over", n, views, &b->rows);
    b->numbers.eps = dtp_call_float(args->call, "eps");
}

/* Makes rows of what were the elements of a row, and the reverse. The counts stay. */
static void flip(dtp_view_over *dims)
{
    const dtp_view_over was = *dims;
    dims->n_rows = was.n_over;
    dims->n_over = was.n_rows;
    memcpy(dims->rows, was.over, sizeof was.over);
    memcpy(dims->over, was.rows, sizeof was.rows);
}

/* x, gamma, [mean,] rstd, dy, [sums]; dx, dgamma, [dbeta], or sums. */
static void bind_backward(const dtp_kernel_args *args, const dtp_view *sums, dtp_bound_norm *b)
{
    const int32_t centered = b->numbers.centered ? 1 : 0;
    const bool has_dx = args->call->n_out > 1;
    const dtp_view *in = args->in, *rstd = &in[2 + centered], *dy = &rstd[1];
    const dtp_view *views[] = {[DTP_NORM_X] = &in[0],
                               [DTP_NORM_DX] = has_dx ? &args->out[0] : &in[0],
                               [DTP_NORM_GAMMA] = &in[1],
                               [DTP_NORM_RSTD] = rstd,
                               [DTP_NORM_MEAN] = &in[2],
                               [DTP_NORM_DY] = dy,
                               [DTP_NORM_SUMS] = sums != NULL ? sums : rstd};
    dtp_bind_views(args->call, "over", DTP_NORM_SHIFT, views, &b->rows);
    if (has_dx) {
        const dtp_view *dgamma = &args->out[1];
        const dtp_view *of_columns[] = {&in[0], dy, rstd, &in[2], dgamma, &dgamma[centered]};
        dtp_bind_views(args->call, "over", DTP_NORM_COLUMN_VIEWS, of_columns, &b->columns);
        flip(&b->columns.dims);
    }
}

void dtp_bind_norm(const dtp_kernel_args *args, dtp_norm_part part, dtp_bound_norm *b)
{
    const bool centered = dtp_norm_is_centred(args->call->op);
    const dtp_view *sums = part == DTP_NORM_APPLY        ? &args->in[centered ? 2 : 1]
                           : part == DTP_NORM_GRAD_SUMS  ? &args->out[0]
                           : part == DTP_NORM_GRAD_APPLY ? &args->in[args->call->n_in - 1]
                                                         : NULL;
    b->part = part;
    b->numbers = (dtp_norm_numbers){.centered = centered,
                                    .sums = sums != NULL,
                                    .last = sums != NULL ? dtp_last_sum(sums, &args->in[0]) : 0};
    if (part == DTP_NORM_FORWARD || part == DTP_NORM_APPLY) {
        bind_forward(args, b);
    } else {
        bind_backward(args, sums, b);
    }
    const dtp_view_over *dims = &b->rows.dims;
    b->numbers.count = (double)(part == DTP_NORM_FORWARD ? dims->count : dims->global_count);
}
