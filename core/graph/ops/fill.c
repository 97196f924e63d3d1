/* Ops without operands that fill a declared shape: iota and constant; fill, a constant of the shape
 * of its operand; and one_hot.
 * Random ops: Philox by global element index (core/base/philox.h), so values do not depend on the
 * layout. */
#include "core/graph/op_rules.h"
#include "core/graph/ops/common.h"

static dtp_status infer_constant(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                 dtp_err *err)
{
    return dtp_op__declared(has_out, (dtp_dtype)dtp_call_int(call, "dtype"), out, err);
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
    return dtp_op__set_out(call, has_out, &call->in[0], out, err);
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
    want.dtype = DTP_F32;
    return dtp_op__set_out(call, has_out, &want, out, err);
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
/* What an index does that the dim does not have; "off" gives no element `on`. */
static const char *const OUTSIDE[] = {"error", "off", NULL};
static const dtp_attr_spec ONE_HOT_ATTRS[] = {
    {.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "on", .kind = DTP_ATTR_FLOAT, .def = 1.0},
    {.key = "off", .kind = DTP_ATTR_FLOAT, .def = 0.0},
    {.key = "outside", .kind = DTP_ATTR_ENUM, .choices = OUTSIDE},
    {.key = NULL}};

static dtp_status infer_random(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_dtype dtype = (dtp_dtype)dtp_call_int(call, "dtype");
    if (!dtp_dtype_is_float(dtype)) {
        return DTP_FAIL(err, DTP_INVALID, "'dtype' is %s, a floating-point type is needed",
                        dtp_dtype_name(dtype));
    }
    return dtp_op__declared(has_out, dtype, out, err);
}

static dtp_status infer_dropout(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_op__need_float(call, 0, err));
    DTP_TRY(dtp_op__set_out(call, has_out, &call->in[0], out, err));
    if (!dtp_ttype_equal(&out[0], &call->in[0])) {
        return DTP_FAIL(err, DTP_INVALID, "'out' must list the dims in the operand's order");
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

#define EXACT(op, text, n, traits)                                                                 \
    DTP_ROW(op, text, n, n, 1), .flags = (traits), .elem_flops = 1.0, .f32_error = DTP_EXACT
#define RANDOM(op, text, attributes)                                                               \
    DTP_ROW(op, text, 0, 0, 1),                                                                    \
        .flags = DTP_OP_RANDOM, .attrs = (attributes), .infer = infer_random, .elem_flops = 40.0,  \
        .no_grad = DTP_NO_OPERANDS, .bench = {"| out=rc"}, .mtf_class = "RandomOperation"

const dtp_op_def dtp_ops_fill[] = {
    {EXACT("constant", "one value everywhere", 0, DTP_OP_ANY_DTYPE | DTP_OP_CONSTANT),
     .attrs = CONSTANT_ATTRS, .infer = infer_constant, .no_grad = DTP_NO_OPERANDS,
     .bench = {"| out=rc value=1"}, .mtf_class = "ConstantOperation"},
    {EXACT("iota", "the index along a dim", 0, DTP_OP_ANY_DTYPE), .attrs = IOTA_ATTRS,
     .infer = infer_iota, .no_grad = DTP_NO_OPERANDS, .bench = {"| out=rc dim=c"}},
    {EXACT("fill", "one value in the shape and type of x", 1,
           DTP_OP_ANY_DTYPE | DTP_OP_ELEMENTWISE),
     .attrs = FILL_ATTRS, .infer = infer_fill, .rules = rules_fill, .vjp = dtp_op__zero_grad,
     .inplace_in = {1}, .bench = {"rc | value=1"}},
    {EXACT("one_hot", "on at the index, off elsewhere", 1, DTP_OP_CHECKS_DATA),
     .attrs = ONE_HOT_ATTRS, .infer = infer_one_hot, .no_grad = "its operand holds integers",
     .bench = {"#r | out=rc dim=c"}, .mtf_class = "OneHotOperation"},
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
    {RANDOM("uniform", "uniform in [low, high)", UNIFORM_ATTRS)},
    {RANDOM("normal", "normal with mean and stddev", NORMAL_ATTRS)},
    {.name = NULL},
};
