/* softmax and log_softmax over one or several dims, their gradients, and the parts they run as when
 * such a dim is split:
 *   m = max x;  s = sum exp(x - m);  y = exp(x - m) / s   or   x - m - log s
 *   softmax:      dx = y (dy - sum y dy)
 *   log_softmax:  dx = dy - exp(y) sum dy
 */
#include "core/graph/ops/rows.h"

static const dtp_attr_spec OVER[] = {{.key = "over", .kind = DTP_ATTR_DIMS, .required = true},
                                     {.key = NULL}};

static const dtp_attr_spec OVER_LOG[] = {{.key = "over", .kind = DTP_ATTR_DIMS, .required = true},
                                         {.key = "log", .kind = DTP_ATTR_BOOL},
                                         {.key = NULL}};

static dtp_status infer_softmax(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    return dtp_rows__set_out(call, has_out, &call->in[0], out, err);
}

static dtp_status infer_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    DTP_TRY(dtp_rows__match(call, 1, "dy", &call->in[0], false, err));
    return dtp_rows__set_out(call, has_out, &call->in[0], out, err);
}

static dtp_status infer_sum_exp(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    dtp_ttype rows = dtp_rows__outside(call, &call->in[0]);
    DTP_TRY(dtp_rows__match(call, 1, "m", &rows, true, err));
    return dtp_rows__set_out(call, has_out, &rows, out, err);
}

static dtp_status infer_apply(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    dtp_ttype rows = dtp_rows__outside(call, &call->in[0]);
    DTP_TRY(dtp_rows__match(call, 1, "m", &rows, true, err));
    DTP_TRY(dtp_rows__match(call, 2, "s", &rows, true, err));
    return dtp_rows__set_out(call, has_out, &call->in[0], out, err);
}

static dtp_status infer_row_dot(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    DTP_TRY(dtp_rows__match(call, 1, "b", &call->in[0], true, err));
    dtp_ttype rows = dtp_rows__outside(call, &call->in[0]);
    return dtp_rows__set_out(call, has_out, &rows, out, err);
}

static dtp_status infer_grad_apply(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                   dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    dtp_ttype rows = dtp_rows__outside(call, &call->in[0]);
    DTP_TRY(dtp_rows__match(call, 1, "dy", &call->in[0], false, err));
    DTP_TRY(dtp_rows__match(call, 2, "d", &rows, true, err));
    return dtp_rows__set_out(call, has_out, &call->in[0], out, err);
}

/* Max, subtract, exp, sum, divide. */
static void work_softmax(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 5.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

static void work_three(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 3.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

static void work_two(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 2.0 * (double)dtp_ttype_elems(&call->in[0]), out);
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

const dtp_op_def dtp_ops_softmax[] = {
    {.name = "softmax",
     .summary = "exp(x) divided by its sum over dims",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .attrs = OVER,
     .infer = infer_softmax,
     .role = dtp_rows__role_internal,
     .work = work_softmax,
     .vjp = vjp_softmax,
     .decompose = split_softmax,
     .inplace_in = {1}},
    {.name = "log_softmax",
     .summary = "logarithm of softmax",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .attrs = OVER,
     .infer = infer_softmax,
     .role = dtp_rows__role_internal,
     .work = work_softmax,
     .vjp = vjp_log_softmax,
     .decompose = split_log_softmax,
     .inplace_in = {1}},
    {.name = "softmax_grad",
     .summary = "gradient of softmax from y and dy",
     .min_in = 2,
     .max_in = 2,
     .n_out = 1,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER,
     .infer = infer_grad,
     .role = dtp_rows__role_internal,
     .work = work_softmax,
     .no_grad = DTP_NO_GRAD_OF_GRAD,
     .decompose = split_softmax_grad,
     .inplace_in = {2}},
    {.name = "log_softmax_grad",
     .summary = "gradient of log_softmax from y and dy",
     .min_in = 2,
     .max_in = 2,
     .n_out = 1,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER,
     .infer = infer_grad,
     .role = dtp_rows__role_internal,
     .work = work_softmax,
     .no_grad = DTP_NO_GRAD_OF_GRAD,
     .decompose = split_log_softmax_grad,
     .inplace_in = {2}},
    {.name = "sum_exp",
     .summary = "sum of exp(x - m) over dims",
     .min_in = 2,
     .max_in = 2,
     .n_out = 1,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER,
     .infer = infer_sum_exp,
     .role = dtp_rows__role_reduced,
     .work = work_three,
     .no_grad = DTP_NO_PART_GRAD},
    {.name = "softmax_apply",
     .summary = "exp(x - m) / s, or x - m - log s",
     .min_in = 3,
     .max_in = 3,
     .n_out = 1,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER_LOG,
     .infer = infer_apply,
     .role = dtp_rows__role_parallel,
     .work = work_three,
     .no_grad = DTP_NO_PART_GRAD,
     .inplace_in = {1}},
    {.name = "row_dot",
     .summary = "sum of a b over dims",
     .min_in = 2,
     .max_in = 2,
     .n_out = 1,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER,
     .infer = infer_row_dot,
     .role = dtp_rows__role_reduced,
     .work = work_two,
     .no_grad = DTP_NO_PART_GRAD},
    {.name = "softmax_grad_apply",
     .summary = "y (dy - d), or dy - exp(y) d",
     .min_in = 3,
     .max_in = 3,
     .n_out = 1,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER_LOG,
     .infer = infer_grad_apply,
     .role = dtp_rows__role_parallel,
     .work = work_two,
     .no_grad = DTP_NO_PART_GRAD,
     .inplace_in = {2}},
    {.name = NULL},
};
