/* Elementwise ops of two operands that broadcast by name, and select. */
#include "core/graph/ops/common.h"

static dtp_status infer_binary(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype want;
    if (call->in[0].dtype == DTP_BOOL) {
        return DTP_FAIL(err, DTP_INVALID, "operand 0 is bool, numbers are needed");
    }
    DTP_TRY(dtp_op__same_dtype(call, 1, 0, err));
    DTP_TRY(dtp_op__broadcast(call, 0, 0, &want, err));
    return dtp_op__set_out(call, has_out, &want, want.dtype, out, err);
}

static dtp_status infer_div(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_op__need_float(call, 0, err));
    return infer_binary(call, has_out, out, err);
}

static dtp_status infer_compare(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype want;
    DTP_TRY(dtp_op__same_dtype(call, 1, 0, err));
    DTP_TRY(dtp_op__broadcast(call, 0, 0, &want, err));
    return dtp_op__set_out(call, has_out, &want, DTP_BOOL, out, err);
}

static dtp_status infer_select(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype want;
    if (call->in[0].dtype != DTP_BOOL) {
        return DTP_FAIL(err, DTP_INVALID, "operand 0 is %s, the condition must be bool",
                        dtp_dtype_name(call->in[0].dtype));
    }
    DTP_TRY(dtp_op__same_dtype(call, 2, 1, err));
    DTP_TRY(dtp_op__broadcast(call, 1, 1, &want, err));
    return dtp_op__set_out(call, has_out, &want, want.dtype, out, err);
}

/* ---- gradients ----------------------------------------------------------------------------------
 */

static dtp_status vjp_add(dtp_vjp *v, dtp_err *err)
{
    for (int32_t i = 0; i < 2; i++) {
        if (v->need[i]) {
            DTP_TRY(dtp_vjp_unbroadcast(v, v->d_out[0], v->in[i], &v->d_in[i], err));
        }
    }
    return DTP_OK;
}

static dtp_status vjp_sub(dtp_vjp *v, dtp_err *err)
{
    if (v->need[0]) {
        DTP_TRY(dtp_vjp_unbroadcast(v, v->d_out[0], v->in[0], &v->d_in[0], err));
    }
    if (v->need[1]) {
        dtp_tensor_id sum;
        DTP_TRY(dtp_vjp_unbroadcast(v, v->d_out[0], v->in[1], &sum, err));
        DTP_TRY(dtp_op__emit1(v, "neg", sum, v->in[1], &v->d_in[1], err));
    }
    return DTP_OK;
}

static dtp_status vjp_mul(dtp_vjp *v, dtp_err *err)
{
    for (int32_t i = 0; i < 2; i++) {
        if (v->need[i]) {
            DTP_TRY(
                dtp_op__emit2(v, "einsum", v->d_out[0], v->in[1 - i], v->in[i], &v->d_in[i], err));
        }
    }
    return DTP_OK;
}

/* da = dy / b, db = -dy y / b */
static dtp_status vjp_div(dtp_vjp *v, dtp_err *err)
{
    dtp_tensor_id q, p;
    DTP_TRY(dtp_op__emit2(v, "div", v->d_out[0], v->in[1], v->out[0], &q, err));
    if (v->need[0]) {
        DTP_TRY(dtp_vjp_unbroadcast(v, q, v->in[0], &v->d_in[0], err));
    }
    if (v->need[1]) {
        DTP_TRY(dtp_op__emit2(v, "einsum", q, v->out[0], v->in[1], &p, err));
        DTP_TRY(dtp_op__emit1(v, "neg", p, v->in[1], &v->d_in[1], err));
    }
    return DTP_OK;
}

/* The share of dy that goes to operand i of max or min: 1 where it wins, 1/2 on ties. `user` of
 * the row is the comparison that wins. */
static dtp_status vjp_extremum(dtp_vjp *v, dtp_err *err)
{
    const char *wins = v->g->nodes[v->node].op->user;
    const dtp_dtype dtype = v->g->tensors[v->in[0]].type.dtype;
    for (int32_t i = 0; i < 2; i++) {
        dtp_tensor_id mask[2], number[2], sum, half, part;
        const char *const kinds[] = {wins, wins[0] == 'g' ? "ge" : "le"};
        const dtp_tensor_id in[] = {v->in[i], v->in[1 - i]};
        const dtp_attr to = dtp_attr_int("dtype", (int64_t)dtype);
        const dtp_attr factor = dtp_attr_float("factor", 0.5);
        if (!v->need[i]) {
            continue;
        }
        for (int32_t k = 0; k < 2; k++) {
            dtp_attr attr;
            DTP_TRY(dtp_op__enum_attr(v->g, "compare", "cmp", kinds[k], &attr, err));
            DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"compare", 2, in, 1, &attr}, v->out[0], &mask[k],
                                 err));
            DTP_TRY(
                dtp_vjp_emit(v, &(dtp_vjp_op){"cast", 1, &mask[k], 1, &to}, -1, &number[k], err));
        }
        DTP_TRY(dtp_op__emit2(v, "add", number[0], number[1], v->out[0], &sum, err));
        DTP_TRY(
            dtp_vjp_emit(v, &(dtp_vjp_op){"scale", 1, &sum, 1, &factor}, v->out[0], &half, err));
        DTP_TRY(dtp_op__emit2(v, "einsum", v->d_out[0], half, v->in[i], &part, err));
        v->d_in[i] = part;
    }
    return DTP_OK;
}

static dtp_status vjp_select(dtp_vjp *v, dtp_err *err)
{
    const dtp_ttype *type = &v->g->tensors[v->out[0]].type;
    const dtp_attr attrs[] = {dtp_attr_float("value", 0.0),
                              dtp_attr_int("dtype", (int64_t)type->dtype)};
    dtp_tensor_id zero, part;
    DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"constant", 0, NULL, 2, attrs}, v->out[0], &zero, err));
    for (int32_t i = 1; i < 3; i++) {
        if (!v->need[i]) {
            continue;
        }
        const dtp_tensor_id in[] = {v->in[0], i == 1 ? v->d_out[0] : zero,
                                    i == 1 ? zero : v->d_out[0]};
        DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"select", 3, in, 0, NULL}, v->out[0], &part, err));
        DTP_TRY(dtp_vjp_unbroadcast(v, part, v->in[i], &v->d_in[i], err));
    }
    return DTP_OK;
}

/* ---- rows ---------------------------------------------------------------------------------------
 */

static const char *const CMP[] = {"lt", "le", "gt", "ge", "eq", "ne", NULL};
static const dtp_attr_spec COMPARE_ATTRS[] = {
    {.key = "cmp", .kind = DTP_ATTR_ENUM, .required = true, .choices = CMP}, {.key = NULL}};

#define ROW2(op, text, infer_fn, vjp_fn, trait)                                                    \
    .name = (op), .summary = (text), .min_in = 2, .max_in = 2, .n_out = 1,                         \
    .flags = DTP_OP_ELEMENTWISE | (trait), .infer = (infer_fn), .elem_flops = 1.0,                 \
    .vjp = (vjp_fn), .inplace_in = {1}

const dtp_op_def dtp_ops_binary[] = {
    {ROW2("add", "a + b", infer_binary, vjp_add, DTP_OP_SUM), .linear = DTP_LINEAR_JOINT},
    {ROW2("sub", "a - b", infer_binary, vjp_sub, 0), .linear = DTP_LINEAR_JOINT},
    {ROW2("mul", "a b", infer_binary, vjp_mul, 0), .linear = DTP_LINEAR_EACH},
    {ROW2("div", "a / b", infer_div, vjp_div, 0)},
    {ROW2("max", "the larger", infer_binary, vjp_extremum, 0), .user = "gt"},
    {ROW2("min", "the smaller", infer_binary, vjp_extremum, 0), .user = "lt"},
    {.name = "compare",
     .summary = "a cmp b as bool",
     .min_in = 2,
     .max_in = 2,
     .n_out = 1,
     .flags = DTP_OP_ELEMENTWISE,
     .attrs = COMPARE_ATTRS,
     .infer = infer_compare,
     .elem_flops = 1.0,
     .no_grad = "it is piecewise constant"},
    {.name = "select",
     .summary = "c ? a : b",
     .min_in = 3,
     .max_in = 3,
     .n_out = 1,
     .flags = DTP_OP_ELEMENTWISE,
     .infer = infer_select,
     .elem_flops = 1.0,
     .vjp = vjp_select},
    {.name = NULL},
};
