/* Reference kernels of linear_loss and linear_loss_grad. Logits are computed where they are needed.
 * Loops: the rows first, then the class, then the dims that x and w share. */
#include <math.h>

#include "core/graph/ops/cross_entropy.h"
#include "executor/ref/index.h"
#include "executor/ref/kernels.h"

typedef struct linear {
    const dtp_kernel_args *args;
    dtp_ref_loop l;
    int32_t rows, n; /* the class is dim `rows` of the loop */
    int64_t classes, label;
    double smoothing, lse, target; /* of a row */
    double share;                  /* of a row in the loss */
} linear;

static linear start(const dtp_kernel_args *args)
{
    const dtp_op_call *call = args->call;
    const dtp_dim_id over = dtp_call_dim(call, "over");
    linear s = {.args = args, .l = dtp_ref__over(&args->in[2].local), .share = 1.0};
    s.classes = dtp_ref__local(&args->in[1], over);
    const dtp_ttype of_class = {.rank = 1, .dims = {{over, s.classes}}};
    s.rows = s.l.n;
    dtp_ref__add(&s.l, &of_class);
    dtp_ref__add(&s.l, &args->in[1].local);
    s.n = s.l.n;
    s.smoothing = dtp_call_float(call, "smoothing");
    for (int32_t i = 0; i < s.rows && dtp_call_int(call, "reduce") == DTP_LOSS_MEAN; i++) {
        s.share /= (double)args->in[2].global[i];
    }
    return s;
}

/* At the row and class of the loop. */
static double logit(linear *s)
{
    double sum = 0.0;
    const int32_t from = s->rows + 1;
    for (bool go = dtp_ref__first(&s->l, from, s->n); go; go = dtp_ref__next(&s->l, from, s->n)) {
        sum += dtp_ref__get(&s->args->in[0], &s->l) * dtp_ref__get(&s->args->in[1], &s->l);
    }
    return sum;
}

/* The weight of a class in the target of the row. */
static double weight(const linear *s)
{
    const double even = s->smoothing / (double)s->classes;
    return even + (s->l.at[s->rows] == s->label ? 1.0 - s->smoothing : 0.0);
}

/* Reads the label of the row; then lse and target. False: the label is refused. */
static bool read_row(linear *s)
{
    const int32_t c = s->rows;
    double most = -(double)INFINITY, sum = 0.0;
    s->target = 0.0;
    if (!dtp_ref__id(s->args, 2, &s->l, DTP_DATA_LABEL, s->classes, &s->label)) {
        return false;
    }
    for (bool go = dtp_ref__first(&s->l, c, c + 1); go; go = dtp_ref__next(&s->l, c, c + 1)) {
        const double x = logit(s);
        most = dtp_ref__larger(most, x);
        s->target += weight(s) == 0.0 ? 0.0 : weight(s) * x;
    }
    for (bool go = dtp_ref__first(&s->l, c, c + 1); go; go = dtp_ref__next(&s->l, c, c + 1)) {
        sum += exp(logit(s) - most);
    }
    s->lse = dtp_ref__lse(most, sum);
    return true;
}

static dtp_status run_linear_loss(const dtp_kernel_args *args, dtp_err *err)
{
    linear s = start(args);
    const bool none = dtp_call_int(args->call, "reduce") == DTP_LOSS_NONE;
    double loss = 0.0;
    (void)err;
    for (bool go = dtp_ref__first(&s.l, 0, s.rows); go; go = dtp_ref__next(&s.l, 0, s.rows)) {
        if (!read_row(&s)) {
            return DTP_OK;
        }
        loss += s.lse - s.target;
        dtp_ref__set(&args->out[1], &s.l, s.lse);
        if (none) {
            dtp_ref__set(&args->out[0], &s.l, s.lse - s.target);
        }
    }
    if (!none) {
        dtp_ref__set(&args->out[0], &s.l, loss * s.share);
    }
    return DTP_OK;
}

static dtp_status run_linear_loss_grad(const dtp_kernel_args *args, dtp_err *err)
{
    linear s = start(args);
    const int32_t c = s.rows, inner = s.rows + 1;
    const bool none = dtp_call_int(args->call, "reduce") == DTP_LOSS_NONE;
    double loss = 0.0;
    (void)err;
    dtp_ref__clear(&args->out[0]);
    dtp_ref__clear(&args->out[1]);
    for (bool go = dtp_ref__first(&s.l, 0, s.rows); go; go = dtp_ref__next(&s.l, 0, s.rows)) {
        if (!read_row(&s)) {
            return DTP_OK;
        }
        loss += s.lse - s.target;
        if (none) {
            dtp_ref__set(&args->out[2], &s.l, s.lse - s.target);
        }
        const double dloss = dtp_ref__get(&args->in[3], &s.l) * s.share;
        for (bool k = dtp_ref__first(&s.l, c, inner); k; k = dtp_ref__next(&s.l, c, inner)) {
            const double d = (exp(logit(&s) - s.lse) - weight(&s)) * dloss;
            for (bool i = dtp_ref__first(&s.l, inner, s.n); i;
                 i = dtp_ref__next(&s.l, inner, s.n)) {
                dtp_ref__accumulate(&args->out[0], &s.l, d * dtp_ref__get(&args->in[1], &s.l));
                dtp_ref__accumulate(&args->out[1], &s.l, d * dtp_ref__get(&args->in[0], &s.l));
            }
        }
    }
    if (!none) {
        dtp_ref__set(&args->out[2], &s.l, loss * s.share);
    }
    return DTP_OK;
}

const dtp_kernel dtp_ref__linear_loss[] = {{.op = "linear_loss", .run = run_linear_loss},
                                           {.op = "linear_loss_grad", .run = run_linear_loss_grad},
                                           {.op = NULL}};
