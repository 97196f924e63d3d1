/* Layer normalisation over one or several dims ("row", n elements), its gradient, and the parts
 * they run as when such a dim is split: one fused sum forward, one backward.
 *   mean = sum x / n;  rstd = 1 / sqrt(sum (x - mean)^2 / n + eps);  xhat = (x - mean) rstd
 *   y  = gamma xhat + beta
 *   dx = rstd (g - sum g / n - xhat sum(g xhat) / n)   with g = gamma dy
 *   dgamma = sum over rows of dy xhat;  dbeta = sum over rows of dy
 * From the sums of `moments` the variance is sum x^2 / n - mean^2, never below 0.
 */
#include "core/graph/ops/rows.h"

static const dtp_attr_spec OVER_EPS[] = {
    {.key = "over", .kind = DTP_ATTR_DIMS, .required = true},
    {.key = "eps", .kind = DTP_ATTR_FLOAT, .def = 1e-5, .min = 0.0, .max = 1e30},
    {.key = NULL}};

static const dtp_attr_spec OVER[] = {{.key = "over", .kind = DTP_ATTR_DIMS, .required = true},
                                     {.key = NULL}};

static const dtp_attr_spec OVER_CENTER[] = {
    {.key = "over", .kind = DTP_ATTR_DIMS, .required = true},
    {.key = "center", .kind = DTP_ATTR_BOOL, .def = 1.0},
    {.key = NULL}};

static const char *const STAT_NAMES[] = {"mean", "rstd"};
static const char *const GRAD_NAMES[] = {"dgamma", "dbeta"};

/* gamma (operand i) has the dims of `over` in any order. */
static dtp_status match_gamma(const dtp_op_call *call, int32_t i, dtp_err *err)
{
    dtp_ttype row = dtp_rows__inside(call, &call->in[0]);
    return dtp_rows__match(call, i, "gamma", &row, true, err);
}

static dtp_status match_stat(const dtp_op_call *call, int32_t i, const char *what, dtp_err *err)
{
    dtp_ttype rows = dtp_rows__outside(call, &call->in[0]);
    return dtp_rows__match(call, i, what, &rows, true, err);
}

/* Operand i holds the two sums per row. */
static dtp_status match_sums(const dtp_op_call *call, int32_t i, const char *what, dtp_err *err)
{
    dtp_ttype rows = dtp_rows__outside(call, &call->in[0]), sums;
    DTP_TRY(dtp_rows__with_stat(call, &rows, 2, &sums, err));
    return dtp_rows__match(call, i, what, &sums, true, err);
}

static dtp_status set_forward_outs(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                   dtp_err *err)
{
    DTP_TRY(dtp_rows__set_out(call, has_out, &call->in[0], out, err));
    out[1] = out[2] = dtp_rows__outside(call, &call->in[0]);
    return DTP_OK;
}

static dtp_status infer_layer_norm(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                   dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    DTP_TRY(match_gamma(call, 1, err));
    DTP_TRY(dtp_rows__match(call, 2, "beta", &call->in[1], false, err));
    return set_forward_outs(call, has_out, out, err);
}

/* x, gamma, mean, rstd, dy of the gradient and of its parts. */
static dtp_status match_grad_operands(const dtp_op_call *call, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    DTP_TRY(match_gamma(call, 1, err));
    DTP_TRY(match_stat(call, 2, "mean", err));
    DTP_TRY(match_stat(call, 3, "rstd", err));
    return dtp_rows__match(call, 4, "dy", &call->in[0], false, err);
}

static dtp_status infer_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(match_grad_operands(call, err));
    DTP_TRY(dtp_rows__set_out(call, has_out, &call->in[0], out, err));
    out[1] = out[2] = call->in[1];
    return DTP_OK;
}

static dtp_status infer_moments(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    dtp_ttype rows = dtp_rows__outside(call, &call->in[0]), sums;
    int64_t n = dtp_call_int(call, "center") != 0 ? 2 : 1;
    DTP_TRY(dtp_rows__with_stat(call, &rows, n, &sums, err));
    return dtp_rows__set_out(call, has_out, &sums, out, err);
}

static dtp_status infer_apply(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    DTP_TRY(match_sums(call, 1, "moments", err));
    DTP_TRY(match_gamma(call, 2, err));
    DTP_TRY(dtp_rows__match(call, 3, "beta", &call->in[2], false, err));
    return set_forward_outs(call, has_out, out, err);
}

static dtp_status infer_grad_sums(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    DTP_TRY(match_grad_operands(call, err));
    dtp_ttype rows = dtp_rows__outside(call, &call->in[0]), sums;
    DTP_TRY(dtp_rows__with_stat(call, &rows, 2, &sums, err));
    return dtp_rows__set_out(call, has_out, &sums, out, err);
}

static dtp_status infer_grad_apply(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                   dtp_err *err)
{
    DTP_TRY(infer_grad(call, has_out, out, err));
    return match_sums(call, 5, "sums", err);
}

/* The rows are summed into dgamma and dbeta; `over` is as told. */
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
    dtp_rows__work(call, 8.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

static void work_moments(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 3.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

static void work_apply(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 4.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

static void work_grad(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 15.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

static void work_grad_part(const dtp_op_call *call, dtp_work *out)
{
    dtp_rows__work(call, 9.0 * (double)dtp_ttype_elems(&call->in[0]), out);
}

static dtp_status vjp_layer_norm(dtp_vjp *v, dtp_err *err)
{
    DTP_TRY(dtp_rows__only_first(v, err));
    if (v->d_out[0] < 0) {
        return DTP_OK;
    }
    const dtp_attr over = *dtp_vjp_attr(v, "over");
    const dtp_tensor_id in[] = {v->in[0], v->in[1], v->out[1], v->out[2], v->d_out[0]};
    return dtp_vjp_emit_multi(v, &(dtp_vjp_op){"layer_norm_grad", 5, in, 1, &over}, v->d_in, err);
}

static dtp_status split_forward(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                int32_t *outs, dtp_err *err)
{
    const dtp_attr sum_attrs[] = {*dtp_call_attr(call, "over"), dtp_attr_int("center", 1)};
    const dtp_attr attrs[] = {*dtp_call_attr(call, "over"), *dtp_call_attr(call, "eps")};
    dtp_tensor_id parts[4] = {ins[0], -1, ins[1], ins[2]};
    DTP_TRY(dtp_rows__intern_stat(g, err));
    DTP_TRY(dtp_rows__emit(g, "moments", 1, ins, 2, sum_attrs, &parts[1], err));
    return dtp_rows__emit(g, "layer_norm_apply", 4, parts, 2, attrs, outs, err);
}

static dtp_status split_grad(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                             int32_t *outs, dtp_err *err)
{
    const dtp_attr over = *dtp_call_attr(call, "over");
    dtp_tensor_id parts[6] = {ins[0], ins[1], ins[2], ins[3], ins[4], -1};
    DTP_TRY(dtp_rows__intern_stat(g, err));
    DTP_TRY(dtp_rows__emit(g, "layer_norm_grad_sums", 5, ins, 1, &over, &parts[5], err));
    return dtp_rows__emit(g, "layer_norm_grad_apply", 6, parts, 1, &over, outs, err);
}

const dtp_op_def dtp_ops_layer_norm[] = {
    {.name = "layer_norm",
     .summary = "normalises over dims to mean 0 and variance 1, then scales and shifts",
     .min_in = 3,
     .max_in = 3,
     .n_out = 3,
     .flags = DTP_OP_NORM,
     .attrs = OVER_EPS,
     .out_names = STAT_NAMES,
     .infer = infer_layer_norm,
     .role = dtp_rows__role_internal,
     .work = work_forward,
     .vjp = vjp_layer_norm,
     .decompose = split_forward},
    {.name = "layer_norm_grad",
     .summary = "gradient of layer_norm",
     .min_in = 5,
     .max_in = 5,
     .n_out = 3,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER,
     .out_names = GRAD_NAMES,
     .infer = infer_grad,
     .role = role_grad,
     .work = work_grad,
     .no_grad = DTP_NO_GRAD_OF_GRAD,
     .decompose = split_grad},
    {.name = "moments",
     .summary = "per row: sum of x (when centered) and sum of x^2",
     .min_in = 1,
     .max_in = 1,
     .n_out = 1,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER_CENTER,
     .infer = infer_moments,
     .role = dtp_rows__role_reduced,
     .work = work_moments,
     .no_grad = DTP_NO_PART_GRAD},
    {.name = "layer_norm_apply",
     .summary = "layer_norm from the sums of moments",
     .min_in = 4,
     .max_in = 4,
     .n_out = 3,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER_EPS,
     .out_names = STAT_NAMES,
     .infer = infer_apply,
     .role = dtp_rows__role_parallel,
     .work = work_apply,
     .no_grad = DTP_NO_PART_GRAD},
    {.name = "layer_norm_grad_sums",
     .summary = "per row: sum of gamma dy and sum of gamma dy xhat",
     .min_in = 5,
     .max_in = 5,
     .n_out = 1,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER,
     .infer = infer_grad_sums,
     .role = dtp_rows__role_reduced,
     .work = work_grad_part,
     .no_grad = DTP_NO_PART_GRAD},
    {.name = "layer_norm_grad_apply",
     .summary = "layer_norm_grad from its row sums",
     .min_in = 6,
     .max_in = 6,
     .n_out = 3,
     .flags = DTP_OP_INTERNAL_USE,
     .attrs = OVER,
     .out_names = GRAD_NAMES,
     .infer = infer_grad_apply,
     .role = role_grad_apply,
     .work = work_grad_part,
     .no_grad = DTP_NO_PART_GRAD},
    {.name = NULL},
};
