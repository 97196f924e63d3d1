/* Elementwise ops by name (include/dtp/ops.h). */
#include "core/graph/ops/elementwise.h"
#include "dtensor/ops_common.h"

#define UNARY_FUNCTION(op, ...)                                                                    \
    dtp_status dtp_tensor_##op(dtp_tensor x, dtp_tensor *out, dtp_err *err)                        \
    {                                                                                              \
        return dtp_ops__call(#op, NULL, 1, &x, NULL, out, err);                                    \
    }
#define BINARY_FUNCTION(op, ...)                                                                   \
    dtp_status dtp_tensor_##op(dtp_tensor a, dtp_tensor b, dtp_tensor *out, dtp_err *err)          \
    {                                                                                              \
        const dtp_tensor in[] = {a, b};                                                            \
        return dtp_ops__call(#op, NULL, 2, in, NULL, out, err);                                    \
    }
DTP_UNARY_OPS(UNARY_FUNCTION)
DTP_BINARY_OPS(BINARY_FUNCTION)

/* Of one operand and one number. */
#define NUMBER_FUNCTION(op, argument)                                                              \
    dtp_status dtp_tensor_##op(dtp_tensor x, double value, dtp_tensor *out, dtp_err *err)          \
    {                                                                                              \
        const dtp_arg args[] = {{.key = #argument, .kind = DTP_ARG_FLOAT, .f = value}, {0}};       \
        return dtp_ops__call(#op, NULL, 1, &x, args, out, err);                                    \
    }
NUMBER_FUNCTION(pow, exponent)
NUMBER_FUNCTION(leaky_relu, slope)
NUMBER_FUNCTION(elu, alpha)
NUMBER_FUNCTION(scale, factor)

dtp_status dtp_tensor_clamp(dtp_tensor x, double low, double high, dtp_tensor *out, dtp_err *err)
{
    const dtp_arg args[] = {{.key = "low", .kind = DTP_ARG_FLOAT, .f = low},
                            {.key = "high", .kind = DTP_ARG_FLOAT, .f = high},
                            {0}};
    return dtp_ops__call("clamp", NULL, 1, &x, args, out, err);
}

dtp_status dtp_tensor_compare(const char *cmp, dtp_tensor a, dtp_tensor b, dtp_tensor *out,
                              dtp_err *err)
{
    const dtp_tensor in[] = {a, b};
    const dtp_arg args[] = {{.key = "cmp", .kind = DTP_ARG_ENUM, .text = cmp}, {0}};
    return dtp_ops__call("compare", NULL, 2, in, args, out, err);
}

dtp_status dtp_tensor_select(dtp_tensor c, dtp_tensor a, dtp_tensor b, dtp_tensor *out,
                             dtp_err *err)
{
    const dtp_tensor in[] = {c, a, b};
    return dtp_ops__call("select", NULL, 3, in, NULL, out, err);
}

dtp_status dtp_tensor_cast(dtp_tensor x, dtp_dtype dtype, dtp_tensor *out, dtp_err *err)
{
    const dtp_arg args[] = {{.key = "dtype", .kind = DTP_ARG_INT, .i = (int64_t)dtype}, {0}};
    return dtp_ops__call("cast", NULL, 1, &x, args, out, err);
}

dtp_status dtp_tensor_dropout(dtp_tensor x, double rate, uint32_t stream, dtp_tensor *out,
                              dtp_err *err)
{
    const dtp_arg args[] = {{.key = "rate", .kind = DTP_ARG_FLOAT, .f = rate},
                            {.key = "stream", .kind = DTP_ARG_INT, .i = (int64_t)stream},
                            {0}};
    return dtp_ops__call("dropout", NULL, 1, &x, args, out, err);
}

/* ---- fills ---- */

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
