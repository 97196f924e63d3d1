/* Layer normalisation and root-mean-square normalisation over one or several dims ("row", n
 * elements), their gradients, and the parts they run as when such a dim is split: forward the mean
 * and the moments about it (rms_norm: one sum), backward one fused sum.
 *
 * layer_norm:
 *   mean = sum x / n;  rstd = 1 / sqrt(sum (x - mean)^2 / n + eps);  xhat = (x - mean) rstd
 *   y  = gamma xhat + beta
 *   dx = rstd (g - sum g / n - xhat sum(g xhat) / n)   with g = gamma dy
 *   dgamma = sum over rows of dy xhat;  dbeta = sum over rows of dy
 * rms_norm is the same without mean, beta and the first of the two sums:
 *   rstd = 1 / sqrt(sum x^2 / n + eps);  xhat = x rstd;  y = gamma xhat
 *   dx = rstd (g - xhat sum(g xhat) / n);  dgamma = sum over rows of dy xhat
 * Statistics and sums of 16-bit floats are f32; gradients of gamma and beta may be.
 * With d = x - shift, shift the mean as it was rounded, and s0 = sum d, s1 = sum d^2 (`moments`):
 *   mean = shift + s0 / n;  sum (x - mean)^2 = s1 - s0^2 / n
 * which keeps its digits however far the mean lies from 0.
 */
#include "core/graph/ops/norm.h"

#include "core/graph/ops/rows.h"

/* One of the two norms; `user` of its rows. */
typedef struct norm_form {
    bool centred; /* with mean and beta */
    const char *apply, *grad, *grad_sums, *grad_apply;
} norm_form;

static const norm_form LAYER = {true, "layer_norm_apply", "layer_norm_grad", "layer_norm_grad_sums",
                                "layer_norm_grad_apply"};
static const norm_form RMS = {false, "rms_norm_apply", "rms_norm_grad", "rms_norm_grad_sums",
                              "rms_norm_grad_apply"};

bool dtp_norm_is_centred(const dtp_op_def *op)
{
    const norm_form *form = op->user;
    return form->centred;
}

/* ---- inference ---- */

/* Operand i has the dims of `over` in any order. */
static dtp_status match_gamma(const dtp_op_call *call, int32_t i, dtp_err *err)
{
    dtp_ttype row = dtp_rows__inside(call, &call->in[0]);
    return dtp_rows__match(call, i, "gamma", &row, true, err);
}

/* The type of the sums per row: two, without centring one, along the statistics dim. */
static dtp_status sums_type(const dtp_op_call *call, bool centred, dtp_ttype *out, dtp_err *err)
{
    const dtp_ttype rows = dtp_rows__stats(call, &call->in[0]);
    const dtp_dim_id stat = dtp_dims_find(call->dims, DTP_STAT_DIM);
    if (stat < 0) {
        return DTP_FAIL(err, DTP_INTERNAL, "the dim '" DTP_STAT_DIM "' is not known");
    }
    if (rows.rank == DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%d row dims and '" DTP_STAT_DIM "' exceed rank %d",
                        rows.rank, DTP_MAX_RANK);
    }
    *out = rows;
    out->dims[out->rank++] = (dtp_tdim){stat, centred ? 2 : 1};
    return DTP_OK;
}

static dtp_status match_sums(const dtp_op_call *call, int32_t i, const char *what, dtp_err *err)
{
    dtp_ttype sums;
    DTP_TRY(sums_type(call, dtp_norm_is_centred(call->op), &sums, err));
    return dtp_rows__match(call, i, what, &sums, true, err);
}

/* x, ..., gamma, [beta]; y and the statistics. */
static dtp_status infer_from(const dtp_op_call *call, int32_t gamma, bool has_out, dtp_ttype *out,
                             dtp_err *err)
{
    DTP_TRY(match_gamma(call, gamma, err));
    if (dtp_norm_is_centred(call->op)) {
        DTP_TRY(dtp_rows__match(call, gamma + 1, "beta", &call->in[gamma], false, err));
    }
    DTP_TRY(dtp_rows__set_out(call, has_out, &call->in[0], out, err));
    for (int32_t i = 1; i < call->op->n_out; i++) {
        out[i] = dtp_rows__stats(call, &call->in[0]);
    }
    return DTP_OK;
}

static dtp_status infer_norm(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    return infer_from(call, 1, has_out, out, err);
}

static dtp_status infer_apply(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const bool centred = dtp_norm_is_centred(call->op);
    const dtp_ttype rows = dtp_rows__stats(call, &call->in[0]);
    DTP_TRY(dtp_rows__check(call, 0, err));
    if (centred) {
        DTP_TRY(dtp_rows__match(call, 1, "shift", &rows, true, err));
    }
    DTP_TRY(match_sums(call, centred ? 2 : 1, "moments", err));
    return infer_from(call, centred ? 3 : 2, has_out, out, err);
}

static dtp_status infer_moments(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const bool centred = call->n_in > 1;
    const dtp_ttype rows = dtp_rows__stats(call, &call->in[0]);
    dtp_ttype sums;
    DTP_TRY(dtp_rows__check(call, 0, err));
    if (centred) {
        DTP_TRY(dtp_rows__match(call, 1, "shift", &rows, true, err));
    }
    DTP_TRY(sums_type(call, centred, &sums, err));
    return dtp_rows__set_out(call, has_out, &sums, out, err);
}

/* x, gamma, [mean,] rstd, dy of the gradient and of its parts; *n of them. */
static dtp_status match_grad_operands(const dtp_op_call *call, int32_t *n, dtp_err *err)
{
    const bool centred = dtp_norm_is_centred(call->op);
    dtp_ttype rows = dtp_rows__stats(call, &call->in[0]);
    *n = centred ? 5 : 4;
    DTP_TRY(dtp_rows__check(call, 0, err));
    DTP_TRY(match_gamma(call, 1, err));
    if (centred) {
        DTP_TRY(dtp_rows__match(call, 2, "mean", &rows, true, err));
    }
    DTP_TRY(dtp_rows__match(call, *n - 2, "rstd", &rows, true, err));
    return dtp_rows__match(call, *n - 1, "dy", &call->in[0], false, err);
}

static dtp_status infer_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    int32_t n;
    DTP_TRY(match_grad_operands(call, &n, err));
    DTP_TRY(dtp_rows__set_out(call, has_out, &call->in[0], out, err));
    for (int32_t i = 1; i < call->op->n_out; i++) {
        out[i] = call->in[1];
        DTP_TRY(dtp_op__result(call, call->in[1].dtype, &out[i].dtype, err));
    }
    return call->n_in > n ? match_sums(call, n, "sums", err) : DTP_OK;
}

static dtp_status infer_grad_sums(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                  dtp_err *err)
{
    int32_t n;
    dtp_ttype sums;
    DTP_TRY(match_grad_operands(call, &n, err));
    DTP_TRY(sums_type(call, dtp_norm_is_centred(call->op), &sums, err));
    return dtp_rows__set_out(call, has_out, &sums, out, err);
}

/* ---- rules ---- */

/* The rows are summed into dgamma and dbeta; `over` is INTERNAL, of the part PARALLEL. */
static dtp_dim_role role_grad(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_dim_role role = dtp_rows__role_internal(call, d);
    role.role = role.role == DTP_ROLE_PARALLEL ? DTP_ROLE_REDUCED : role.role;
    return role;
}

static dtp_dim_role role_grad_apply(const dtp_op_call *call, dtp_dim_id d)
{
    dtp_dim_role role = role_grad(call, d);
    role.role = role.role == DTP_ROLE_INTERNAL ? DTP_ROLE_PARALLEL : role.role;
    return role;
}

/* ---- gradient and decompositions ---- */

static dtp_status vjp_norm(dtp_vjp *v, dtp_err *err)
{
    const norm_form *form = v->g->nodes[v->node].op->user;
    const dtp_attr over = *dtp_vjp_attr(v, "over");
    DTP_TRY(dtp_rows__only_first(v, err));
    if (v->d_out[0] < 0) {
        return DTP_OK;
    }
    dtp_tensor_id in[] = {v->in[0], v->in[1], v->out[1], v->d_out[0], -1};
    if (form->centred) {
        in[3] = v->out[2];
        in[4] = v->d_out[0];
    }
    const dtp_vjp_op op = {form->grad, form->centred ? 5 : 4, in, 1, &over};
    return dtp_vjp_emit_multi(v, &op, v->d_in, err);
}

static dtp_status split_forward(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                int32_t *outs, dtp_err *err)
{
    const norm_form *form = call->op->user;
    const dtp_attr attrs[] = {*dtp_call_attr(call, "over"), *dtp_call_attr(call, "eps")};
    dtp_tensor_id parts[5] = {ins[0]};
    int32_t n = 1;
    if (form->centred) {
        DTP_TRY(dtp_rows__emit_moments(g, ins[0], &attrs[0], &parts[1], &parts[2], err));
        n = 3;
    } else {
        dtp_dim_id stat;
        DTP_TRY(dtp_dims_intern(&g->dims, DTP_STAT_DIM, 0, &stat, err));
        DTP_TRY(dtp_rows__emit(g, "moments", 1, ins, 1, &attrs[0], &parts[1], err));
        n = 2;
    }
    for (int32_t i = 1; i < call->n_in; i++) {
        parts[n++] = ins[i];
    }
    return dtp_rows__emit(g, form->apply, n, parts, 2, attrs, outs, err);
}

static dtp_status split_grad(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                             int32_t *outs, dtp_err *err)
{
    const norm_form *form = call->op->user;
    const dtp_attr attrs[] = {*dtp_call_attr(call, "over"), *dtp_call_attr(call, "result")};
    const int32_t n = call->n_in;
    dtp_tensor_id parts[6];
    dtp_dim_id stat;
    for (int32_t i = 0; i < n; i++) {
        parts[i] = ins[i];
    }
    DTP_TRY(dtp_dims_intern(&g->dims, DTP_STAT_DIM, 0, &stat, err));
    DTP_TRY(dtp_rows__emit(g, form->grad_sums, n, ins, 1, &attrs[0], &parts[n], err));
    return dtp_rows__emit(g, form->grad_apply, n + 1, parts, 2, attrs, outs, err);
}

/* ---- rows ---- */

static const dtp_attr_spec LAYER_EPS[] = {
    DTP_ROWS_OVER,
    {.key = "eps", .kind = DTP_ATTR_FLOAT, .def = 1e-5, .min = 0.0, .max = 1e30},
    {.key = NULL}};
static const dtp_attr_spec RMS_EPS[] = {
    DTP_ROWS_OVER,
    {.key = "eps", .kind = DTP_ATTR_FLOAT, .def = 1e-6, .min = 0.0, .max = 1e30},
    {.key = NULL}};
static const dtp_attr_spec OVER_RESULT[] = {DTP_ROWS_OVER, DTP_RESULT_ATTR, {.key = NULL}};

static const char *const LAYER_STATS[] = {"mean", "rstd"}, *const RMS_STATS[] = {"rstd"};
static const char *const LAYER_GRADS[] = {"dgamma", "dbeta"}, *const RMS_GRADS[] = {"dgamma"};

/* FLOPs per element are counted from the formulas above. */
#define NORM(op, text, form, n, outs, attributes, names)                                           \
    DTP_ROW(op, text, n, n, outs), .user = &(form), .attrs = (attributes), .out_names = (names)
#define PART .flags = DTP_OP_INTERNAL_USE, .no_grad = DTP_NO_PART_GRAD

#define FORWARD                                                                                    \
    .flags = DTP_OP_NORM, .infer = infer_norm, .role = dtp_rows__role_internal, .vjp = vjp_norm,   \
    .decompose = split_forward
#define GRAD                                                                                       \
    .flags = DTP_OP_INTERNAL_USE, .infer = infer_grad, .role = role_grad,                          \
    .no_grad = DTP_NO_GRAD_OF_GRAD, .decompose = split_grad
#define APPLY PART, .infer = infer_apply, .role = dtp_rows__role_parallel
#define SUMS PART, .infer = infer_grad_sums, .role = dtp_rows__role_reduced
#define GRAD_APPLY PART, .infer = infer_grad, .role = role_grad_apply

const dtp_op_def dtp_ops_norm[] = {
    {NORM("layer_norm", "normalises over dims to mean 0 and variance 1, then scales and shifts",
          LAYER, 3, 3, LAYER_EPS, LAYER_STATS),
     FORWARD, .x_flops = 8.0, .bench = {"rc c c | over=c"}, .f32_error = 4e-6},
    {NORM("layer_norm_grad", "gradient of layer_norm", LAYER, 5, 3, OVER_RESULT, LAYER_GRADS), GRAD,
     .x_flops = 15.0, .bench = {"rc c r r rc | over=c"}, .f32_error = 4e-6},
    {
        DTP_ROW("moments", "per row: sum of x^2, or sums of x - shift and (x - shift)^2", 1, 2, 1),
        .attrs = dtp_rows_over,
        .infer = infer_moments,
        .role = dtp_rows__role_reduced,
        .x_flops = 4.0,
        .rates = "layer_norm",
        .bench = {"rc r | over=c"},
        PART,
    },
    {NORM("layer_norm_apply", "layer_norm from a shift and the moments about it", LAYER, 5, 3,
          LAYER_EPS, LAYER_STATS),
     APPLY, .x_flops = 4.0, .rates = "layer_norm", .bench = {"rc r rz c c | over=c"}},
    {NORM("layer_norm_grad_sums", "per row: sum of gamma dy and sum of gamma dy xhat", LAYER, 5, 1,
          dtp_rows_over, NULL),
     SUMS, .x_flops = 9.0, .rates = "layer_norm_grad", .bench = {"rc c r r rc | over=c"}},
    {NORM("layer_norm_grad_apply", "layer_norm_grad from its row sums", LAYER, 6, 3, OVER_RESULT,
          LAYER_GRADS),
     GRAD_APPLY, .x_flops = 9.0, .rates = "layer_norm_grad", .bench = {"rc c r r rc rz | over=c"}},
    {NORM("rms_norm", "divides by the root mean square over dims, then scales", RMS, 2, 2, RMS_EPS,
          RMS_STATS),
     FORWARD, .x_flops = 4.0, .bench = {"rc c | over=c"}, .f32_error = 4e-6},
    {NORM("rms_norm_grad", "gradient of rms_norm", RMS, 4, 2, OVER_RESULT, RMS_GRADS), GRAD,
     .x_flops = 10.0, .bench = {"rc c r rc | over=c"}, .f32_error = 4e-6},
    {NORM("rms_norm_apply", "rms_norm from the sums of moments", RMS, 3, 2, RMS_EPS, RMS_STATS),
     APPLY, .x_flops = 2.0, .rates = "rms_norm", .bench = {"rc ry c | over=c"}},
    {NORM("rms_norm_grad_sums", "per row: sum of gamma dy xhat", RMS, 4, 1, dtp_rows_over, NULL),
     SUMS, .x_flops = 6.0, .rates = "rms_norm_grad", .bench = {"rc c r rc | over=c"}},
    {NORM("rms_norm_grad_apply", "rms_norm_grad from its row sums", RMS, 5, 2, OVER_RESULT,
          RMS_GRADS),
     GRAD_APPLY, .x_flops = 6.0, .rates = "rms_norm_grad", .bench = {"rc c r rc ry | over=c"}},
    {.name = NULL},
};
