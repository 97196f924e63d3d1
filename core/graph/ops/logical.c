/* Ops on truth values: and, or, xor with broadcasting by name, not, and any and all over dims. As
 * collectives do not reduce bool, any and all over a split dim run as the maximum and minimum of
 * the values as i32.
 */
#include "core/graph/ops/rows.h"

static dtp_status need_bool(const dtp_op_call *call, dtp_err *err)
{
    for (int32_t i = 0; i < call->n_in; i++) {
        if (call->in[i].dtype != DTP_BOOL) {
            return DTP_FAIL(err, DTP_INVALID, "operand %d is %s, bool is needed", i,
                            dtp_dtype_name(call->in[i].dtype));
        }
    }
    return DTP_OK;
}

static dtp_status infer_logical(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype want;
    DTP_TRY(need_bool(call, err));
    DTP_TRY(dtp_op__broadcast(call, 0, 0, &want, err));
    return dtp_op__set_out(call, has_out, &want, DTP_BOOL, out, err);
}

static dtp_status infer_over(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(need_bool(call, err));
    DTP_TRY(dtp_rows__check_over(call, 0, err));
    const dtp_ttype want = dtp_rows__outside(call, &call->in[0]);
    return dtp_rows__set_out(call, has_out, &want, out, err);
}

/* `user` of the row is the kind of the extremum. */
static dtp_status split_over(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                             int32_t *outs, dtp_err *err)
{
    const dtp_attr to_int = dtp_attr_int("dtype", DTP_I32),
                   to_bool = dtp_attr_int("dtype", DTP_BOOL);
    dtp_tensor_id number, extreme;
    DTP_TRY(dtp_rows__emit(g, "cast", 1, ins, 1, &to_int, &number, err));
    DTP_TRY(dtp_rows__emit_reduce(g, call->op->user, number, dtp_call_attr(call, "over"), &extreme,
                                  err));
    return dtp_rows__emit(g, "cast", 1, &extreme, 1, &to_bool, outs, err);
}

#define LOGICAL(op, text, n)                                                                       \
    .name = (op), .summary = (text), .min_in = (n), .max_in = (n), .n_out = 1,                     \
    .flags = DTP_OP_ELEMENTWISE, .infer = infer_logical, .elem_flops = 1.0,                        \
    .no_grad = DTP_NO_BOOL_GRAD, .inplace_in = {1}
#define OVER_DIMS(op, text, kind)                                                                  \
    .name = (op), .summary = (text), .min_in = 1, .max_in = 1, .n_out = 1, .attrs = dtp_rows_over, \
    .infer = infer_over, .role = dtp_rows__role_internal, .elem_flops = 1.0,                       \
    .no_grad = DTP_NO_BOOL_GRAD, .decompose = split_over, .user = (kind)

const dtp_op_def dtp_ops_logical[] = {
    {LOGICAL("logical_and", "a and b", 2)},
    {LOGICAL("logical_or", "a or b", 2)},
    {LOGICAL("logical_xor", "a or b, not both", 2)},
    {LOGICAL("logical_not", "not x", 1)},
    {OVER_DIMS("any", "is one element over dims true?", "max")},
    {OVER_DIMS("all", "are all elements over dims true?", "min")},
    {.name = NULL},
};
