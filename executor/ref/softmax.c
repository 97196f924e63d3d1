/* Reference kernels of softmax, log_softmax, their gradients and their parts, and logsumexp. */
#include <math.h>
#include <string.h>

#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

/* Maximum of the row at the outer coordinates of `l`, and the sum of exp(x - m). */
static double row_parts(const dtp_view *x, dtp_ref_loop *l, int32_t rows, double *sum)
{
    double m = (double)-INFINITY;
    *sum = 0.0;
    for (bool go = dtp_ref__first(l, rows, l->n); go; go = dtp_ref__next(l, rows, l->n)) {
        m = dtp_ref__larger(m, dtp_ref__get(x, l));
    }
    for (bool go = dtp_ref__first(l, rows, l->n); go; go = dtp_ref__next(l, rows, l->n)) {
        *sum += exp(dtp_ref__get(x, l) - m);
    }
    return m;
}

static dtp_status run_softmax_of(const dtp_kernel_args *args, bool log_form)
{
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, &args->in[0], &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        double s;
        const double m = row_parts(&args->in[0], &l, rows, &s), lse = m + log(s);
        for (bool in = dtp_ref__first(&l, rows, l.n); in; in = dtp_ref__next(&l, rows, l.n)) {
            double y = dtp_ref__get(&args->in[0], &l) - lse;
            dtp_ref__set(&args->out[0], &l, log_form ? y : exp(y));
        }
    }
    return DTP_OK;
}

static dtp_status run_plain_softmax(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    return run_softmax_of(args, false);
}

static dtp_status run_log_softmax(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    return run_softmax_of(args, true);
}

static dtp_status run_softmax_grad_of(const dtp_kernel_args *args, bool log_form)
{
    const dtp_view *y = &args->in[0], *dy = &args->in[1];
    int32_t rows;
    dtp_ref_loop l = dtp_ref__rows(args->call, y, &rows);
    for (bool go = dtp_ref__first(&l, 0, rows); go; go = dtp_ref__next(&l, 0, rows)) {
        double d = 0.0;
        for (bool in = dtp_ref__first(&l, rows, l.n); in; in = dtp_ref__next(&l, rows, l.n)) {
            d += dtp_ref__get(dy, &l) * (log_form ? 1.0 : dtp_ref__get(y, &l));
        }
        for (bool in = dtp_ref__first(&l, rows, l.n); in; in = dtp_ref__next(&l, rows, l.n)) {
            double v = dtp_ref__get(y, &l), g = dtp_ref__get(dy, &l);
            dtp_ref__set(&args->out[0], &l, log_form ? g - exp(v) * d : v * (g - d));
        }
    }
    return DTP_OK;
}

static dtp_status run_plain_softmax_grad(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    return run_softmax_grad_of(args, false);
}

static dtp_status run_log_softmax_grad(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    return run_softmax_grad_of(args, true);
}

static double logsumexp_row(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows)
{
    double s;
    const double m = row_parts(&args->in[0], l, rows, &s);
    return dtp_ref__lse(m, s);
}

static double sum_exp_row(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows)
{
    const double m = dtp_ref__get(&args->in[1], l);
    double s = 0.0;
    for (bool in = dtp_ref__first(l, rows, l->n); in; in = dtp_ref__next(l, rows, l->n)) {
        s += exp(dtp_ref__get(&args->in[0], l) - (isinf(m) ? 0.0 : m));
    }
    return s;
}

static double row_dot_row(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows)
{
    double s = 0.0;
    for (bool in = dtp_ref__first(l, rows, l->n); in; in = dtp_ref__next(l, rows, l->n)) {
        s += dtp_ref__get(&args->in[0], l) * dtp_ref__get(&args->in[1], l);
    }
    return s;
}

DTP_REF_ROW_KERNEL(logsumexp)
DTP_REF_ROW_KERNEL(sum_exp)
DTP_REF_ROW_KERNEL(row_dot)

static dtp_status run_softmax_apply(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    bool log_form = dtp_call_int(args->call, "log") != 0;
    dtp_ref_loop l = dtp_ref__over(&args->in[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        const double m = dtp_ref__get(&args->in[1], &l);
        const double t = isinf(m) ? (double)NAN : dtp_ref__get(&args->in[0], &l) - m;
        double s = dtp_ref__get(&args->in[2], &l);
        dtp_ref__set(&args->out[0], &l, log_form ? t - log(s) : exp(t) / s);
    }
    return DTP_OK;
}

static dtp_status run_softmax_grad_apply(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    bool log_form = dtp_call_int(args->call, "log") != 0;
    dtp_ref_loop l = dtp_ref__over(&args->in[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double y = dtp_ref__get(&args->in[0], &l), dy = dtp_ref__get(&args->in[1], &l);
        double d = dtp_ref__get(&args->in[2], &l);
        dtp_ref__set(&args->out[0], &l, log_form ? dy - exp(y) * d : y * (dy - d));
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__softmax[] = {{.op = "softmax", .run = run_plain_softmax},
                                       {.op = "log_softmax", .run = run_log_softmax},
                                       {.op = "softmax_grad", .run = run_plain_softmax_grad},
                                       {.op = "log_softmax_grad", .run = run_log_softmax_grad},
                                       {.op = "sum_exp", .run = run_sum_exp},
                                       {.op = "logsumexp", .run = run_logsumexp},
                                       {.op = "softmax_apply", .run = run_softmax_apply},
                                       {.op = "row_dot", .run = run_row_dot},
                                       {.op = "softmax_grad_apply", .run = run_softmax_grad_apply},
                                       {.op = NULL}};
