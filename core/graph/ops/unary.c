/* Elementwise functions of one operand, and the gradients of those that need more than the other
 * ops.
 *   gelu is the tanh form 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); silu is x sigmoid(x);
 *   softplus = log(1 + e^x); leaky_relu = x or slope x; elu = x or alpha (e^x - 1);
 *   clamp_grad passes dy where low <= x <= high.
 */
#include "core/graph/ops/common.h"

static dtp_status infer_cast(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_dtype to = (dtp_dtype)dtp_call_int(call, "dtype");
    return dtp_op__set_out(call, has_out, &call->in[0], to, out, err);
}

static dtp_status infer_clamp(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const double low = dtp_call_float(call, "low"), high = dtp_call_float(call, "high");
    if (!(low <= high)) {
        return DTP_FAIL(err, DTP_INVALID, "'low' is %g, above 'high', which is %g", low, high);
    }
    return call->n_in == 1 ? dtp_op__infer_same(call, has_out, out, err)
                           : dtp_op__infer_pair(call, has_out, out, err);
}

/* ---- gradients ----------------------------------------------------------------------------------
 */

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

static dtp_status vjp_neg(dtp_vjp *v, dtp_err *err)
{
    return dtp_op__emit1(v, "neg", v->d_out[0], v->in[0], &v->d_in[0], err);
}

static dtp_status vjp_scale(dtp_vjp *v, dtp_err *err)
{
    return dtp_op__emit_scale(v, v->d_out[0], dtp_vjp_attr(v, "factor")->f, v->in[0], &v->d_in[0],
                              err);
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
    const dtp_attr attr = dtp_attr_int("dtype", (int64_t)from);
    return dtp_vjp_emit(v, &(dtp_vjp_op){"cast", 1, &v->d_out[0], 1, &attr}, v->in[0], &v->d_in[0],
                        err);
}

/* ---- rows ---------------------------------------------------------------------------------------
 */

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

#define ROW1(op, text, flops)                                                                      \
    .name = (op), .summary = (text), .min_in = 1, .max_in = 1, .n_out = 1,                         \
    .flags = DTP_OP_ELEMENTWISE, .infer = dtp_op__infer_same, .elem_flops = (flops),               \
    .inplace_in = {1}
#define ROW_GRAD(op, text, infer_fn, flops)                                                        \
    .name = (op), .summary = (text), .min_in = 2, .max_in = 2, .n_out = 1,                         \
    .flags = DTP_OP_ELEMENTWISE | DTP_OP_INTERNAL_USE, .infer = (infer_fn), .elem_flops = (flops), \
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

const dtp_op_def dtp_ops_unary[] = {
    {ROW1("neg", "-x", 1.0), .vjp = vjp_neg, .linear = DTP_LINEAR_EACH},
    {ROW1("scale", "factor x", 1.0), .vjp = vjp_scale, .linear = DTP_LINEAR_EACH,
     .attrs = SCALE_ATTRS},
    {ROW1("exp", "e^x", 10.0), PRODUCT("mul", NULL, Y, 1.0)},
    {ROW1("log", "natural logarithm", 10.0), PRODUCT("div", NULL, X, 1.0)},
    {ROW1("sqrt", "square root", 1.0), PRODUCT("div", NULL, Y, 0.5)},
    {ROW1("rsqrt", "1 / square root", 1.0), .vjp = vjp_rsqrt},
    {ROW1("square", "x x", 1.0), PRODUCT("mul", NULL, X, 2.0)},
    {ROW1("tanh", "hyperbolic tangent", 10.0), OWN("tanh_grad", Y)},
    {ROW1("sigmoid", "1 / (1 + e^-x)", 10.0), OWN("sigmoid_grad", Y)},
    {ROW1("relu", "max(x, 0)", 1.0), OWN("relu_grad", X)},
    {ROW1("gelu", "Gaussian error linear unit, tanh form", 10.0), OWN("gelu_grad", X)},
    {ROW1("silu", "x sigmoid(x)", 10.0), OWN("silu_grad", X)},
    {.name = "cast",
     .summary = "another element type",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .flags = DTP_OP_ELEMENTWISE,
     .attrs = CAST_ATTRS,
     .infer = infer_cast,
     .elem_flops = 1.0,
     .vjp = vjp_cast},
    {ROW_GRAD("tanh_grad", "dy (1 - y^2)", dtp_op__infer_pair, 10.0)},
    {ROW_GRAD("sigmoid_grad", "dy y (1 - y)", dtp_op__infer_pair, 10.0)},
    {ROW_GRAD("relu_grad", "dy where x > 0", dtp_op__infer_pair, 10.0)},
    {ROW_GRAD("gelu_grad", "dy gelu'(x)", dtp_op__infer_pair, 10.0)},
    {ROW_GRAD("silu_grad", "dy silu'(x)", dtp_op__infer_pair, 10.0)},
    {ROW1("abs", "|x|", 1.0), PRODUCT("mul", "sign", X, 1.0)},
    {ROW1("sign", "-1, 0 or 1", 1.0), .vjp = dtp_op__zero_grad},
    {ROW1("sin", "sine", 10.0), PRODUCT("mul", "cos", X, 1.0)},
    {ROW1("cos", "cosine", 10.0), PRODUCT("mul", "sin", X, -1.0)},
    {ROW1("reciprocal", "1 / x", 1.0), PRODUCT("mul", "square", Y, -1.0)},
    {ROW1("log1p", "log(1 + x)", 10.0), PRODUCT("div", "exp", Y, 1.0)},
    {ROW1("expm1", "e^x - 1", 10.0), PRODUCT("mul", "exp", X, 1.0)},
    {ROW1("softplus", "log(1 + e^x)", 10.0), PRODUCT("mul", "sigmoid", X, 1.0)},
    {ROW1("pow", "x^exponent", 10.0), .vjp = vjp_pow, .attrs = POW_ATTRS},
    {ROW1("leaky_relu", "x, or slope x when negative", 1.0), OWN("leaky_relu_grad", X),
     .attrs = SLOPE_ATTRS},
    {ROW1("elu", "x, or alpha (e^x - 1) when negative", 10.0), OWN("elu_grad", X),
     .attrs = ALPHA_ATTRS},
    {.name = "clamp",
     .summary = "x limited to [low, high]",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .flags = DTP_OP_ELEMENTWISE,
     .attrs = CLAMP_ATTRS,
     .infer = infer_clamp,
     .elem_flops = 1.0,
     OWN("clamp_grad", X),
     .inplace_in = {1}},
    {ROW_GRAD("leaky_relu_grad", "dy, or slope dy where x <= 0", dtp_op__infer_pair, 1.0),
     .attrs = SLOPE_ATTRS},
    {ROW_GRAD("elu_grad", "dy, or alpha e^x dy where x <= 0", dtp_op__infer_pair, 1.0),
     .attrs = ALPHA_ATTRS},
    {ROW_GRAD("clamp_grad", "dy where low <= x <= high", infer_clamp, 1.0), .attrs = CLAMP_ATTRS},
    {.name = NULL},
};
