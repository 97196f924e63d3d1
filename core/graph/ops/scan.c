/* Ops whose elements depend on the others of their row in order: cumsum, and the gradient of the
 * product. A split of that dim is gathered first.
 */
#include "core/graph/ops/rows.h"

static dtp_status infer_cumsum(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    int32_t axis;
    DTP_TRY(dtp_op__axis(call, "dim", &axis, err));
    if (call->in[0].dtype == DTP_BOOL) {
        return DTP_FAIL(err, DTP_INVALID, "operand 0 is bool, numbers are needed");
    }
    return dtp_op__set_out(call, has_out, &call->in[0], call->in[0].dtype, out, err);
}

/* Sums from the other end. */
static dtp_status vjp_cumsum(dtp_vjp *v, dtp_err *err)
{
    const dtp_attr attrs[] = {dtp_op__copy_attr(v, "dim"),
                              dtp_attr_int("reverse", 1 - dtp_vjp_attr(v, "reverse")->i)};
    return dtp_vjp_emit(v, &(dtp_vjp_op){"cumsum", 1, &v->d_out[0], 2, attrs}, v->in[0],
                        &v->d_in[0], err);
}

static dtp_status infer_prod_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    const dtp_ttype rows = dtp_rows__outside(call, &call->in[0]);
    DTP_TRY(dtp_rows__match(call, 1, "dy", &rows, true, err));
    return dtp_rows__set_out(call, has_out, &call->in[0], out, err);
}

static dtp_dim_role role_prod_grad(const dtp_op_call *call, dtp_dim_id d)
{
    const bool over = dtp_rows__is_over(call, d);
    return (dtp_dim_role){over ? DTP_ROLE_WHOLE : DTP_ROLE_PARALLEL, DTP_REDUCE_SUM};
}

static const dtp_attr_spec CUMSUM_ATTRS[] = {{.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
                                             {.key = "reverse", .kind = DTP_ATTR_BOOL},
                                             {.key = NULL}};

const dtp_op_def dtp_ops_scan[] = {
    {.name = "cumsum",
     .summary = "sum of the elements up to each along a dim",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .attrs = CUMSUM_ATTRS,
     .infer = infer_cumsum,
     .role = dtp_op__role_along,
     .linear = DTP_LINEAR_EACH,
     .elem_flops = 1.0,
     .vjp = vjp_cumsum},
    {.name = "prod_grad",
     .summary = "dy times the product of the other elements of the row",
     .min_in = 2,
     .max_in = 2,
     .n_out = 1,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = dtp_rows_over,
     .infer = infer_prod_grad,
     .role = role_prod_grad,
     .elem_flops = 1.0,
     .no_grad = DTP_NO_GRAD_OF_GRAD},
    {.name = NULL},
};
