/* Ops over dims: reduce and broadcast, its counterpart; any and all of truth values; statistics of
 * rows: logsumexp, vector norms, variance and standard deviation; cumsum and the gradient of the
 * product, whose elements depend on the others of their row in order.
 *
 * When a dim of the row is split they run as
 *   any, all   maximum, minimum as i32, since collectives do not reduce bool    1 all-reduce
 *   logsumexp  m = max x, s = sum exp(x - m), m + log s                         2 all-reduces
 *   norm       sum |x|, the root of sum x^2, or max |x|; amax: the last one     1
 *   var, std   the mean, then `moments` about it, as those of layer_norm        2
 * and the all-reduces carry rows, not x. For cumsum and the gradient a split dim is gathered first.
 * Sums of 16-bit floats are f32.
 */
#include "core/graph/op_rules.h"
#include "core/graph/ops/rows.h"

enum { KIND_SUM, KIND_MEAN, KIND_MAX, KIND_MIN, KIND_PROD };

/* A sum may have a wider type than its terms. */
static bool linear_kind(int64_t kind)
{
    return kind == KIND_SUM || kind == KIND_MEAN;
}

static dtp_status infer_reduce(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_attr *over = dtp_call_attr(call, "over");
    dtp_ttype want = dtp_rows__outside(call, &call->in[0]);
    if (dtp_call_int(call, "kind") == KIND_MEAN || want.dtype == DTP_BOOL) {
        DTP_TRY(dtp_op__need_float(call, 0, err));
    }
    if (linear_kind(dtp_call_int(call, "kind"))) {
        DTP_TRY(dtp_op__result(call, want.dtype, &want.dtype, err));
    }
    for (int32_t i = 0; i < over->n; i++) {
        if (dtp_ttype_find(&call->in[0], over->ids[i]) < 0) {
            return DTP_FAIL(err, DTP_INVALID,
                            "'over' names dim '%s', which operand 0 does not have",
                            dtp_dims_name(call->dims, over->ids[i]));
        }
    }
    return dtp_op__set_out(call, has_out, &want, out, err);
}

static dtp_dim_role role_reduce(const dtp_op_call *call, dtp_dim_id d)
{
    static const dtp_reduce_op ops[] = {DTP_REDUCE_SUM, DTP_REDUCE_SUM, DTP_REDUCE_MAX,
                                        DTP_REDUCE_MIN, DTP_REDUCE_PROD};
    if (!dtp_rows__is_over(call, d)) {
        return (dtp_dim_role){.role = DTP_ROLE_PARALLEL, .op = DTP_REDUCE_SUM};
    }
    return (dtp_dim_role){.role = DTP_ROLE_REDUCED, .op = ops[dtp_call_int(call, "kind")]};
}

/* Rows by role; sums and means also pass partial sums through. */
static void rules_reduce(const dtp_op_call *call, bool linear, dtp_sharding_rules *out)
{
    const int64_t kind = dtp_call_int(call, "kind");
    dtp_sharding_rules_add_roles(out, call);
    if (linear && linear_kind(kind)) {
        dtp_sharding_rules_add_linear(out, call, 1U);
    }
}

/* The gradient of an extremum: d_out[0], which has the dims of out[0], shared evenly among the
 * elements of x that equal out[0]. */
static dtp_status share_extremum(dtp_vjp *v, dtp_tensor_id x, dtp_tensor_id *out, dtp_err *err)
{
    dtp_tensor_id number, count, share;
    DTP_TRY(dtp_op__emit_mask(v, "eq", x, v->out[0], x, &number, err));
    DTP_TRY(dtp_vjp_unbroadcast(v, number, v->out[0], &count, err));
    DTP_TRY(dtp_op__emit2(v, "div", v->d_out[0], count, v->out[0], &share, err));
    return dtp_op__emit2(v, "mul", number, share, x, out, err);
}

static dtp_status vjp_reduce(dtp_vjp *v, dtp_err *err)
{
    const int64_t kind = dtp_vjp_attr(v, "kind")->i;
    const dtp_dtype dtype = v->g->tensors[v->in[0]].type.dtype;
    if (kind == KIND_MAX || kind == KIND_MIN) {
        return share_extremum(v, v->in[0], v->d_in, err);
    }
    if (kind == KIND_PROD) {
        const dtp_attr over = *dtp_vjp_attr(v, "over");
        const dtp_tensor_id in[] = {v->in[0], v->d_out[0]};
        return dtp_vjp_emit(v, &(dtp_vjp_op){"prod_grad", 2, in, 1, &over}, v->in[0], &v->d_in[0],
                            err);
    }
    dtp_tensor_id part = v->d_out[0];
    if (kind == KIND_MEAN) {
        const double n = (double)dtp_ttype_elems(&v->g->tensors[v->in[0]].type) /
                         (double)dtp_ttype_elems(&v->g->tensors[v->out[0]].type);
        DTP_TRY(dtp_op__emit_scale(v, part, 1.0 / n, v->out[0], &part, err));
    }
    DTP_TRY(dtp_op__emit_cast(v, part, dtype, &part, err));
    return dtp_op__emit1(v, "broadcast", part, v->in[0], &v->d_in[0], err);
}

static dtp_status infer_broadcast(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    DTP_TRY(dtp_op__declared(has_out, call->in[0].dtype, out, err));
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
    DTP_RESULT_ATTR,
    {.key = NULL}};

/* ---- truth values ---- */

static dtp_status infer_over(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_op__need_bool(call, err));
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

/* ---- statistics of rows ---- */

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
    const dtp_ttype row = dtp_rows__inside(call, &call->in[0]);
    const int64_t n = dtp_ttype_elems(&row);
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
    const bool scale = (call->op->flags & DTP_OP_SCALE) != 0;
    const int64_t ord = scale ? NORM_INF : dtp_call_int(call, "ord");
    dtp_dim_role role = dtp_rows__role_internal(call, d);
    if (role.role == DTP_ROLE_INTERNAL && ord != NORM_2) {
        role.role = DTP_ROLE_REDUCED;
        role.op = ord == NORM_1 ? DTP_REDUCE_SUM : DTP_REDUCE_MAX;
    }
    return role;
}

/* x in another float type; x itself when it has that already. */
static dtp_status emit_cast(dtp_graph *g, dtp_tensor_id x, dtp_dtype dtype, dtp_tensor_id *out,
                            dtp_err *err)
{
    const dtp_attr attr = dtp_attr_int("dtype", (int64_t)dtype);
    *out = x;
    return g->tensors[x].type.dtype == dtype ? DTP_OK
                                             : dtp_rows__emit(g, "cast", 1, &x, 1, &attr, out, err);
}

/* The sum of exponentials of 16-bit floats is f32, and so is its logarithm. */
static dtp_status split_logsumexp(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                  int32_t *outs, dtp_err *err)
{
    const dtp_attr *over = dtp_call_attr(call, "over");
    dtp_tensor_id parts[2] = {ins[0], -1}, sum, terms[2];
    DTP_TRY(dtp_rows__emit_reduce(g, "max", ins[0], over, &parts[1], err));
    DTP_TRY(dtp_rows__emit(g, "sum_exp", 2, parts, 1, over, &sum, err));
    DTP_TRY(emit_cast(g, parts[1], dtp_op__sum_dtype(call->in[0].dtype), &terms[0], err));
    DTP_TRY(dtp_rows__emit(g, "log", 1, &sum, 0, NULL, &terms[1], err));
    DTP_TRY(dtp_rows__emit(g, "add", 2, terms, 0, NULL, &sum, err));
    return emit_cast(g, sum, call->out[0].dtype, outs, err);
}

static dtp_status split_norm(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                             int32_t *outs, dtp_err *err)
{
    const dtp_attr *over = dtp_call_attr(call, "over");
    const int64_t ord = dtp_call_int(call, "ord");
    const dtp_tensor_id pair[2] = {ins[0], ins[0]};
    dtp_tensor_id part, sum;
    if (ord != NORM_2) {
        DTP_TRY(dtp_rows__emit(g, "abs", 1, ins, 0, NULL, &part, err));
        return dtp_rows__emit_reduce(g, ord == NORM_1 ? "sum" : "max", part, over, outs, err);
    }
    DTP_TRY(dtp_rows__emit(g, "row_dot", 2, pair, 1, over, &sum, err));
    DTP_TRY(dtp_rows__emit(g, "sqrt", 1, &sum, 0, NULL, &part, err));
    return emit_cast(g, part, call->out[0].dtype, outs, err);
}

/* The variance in the element type of sums. */
static dtp_status wide_var(dtp_graph *g, const dtp_op_call *call, dtp_tensor_id x,
                           dtp_tensor_id *out, dtp_err *err)
{
    const dtp_ttype row = dtp_rows__inside(call, &call->in[0]);
    dtp_attr attrs[3] = {
        {0}, dtp_attr_int("count", dtp_ttype_elems(&row)), *dtp_call_attr(call, "correction")};
    dtp_tensor_id shift, moments;
    dtp_dim_id stat;
    DTP_TRY(dtp_rows__emit_moments(g, x, dtp_call_attr(call, "over"), &shift, &moments, err));
    stat = dtp_dims_find(&g->dims, DTP_STAT_DIM);
    attrs[0] = dtp_attr_dims("over", 1, &stat);
    return dtp_rows__emit(g, "var_finish", 1, &moments, 3, attrs, out, err);
}

static dtp_status split_var(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                            int32_t *outs, dtp_err *err)
{
    dtp_tensor_id var;
    DTP_TRY(wide_var(g, call, ins[0], &var, err));
    return emit_cast(g, var, call->out[0].dtype, outs, err);
}

static dtp_status split_std(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                            int32_t *outs, dtp_err *err)
{
    dtp_tensor_id var, root;
    DTP_TRY(wide_var(g, call, ins[0], &var, err));
    DTP_TRY(dtp_rows__emit(g, "sqrt", 1, &var, 0, NULL, &root, err));
    return emit_cast(g, root, call->out[0].dtype, outs, err);
}

/* dx = dy exp(x - y); of 16-bit floats y is too coarse for the difference: dx = dy softmax x. */
static dtp_status vjp_logsumexp(dtp_vjp *v, dtp_err *err)
{
    dtp_tensor_id t, e;
    if (dtp_dtype_is_half(v->g->tensors[v->in[0]].type.dtype)) {
        const dtp_vjp_op softmax = {"softmax", 1, &v->in[0], 1, dtp_vjp_attr(v, "over")};
        DTP_TRY(dtp_vjp_emit(v, &softmax, v->in[0], &e, err));
    } else {
        DTP_TRY(dtp_op__emit2(v, "sub", v->in[0], v->out[0], v->in[0], &t, err));
        DTP_TRY(dtp_op__emit1(v, "exp", t, v->in[0], &e, err));
    }
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
        DTP_TRY(share_extremum(v, size, &share, err));
    }
    return dtp_op__emit2(v, "mul", sign, share, v->in[0], &v->d_in[0], err);
}

/* dx = factor d (x - mean), d with the dims of the output; in the element type of sums, since x and
 * its mean cancel. */
static dtp_status centred_grad(dtp_vjp *v, dtp_tensor_id d, double factor, dtp_err *err)
{
    const dtp_ttype *x = &v->g->tensors[v->in[0]].type, *y = &v->g->tensors[v->out[0]].type;
    const int64_t n = dtp_ttype_elems(x) / dtp_ttype_elems(y);
    const dtp_dtype dtype = x->dtype, wide = dtp_op__sum_dtype(dtype);
    const double scale = factor / (double)(n - dtp_vjp_attr(v, "correction")->i);
    dtp_attr attrs[3] = {*dtp_vjp_attr(v, "over"), {0}, dtp_attr_int("result", (int64_t)wide)};
    dtp_tensor_id mean, from, centred, q, dx;
    DTP_TRY(dtp_op__enum_attr(v->g, "reduce", "kind", "mean", &attrs[1], err));
    DTP_TRY(
        dtp_vjp_emit(v, &(dtp_vjp_op){"reduce", 1, &v->in[0], 3, attrs}, v->out[0], &mean, err));
    DTP_TRY(dtp_op__emit_cast(v, v->in[0], wide, &from, err));
    DTP_TRY(dtp_op__emit_cast(v, d, wide, &d, err));
    DTP_TRY(dtp_op__emit2(v, "sub", from, mean, v->in[0], &centred, err));
    DTP_TRY(dtp_op__emit_scale(v, d, scale, v->out[0], &q, err));
    DTP_TRY(dtp_op__emit2(v, "mul", centred, q, v->in[0], &dx, err));
    return dtp_op__emit_cast(v, dx, dtype, &v->d_in[0], err);
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

static dtp_status infer_var_finish(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                   dtp_err *err)
{
    const int64_t n = dtp_call_int(call, "count"), correction = dtp_call_int(call, "correction");
    DTP_TRY(infer_rows(call, has_out, out, err));
    const dtp_ttype row = dtp_rows__inside(call, &call->in[0]);
    if (dtp_ttype_elems(&row) != 2 || correction < 0 || correction >= n) {
        return DTP_FAIL(err, DTP_INVALID,
                        "%lld sums, not 2, of %lld elements, or a 'correction' of %lld",
                        (long long)dtp_ttype_elems(&row), (long long)n, (long long)correction);
    }
    return DTP_OK;
}

static const char *const ORDS[] = {"1", "2", "inf", NULL};
static const dtp_attr_spec OVER_ORD[] = {
    DTP_ROWS_OVER,
    {.key = "ord", .kind = DTP_ATTR_ENUM, .def = NORM_2, .choices = ORDS},
    {.key = NULL}};
static const dtp_attr_spec OVER_CORRECTION[] = {
    DTP_ROWS_OVER, {.key = "correction", .kind = DTP_ATTR_INT, .def = 1}, {.key = NULL}};
static const dtp_attr_spec COUNT_CORRECTION[] = {
    DTP_ROWS_OVER,
    {.key = "count", .kind = DTP_ATTR_INT, .required = true},
    {.key = "correction", .kind = DTP_ATTR_INT, .def = 1},
    {.key = NULL}};

/* ---- scans ---- */

static dtp_status infer_cumsum(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    int32_t axis;
    DTP_TRY(dtp_op__axis(call, "dim", &axis, err));
    if (call->in[0].dtype == DTP_BOOL) {
        return DTP_FAIL(err, DTP_INVALID, "operand 0 is bool, numbers are needed");
    }
    return dtp_op__set_out(call, has_out, &call->in[0], out, err);
}

static dtp_status infer_prod_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    const dtp_ttype rows = dtp_rows__outside(call, &call->in[0]);
    DTP_TRY(dtp_rows__match(call, 1, "dy", &rows, true, err));
    return dtp_rows__set_out(call, has_out, &call->in[0], out, err);
}

static const dtp_attr_spec CUMSUM_ATTRS[] = {{.key = "dim", .kind = DTP_ATTR_DIM, .required = true},
                                             {.key = "reverse", .kind = DTP_ATTR_BOOL},
                                             {.key = NULL}};

#define OVER_DIMS(op, text, kind)                                                                  \
    DTP_ROW(op, text, 1, 1, 1),                                                                    \
        .attrs = dtp_rows_over, .infer = infer_over, .role = dtp_rows__role_internal,              \
        .elem_flops = 1.0, .no_grad = DTP_NO_BOOL_GRAD, .decompose = split_over, .user = (kind)
const dtp_op_def dtp_ops_reduce[] = {
    {
        DTP_ROW("reduce", "sum, mean, max, min or product over dims", 1, 1, 1),
        .attrs = REDUCE_ATTRS,
        .infer = infer_reduce,
        .role = role_reduce,
        .rules = rules_reduce,
        .elem_flops = 1.0,
        .vjp = vjp_reduce,
        .bench = {"rc | kind=sum over=c", "rc | kind=max over=c"},
        .mtf_class = "ReduceOperation",
        .flags = DTP_OP_REDUCTION,
    },
    {
        DTP_ROW("broadcast", "repeats a tensor over new dims", 1, 1, 1),
        .infer = infer_broadcast,
        .linear = DTP_LINEAR_EACH,
        .elem_flops = 1.0,
        .vjp = vjp_broadcast,
        .bench = {"c | out=rc"},
        .f32_error = DTP_EXACT,
        .flags = DTP_OP_ANY_DTYPE | DTP_OP_MOVES,
        .mtf_class = "BroadcastOperation",
    },
    {OVER_DIMS("any", "is one element over dims true?", "max"), .f32_error = DTP_EXACT},
    {OVER_DIMS("all", "are all elements over dims true?", "min"), .f32_error = DTP_EXACT},
    {DTP_ROW("logsumexp", "logarithm of the sum of exp(x) over dims", 1, 1, 1),
     .flags = DTP_OP_STATISTIC, .attrs = dtp_rows_over, .infer = infer_rows,
     .role = dtp_rows__role_internal, .x_flops = 10.0, .vjp = vjp_logsumexp,
     .decompose = split_logsumexp},
    {DTP_ROW("norm", "vector norm over dims: 1, 2 or inf", 1, 1, 1), .flags = DTP_OP_STATISTIC,
     .attrs = OVER_ORD, .infer = infer_rows, .role = role_norm, .x_flops = 2.0, .vjp = vjp_norm,
     .decompose = split_norm},
    {DTP_ROW("amax", "largest magnitude over dims, the scale of a quantization", 1, 1, 1),
     .flags = DTP_OP_INTERNAL_USE | DTP_OP_SCALE, .attrs = dtp_rows_over, .infer = infer_rows,
     .role = role_norm, .x_flops = 2.0, .no_grad = "a scale is taken for a constant",
     .rates = "norm", .f32_error = DTP_EXACT, .bench = {"rc | over=c"}},
    {DTP_ROW("var", "variance over dims", 1, 1, 1), .flags = DTP_OP_STATISTIC,
     .attrs = OVER_CORRECTION, .infer = infer_var, .role = dtp_rows__role_internal, .x_flops = 2.0,
     .vjp = vjp_var, .decompose = split_var},
    {DTP_ROW("std", "standard deviation over dims", 1, 1, 1), .flags = DTP_OP_STATISTIC,
     .attrs = OVER_CORRECTION, .infer = infer_var, .role = dtp_rows__role_internal, .x_flops = 2.0,
     .vjp = vjp_std, .decompose = split_std},
    {
        DTP_ROW("var_finish", "variance of a number of elements from their moments", 1, 1, 1),
        .flags = DTP_OP_INTERNAL_USE,
        .attrs = COUNT_CORRECTION,
        .infer = infer_var_finish,
        .role = dtp_rows__role_whole,
        .x_flops = 2.0,
        .no_grad = DTP_NO_PART_GRAD,
        .rates = "var",
        .bench = {"rz | over=_stat count=4"},
    },
    {
        DTP_ROW("cumsum", "sum of the elements up to each along a dim", 1, 1, 1),
        .flags = DTP_OP_STATISTIC,
        .attrs = CUMSUM_ATTRS,
        .infer = infer_cumsum,
        .role = dtp_op__role_along,
        .linear = DTP_LINEAR_EACH,
        .elem_flops = 1.0,
        .vjp = dtp_op__self_grad,
    },
    {
        DTP_ROW("prod_grad", "dy times the product of the other elements of the row", 2, 2, 1),
        .flags = DTP_OP_INTERNAL_USE,
        .attrs = dtp_rows_over,
        .infer = infer_prod_grad,
        .role = dtp_rows__role_whole,
        .elem_flops = 1.0,
        .no_grad = DTP_NO_GRAD_OF_GRAD,
        .bench = {"rc r | over=c"},
    },
    {.name = NULL},
};
