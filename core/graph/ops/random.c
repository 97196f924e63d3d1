/* Random ops: Philox by global element index (core/base/philox.h), so values do not depend on the
 * layout. */
#include "core/graph/ops/common.h"

static dtp_status infer_fill(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_dtype dtype = (dtp_dtype)dtp_call_int(call, "dtype");
    if (!dtp_dtype_is_float(dtype)) {
        return DTP_FAIL(err, DTP_INVALID, "'dtype' is %s, a floating-point type is needed",
                        dtp_dtype_name(dtype));
    }
    return dtp_op__declared(call, has_out, dtype, out, err);
}

static dtp_status infer_dropout(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_op__need_float(call, 0, err));
    dtp_ttype declared = out[0];
    DTP_TRY(dtp_op__set_out(call, has_out, &call->in[0], call->in[0].dtype, out, err));
    if (has_out) {
        declared.dtype = call->in[0].dtype;
        if (!dtp_ttype_equal(&declared, &call->in[0])) {
            return DTP_FAIL(err, DTP_INVALID, "'out' must list the dims in the operand's order");
        }
    }
    return DTP_OK;
}

/* The same mask from the same stream. */
static dtp_status vjp_dropout(dtp_vjp *v, dtp_err *err)
{
    const dtp_attr attrs[] = {dtp_op__copy_attr(v, "rate"), dtp_op__copy_attr(v, "stream")};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"dropout", 1, &v->d_out[0], 2, attrs}, v->in[0],
                        &v->d_in[0], err);
}

static const dtp_attr_spec DROPOUT_ATTRS[] = {
    {.key = "rate", .kind = DTP_ATTR_FLOAT, .required = true, .min = 0.0, .max = 0.999999},
    {.key = "stream", .kind = DTP_ATTR_INT, .hidden = true},
    {.key = NULL}};
static const dtp_attr_spec UNIFORM_ATTRS[] = {
    {.key = "low", .kind = DTP_ATTR_FLOAT, .def = 0.0},
    {.key = "high", .kind = DTP_ATTR_FLOAT, .def = 1.0},
    {.key = "dtype", .kind = DTP_ATTR_DTYPE, .def = DTP_F32},
    {.key = "stream", .kind = DTP_ATTR_INT, .hidden = true},
    {.key = NULL}};
static const dtp_attr_spec NORMAL_ATTRS[] = {
    {.key = "mean", .kind = DTP_ATTR_FLOAT, .def = 0.0},
    {.key = "stddev", .kind = DTP_ATTR_FLOAT, .def = 1.0},
    {.key = "dtype", .kind = DTP_ATTR_DTYPE, .def = DTP_F32},
    {.key = "stream", .kind = DTP_ATTR_INT, .hidden = true},
    {.key = NULL}};

const dtp_op_def dtp_ops_random[] = {
    {.name = "dropout",
     .summary = "zero with probability rate, else x / (1 - rate)",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .flags = DTP_OP_ELEMENTWISE | DTP_OP_RANDOM,
     .attrs = DROPOUT_ATTRS,
     .infer = infer_dropout,
     .linear = DTP_LINEAR_EACH,
     .elem_flops = 40.0,
     .vjp = vjp_dropout,
     .inplace_in = {1},
     .bench = {"rc | rate=0.1"}},
    {.name = "uniform",
     .summary = "uniform in [low, high)",
     .n_out = 1,
     .flags = DTP_OP_RANDOM,
     .attrs = UNIFORM_ATTRS,
     .infer = infer_fill,
     .elem_flops = 40.0,
     .no_grad = DTP_NO_OPERANDS,
     .bench = {"| out=rc"},
     .mtf_class = "RandomOperation"},
    {.name = "normal",
     .summary = "normal with mean and stddev",
     .n_out = 1,
     .flags = DTP_OP_RANDOM,
     .attrs = NORMAL_ATTRS,
     .infer = infer_fill,
     .elem_flops = 40.0,
     .no_grad = DTP_NO_OPERANDS,
     .bench = {"| out=rc"},
     .mtf_class = "RandomOperation"},
    {.name = NULL},
};
