/* Elementwise ops: functions of one and two operands (core/graph/ops/elementwise.h), those with
 * attributes, and the gradients of those that need more than the other ops.
 */
#include "core/graph/ops/elementwise.h"

#include "core/graph/op_rules.h"
#include "core/graph/ops/common.h"

/* Dtype and dims of operand 0, a float. */
static dtp_status infer_same(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_op__need_float(call, 0, err));
    return dtp_op__set_out(call, has_out, &call->in[0], out, err);
}

/* Of two operands of one float dtype and the same dims. */
static dtp_status infer_pair(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_op__need_float(call, 0, err));
    DTP_TRY(dtp_op__same_dtype(call, 1, 0, err));
    dtp_ttype want;
    DTP_TRY(dtp_op__broadcast(call, 0, &want, err));
    if (want.rank != call->in[0].rank || want.rank != call->in[1].rank) {
        return DTP_FAIL(err, DTP_INVALID, "the two operands have different dims");
    }
    return dtp_op__set_out(call, has_out, &call->in[0], out, err);
}

static dtp_status infer_cast(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype want = call->in[0];
    want.dtype = (dtp_dtype)dtp_call_int(call, "dtype");
    return dtp_op__set_out(call, has_out, &want, out, err);
}

/* A widening cast of a partial sum is a partial sum; a narrowing one rounds. */
static void rules_cast(const dtp_op_call *call, bool linear, dtp_sharding_rules *out)
{
    dtp_sharding_rules_add_roles(out, call);
    if (linear && dtp_dtype_widens(call->in[0].dtype, call->out[0].dtype)) {
        dtp_sharding_rules_add_linear(out, call, 1U);
    }
}

static dtp_status infer_clamp(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const double low = dtp_call_float(call, "low"), high = dtp_call_float(call, "high");
    if (!(low <= high)) {
        return DTP_FAIL(err, DTP_INVALID, "'low' is %g, above 'high', which is %g", low, high);
    }
    return call->n_in == 1 ? infer_same(call, has_out, out, err)
                           : infer_pair(call, has_out, out, err);
}

static dtp_status infer_binary(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype want;
    if (call->in[0].dtype == DTP_BOOL) {
        return DTP_FAIL(err, DTP_INVALID, "operand 0 is bool, numbers are needed");
    }
    DTP_TRY(dtp_op__same_dtype(call, 1, 0, err));
    DTP_TRY(dtp_op__broadcast(call, 0, &want, err));
    return dtp_op__set_out(call, has_out, &want, out, err);
}

/* Operand 0, whose dims operand 1, a scale, has or lacks. */
static dtp_status infer_quantize(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                 dtp_err *err)
{
    dtp_ttype want;
    DTP_TRY(dtp_op__need_float(call, 0, err));
    DTP_TRY(dtp_op__same_dtype(call, 1, 0, err));
    DTP_TRY(dtp_op__broadcast(call, 0, &want, err));
    if (want.rank != call->in[0].rank) {
        return DTP_FAIL(err, DTP_INVALID, "operand 1 has a dim that operand 0 does not have");
    }
    return dtp_op__set_out(call, has_out, &call->in[0], out, err);
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
    DTP_TRY(dtp_op__broadcast(call, 0, &want, err));
    want.dtype = DTP_BOOL;
    return dtp_op__set_out(call, has_out, &want, out, err);
}

static dtp_status infer_select(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype want;
    if (call->in[0].dtype != DTP_BOOL) {
        return DTP_FAIL(err, DTP_INVALID, "operand 0 is %s, the condition must be bool",
                        dtp_dtype_name(call->in[0].dtype));
    }
    DTP_TRY(dtp_op__same_dtype(call, 2, 1, err));
    DTP_TRY(dtp_op__broadcast(call, 1, &want, err));
    return dtp_op__set_out(call, has_out, &want, out, err);
}

static dtp_status infer_logical(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype want;
    DTP_TRY(dtp_op__need_bool(call, err));
    DTP_TRY(dtp_op__broadcast(call, 0, &want, err));
    want.dtype = DTP_BOOL;
    return dtp_op__set_out(call, has_out, &want, out, err);
}

/* ---- gradients ---- */

/* What the gradient of a row is made of; `user` of the row. */
typedef struct derivative {
    const char *op, *f;
    bool of_result;
    double factor;
} derivative;

/* dx = factor op(dy, f(t)); t is x, or y when of_result; f NULL: t itself. */
static dtp_status vjp_product(dtp_vjp *v, dtp_err *err)
{
    const derivative *d = v->g->nodes[v->node].op->user;
    dtp_tensor_id slope = d->of_result ? v->out[0] : v->in[0], *dx = &v->d_in[0];
    if (d->f != NULL) {
        DTP_TRY(dtp_op__emit1(v, d->f, slope, v->in[0], &slope, err));
    }
    DTP_TRY(dtp_op__emit2(v, d->op, v->d_out[0], slope, v->in[0], dx, err));
    if (d->factor == 1.0) {
        return DTP_OK;
    }
    return d->factor == -1.0 ? dtp_op__emit1(v, "neg", *dx, v->in[0], dx, err)
                             : dtp_op__emit_scale(v, *dx, d->factor, v->in[0], dx, err);
}

/* dx = op(t, dy), an op of its own with the attributes of this one. */
static dtp_status vjp_own(dtp_vjp *v, dtp_err *err)
{
    const dtp_node *node = &v->g->nodes[v->node];
    const derivative *d = node->op->user;
    const dtp_tensor_id in[] = {d->of_result ? v->out[0] : v->in[0], v->d_out[0]};
    const dtp_vjp_op op = {d->op, 2, in, node->n_attrs, node->attrs};
    return dtp_vjp_emit(v, &op, v->in[0], &v->d_in[0], err);
}

static dtp_status vjp_rsqrt(dtp_vjp *v, dtp_err *err)
{
    dtp_tensor_id y2, y3, p;
    DTP_TRY(dtp_op__emit1(v, "square", v->out[0], v->in[0], &y2, err));
    DTP_TRY(dtp_op__emit2(v, "mul", y2, v->out[0], v->in[0], &y3, err));
    DTP_TRY(dtp_op__emit2(v, "mul", v->d_out[0], y3, v->in[0], &p, err));
    return dtp_op__emit_scale(v, p, -0.5, v->in[0], &v->d_in[0], err);
}

/* dx = e dy x^(e-1); zero for e = 0, where x^-1 need not exist. */
static dtp_status vjp_pow(dtp_vjp *v, dtp_err *err)
{
    const double e = dtp_vjp_attr(v, "exponent")->f;
    const dtp_attr less = dtp_attr_float("exponent", e - 1.0);
    dtp_tensor_id p, q;
    if (e == 0.0) {
        return dtp_op__zero_grad(v, err);
    }
    DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"pow", 1, &v->in[0], 1, &less}, v->in[0], &p, err));
    DTP_TRY(dtp_op__emit2(v, "mul", v->d_out[0], p, v->in[0], &q, err));
    return dtp_op__emit_scale(v, q, e, v->in[0], &v->d_in[0], err);
}

/* Back to the operand's type; an integer operand or result carries no gradient. */
static dtp_status vjp_cast(dtp_vjp *v, dtp_err *err)
{
    const dtp_dtype from = v->g->tensors[v->in[0]].type.dtype;
    if (!dtp_dtype_is_float(from)) {
        return DTP_OK;
    }
    return dtp_op__emit_cast(v, v->d_out[0], from, &v->d_in[0], err);
}

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

/* da = dy, db = -dy floor(a / b) */
static dtp_status vjp_mod(dtp_vjp *v, dtp_err *err)
{
    dtp_tensor_id q, p;
    if (v->need[0]) {
        DTP_TRY(dtp_vjp_unbroadcast(v, v->d_out[0], v->in[0], &v->d_in[0], err));
    }
    if (v->need[1]) {
        DTP_TRY(dtp_op__emit2(v, "div", v->in[0], v->in[1], v->out[0], &q, err));
        DTP_TRY(dtp_op__emit1(v, "floor", q, v->out[0], &q, err));
        DTP_TRY(dtp_op__emit2(v, "einsum", v->d_out[0], q, v->in[1], &p, err));
        DTP_TRY(dtp_op__emit1(v, "neg", p, v->in[1], &v->d_in[1], err));
    }
    return DTP_OK;
}

/* There are no gradients in evaluation. */
static dtp_status vjp_in_training(dtp_vjp *v, dtp_err *err)
{
    (void)err;
    v->d_in[0] = v->d_out[0];
    return DTP_OK;
}

/* As if nothing was rounded. */
static dtp_status vjp_quantize(dtp_vjp *v, dtp_err *err)
{
    (void)err;
    v->d_in[0] = v->d_out[0];
    return DTP_OK;
}

/* The share of dy that goes to operand i of max or min: 1 where it wins, 1/2 on ties. `user` of
 * the row is the comparison that wins. */
static dtp_status vjp_extremum(dtp_vjp *v, dtp_err *err)
{
    const char *wins = v->g->nodes[v->node].op->user;
    const char *const kinds[] = {wins, wins[0] == 'g' ? "ge" : "le"};
    for (int32_t i = 0; i < 2; i++) {
        const dtp_tensor_id x = v->in[i], other = v->in[1 - i], y = v->out[0];
        dtp_tensor_id number[2], sum, half;
        if (!v->need[i]) {
            continue;
        }
        for (int32_t k = 0; k < 2; k++) {
            DTP_TRY(dtp_op__emit_mask(v, kinds[k], x, other, y, &number[k], err));
        }
        DTP_TRY(dtp_op__emit2(v, "add", number[0], number[1], y, &sum, err));
        DTP_TRY(dtp_op__emit_scale(v, sum, 0.5, y, &half, err));
        DTP_TRY(dtp_op__emit2(v, "einsum", v->d_out[0], half, x, &v->d_in[i], err));
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

/* ---- rows ---- */

static const dtp_attr_spec SCALE_ATTRS[] = {
    {.key = "factor", .kind = DTP_ATTR_FLOAT, .required = true}, {.key = NULL}};
static const dtp_attr_spec CAST_ATTRS[] = {
    {.key = "dtype", .kind = DTP_ATTR_DTYPE, .required = true}, {.key = NULL}};
static const dtp_attr_spec POW_ATTRS[] = {
    {.key = "exponent", .kind = DTP_ATTR_FLOAT, .required = true}, {.key = NULL}};
static const dtp_attr_spec SLOPE_ATTRS[] = {{.key = "slope", .kind = DTP_ATTR_FLOAT, .def = 0.01},
                                            {.key = NULL}};
static const dtp_attr_spec ALPHA_ATTRS[] = {{.key = "alpha", .kind = DTP_ATTR_FLOAT, .def = 1.0},
                                            {.key = NULL}};
static const dtp_attr_spec CLAMP_ATTRS[] = {{.key = "low", .kind = DTP_ATTR_FLOAT, .def = -1e308},
                                            {.key = "high", .kind = DTP_ATTR_FLOAT, .def = 1e308},
                                            {.key = NULL}};

static const char *const CMP[] = {"lt", "le", "gt", "ge", "eq", "ne", NULL};
static const dtp_attr_spec COMPARE_ATTRS[] = {
    {.key = "cmp", .kind = DTP_ATTR_ENUM, .required = true, .choices = CMP}, {.key = NULL}};

#define ROW1(op, text, infer_fn, flops, traits)                                                    \
    DTP_ROW(op, text, 1, 1, 1), .flags = DTP_OP_ELEMENTWISE | (traits), .infer = (infer_fn),       \
                                .elem_flops = (flops), .inplace_in = {1}
#define ROW_GRAD(op, text, infer_fn, flops, traits)                                                \
    DTP_ROW(op, text, 2, 2, 1), .flags = DTP_OP_ELEMENTWISE | DTP_OP_INTERNAL_USE | (traits),      \
                                .infer = (infer_fn), .elem_flops = (flops),                        \
                                .no_grad = DTP_NO_GRAD_OF_GRAD, .inplace_in = {2}

/* The gradients vjp_product and vjp_own, of x or y. */
enum { X, Y };
#define PRODUCT(...)                                                                               \
    .vjp = vjp_product, .user = (const derivative[])                                               \
    {                                                                                              \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define OWN(grad, of)                                                                              \
    .vjp = vjp_own, .user = (const derivative[])                                                   \
    {                                                                                              \
        {                                                                                          \
            grad, NULL, of, 1.0                                                                    \
        }                                                                                          \
    }

#define ARITHMETIC(vjp_fn, trait)                                                                  \
    .flags = DTP_OP_ELEMENTWISE | DTP_OP_FUSES | (trait), .infer = infer_binary, .vjp = (vjp_fn)
#define LOGICAL                                                                                    \
    .flags = DTP_OP_ELEMENTWISE, .infer = infer_logical, .no_grad = DTP_NO_BOOL_GRAD,              \
    .f32_error = DTP_EXACT

#define INFER_REAL infer_same
#define INFER_POSITIVE infer_same
#define INFER_TRUTH infer_logical
#define FUSES_REAL DTP_OP_FUSES
#define FUSES_POSITIVE DTP_OP_FUSES
#define FUSES_TRUTH 0
#define UNARY_ROW(op, text, domain, flops, ...)                                                    \
    {ROW1(#op, text, INFER_##domain, flops, FUSES_##domain), __VA_ARGS__},
#define GRADIENT_ROW(op, text, flops, ...)                                                         \
    {ROW_GRAD(#op, text, infer_pair, flops, DTP_OP_FUSES), __VA_ARGS__},
#define QUANTIZE_ROW(op, text)                                                                     \
    DTP_ROW(op, text, 2, 2, 1), .flags = DTP_OP_ELEMENTWISE | DTP_OP_INTERNAL_USE,                 \
                                .infer = infer_quantize, .vjp = vjp_quantize, .elem_flops = 8.0,   \
                                .f32_error = DTP_EXACT, .inplace_in = {1}, .bench = {"rc r"}
#define BINARY_ROW(op, text, domain, flops, ...)                                                   \
    {DTP_ROW(#op, (text), 2, 2, 1), .elem_flops = (flops), .inplace_in = {1}, __VA_ARGS__},

const dtp_op_def dtp_ops_elementwise[] = {
    {
        DTP_ROW("cast", "another element type", 1, 1, 1),
        .flags = DTP_OP_ANY_DTYPE | DTP_OP_ELEMENTWISE | DTP_OP_CAST | DTP_OP_FUSES | DTP_OP_MOVES,
        .attrs = CAST_ATTRS,
        .infer = infer_cast,
        .rules = rules_cast,
        .linear = DTP_LINEAR_EACH,
        .elem_flops = 1.0,
        .vjp = vjp_cast,
        .bench = {"#rc | dtype=f32", "rc | dtype=f32", "rc | dtype=bf16"},
        .mtf_class = "CastOperation",
    },
    {ROW1("scale", "factor x", infer_same, 1.0, DTP_OP_FUSES), .vjp = dtp_op__self_grad,
     .linear = DTP_LINEAR_EACH, .attrs = SCALE_ATTRS, .bench = {"rc | factor=0.5"},
     .mtf_class = "ScalarMultiplyOperation"},
    {ROW1("pow", "x^exponent", infer_same, 10.0, DTP_OP_FUSES), .vjp = vjp_pow, .attrs = POW_ATTRS,
     .bench = {"rc | exponent=2.5"}},
    {ROW1("leaky_relu", "x, or slope x when negative", infer_same, 1.0, DTP_OP_FUSES),
     OWN("leaky_relu_grad", X), .attrs = SLOPE_ATTRS},
    {ROW1("elu", "x, or alpha (e^x - 1) when negative", infer_same, 10.0, DTP_OP_FUSES),
     OWN("elu_grad", X), .attrs = ALPHA_ATTRS},
    {ROW1("clamp", "x limited to [low, high]", infer_clamp, 1.0, 0), OWN("clamp_grad", X),
     .attrs = CLAMP_ATTRS, .f32_error = DTP_EXACT},
    {
        DTP_ROW("compare", "a cmp b as bool", 2, 2, 1),
        .flags = DTP_OP_ELEMENTWISE,
        .attrs = COMPARE_ATTRS,
        .infer = infer_compare,
        .elem_flops = 1.0,
        .no_grad = "it is piecewise constant",
        .bench = {"rc rc | cmp=lt"},
        .mtf_class = "BinaryOpWithBroadcasting",
    },
    {
        DTP_ROW("select", "c ? a : b", 3, 3, 1),
        .flags = DTP_OP_ANY_DTYPE | DTP_OP_ELEMENTWISE,
        .infer = infer_select,
        .elem_flops = 1.0,
        .vjp = vjp_select,
        .bench = {"?rc rc rc"},
        .f32_error = DTP_EXACT,
    },
    {
        DTP_ROW("in_training", "a in training, b in evaluation", 2, 2, 1),
        .flags = DTP_OP_ELEMENTWISE | DTP_OP_FUSES | DTP_OP_IN_TRAINING,
        .infer = infer_pair,
        .vjp = vjp_in_training,
        .inplace_in = {1},
        .bench = {"rc rc"},
        .f32_error = DTP_EXACT,
    },
    {
        DTP_ROW("follow", "b in the place of a, a buffer, in every microbatch", 2, 2, 1),
        .flags = DTP_OP_ELEMENTWISE | DTP_OP_UPDATE | DTP_OP_INTERNAL_USE,
        .infer = infer_pair,
        .no_grad = "it ends a microbatch",
        .inplace_in = {1},
        .bench = {"rc rc"},
        .f32_error = DTP_EXACT,
    },
    {ROW_GRAD("leaky_relu_grad", "dy, or slope dy where x <= 0", infer_pair, 1.0, DTP_OP_FUSES),
     .attrs = SLOPE_ATTRS},
    {ROW_GRAD("elu_grad", "dy, or alpha e^x dy where x <= 0", infer_pair, 1.0, DTP_OP_FUSES),
     .attrs = ALPHA_ATTRS},
    {ROW_GRAD("clamp_grad", "dy where low <= x <= high", infer_clamp, 1.0, 0), .attrs = CLAMP_ATTRS,
     .f32_error = DTP_EXACT},
    {QUANTIZE_ROW("quantize_e4m3", "the nearest 8-bit float e4m3 of x at the scale of its amax")},
    {QUANTIZE_ROW("quantize_e5m2", "the nearest 8-bit float e5m2 of x at the scale of its amax")},
    DTP_UNARY_OPS(UNARY_ROW) DTP_BINARY_OPS(BINARY_ROW)
        DTP_GRADIENT_OPS(GRADIENT_ROW){.name = NULL},
};
const int32_t dtp_ops_elementwise_rows =
    sizeof dtp_ops_elementwise / sizeof dtp_ops_elementwise[0] - 1;
