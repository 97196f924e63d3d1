/* Optimizer updates as ops: parameter, gradient and slots in, parameter and slots out, in place.
 * And the sum of a gradient over microbatches, and dynamic loss scaling
 * (core/transform/precision.h).
 *
 * The last operand of an update, which may be left out, is a factor of the gradient, one number;
 * with 0 the parameter and its slots stay as they are, whatever the gradient is. */
#include "core/graph/ops/common.h"

static dtp_status infer_update(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_op__need_float(call, 0, err));
    for (int32_t i = 1; i < call->n_in; i++) {
        const bool factor = i > call->op->n_out;
        const dtp_ttype one = {.dtype = call->in[0].dtype};
        if (!dtp_ttype_equal(&call->in[i], factor ? &one : &call->in[0])) {
            return DTP_FAIL(err, DTP_INVALID,
                            factor ? "operand %d, the factor of the gradient, is not one number"
                                   : "operand %d has another type than the parameter",
                            i);
        }
    }
    DTP_TRY(dtp_op__set_out(call, has_out, &call->in[0], out, err));
    for (int32_t i = 0; i < call->n_out; i++) {
        out[i] = call->in[0];
    }
    return DTP_OK;
}

/* The sum so far and what is added, floats or integers. */
static dtp_status infer_accumulate(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                   dtp_err *err)
{
    if (call->in[0].dtype == DTP_BOOL) {
        return DTP_FAIL(err, DTP_INVALID, "operand 0 is bool, numbers are needed");
    }
    if (!dtp_ttype_equal(&call->in[1], &call->in[0])) {
        return DTP_FAIL(err, DTP_INVALID, "operand 1 has another type than the sum");
    }
    return dtp_op__set_out(call, has_out, &call->in[0], out, err);
}

/* Scale, finite steps since it changed, steps skipped, sum over all gradients. */
static dtp_status infer_loss_scale(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                   dtp_err *err)
{
    const dtp_ttype one = {.dtype = call->in[0].dtype};
    DTP_TRY(dtp_op__need_float(call, 0, err));
    if (dtp_dtype_is_half(one.dtype)) {
        return DTP_FAIL(err, DTP_INVALID, "a scale of %s, which cannot hold it",
                        dtp_dtype_name(one.dtype));
    }
    for (int32_t i = 0; i < call->n_in; i++) {
        if (!dtp_ttype_equal(&call->in[i], &one)) {
            return DTP_FAIL(err, DTP_INVALID, "operand %d is not one %s", i,
                            dtp_dtype_name(one.dtype));
        }
        out[i] = i > 0 ? one : out[i];
    }
    return dtp_op__set_out(call, has_out, &one, out, err);
}

static const dtp_attr_spec SCALE_ATTRS[] = {
    {.key = "growth", .kind = DTP_ATTR_FLOAT, .def = 2.0, .min = 1.0, .max = 1e6},
    {.key = "backoff", .kind = DTP_ATTR_FLOAT, .def = 0.5, .min = 1e-6, .max = 1.0},
    {.key = "interval", .kind = DTP_ATTR_INT, .def = 2000, .min = 1.0, .max = 1e9},
    {.key = NULL}};
static const char *const SCALE_OUTS[] = {"good", "skipped", "factor"};

/* A hyperparameter with its default; low <= value < high. */
#define HYPER(name, value, low, high)                                                              \
    {                                                                                              \
        .key = (name), .kind = DTP_ATTR_FLOAT, .def = (value), .min = (low), .max = (high)         \
    }
#define LEARNING_RATE                                                                              \
    {                                                                                              \
        .key = "lr", .kind = DTP_ATTR_FLOAT, .required = true, .max = 1e6                          \
    }
#define DECAY(value) HYPER("weight_decay", value, 0.0, 1e6)
#define ADAM_HYPERS(decay)                                                                         \
    LEARNING_RATE, HYPER("beta1", 0.9, 0.0, 1.0), HYPER("beta2", 0.999, 0.0, 1.0),                 \
        HYPER("eps", 1e-8, 1e-30, 1.0), DECAY(decay),                                              \
    {                                                                                              \
        .key = NULL                                                                                \
    }

static const dtp_attr_spec SGD_ATTRS[] = {LEARNING_RATE, DECAY(0.0), {.key = NULL}};
static const dtp_attr_spec MOMENTUM_ATTRS[] = {
    LEARNING_RATE, HYPER("momentum", 0.9, 0.0, 1.0), DECAY(0.0), {.key = NULL}};
static const dtp_attr_spec ADAM_ATTRS[] = {ADAM_HYPERS(0.0)};
static const dtp_attr_spec ADAMW_ATTRS[] = {ADAM_HYPERS(0.01)};
static const char *const MOMENTUM_OUTS[] = {"m"};
static const char *const ADAM_OUTS[] = {"m", "v"};

#define ROW_UPDATE(op, text, n)                                                                    \
    DTP_ROW(op, text, (n) + 1, (n) + 2, (n)),                                                      \
        .flags = DTP_OP_ELEMENTWISE | DTP_OP_UPDATE | DTP_OP_INTERNAL_USE, .infer = infer_update,  \
        .elem_flops = 4.0 * (n), .no_grad = "it ends a step", .inplace_in = {1, 3, 4}

const dtp_op_def dtp_ops_optimizer[] = {
    {ROW_UPDATE("sgd", "gradient step", 1), .attrs = SGD_ATTRS,
     .bench = {"rc rc | lr=0.001 weight_decay=0.01"}},
    {ROW_UPDATE("momentum", "gradient step with momentum", 2), .attrs = MOMENTUM_ATTRS,
     .out_names = MOMENTUM_OUTS, .bench = {"rc rc rc | lr=0.001 momentum=0.9 weight_decay=0.01"}},
    {ROW_UPDATE("adam", "Adam, weight decay in the gradient", 3), .attrs = ADAM_ATTRS,
     .out_names = ADAM_OUTS,
     .bench = {"rc rc rc rc | lr=0.001 beta1=0.9 beta2=0.99 eps=1e-8 weight_decay=0.01"}},
    {ROW_UPDATE("adamw", "Adam with decoupled weight decay", 3), .attrs = ADAMW_ATTRS,
     .out_names = ADAM_OUTS,
     .bench = {"rc rc rc rc | lr=0.001 beta1=0.9 beta2=0.99 eps=1e-8 weight_decay=0.01"}},
    {
        DTP_ROW("accumulate", "sum over the microbatches of a step", 2, 2, 1),
        .flags = DTP_OP_ELEMENTWISE | DTP_OP_UPDATE | DTP_OP_INTERNAL_USE,
        .infer = infer_accumulate,
        .linear = DTP_LINEAR_JOINT,
        .elem_flops = 1.0,
        .no_grad = "it ends a microbatch",
        .inplace_in = {1},
        .bench = {"rc rc"},
    },
    {
        DTP_ROW("loss_scale", "the next scale of the loss, and the factor of this step's gradients",
                4, 4, 4),
        .flags = DTP_OP_INTERNAL_USE,
        .attrs = SCALE_ATTRS,
        .out_names = SCALE_OUTS,
        .infer = infer_loss_scale,
        .elem_flops = 1.0,
        .no_grad = "it ends a step",
        .bench = {"_ _ _ _"},
    },
    {.name = NULL},
};
