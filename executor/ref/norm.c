/* Reference kernels of layer_norm and rms_norm, their gradients and their parts. One code serves
 * both: rms_norm is layer_norm without mean, beta and the first of the two sums.
 */
#include <math.h>

#include "core/graph/ops/norm.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

static bool is_layer(const dtp_kernel_args *args)
{
    return dtp_norm_is_centred(args->call->op);
}

/* Element k of the statistics dim at the coordinates; with one sum there is only k = 0. */
static double stat(const dtp_view *sums, const dtp_ref_loop *l, int64_t k)
{
    dtp_ref_loop at = *l;
    dtp_ref__put(&at, sums->local.dims[sums->local.rank - 1].id, k);
    return dtp_ref__get(sums, &at);
}

static void set_stat(const dtp_view *sums, const dtp_ref_loop *l, int64_t k, double value)
{
    dtp_ref_loop at = *l;
    dtp_ref__put(&at, sums->local.dims[sums->local.rank - 1].id, k);
    dtp_ref__set(sums, &at, value);
}

/* ---- forward ---- */

/* y, mean and rstd of the row of n elements at the outer coordinates of `l`; gamma and beta are the
 * last operands. */
static void write_row(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows, double n,
                      dtp_ref_moments of)
{
    bool layer = is_layer(args);
    int32_t g = args->call->n_in - (layer ? 2 : 1);
    double mean = of.mean, rstd = 1.0 / sqrt(of.squares / n + dtp_call_float(args->call, "eps"));
    for (bool in = dtp_ref__first(l, rows, l->n); in; in = dtp_ref__next(l, rows, l->n)) {
        double xhat = (dtp_ref__get(&args->in[0], l) - mean) * rstd;
        double beta = layer ? dtp_ref__get(&args->in[g + 1], l) : 0.0;
        dtp_ref__set(&args->out[0], l, xhat * dtp_ref__get(&args->in[g], l) + beta);
    }
    if (layer) {
        dtp_ref__set(&args->out[1], l, mean);
    }
    dtp_ref__set(&args->out[layer ? 2 : 1], l, rstd);
}

static dtp_status run_norm(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_view *x = &args->in[0];
    double n = dtp_ref__row_count(args->call, x), sums[2];
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, x, &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        dtp_ref__sums(x, &l, rows, 0.0, sums);
        write_row(args, &l, rows, n,
                  is_layer(args) ? dtp_ref__moments(x, &l, rows, n)
                                 : (dtp_ref_moments){0.0, sums[1]});
    }
    return DTP_OK;
}

static dtp_status run_moments(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    bool centred = args->call->n_in > 1;
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, &args->in[0], &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        double sums[2], shift = centred ? dtp_ref__get(&args->in[1], &l) : 0.0;
        dtp_ref__sums(&args->in[0], &l, rows, shift, sums);
        if (centred) {
            set_stat(&args->out[0], &l, 0, sums[0]);
        }
        set_stat(&args->out[0], &l, centred ? 1 : 0, sums[1]);
    }
    return DTP_OK;
}

static dtp_status run_apply(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    bool layer = is_layer(args);
    const dtp_view *moments = &args->in[layer ? 2 : 1];
    double n = dtp_ref__row_count(args->call, &args->in[0]);
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, &args->in[0], &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        const double sums[2] = {stat(moments, &l, 0), stat(moments, &l, layer ? 1 : 0)};
        write_row(args, &l, rows, n,
                  layer ? dtp_ref__moments_of(n, dtp_ref__get(&args->in[1], &l), sums)
                        : (dtp_ref_moments){0.0, sums[1]});
    }
    return DTP_OK;
}

/* ---- gradient ---- */

/* Operands of a gradient in the order x, gamma, [mean,] rstd, dy. */
typedef struct grad_in {
    const dtp_view *x, *gamma, *mean, *rstd, *dy;
} grad_in;

static grad_in operands(const dtp_kernel_args *args)
{
    const dtp_view *in = args->in;
    return is_layer(args) ? (grad_in){&in[0], &in[1], &in[2], &in[3], &in[4]}
                          : (grad_in){&in[0], &in[1], NULL, &in[2], &in[3]};
}

static double xhat_at(const grad_in *g, const dtp_ref_loop *l)
{
    double mean = g->mean == NULL ? 0.0 : dtp_ref__get(g->mean, l);
    return (dtp_ref__get(g->x, l) - mean) * dtp_ref__get(g->rstd, l);
}

/* Sum of gamma dy and of gamma dy xhat over the row. */
static void row_sums(const grad_in *g, dtp_ref_loop *l, int32_t rows, double sums[2])
{
    sums[0] = sums[1] = 0.0;
    for (bool in = dtp_ref__first(l, rows, l->n); in; in = dtp_ref__next(l, rows, l->n)) {
        double d = dtp_ref__get(g->gamma, l) * dtp_ref__get(g->dy, l);
        sums[0] += d;
        sums[1] += d * xhat_at(g, l);
    }
}

static dtp_status run_norm_grad(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    grad_in g = operands(args);
    double n = dtp_ref__row_count(args->call, g.x), sums[2];
    bool given = args->call->n_in == (is_layer(args) ? 6 : 5);
    const dtp_view *parts = &args->in[args->call->n_in - 1];
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, g.x, &rows);
    for (int32_t i = 1; i < args->call->n_out; i++) {
        dtp_ref__clear(&args->out[i]);
    }
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        if (given) {
            sums[0] = is_layer(args) ? stat(parts, &l, 0) : 0.0;
            sums[1] = stat(parts, &l, is_layer(args) ? 1 : 0);
        } else {
            row_sums(&g, &l, rows, sums);
        }
        /* dx of the row, and its share of dgamma and dbeta. */
        for (bool in = dtp_ref__first(&l, rows, l.n); in; in = dtp_ref__next(&l, rows, l.n)) {
            double dy = dtp_ref__get(g.dy, &l), xhat = xhat_at(&g, &l);
            double d = dtp_ref__get(g.gamma, &l) * dy - xhat * sums[1] / n;
            if (is_layer(args)) {
                d -= sums[0] / n;
                dtp_ref__accumulate(&args->out[2], &l, dy);
            }
            dtp_ref__accumulate(&args->out[1], &l, dy * xhat);
            dtp_ref__set(&args->out[0], &l, d * dtp_ref__get(g.rstd, &l));
        }
    }
    return DTP_OK;
}

static dtp_status run_grad_sums(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    grad_in g = operands(args);
    double sums[2];
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, g.x, &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        row_sums(&g, &l, rows, sums);
        if (is_layer(args)) {
            set_stat(&args->out[0], &l, 0, sums[0]);
        }
        set_stat(&args->out[0], &l, is_layer(args) ? 1 : 0, sums[1]);
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__norm[] = {{.op = "layer_norm", .run = run_norm},
                                    {.op = "rms_norm", .run = run_norm},
                                    {.op = "moments", .run = run_moments},
                                    {.op = "layer_norm_apply", .run = run_apply},
                                    {.op = "rms_norm_apply", .run = run_apply},
                                    {.op = "layer_norm_grad", .run = run_norm_grad},
                                    {.op = "rms_norm_grad", .run = run_norm_grad},
                                    {.op = "layer_norm_grad_sums", .run = run_grad_sums},
                                    {.op = "rms_norm_grad_sums", .run = run_grad_sums},
                                    {.op = "layer_norm_grad_apply", .run = run_norm_grad},
                                    {.op = "rms_norm_grad_apply", .run = run_norm_grad},
                                    {.op = NULL}};
