/* Reference kernels of the optimizer updates. */
#include <math.h>
#include <string.h>

#include "executor/device/loss_scale.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

static double learning_rate(const dtp_kernel_args *args)
{
    return dtp_call_float(args->call, "lr") * args->record->lr_scale;
}

/* The factor of the gradient. 0: the outputs are the operands. */
static double factor_of(const dtp_kernel_args *args)
{
    const dtp_op_call *call = args->call;
    const dtp_ref_loop none = {0};
    const double factor =
        call->n_in > call->n_out + 1 ? dtp_ref__get(&args->in[call->n_in - 1], &none) : 1.0;
    for (int32_t o = 0; o < call->n_out && factor == 0.0; o++) {
        const dtp_view *from = &args->in[call->op->inplace_in[o] - 1];
        dtp_ref_loop l = dtp_ref__over(&from->local);
        for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
            dtp_ref__copy(&args->out[o], &l, from, &l);
        }
    }
    return factor;
}

static dtp_status run_loss_scale(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    const dtp_ref_loop none = {0};
    double in[4], out[4];
    for (int32_t i = 0; i < 4; i++) {
        in[i] = dtp_ref__get(&args->in[i], &none);
    }
    dtp_loss_scale_next(args->call, in, out);
    for (int32_t i = 0; i < 4; i++) {
        dtp_ref__set(&args->out[i], &none, out[i]);
    }
    return DTP_OK;
}

static dtp_status run_sgd(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    double lr = learning_rate(args), wd = dtp_call_float(args->call, "weight_decay");
    const double factor = factor_of(args);
    dtp_ref_loop l = dtp_ref__over(&args->in[0].local);
    for (bool go = factor != 0.0 && dtp_ref__first(&l, 0, l.n); go;
         go = dtp_ref__next(&l, 0, l.n)) {
        double p = dtp_ref__get(&args->in[0], &l), g = factor * dtp_ref__get(&args->in[1], &l);
        dtp_ref__set(&args->out[0], &l, p - lr * (g + wd * p));
    }
    return DTP_OK;
}

static dtp_status run_momentum(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    double lr = learning_rate(args), wd = dtp_call_float(args->call, "weight_decay");
    double momentum = dtp_call_float(args->call, "momentum");
    const double factor = factor_of(args);
    dtp_ref_loop l = dtp_ref__over(&args->in[0].local);
    for (bool go = factor != 0.0 && dtp_ref__first(&l, 0, l.n); go;
         go = dtp_ref__next(&l, 0, l.n)) {
        double p = dtp_ref__get(&args->in[0], &l), g = factor * dtp_ref__get(&args->in[1], &l);
        double m = momentum * dtp_ref__get(&args->in[2], &l) + g + wd * p;
        dtp_ref__set(&args->out[0], &l, p - lr * m);
        dtp_ref__set(&args->out[1], &l, m);
    }
    return DTP_OK;
}

static dtp_status run_either_adam(const dtp_kernel_args *args, bool decoupled, dtp_err *err)
{
    (void)err;
    const dtp_op_call *call = args->call;
    double lr = learning_rate(args), wd = dtp_call_float(call, "weight_decay");
    double b1 = dtp_call_float(call, "beta1"), b2 = dtp_call_float(call, "beta2");
    double eps = dtp_call_float(call, "eps"), t = (double)(args->record->step + 1);
    const double factor = factor_of(args);
    dtp_ref_loop l = dtp_ref__over(&args->in[0].local);
    for (bool go = factor != 0.0 && dtp_ref__first(&l, 0, l.n); go;
         go = dtp_ref__next(&l, 0, l.n)) {
        double p = dtp_ref__get(&args->in[0], &l), g = factor * dtp_ref__get(&args->in[1], &l);
        g += decoupled ? 0.0 : wd * p;
        double m = b1 * dtp_ref__get(&args->in[2], &l) + (1.0 - b1) * g;
        double v = b2 * dtp_ref__get(&args->in[3], &l) + (1.0 - b2) * g * g;
        double mhat = m / (1.0 - pow(b1, t)), vhat = v / (1.0 - pow(b2, t));
        double step = mhat / (sqrt(vhat) + eps) + (decoupled ? wd * p : 0.0);
        dtp_ref__set(&args->out[0], &l, p - lr * step);
        dtp_ref__set(&args->out[1], &l, m);
        dtp_ref__set(&args->out[2], &l, v);
    }
    return DTP_OK;
}

static dtp_status run_adam(const dtp_kernel_args *args, dtp_err *err)
{
    return run_either_adam(args, false, err);
}

static dtp_status run_adamw(const dtp_kernel_args *args, dtp_err *err)
{
    return run_either_adam(args, true, err);
}

static dtp_status run_accumulate(const dtp_kernel_args *args, dtp_err *err)
{
    (void)err;
    dtp_ref_loop l = dtp_ref__over(&args->in[0].local);
    for (bool go = dtp_ref__first(&l, 0, l.n); go; go = dtp_ref__next(&l, 0, l.n)) {
        double sum = args->record->microbatch == 0 ? 0.0 : dtp_ref__get(&args->in[0], &l);
        dtp_ref__set(&args->out[0], &l, sum + dtp_ref__get(&args->in[1], &l));
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__update[] = {{.op = "sgd", .run = run_sgd},
                                      {.op = "momentum", .run = run_momentum},
                                      {.op = "adam", .run = run_adam},
                                      {.op = "adamw", .run = run_adamw},
                                      {.op = "accumulate", .run = run_accumulate},
                                      {.op = "loss_scale", .run = run_loss_scale},
                                      {.op = NULL}};
