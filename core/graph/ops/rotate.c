/* roll and reorder: the elements of one dim in another order.
 *   roll     y[(i + shift) mod n] = x[i]
 *   reorder  into the zigzag order over `chunks` (core/graph/ops/sequence.h), or out of it
 */
#include "core/graph/ops/common.h"
#include "core/graph/ops/sequence.h"

static dtp_status infer_roll(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    int32_t axis;
    DTP_TRY(dtp_op__axis(call, "dim", &axis, err));
    return dtp_op__set_out(call, has_out, &call->in[0], call->in[0].dtype, out, err);
}

static dtp_status infer_reorder(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    int32_t axis;
    DTP_TRY(dtp_op__axis(call, "dim", &axis, err));
    const dtp_tdim dim = call->in[0].dims[axis];
    DTP_TRY(dtp_sequence_check(call, dim.id, dim.size, dtp_call_int(call, "chunks"), err));
    return dtp_op__set_out(call, has_out, &call->in[0], call->in[0].dtype, out, err);
}

/* ---- rules, work, gradients --------------------------------------------------------------------
 */

static dtp_dim_role role_roll(const dtp_op_call *call, dtp_dim_id d)
{
    const bool along = d == dtp_call_dim(call, "dim");
    return (dtp_dim_role){along ? DTP_ROLE_INTERNAL : DTP_ROLE_PARALLEL, DTP_REDUCE_SUM};
}

/* A shift by whole pieces. */
static bool rotates(const dtp_op_call *call, int64_t parts, int64_t *step)
{
    const dtp_ttype *x = &call->in[0];
    const int64_t n = x->dims[dtp_ttype_find(x, dtp_call_dim(call, "dim"))].size;
    const int64_t shift = (dtp_call_int(call, "shift") % n + n) % n;
    if (n % parts != 0 || shift % (n / parts) != 0) {
        return false;
    }
    *step = shift / (n / parts);
    return true;
}

static void work_move(const dtp_op_call *call, dtp_work *out)
{
    dtp_op__memory_work(call, 0.0, out);
}

static dtp_status vjp_roll(dtp_vjp *v, dtp_err *err)
{
    const dtp_attr attrs[] = {dtp_op__copy_attr(v, "dim"),
                              dtp_attr_int("shift", -dtp_vjp_attr(v, "shift")->i)};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"roll", 1, &v->d_out[0], 2, attrs}, v->in[0], &v->d_in[0],
                        err);
}

static dtp_status vjp_reorder(dtp_vjp *v, dtp_err *err)
{
    const dtp_attr attrs[] = {dtp_op__copy_attr(v, "dim"), dtp_op__copy_attr(v, "chunks"),
                              dtp_attr_int("inverse", dtp_vjp_attr(v, "inverse")->i == 0 ? 1 : 0)};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"reorder", 1, &v->d_out[0], 3, attrs}, v->in[0],
                        &v->d_in[0], err);
}

static const dtp_attr_spec ROLL_ATTRS[] = {
    {.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "shift", .kind = DTP_ATTR_INT, .required = true, .min = -9e15, .max = 9e15},
    {.key = NULL}};
static const dtp_attr_spec REORDER_ATTRS[] = {
    {.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
    {.key = "chunks", .kind = DTP_ATTR_INT, .required = true, .min = 1.0, .max = 1e9},
    {.key = "inverse", .kind = DTP_ATTR_BOOL},
    {.key = NULL}};

const dtp_op_def dtp_ops_rotate[] = {
    {.name = "roll",
     .summary = "elements of a dim moved on by `shift`, those beyond the end to its start",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .attrs = ROLL_ATTRS,
     .infer = infer_roll,
     .role = role_roll,
     .linear = DTP_LINEAR_EACH,
     .work = work_move,
     .vjp = vjp_roll,
     .rotates = rotates,
     .bench = {"rc | dim=r shift=1"},
     .f32_error = DTP_EXACT,
     .flags = DTP_OP_ANY_DTYPE},
    {.name = "reorder",
     .summary = "a sequence in zigzag order, or back",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .attrs = REORDER_ATTRS,
     .infer = infer_reorder,
     .role = dtp_op__role_along,
     .linear = DTP_LINEAR_EACH,
     .work = work_move,
     .vjp = vjp_reorder,
     .bench = {"rc | dim=c chunks=2"},
     .f32_error = DTP_EXACT,
     .flags = DTP_OP_ANY_DTYPE},
    {.name = NULL},
};
