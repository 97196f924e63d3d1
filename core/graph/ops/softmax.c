/* softmax and log_softmax over one or several dims, their gradients, and the parts they run as when
 * such a dim is split:
 *   m = max x;  s = sum exp(x - m);  y = exp(x - m) / s   or   x - m - log s
 *   softmax:      dx = y (dy - sum y dy)
 *   log_softmax:  dx = dy - exp(y) sum dy
 */
#include "core/graph/ops/rows.h"

static const dtp_attr_spec OVER_LOG[] = {
    DTP_ROWS_OVER, {.key = "log", .kind = DTP_ATTR_BOOL}, {.key = NULL}};

/* Checks x, the first operand, and the others: `like` of them have its type, in any order of dims
 * when `any_order`; the rest has the type of the rows. Called so in messages. */
static dtp_status check(const dtp_op_call *call, int32_t like, bool any_order,
                        const char *const names[], dtp_ttype *rows, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    *rows = dtp_rows__outside(call, &call->in[0]);
    for (int32_t i = 1; i < call->n_in; i++) {
        const bool is_like = i <= like;
        DTP_TRY(dtp_rows__match(call, i, names[i - 1], is_like ? &call->in[0] : rows,
                                !is_like || any_order, err));
    }
    return DTP_OK;
}

/* x, m, s. */
static dtp_status infer_forward(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    static const char *const names[] = {"m", "s"};
    dtp_ttype rows;
    DTP_TRY(check(call, 0, true, names, &rows, err));
    return dtp_rows__set_out(call, has_out, &call->in[0], out, err);
}

/* y, dy, d. */
static dtp_status infer_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    static const char *const names[] = {"dy", "d"};
    dtp_ttype rows;
    DTP_TRY(check(call, 1, false, names, &rows, err));
    return dtp_rows__set_out(call, has_out, &call->in[0], out, err);
}

static dtp_status infer_sum_exp(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    static const char *const names[] = {"m"};
    dtp_ttype rows;
    DTP_TRY(check(call, 0, true, names, &rows, err));
    return dtp_rows__set_out(call, has_out, &rows, out, err);
}

static dtp_status infer_row_dot(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    static const char *const names[] = {"b"};
    dtp_ttype rows;
    DTP_TRY(check(call, 1, true, names, &rows, err));
    return dtp_rows__set_out(call, has_out, &rows, out, err);
}

static dtp_status emit_grad(dtp_vjp *v, const char *op, dtp_err *err)
{
    const dtp_attr over = *dtp_vjp_attr(v, "over");
    const dtp_tensor_id in[] = {v->out[0], v->d_out[0]};
    if (v->d_out[0] < 0 || !v->need[0]) {
        return DTP_OK;
    }
    return dtp_vjp_emit(v, &(dtp_vjp_op){op, 2, in, 1, &over}, v->in[0], &v->d_in[0], err);
}

static dtp_status vjp_softmax(dtp_vjp *v, dtp_err *err)
{
    return emit_grad(v, "softmax_grad", err);
}

static dtp_status vjp_log_softmax(dtp_vjp *v, dtp_err *err)
{
    return emit_grad(v, "log_softmax_grad", err);
}

static dtp_status split_forward(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                bool log_form, int32_t *outs, dtp_err *err)
{
    const dtp_attr attrs[] = {*dtp_call_attr(call, "over"), dtp_attr_int("log", log_form ? 1 : 0)};
    dtp_tensor_id parts[3] = {ins[0], -1, -1};
    DTP_TRY(dtp_rows__emit_reduce(g, "max", ins[0], &attrs[0], &parts[1], err));
    DTP_TRY(dtp_rows__emit(g, "sum_exp", 2, parts, 1, attrs, &parts[2], err));
    return dtp_rows__emit(g, "softmax_apply", 3, parts, 2, attrs, outs, err);
}

static dtp_status split_softmax(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                int32_t *outs, dtp_err *err)
{
    return split_forward(g, call, ins, false, outs, err);
}

static dtp_status split_log_softmax(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                    int32_t *outs, dtp_err *err)
{
    return split_forward(g, call, ins, true, outs, err);
}

static dtp_status split_softmax_grad(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                     int32_t *outs, dtp_err *err)
{
    const dtp_attr attrs[] = {*dtp_call_attr(call, "over"), dtp_attr_int("log", 0)};
    dtp_tensor_id parts[3] = {ins[0], ins[1], -1};
    DTP_TRY(dtp_rows__emit(g, "row_dot", 2, ins, 1, attrs, &parts[2], err));
    return dtp_rows__emit(g, "softmax_grad_apply", 3, parts, 2, attrs, outs, err);
}

static dtp_status split_log_softmax_grad(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                         int32_t *outs, dtp_err *err)
{
    const dtp_attr attrs[] = {*dtp_call_attr(call, "over"), dtp_attr_int("log", 1)};
    dtp_tensor_id parts[3] = {ins[0], ins[1], -1};
    DTP_TRY(dtp_rows__emit_reduce(g, "sum", ins[1], &attrs[0], &parts[2], err));
    return dtp_rows__emit(g, "softmax_grad_apply", 3, parts, 2, attrs, outs, err);
}

#define PART .flags = DTP_OP_INTERNAL_USE, .no_grad = DTP_NO_PART_GRAD
#define FORWARD(op, text, vjp_fn, split_fn)                                                        \
    .name = (op), .summary = (text), .min_in = 1, .max_in = 1, .n_out = 1, .attrs = dtp_rows_over, \
    .infer = infer_forward, .role = dtp_rows__role_internal, .x_flops = 5.0, .vjp = (vjp_fn),      \
    .decompose = (split_fn), .inplace_in = {1}
#define GRAD(op, text, split_fn)                                                                   \
    .name = (op), .summary = (text), .min_in = 2, .max_in = 2, .n_out = 1,                         \
    .flags = DTP_OP_INTERNAL_USE, .attrs = dtp_rows_over, .infer = infer_grad,                     \
    .role = dtp_rows__role_internal, .x_flops = 5.0, .no_grad = DTP_NO_GRAD_OF_GRAD,               \
    .decompose = (split_fn), .inplace_in = {2}
#define REDUCTION(op, text, infer_fn)                                                              \
    PART, .name = (op), .summary = (text), .min_in = 2, .max_in = 2, .n_out = 1,                   \
          .attrs = dtp_rows_over, .infer = (infer_fn), .role = dtp_rows__role_reduced
#define APPLY(op, text, infer_fn, in_place)                                                        \
    PART, .name = (op), .summary = (text), .min_in = 3, .max_in = 3, .n_out = 1,                   \
          .attrs = OVER_LOG, .infer = (infer_fn), .role = dtp_rows__role_parallel,                 \
          .inplace_in = {in_place}

const dtp_op_def dtp_ops_softmax[] = {
    {FORWARD("softmax", "exp(x) divided by its sum over dims", vjp_softmax, split_softmax)},
    {FORWARD("log_softmax", "logarithm of softmax", vjp_log_softmax, split_log_softmax)},
    {GRAD("softmax_grad", "gradient of softmax from y and dy", split_softmax_grad)},
    {GRAD("log_softmax_grad", "gradient of log_softmax from y and dy", split_log_softmax_grad)},
    {REDUCTION("sum_exp", "sum of exp(x - m) over dims", infer_sum_exp), .x_flops = 3.0},
    {APPLY("softmax_apply", "exp(x - m) / s, or x - m - log s", infer_forward, 1), .x_flops = 3.0},
    {REDUCTION("row_dot", "sum of a b over dims", infer_row_dot), .x_flops = 2.0},
    {APPLY("softmax_grad_apply", "y (dy - d), or dy - exp(y) d", infer_grad, 2), .x_flops = 2.0},
    {.name = NULL},
};
