/* Ops without operands that fill a declared shape: iota and constant; fill, a constant of the shape
 * of its operand; and one_hot.
 * Random ops: Philox by global element index (core/base/philox.h), so values do not depend on the
 * layout. */
#include "core/graph/op_rules.h"
#include "core/graph/ops/common.h"

static dtp_status infer_constant(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                 dtp_err *err)
{
    return dtp_op__declared(call, has_out, (dtp_dtype)dtp_call_int(call, "dtype"), out, err);
}

static dtp_status infer_iota(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_dim_id d = dtp_call_dim(call, "dim");
    DTP_TRY(infer_constant(call, has_out, out, err));
    if (dtp_ttype_find(&out[0], d) < 0) {
        return DTP_FAIL(err, DTP_INVALID, "'dim' names '%s', which 'out' does not have",
                        dtp_dims_name(call->dims, d));
    }
    return DTP_OK;
}

static dtp_status infer_fill(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    return dtp_op__set_out(call, has_out, &call->in[0], call->in[0].dtype, out, err);
}

/* The operand's elements are not read: any split is kept, and partial sums are left alone and give
 * a replicated result. */
static void rules_fill(const dtp_op_call *call, bool linear, dtp_sharding_rules *out)
{
    dtp_sharding_rules_add_roles(out, call);
    if (linear && call->in[0].dtype != DTP_BOOL) {
        dtp_sharding_rules_add_linear(out, call, 1U);
        out->rows[out->n - 1].out[0] = (dtp_placement){0};
    }
}

/* The new dim comes last unless 'out' says otherwise; its size is the one declared in 'out' or,
 * without that, the size of the name in the model. */
static dtp_status infer_one_hot(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_dim_id d = dtp_call_dim(call, "dim");
    dtp_ttype want = call->in[0];
    if (dtp_dtype_is_float(call->in[0].dtype) || call->in[0].dtype == DTP_BOOL) {
        return DTP_FAIL(err, DTP_INVALID, "operand 0 is %s, integers are needed",
                        dtp_dtype_name(call->in[0].dtype));
    }
    if (dtp_ttype_find(&want, d) >= 0 || want.rank == DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "'dim' names '%s', which operand 0 has already",
                        dtp_dims_name(call->dims, d));
    }
    const int32_t at = has_out ? dtp_ttype_find(&out[0], d) : -1;
    want.dims[want.rank].id = d;
    want.dims[want.rank].size = at >= 0 ? out[0].dims[at].size : call->dims->sizes[d];
    want.rank++;
    return dtp_op__set_out(call, has_out, &want, DTP_F32, out, err);
}

static const dtp_attr_spec CONSTANT_ATTRS[] = {
    {.key = "value", .kind = DTP_ATTR_FLOAT, .required = true},
    {.key = "dtype", .kind = DTP_ATTR_DTYPE, .def = DTP_F32},
    {.key = NULL}};
static const dtp_attr_spec FILL_ATTRS[] = {
    {.key = "value", .kind = DTP_ATTR_FLOAT, .required = true}, {.key = NULL}};
static const dtp_attr_spec IOTA_ATTRS[] = {{.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
                                           {.key = "dtype", .kind = DTP_ATTR_DTYPE, .def = DTP_I32},
                                           {.key = NULL}};
static const dtp_attr_spec ONE_HOT_ATTRS[] = {
    {.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "on", .kind = DTP_ATTR_FLOAT, .def = 1.0},
    {.key = "off", .kind = DTP_ATTR_FLOAT, .def = 0.0},
    {.key = NULL}};

static dtp_status infer_random(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
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

const dtp_op_def dtp_ops_fill[] = {
    {
        DTP_ROW("constant", "one value everywhere", 0, 0, 1),
        .flags = DTP_OP_ANY_DTYPE | DTP_OP_CONSTANT,
        .attrs = CONSTANT_ATTRS,
        .infer = infer_constant,
        .elem_flops = 1.0,
        .no_grad = DTP_NO_OPERANDS,
        .bench = {"| out=rc value=1"},
        .f32_error = DTP_EXACT,
        .mtf_class = "ConstantOperation",
    },
    {
        DTP_ROW("iota", "the index along a dim", 0, 0, 1),
        .attrs = IOTA_ATTRS,
        .infer = infer_iota,
        .elem_flops = 1.0,
        .no_grad = DTP_NO_OPERANDS,
        .bench = {"| out=rc dim=c"},
        .f32_error = DTP_EXACT,
        .flags = DTP_OP_ANY_DTYPE,
    },
    {
        DTP_ROW("fill", "one value in the shape and type of x", 1, 1, 1),
        .flags = DTP_OP_ANY_DTYPE | DTP_OP_ELEMENTWISE,
        .attrs = FILL_ATTRS,
        .infer = infer_fill,
        .rules = rules_fill,
        .elem_flops = 1.0,
        .vjp = dtp_op__zero_grad,
        .inplace_in = {1},
        .bench = {"rc | value=1"},
        .f32_error = DTP_EXACT,
    },
    {
        DTP_ROW("one_hot", "on at the index, off elsewhere", 1, 1, 1),
        .attrs = ONE_HOT_ATTRS,
        .flags = DTP_OP_CHECKS_DATA,
        .infer = infer_one_hot,
        .elem_flops = 1.0,
        .no_grad = "its operand holds integers",
        .bench = {"#r | out=rc dim=c"},
        .f32_error = DTP_EXACT,
        .mtf_class = "OneHotOperation",
    },
    {
        DTP_ROW("dropout", "zero with probability rate, else x / (1 - rate)", 1, 1, 1),
        .flags = DTP_OP_ELEMENTWISE | DTP_OP_RANDOM,
        .attrs = DROPOUT_ATTRS,
        .infer = infer_dropout,
        .linear = DTP_LINEAR_EACH,
        .elem_flops = 40.0,
        .vjp = dtp_op__self_grad,
        .inplace_in = {1},
        .bench = {"rc | rate=0.1"},
    },
    {
        DTP_ROW("uniform", "uniform in [low, high)", 0, 0, 1),
        .flags = DTP_OP_RANDOM,
        .attrs = UNIFORM_ATTRS,
        .infer = infer_random,
        .elem_flops = 40.0,
        .no_grad = DTP_NO_OPERANDS,
        .bench = {"| out=rc"},
        .mtf_class = "RandomOperation",
    },
    {
        DTP_ROW("normal", "normal with mean and stddev", 0, 0, 1),
        .flags = DTP_OP_RANDOM,
        .attrs = NORMAL_ATTRS,
        .infer = infer_random,
        .elem_flops = 40.0,
        .no_grad = DTP_NO_OPERANDS,
        .bench = {"| out=rc"},
        .mtf_class = "RandomOperation",
    },
    {.name = NULL},
};
