/* Elementwise ops by name (include/dtp/ops.h). */
#include "dtensor/ops_common.h"

static dtp_status binary(const char *op, dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    const dtp_tensor in[] = {a, b};
    return dtp_ops__elementwise(op, 2, in, 0, NULL, out, err);
}

/* An op of one operand and one number. */
static dtp_status with_number(const char *op, dtp_tensor x, const char *key, double value,
                              dtp_tensor *out, dtp_err *err)
{
    const dtp_arg arg = {.key = key, .kind = DTP_ARG_FLOAT, .f = value};
    return dtp_ops__elementwise(op, 1, &x, 1, &arg, out, err);
}

static dtp_status unary(const char *op, dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return dtp_ops__elementwise(op, 1, &x, 0, NULL, out, err);
}

dtp_status dtp_tensor_add(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    return binary("add", a, b, out, err);
}

dtp_status dtp_tensor_sub(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    return binary("sub", a, b, out, err);
}

dtp_status dtp_tensor_mul(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    return binary("mul", a, b, out, err);
}

dtp_status dtp_tensor_div(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    return binary("div", a, b, out, err);
}

dtp_status dtp_tensor_max(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    return binary("max", a, b, out, err);
}

dtp_status dtp_tensor_min(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    return binary("min", a, b, out, err);
}

dtp_status dtp_tensor_logical_and(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    return binary("logical_and", a, b, out, err);
}

dtp_status dtp_tensor_logical_or(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    return binary("logical_or", a, b, out, err);
}

dtp_status dtp_tensor_logical_xor(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)
{
    return binary("logical_xor", a, b, out, err);
}

dtp_status dtp_tensor_logical_not(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("logical_not", x, out, err);
}

dtp_status dtp_tensor_neg(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("neg", x, out, err);
}

dtp_status dtp_tensor_exp(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("exp", x, out, err);
}

dtp_status dtp_tensor_log(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("log", x, out, err);
}

dtp_status dtp_tensor_sqrt(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("sqrt", x, out, err);
}

dtp_status dtp_tensor_rsqrt(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("rsqrt", x, out, err);
}

dtp_status dtp_tensor_square(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("square", x, out, err);
}

dtp_status dtp_tensor_tanh(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("tanh", x, out, err);
}

dtp_status dtp_tensor_sigmoid(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("sigmoid", x, out, err);
}

dtp_status dtp_tensor_relu(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("relu", x, out, err);
}

dtp_status dtp_tensor_gelu(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("gelu", x, out, err);
}

dtp_status dtp_tensor_silu(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("silu", x, out, err);
}

dtp_status dtp_tensor_abs(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("abs", x, out, err);
}

dtp_status dtp_tensor_sign(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("sign", x, out, err);
}

dtp_status dtp_tensor_sin(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("sin", x, out, err);
}

dtp_status dtp_tensor_cos(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("cos", x, out, err);
}

dtp_status dtp_tensor_reciprocal(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("reciprocal", x, out, err);
}

dtp_status dtp_tensor_log1p(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("log1p", x, out, err);
}

dtp_status dtp_tensor_expm1(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("expm1", x, out, err);
}

dtp_status dtp_tensor_softplus(dtp_tensor x, dtp_tensor *out, dtp_err *err)
{
    return unary("softplus", x, out, err);
}

dtp_status dtp_tensor_pow(dtp_tensor x, double exponent, dtp_tensor *out, dtp_err *err)
{
    return with_number("pow", x, "exponent", exponent, out, err);
}

dtp_status dtp_tensor_leaky_relu(dtp_tensor x, double slope, dtp_tensor *out, dtp_err *err)
{
    return with_number("leaky_relu", x, "slope", slope, out, err);
}

dtp_status dtp_tensor_elu(dtp_tensor x, double alpha, dtp_tensor *out, dtp_err *err)
{
    return with_number("elu", x, "alpha", alpha, out, err);
}

dtp_status dtp_tensor_clamp(dtp_tensor x, double low, double high, dtp_tensor *out, dtp_err *err)
{
    const dtp_arg args[] = {{.key = "low", .kind = DTP_ARG_FLOAT, .f = low},
                            {.key = "high", .kind = DTP_ARG_FLOAT, .f = high}};
    return dtp_ops__elementwise("clamp", 1, &x, 2, args, out, err);
}

dtp_status dtp_tensor_compare(const char *cmp, dtp_tensor a, dtp_tensor b, dtp_tensor *out,
                              dtp_err *err)
{
    const dtp_tensor in[] = {a, b};
    const dtp_arg arg = {.key = "cmp", .kind = DTP_ARG_ENUM, .text = cmp};
    return dtp_ops__elementwise("compare", 2, in, 1, &arg, out, err);
}

dtp_status dtp_tensor_select(dtp_tensor c, dtp_tensor a, dtp_tensor b, dtp_tensor *out,
                             dtp_err *err)
{
    const dtp_tensor in[] = {c, a, b};
    return dtp_ops__elementwise("select", 3, in, 0, NULL, out, err);
}

dtp_status dtp_tensor_scale(dtp_tensor x, double factor, dtp_tensor *out, dtp_err *err)
{
    return with_number("scale", x, "factor", factor, out, err);
}

dtp_status dtp_tensor_cast(dtp_tensor x, dtp_dtype dtype, dtp_tensor *out, dtp_err *err)
{
    const dtp_arg arg = {.key = "dtype", .kind = DTP_ARG_INT, .i = (int64_t)dtype};
    return dtp_ops__elementwise("cast", 1, &x, 1, &arg, out, err);
}

dtp_status dtp_tensor_dropout(dtp_tensor x, double rate, uint32_t stream, dtp_tensor *out,
                              dtp_err *err)
{
    const dtp_arg args[] = {{.key = "rate", .kind = DTP_ARG_FLOAT, .f = rate},
                            {.key = "stream", .kind = DTP_ARG_INT, .i = (int64_t)stream}};
    return dtp_ops__elementwise("dropout", 1, &x, 2, args, out, err);
}

/* ---- fills --------------------------------------------------------------------------------------
 */

dtp_status dtp_tensor_full_like(dtp_tensor t, double value, dtp_tensor *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    dtp_tensor_desc desc;
    DTP_TRY(dtp_ops__describe("full_like", t, &desc, err));
    return dtp_tensor_full(t.mesh, &desc, value, out, err);
}

dtp_status dtp_tensor_zeros_like(dtp_tensor t, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_full_like(t, 0.0, out, err);
}

dtp_status dtp_tensor_ones_like(dtp_tensor t, dtp_tensor *out, dtp_err *err)
{
    return dtp_tensor_full_like(t, 1.0, out, err);
}
