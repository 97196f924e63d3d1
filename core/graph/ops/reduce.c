/* reduce over dims, and broadcast, its counterpart. */
#include "core/graph/op_rules.h"
#include "core/graph/ops/rows.h"

enum { KIND_SUM, KIND_MEAN, KIND_MAX, KIND_MIN, KIND_PROD };

static dtp_status infer_reduce(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_attr *over = dtp_call_attr(call, "over");
    const dtp_ttype want = dtp_rows__outside(call, &call->in[0]);
    if (dtp_call_int(call, "kind") == KIND_MEAN || want.dtype == DTP_BOOL) {
        DTP_TRY(dtp_op__need_float(call, 0, err));
    }
    for (int32_t i = 0; i < over->n; i++) {
        if (dtp_ttype_find(&call->in[0], over->ids[i]) < 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "'over' names dim '%s', which operand 0 does not have",
                            dtp_dims_name(call->dims, over->ids[i]));
        }
    }
    return dtp_op__set_out(call, has_out, &want, want.dtype, out, err);
}

static dtp_dim_role role_reduce(const dtp_op_call *call, dtp_dim_id d)
{
    static const dtp_reduce_op ops[] = {DTP_REDUCE_SUM, DTP_REDUCE_SUM, DTP_REDUCE_MAX,
                                        DTP_REDUCE_MIN, DTP_REDUCE_PROD};
    if (!dtp_rows__is_over(call, d)) {
        return (dtp_dim_role){DTP_ROLE_PARALLEL, DTP_REDUCE_SUM};
    }
    return (dtp_dim_role){DTP_ROLE_REDUCED, ops[dtp_call_int(call, "kind")]};
}

/* Rows by role; sums and means also pass partial sums through. */
static void rules_reduce(const dtp_op_call *call, bool linear, dtp_sharding_rules *out)
{
    const int64_t kind = dtp_call_int(call, "kind");
    dtp_dim_id dims[DTP_MAX_OP_DIMS];
    const int32_t n = dtp_call_dims(call, dims);
    for (int32_t i = 0; i < n; i++) {
        dtp_sharding_rules_add_role(out, call, dims[i], role_reduce(call, dims[i]));
    }
    if (linear && (kind == KIND_SUM || kind == KIND_MEAN)) {
        dtp_sharding_rules_add_linear(out, call, 1U);
    }
}

/* Repeats a tensor of the output's shape over the reduced dims. */
static dtp_status spread(dtp_vjp *v, dtp_tensor_id t, dtp_tensor_id *out, dtp_err *err)
{
    return dtp_vjp_emit(v, &(dtp_vjp_op){"broadcast", 1, &t, 0, NULL}, v->in[0], out, err);
}

static dtp_status vjp_reduce(dtp_vjp *v, dtp_err *err)
{
    const int64_t kind = dtp_vjp_attr(v, "kind")->i;
    if (kind == KIND_MAX || kind == KIND_MIN) {
        return dtp_op__share_extremum(v, v->in[0], v->d_in, err);
    }
    if (kind == KIND_PROD) {
        const dtp_attr over = dtp_op__copy_attr(v, "over");
        const dtp_tensor_id in[] = {v->in[0], v->d_out[0]};
        return dtp_vjp_emit(v, &(dtp_vjp_op){"prod_grad", 2, in, 1, &over}, v->in[0], &v->d_in[0],
                            err);
    }
    if (kind == KIND_SUM) {
        return spread(v, v->d_out[0], &v->d_in[0], err);
    }
    const double n = (double)dtp_ttype_elems(&v->g->tensors[v->in[0]].type) /
                     (double)dtp_ttype_elems(&v->g->tensors[v->out[0]].type);
    const dtp_attr factor = dtp_attr_float("factor", 1.0 / n);
    dtp_tensor_id part;
    DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"scale", 1, &v->d_out[0], 1, &factor}, v->out[0], &part,
                         err));
    return spread(v, part, &v->d_in[0], err);
}

static dtp_status infer_broadcast(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    DTP_TRY(dtp_op__declared(call, has_out, call->in[0].dtype, out, err));
    for (int32_t i = 0; i < call->in[0].rank; i++) {
        const dtp_tdim d = call->in[0].dims[i];
        const int32_t at = dtp_ttype_find(&out[0], d.id);
        if (at < 0 || out[0].dims[at].size != d.size) {
            return DTP_FAIL(err, DTP_INVALID,
                            "dim '%s' is %lld in the operand but %lld in 'out' (0: not there)",
                            dtp_dims_name(call->dims, d.id), (long long)d.size,
                            (long long)(at < 0 ? 0 : out[0].dims[at].size));
        }
    }
    return DTP_OK;
}

static dtp_status vjp_broadcast(dtp_vjp *v, dtp_err *err)
{
    return dtp_vjp_unbroadcast(v, v->d_out[0], v->in[0], &v->d_in[0], err);
}

static const char *const KINDS[] = {"sum", "mean", "max", "min", "prod", NULL};
static const dtp_attr_spec REDUCE_ATTRS[] = {
    {.key = "kind", .kind = DTP_ATTR_ENUM, .required = true, .choices = KINDS},
    {.key = "over", .kind = DTP_ATTR_DIMS, .required = true},
    {.key = NULL}};

const dtp_op_def dtp_ops_reduce[] = {
    {.name = "reduce",
     .summary = "sum, mean, max, min or product over dims",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .attrs = REDUCE_ATTRS,
     .infer = infer_reduce,
     .role = role_reduce,
     .rules = rules_reduce,
     .elem_flops = 1.0,
     .vjp = vjp_reduce},
    {.name = "broadcast",
     .summary = "repeats a tensor over new dims",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .infer = infer_broadcast,
     .linear = DTP_LINEAR_EACH,
     .elem_flops = 1.0,
     .vjp = vjp_broadcast},
    {.name = NULL},
};
