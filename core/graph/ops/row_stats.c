/* Statistics of rows: logsumexp, vector norms, variance and standard deviation over dims. When such
 * a dim is split they run as
 *   logsumexp  m = max x, s = sum exp(x - m), m + log s               2 all-reduces
 *   norm       sum |x|, the root of sum x^2, or max |x|               1
 *   var, std   mean of x, then sum (x - mean)^2 / (n - correction)    2: sums of x and x^2 would
 *              need one, but cancel when the mean is large
 * and the all-reduces carry rows, not x.
 */
#include "core/graph/ops/rows.h"

enum { NORM_1, NORM_2, NORM_INF };

static dtp_status infer_rows(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    const dtp_ttype want = dtp_rows__outside(call, &call->in[0]);
    return dtp_rows__set_out(call, has_out, &want, out, err);
}

static dtp_status infer_var(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const int64_t correction = dtp_call_int(call, "correction");
    DTP_TRY(infer_rows(call, has_out, out, err));
    const int64_t n = dtp_rows__length(call, &call->in[0]);
    if (correction < 0 || correction >= n) {
        return DTP_FAIL(err, DTP_INVALID,
                        "'correction' is %lld, not in [0, %lld), for %lld elements",
                        (long long)correction, (long long)n, (long long)n);
    }
    return DTP_OK;
}

/* The 1-norm and the maximum norm can leave partial results. */
static dtp_dim_role role_norm(const dtp_op_call *call, dtp_dim_id d)
{
    const int64_t ord = dtp_call_int(call, "ord");
    dtp_dim_role role = dtp_rows__role_internal(call, d);
    if (role.role == DTP_ROLE_INTERNAL && ord != NORM_2) {
        role.role = DTP_ROLE_REDUCED;
        role.op = ord == NORM_1 ? DTP_REDUCE_SUM : DTP_REDUCE_MAX;
    }
    return role;
}

/* ---- decompositions -----------------------------------------------------------------------------
 */

static dtp_status split_logsumexp(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                  int32_t *outs, dtp_err *err)
{
    const dtp_attr *over = dtp_call_attr(call, "over");
    dtp_tensor_id parts[2] = {ins[0], -1}, sum, terms[2];
    DTP_TRY(dtp_rows__emit_reduce(g, "max", ins[0], over, &parts[1], err));
    DTP_TRY(dtp_rows__emit(g, "sum_exp", 2, parts, 1, over, &sum, err));
    terms[0] = parts[1];
    DTP_TRY(dtp_rows__emit(g, "log", 1, &sum, 0, NULL, &terms[1], err));
    return dtp_rows__emit(g, "add", 2, terms, 0, NULL, outs, err);
}

static dtp_status split_norm(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                             int32_t *outs, dtp_err *err)
{
    const dtp_attr *over = dtp_call_attr(call, "over");
    const int64_t ord = dtp_call_int(call, "ord");
    dtp_tensor_id part, sum;
    DTP_TRY(dtp_rows__emit(g, ord == NORM_2 ? "square" : "abs", 1, ins, 0, NULL, &part, err));
    if (ord != NORM_2) {
        return dtp_rows__emit_reduce(g, ord == NORM_1 ? "sum" : "max", part, over, outs, err);
    }
    DTP_TRY(dtp_rows__emit_reduce(g, "sum", part, over, &sum, err));
    return dtp_rows__emit(g, "sqrt", 1, &sum, 0, NULL, outs, err);
}

static dtp_status split_var(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                            int32_t *outs, dtp_err *err)
{
    const dtp_attr *over = dtp_call_attr(call, "over");
    const int64_t n = dtp_rows__length(call, &call->in[0]) - dtp_call_int(call, "correction");
    const dtp_attr factor = dtp_attr_float("factor", 1.0 / (double)n);
    dtp_tensor_id pair[2] = {ins[0], -1}, centred, squares, sum;
    DTP_TRY(dtp_rows__emit_reduce(g, "mean", ins[0], over, &pair[1], err));
    DTP_TRY(dtp_rows__emit(g, "sub", 2, pair, 0, NULL, &centred, err));
    DTP_TRY(dtp_rows__emit(g, "square", 1, &centred, 0, NULL, &squares, err));
    DTP_TRY(dtp_rows__emit_reduce(g, "sum", squares, over, &sum, err));
    return dtp_rows__emit(g, "scale", 1, &sum, 1, &factor, outs, err);
}

static dtp_status split_std(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                            int32_t *outs, dtp_err *err)
{
    dtp_tensor_id var;
    DTP_TRY(split_var(g, call, ins, &var, err));
    return dtp_rows__emit(g, "sqrt", 1, &var, 0, NULL, outs, err);
}

/* ---- gradients ----------------------------------------------------------------------------------
 */

/* dx = dy exp(x - y) */
static dtp_status vjp_logsumexp(dtp_vjp *v, dtp_err *err)
{
    dtp_tensor_id t, e;
    DTP_TRY(dtp_op__emit2(v, "sub", v->in[0], v->out[0], v->in[0], &t, err));
    DTP_TRY(dtp_op__emit1(v, "exp", t, v->in[0], &e, err));
    return dtp_op__emit2(v, "mul", e, v->d_out[0], v->in[0], &v->d_in[0], err);
}

/* dx = x dy / y, and 0 where y is 0. */
static dtp_status vjp_norm_2(dtp_vjp *v, dtp_err *err)
{
    const dtp_attr low = dtp_attr_float("low", 1e-30);
    dtp_tensor_id y, q;
    DTP_TRY(dtp_vjp_emit(v, &(dtp_vjp_op){"clamp", 1, &v->out[0], 1, &low}, v->out[0], &y, err));
    DTP_TRY(dtp_op__emit2(v, "div", v->d_out[0], y, v->out[0], &q, err));
    return dtp_op__emit2(v, "mul", v->in[0], q, v->in[0], &v->d_in[0], err);
}

/* dx = sign x times dy, or times the share of dy that the largest elements get. */
static dtp_status vjp_norm(dtp_vjp *v, dtp_err *err)
{
    const int64_t ord = dtp_vjp_attr(v, "ord")->i;
    dtp_tensor_id sign, size, share = v->d_out[0];
    if (ord == NORM_2) {
        return vjp_norm_2(v, err);
    }
    DTP_TRY(dtp_op__emit1(v, "sign", v->in[0], v->in[0], &sign, err));
    if (ord == NORM_INF) {
        DTP_TRY(dtp_op__emit1(v, "abs", v->in[0], v->in[0], &size, err));
        DTP_TRY(dtp_op__share_extremum(v, size, &share, err));
    }
    return dtp_op__emit2(v, "mul", sign, share, v->in[0], &v->d_in[0], err);
}

/* dx = factor d (x - mean), d with the dims of the output. */
static dtp_status centred_grad(dtp_vjp *v, dtp_tensor_id d, double factor, dtp_err *err)
{
    const dtp_ttype *x = &v->g->tensors[v->in[0]].type, *y = &v->g->tensors[v->out[0]].type;
    const int64_t n = dtp_ttype_elems(x) / dtp_ttype_elems(y);
    const double scale = factor / (double)(n - dtp_vjp_attr(v, "correction")->i);
    dtp_attr attrs[2] = {dtp_op__copy_attr(v, "over")};
    dtp_tensor_id mean, centred, q;
    DTP_TRY(dtp_op__enum_attr(v->g, "reduce", "kind", "mean", &attrs[1], err));
    DTP_TRY(
        dtp_vjp_emit(v, &(dtp_vjp_op){"reduce", 1, &v->in[0], 2, attrs}, v->out[0], &mean, err));
    DTP_TRY(dtp_op__emit2(v, "sub", v->in[0], mean, v->in[0], &centred, err));
    DTP_TRY(dtp_op__emit_scale(v, d, scale, v->out[0], &q, err));
    return dtp_op__emit2(v, "mul", centred, q, v->in[0], &v->d_in[0], err);
}

static dtp_status vjp_var(dtp_vjp *v, dtp_err *err)
{
    return centred_grad(v, v->d_out[0], 2.0, err);
}

static dtp_status vjp_std(dtp_vjp *v, dtp_err *err)
{
    dtp_tensor_id q;
    DTP_TRY(dtp_op__emit2(v, "div", v->d_out[0], v->out[0], v->out[0], &q, err));
    return centred_grad(v, q, 1.0, err);
}

/* ---- rows ---------------------------------------------------------------------------------------
 */

static const char *const ORDS[] = {"1", "2", "inf", NULL};
static const dtp_attr_spec OVER_ORD[] = {
    DTP_ROWS_OVER,
    {.key = "ord", .kind = DTP_ATTR_ENUM, .def = NORM_2, .choices = ORDS},
    {.key = NULL}};
static const dtp_attr_spec OVER_CORRECTION[] = {
    DTP_ROWS_OVER, {.key = "correction", .kind = DTP_ATTR_INT, .def = 1}, {.key = NULL}};

#define ROW(op, text) .name = (op), .summary = (text), .min_in = 1, .max_in = 1, .n_out = 1

const dtp_op_def dtp_ops_row_stats[] = {
    {ROW("logsumexp", "logarithm of the sum of exp(x) over dims"), .attrs = dtp_rows_over,
     .infer = infer_rows, .role = dtp_rows__role_internal, .x_flops = 10.0, .vjp = vjp_logsumexp,
     .decompose = split_logsumexp},
    {ROW("norm", "vector norm over dims: 1, 2 or inf"), .attrs = OVER_ORD, .infer = infer_rows,
     .role = role_norm, .x_flops = 2.0, .vjp = vjp_norm, .decompose = split_norm},
    {ROW("var", "variance over dims"), .attrs = OVER_CORRECTION, .infer = infer_var,
     .role = dtp_rows__role_internal, .x_flops = 2.0, .vjp = vjp_var, .decompose = split_var},
    {ROW("std", "standard deviation over dims"), .attrs = OVER_CORRECTION, .infer = infer_var,
     .role = dtp_rows__role_internal, .x_flops = 2.0, .vjp = vjp_std, .decompose = split_std},
    {.name = NULL},
};
