/* Root-mean-square normalisation over one or several dims ("row", n elements), its gradient, and
 * the parts they run as when such a dim is split: one sum forward (`moments` without centering),
 * one backward.
 *   rstd = 1 / sqrt(sum x^2 / n + eps);  xhat = x rstd;  y = gamma xhat
 *   dx = rstd (g - xhat sum(g xhat) / n)   with g = gamma dy
 *   dgamma = sum over rows of dy xhat
 */
#include "core/graph/ops/rows.h"

static const dtp_attr_spec OVER_EPS[] = {
    {.key = "over", .kind = DTP_ATTR_DIMS, .required = true},
    {.key = "eps", .kind = DTP_ATTR_FLOAT, .def = 1e-6, .min = 0.0, .max = 1e30},
    {.key = NULL}};

static const dtp_attr_spec OVER[] = {{.key = "over", .kind = DTP_ATTR_DIMS, .required = true},
                                     {.key = NULL}};

static const char *const STAT_NAMES[] = {"rstd"};
static const char *const GRAD_NAMES[] = {"dgamma"};

static dtp_status match_gamma(const dtp_op_call *call, int32_t i, dtp_err *err)
{
    dtp_ttype row = dtp_rows__inside(call, &call->in[0]);
    return dtp_rows__match(call, i, "gamma", &row, true, err);
}

static dtp_status match_sum(const dtp_op_call *call, int32_t i, const char *what, dtp_err *err)
{
    dtp_ttype rows = dtp_rows__outside(call, &call->in[0]), sums;
    DTP_TRY(dtp_rows__with_stat(call, &rows, 1, &sums, err));
    return dtp_rows__match(call, i, what, &sums, true, err);
}

static dtp_status infer_rms_norm(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                 dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    DTP_TRY(match_gamma(call, 1, err));
    DTP_TRY(dtp_rows__set_out(call, has_out, &call->in[0], out, err));
    out[1] = dtp_rows__outside(call, &call->in[0]);
    return DTP_OK;
}

static dtp_status match_grad_operands(const dtp_op_call *call, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    DTP_TRY(match_gamma(call, 1, err));
    dtp_ttype rows = dtp_rows__outside(call, &call->in[0]);
    DTP_TRY(dtp_rows__match(call, 2, "rstd", &rows, true, err));
    return dtp_rows__match(call, 3, "dy", &call->in[0], false, err);
}

static dtp_status infer_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(match_grad_operands(call, err));
    DTP_TRY(dtp_rows__set_out(call, has_out, &call->in[0], out, err));
    out[1] = call->in[1];
    return DTP_OK;
}

static dtp_status infer_apply(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    DTP_TRY(match_sum(call, 1, "moments", err));
    DTP_TRY(match_gamma(call, 2, err));
    DTP_TRY(dtp_rows__set_out(call, has_out, &call->in[0], out, err));
    out[1] = dtp_rows__outside(call, &call->in[0]);
    return DTP_OK;
}

static dtp_status infer_grad_sums(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    DTP_TRY(match_grad_operands(call, err));
    dtp_ttype rows = dtp_rows__outside(call, &call->in[0]), sums;
    DTP_TRY(dtp_rows__with_stat(call, &rows, 1, &sums, err));
    return dtp_rows__set_out(call, has_out, &sums, out, err);
}

static dtp_status infer_grad_apply(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                   dtp_err *err)
{
    DTP_TRY(infer_grad(call, has_out, out, err));
    return match_sum(call, 4, "sums", err);
}

/* The rows are summed into dgamma. */
static dtp_dim_role role_grad(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_dim_role role = dtp_rows__role_internal(call, d);
    if (role.role == DTP_ROLE_PARALLEL) {
        role.role = DTP_ROLE_REDUCED;
    }
    return role;
}

static dtp_dim_role role_grad_apply(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_dim_role role = dtp_rows__role_parallel(call, d);
    if (role.role == DTP_ROLE_PARALLEL && !dtp_rows__is_over(call, d)) {
        role.role = DTP_ROLE_REDUCED;
    }
    return role;
}

/* Floating-point operations per element, counted from the formulas above. */
static void work_forward(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 4.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

static void work_apply(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 2.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

static void work_grad(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 10.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

static void work_grad_part(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 6.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

static dtp_status vjp_rms_norm(dtp_vjp *v, dtp_err *err)
{
    DTP_TRY(dtp_rows__only_first(v, err));
    if (v->d_out[0] < 0) {
        return DTP_OK;
    }
    const dtp_attr over = *dtp_vjp_attr(v, "over");
    const dtp_tensor_id in[] = {v->in[0], v->in[1], v->out[1], v->d_out[0]};
    return dtp_vjp_emit_multi(v, &(dtp_vjp_op){"rms_norm_grad", 4, in, 1, &over}, v->d_in, err);
}

static dtp_status split_forward(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                int32_t *outs, dtp_err *err)
{
    const dtp_attr sum_attrs[] = {*dtp_call_attr(call, "over"), dtp_attr_int("center", 0)};
    const dtp_attr attrs[] = {*dtp_call_attr(call, "over"), *dtp_call_attr(call, "eps")};
    dtp_tensor_id parts[3] = {ins[0], -1, ins[1]};
    DTP_TRY(dtp_rows__intern_stat(g, err));
    DTP_TRY(dtp_rows__emit(g, "moments", 1, ins, 2, sum_attrs, &parts[1], err));
    return dtp_rows__emit(g, "rms_norm_apply", 3, parts, 2, attrs, outs, err);
}

static dtp_status split_grad(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                             int32_t *outs, dtp_err *err)
{
    const dtp_attr over = *dtp_call_attr(call, "over");
    dtp_tensor_id parts[5] = {ins[0], ins[1], ins[2], ins[3], -1};
    DTP_TRY(dtp_rows__intern_stat(g, err));
    DTP_TRY(dtp_rows__emit(g, "rms_norm_grad_sums", 4, ins, 1, &over, &parts[4], err));
    return dtp_rows__emit(g, "rms_norm_grad_apply", 5, parts, 1, &over, outs, err);
}

const dtp_op_def dtp_ops_rms_norm[] = {
    {.name = "rms_norm",
     .summary = "divides by the root mean square over dims, then scales",
     .min_in = 2,
     .max_in = 2,
     .n_out = 2,
     .flags = DTP_OP_NORM,
     .attrs = OVER_EPS,
     .out_names = STAT_NAMES,
     .infer = infer_rms_norm,
     .role = dtp_rows__role_internal,
     .work = work_forward,
     .vjp = vjp_rms_norm,
     .decompose = split_forward},
    {.name = "rms_norm_grad",
     .summary = "gradient of rms_norm",
     .min_in = 4,
     .max_in = 4,
     .n_out = 2,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER,
     .out_names = GRAD_NAMES,
     .infer = infer_grad,
     .role = role_grad,
     .work = work_grad,
     .no_grad = DTP_NO_GRAD_OF_GRAD,
     .decompose = split_grad},
    {.name = "rms_norm_apply",
     .summary = "rms_norm from the sums of moments",
     .min_in = 3,
     .max_in = 3,
     .n_out = 2,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER_EPS,
     .out_names = STAT_NAMES,
     .infer = infer_apply,
     .role = dtp_rows__role_parallel,
     .work = work_apply,
     .no_grad = DTP_NO_PART_GRAD},
    {.name = "rms_norm_grad_sums",
     .summary = "per row: sum of gamma dy xhat",
     .min_in = 4,
     .max_in = 4,
     .n_out = 1,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER,
     .infer = infer_grad_sums,
     .role = dtp_rows__role_reduced,
     .work = work_grad_part,
     .no_grad = DTP_NO_PART_GRAD},
    {.name = "rms_norm_grad_apply",
     .summary = "rms_norm_grad from its row sums",
     .min_in = 5,
     .max_in = 5,
     .n_out = 2,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER,
     .out_names = GRAD_NAMES,
     .infer = infer_grad_apply,
     .role = role_grad_apply,
     .work = work_grad_part,
     .no_grad = DTP_NO_PART_GRAD},
    {.name = NULL},
};
