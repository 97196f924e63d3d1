/* softmax and log_softmax over one or several dims, their gradients, and the parts they run as when
 * such a dim is split:
 *   m = max x;  s = sum exp(x - m);  y = exp(x - m) / s   or   x - m - log s
 *   softmax:      dx = y (dy - sum y dy)
 *   log_softmax:  dx = dy - exp(y) sum dy
 */
#include "core/graph/ops/rows.h"

static const dtp_attr_spec OVER_LOG[] = {
    DTP_ROWS_OVER, {.key = "log", .kind = DTP_ATTR_BOOL}, {.key = NULL}};

/* Checks x and the operands `first` and `second` behind it, which messages call so: `like` of them
 * have the type of x, in any order of dims when `any_order`, the rest that of the rows: a maximum
 * "m" in the elements of x, sums in those of sums. */
static dtp_status check(const dtp_op_call *call, int32_t like, bool any_order, const char *first,
                        const char *second, dtp_ttype *rows, dtp_err *err)
{
    const char *const names[] = {"x", first, second};
    DTP_TRY(dtp_rows__check(call, 0, err));
    const dtp_ttype maxima = dtp_rows__outside(call, &call->in[0]);
    *rows = dtp_rows__stats(call, &call->in[0]);
    for (int32_t i = 1; i < call->n_in && i <= 2; i++) {
        const bool is_like = i <= like;
        DTP_TRY(dtp_rows__match(call, i, names[i],
                                is_like                                  ? &call->in[0]
                                : names[i] != NULL && names[i][0] == 'm' ? &maxima
                                                                         : rows,
                                !is_like || any_order, err));
    }
    return DTP_OK;
}

/* x, m, s. */
static dtp_status infer_forward(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype rows;
    DTP_TRY(check(call, 0, true, "m", "s", &rows, err));
    return dtp_rows__set_out(call, has_out, &call->in[0], out, err);
}

/* y, dy, d. */
static dtp_status infer_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype rows;
    DTP_TRY(check(call, 1, false, "dy", "d", &rows, err));
    return dtp_rows__set_out(call, has_out, &call->in[0], out, err);
}

static dtp_status infer_sum_exp(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype rows;
    DTP_TRY(check(call, 0, true, "m", NULL, &rows, err));
    return dtp_rows__set_out(call, has_out, &rows, out, err);
}

static dtp_status infer_row_dot(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype rows;
    DTP_TRY(check(call, 1, true, "b", NULL, &rows, err));
    return dtp_rows__set_out(call, has_out, &rows, out, err);
}

/* One of the two forms; `user` of the fused rows. */
typedef struct softmax_form {
    bool log;
    const char *grad;
} softmax_form;

static const softmax_form PLAIN = {false, "softmax_grad"}, LOG = {true, "log_softmax_grad"};

static dtp_status vjp_softmax(dtp_vjp *v, dtp_err *err)
{
    const softmax_form *form = v->g->nodes[v->node].op->user;
    const dtp_attr over = *dtp_vjp_attr(v, "over");
    const dtp_tensor_id in[] = {v->out[0], v->d_out[0]};
    if (v->d_out[0] < 0 || !v->need[0]) {
        return DTP_OK;
    }
    return dtp_vjp_emit(v, &(dtp_vjp_op){form->grad, 2, in, 1, &over}, v->in[0], &v->d_in[0], err);
}

static dtp_status split_forward(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                int32_t *outs, dtp_err *err)
{
    const softmax_form *form = call->op->user;
    const dtp_attr attrs[] = {*dtp_call_attr(call, "over"), dtp_attr_int("log", form->log ? 1 : 0)};
    dtp_tensor_id parts[3] = {ins[0], -1, -1};
    DTP_TRY(dtp_rows__emit_reduce(g, "max", ins[0], &attrs[0], &parts[1], err));
    DTP_TRY(dtp_rows__emit(g, "sum_exp", 2, parts, 1, attrs, &parts[2], err));
    return dtp_rows__emit(g, "softmax_apply", 3, parts, 2, attrs, outs, err);
}

static dtp_status split_grad(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                             int32_t *outs, dtp_err *err)
{
    const softmax_form *form = call->op->user;
    const dtp_attr attrs[] = {*dtp_call_attr(call, "over"), dtp_attr_int("log", form->log ? 1 : 0)};
    dtp_tensor_id parts[3] = {ins[0], ins[1], -1};
    DTP_TRY(form->log ? dtp_rows__emit_wide(g, "sum", ins[1], &attrs[0], &parts[2], err)
                      : dtp_rows__emit(g, "row_dot", 2, ins, 1, attrs, &parts[2], err));
    return dtp_rows__emit(g, "softmax_grad_apply", 3, parts, 2, attrs, outs, err);
}

#define PART .flags = DTP_OP_INTERNAL_USE, .no_grad = DTP_NO_PART_GRAD
#define FORWARD(op, text, form)                                                                    \
    DTP_ROW(op, text, 1, 1, 1), .attrs = dtp_rows_over, .infer = infer_forward,                    \
                                .role = dtp_rows__role_internal, .x_flops = 5.0,                   \
                                .vjp = vjp_softmax, .decompose = split_forward, .user = &(form),   \
                                .inplace_in = {1}
#define GRAD(op, text, form)                                                                       \
    DTP_ROW(op, text, 2, 2, 1), .flags = DTP_OP_INTERNAL_USE, .attrs = dtp_rows_over,              \
                                .infer = infer_grad, .role = dtp_rows__role_internal,              \
                                .x_flops = 5.0, .no_grad = DTP_NO_GRAD_OF_GRAD,                    \
                                .decompose = split_grad, .user = &(form), .inplace_in = {2}
#define REDUCTION(op, text, infer_fn)                                                              \
    PART, DTP_ROW(op, text, 2, 2, 1), .attrs = dtp_rows_over, .infer = (infer_fn),                 \
                                      .role = dtp_rows__role_reduced
#define APPLY(op, text, infer_fn, in_place)                                                        \
    PART, DTP_ROW(op, text, 3, 3, 1), .attrs = OVER_LOG, .infer = (infer_fn),                      \
                                      .role = dtp_rows__role_parallel, .inplace_in = {in_place}

const dtp_op_def dtp_ops_softmax[] = {
    {FORWARD("softmax", "exp(x) divided by its sum over dims", PLAIN)},
    {FORWARD("log_softmax", "logarithm of softmax", LOG)},
    {GRAD("softmax_grad", "gradient of softmax from y and dy", PLAIN)},
    {GRAD("log_softmax_grad", "gradient of log_softmax from y and dy", LOG)},
    {REDUCTION("sum_exp", "sum of exp(x - m) over dims", infer_sum_exp), .x_flops = 3.0,
     .rates = "softmax", .bench = {"rc r | over=c"}},
    {APPLY("softmax_apply", "exp(x - m) / s, or x - m - log s", infer_forward, 1), .x_flops = 3.0,
     .rates = "softmax", .bench = {"rc r r | over=c"}},
    {REDUCTION("row_dot", "sum of a b over dims", infer_row_dot), .x_flops = 2.0,
     .rates = "softmax_grad"},
    {APPLY("softmax_grad_apply", "y (dy - d), or dy - exp(y) d", infer_grad, 2), .x_flops = 2.0,
     .rates = "softmax_grad", .bench = {"rc rc r | over=c"}},
    {.name = NULL},
};
