/* Ops that arrange whole tensors: permute, the dims of one in another order, and stack, several
 * tensors of one shape along a new dim. Elements of every type are moved as they are.
 */
#include "core/graph/ops/common.h"

static dtp_status infer_permute(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    if (!has_out) {
        return DTP_FAIL(err, DTP_INVALID, "'out' is missing: the order of the dims");
    }
    return dtp_op__set_out(call, has_out, &call->in[0], call->in[0].dtype, out, err);
}

static dtp_status vjp_permute(dtp_vjp *v, dtp_err *err)
{
    return dtp_op__emit1(v, "permute", v->d_out[0], v->in[0], &v->d_in[0], err);
}

/* The new dim comes first unless 'out' says otherwise. */
static dtp_status infer_stack(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_ttype *x = &call->in[0];
    const dtp_dim_id d = dtp_call_dim(call, "dim");
    dtp_ttype want = {.dtype = x->dtype, .rank = 1, .dims = {{d, call->n_in}}};
    if (dtp_ttype_find(x, d) >= 0 || x->rank == DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "no new dim '%s' fits on operands of %d dims",
                        dtp_dims_name(call->dims, d), x->rank);
    }
    for (int32_t i = 1; i < call->n_in; i++) {
        char text[2][DTP_TTYPE_TEXT_BYTES];
        if (!dtp_ttype_equal(x, &call->in[i])) {
            dtp_ttype_print(&call->in[i], call->dims, text[0]);
            dtp_ttype_print(x, call->dims, text[1]);
            return DTP_FAIL(err, DTP_INVALID, "operand %d is %s, operand 0 is %s", i, text[0],
                            text[1]);
        }
    }
    for (int32_t i = 0; i < x->rank; i++) {
        want.dims[want.rank++] = x->dims[i];
    }
    return dtp_op__set_out(call, has_out, &want, want.dtype, out, err);
}

static dtp_dim_role role_stack(const dtp_op_call *call, dtp_dim_id d)
{
    const bool along = d == dtp_call_dim(call, "dim");
    return (dtp_dim_role){along ? DTP_ROLE_WHOLE : DTP_ROLE_PARALLEL, DTP_REDUCE_SUM};
}

/* A slice of one element for every operand, without the stacked dim. */
static dtp_status vjp_stack(dtp_vjp *v, dtp_err *err)
{
    const int32_t n = v->g->nodes[v->node].n_in;
    const dtp_attr dim = dtp_op__copy_attr(v, "dim");
    for (int32_t i = 0; i < n; i++) {
        const dtp_attr attrs[] = {dim, dtp_attr_int("start", i), dtp_attr_int("stop", i + 1)};
        dtp_tensor_id part;
        if (!v->need[i]) {
            continue;
        }
        DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"slice", 1, &v->d_out[0], 3, attrs}, -1, &part, err));
        DTP_TRY(dtp_vjp_unbroadcast(v, part, v->in[i], &v->d_in[i], err));
    }
    return DTP_OK;
}

static const dtp_attr_spec STACK_ATTRS[] = {{.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
                                            {.key = NULL}};

const dtp_op_def dtp_ops_arrange[] = {
    {.name = "permute",
     .summary = "the dims in another order",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .infer = infer_permute,
     .linear = DTP_LINEAR_EACH,
     .elem_flops = 1.0,
     .vjp = vjp_permute,
     .bench = {"rc | out=cr"},
     .f32_error = DTP_EXACT,
     .flags = DTP_OP_ANY_DTYPE},
    {.name = "stack",
     .summary = "operands of one shape along a new dim",
     .min_in = 1,
     .max_in = DTP_MAX_OP_IN,
     .n_out = 1,
     .attrs = STACK_ATTRS,
     .infer = infer_stack,
     .role = role_stack,
     .linear = DTP_LINEAR_JOINT,
     .elem_flops = 1.0,
     .vjp = vjp_stack,
     .bench = {"rc rc | dim=_stat"},
     .f32_error = DTP_EXACT,
     .flags = DTP_OP_ANY_DTYPE},
    {.name = NULL},
};
