/* Cross-entropy of integer labels (core/graph/ops/cross_entropy.h), its gradient, and the parts it
 * runs as when the class dim is split: three all-reduces forward (max, sum of exponentials, picked
 * logits), none backward.
 *   lse = log sum exp(logits);  loss = a lse - t, summed or averaged over rows, or as it is
 *   dlogits = (a exp(logits - lse) - dt/dlogits) dloss, for the mean times 1/rows or 1/total weight
 * Of 16-bit logits everything but the logits and their maxima is f32, class weights too.
 * A weighted mean needs the total weight before it can divide: then rows are INTERNAL too, and
 * `label_weight` sums the weights of the labels, a reduction over rows alone. The class weights are
 * whole on every rank, so that the weight of any label is known.
 */
#include "core/graph/ops/cross_entropy.h"

#include "core/graph/ops/rows.h"
#include "core/graph/op_rules.h"

/* No label has this value. */
static const double NO_IGNORE = -9e15;

static const char *const REDUCE_CHOICES[] = {"mean", "sum", "none", NULL};
static const char *const LSE_NAME[] = {"lse"};
static const char *const TOTAL_NAME[] = {"total"};

#define OVER                                                                                       \
    {                                                                                              \
        .key = "over", .kind = DTP_ATTR_DIM, .required = true                                      \
    }
#define REDUCE                                                                                     \
    {                                                                                              \
        .key = "reduce", .kind = DTP_ATTR_ENUM, .def = DTP_LOSS_MEAN, .choices = REDUCE_CHOICES    \
    }
#define TERMS                                                                                      \
    {.key = "smoothing", .kind = DTP_ATTR_FLOAT, .min = 0.0, .max = 1.0},                          \
    {                                                                                              \
        .key = "ignore", .kind = DTP_ATTR_INT, .def = -9e15, .min = -9e15, .max = 9e15             \
    }
static const dtp_attr_spec LOSS_ATTRS[] = {OVER, REDUCE, TERMS, {.key = NULL}};
static const dtp_attr_spec LINEAR_ATTRS[] = {OVER,
                                             REDUCE,
                                             TERMS,
                                             {.key = "chunk",
                                              .kind = DTP_ATTR_INT,
                                              .required = true,
                                              .hidden = true,
                                              .min = 1.0,
                                              .max = 9e15},
                                             {.key = NULL}};
static const dtp_attr_spec PICK_ATTRS[] = {OVER, TERMS, {.key = NULL}};
static const dtp_attr_spec WEIGHT_ATTRS[] = {
    OVER, TERMS, {.key = "dtype", .kind = DTP_ATTR_DTYPE, .def = DTP_F32}, {.key = NULL}};
static const dtp_attr_spec FINISH_ATTRS[] = {REDUCE, {.key = NULL}};

/* ---- terms ---- */

/* A mean over rows that do not all weigh 1. */
static bool weighted_mean(const dtp_op_call *call, bool weights)
{
    bool ignores = (double)dtp_call_int(call, "ignore") != NO_IGNORE;
    return dtp_call_int(call, "reduce") == DTP_LOSS_MEAN && (weights || ignores);
}

const int64_t *dtp_loss_ignored(const dtp_op_def *op, int32_t n_attrs, const dtp_attr *attrs)
{
    const dtp_op_call call = {.attrs = attrs, .n_attrs = n_attrs};
    if (dtp_op_attr(op, "ignore") == NULL) {
        return NULL;
    }
    const int64_t *label = &dtp_call_attr(&call, "ignore")->i;
    return (double)*label == NO_IGNORE ? NULL : label;
}

bool dtp_loss_weighs_labels(const dtp_op_call *call)
{
    return (call->op->flags & DTP_OP_SOFTMAX_LOSS) != 0 && weighted_mean(call, call->n_in > 2);
}

dtp_loss_terms dtp_loss_terms_of(const dtp_op_call *call)
{
    dtp_loss_terms t = {.smoothing = dtp_call_float(call, "smoothing"),
                        .ignore = dtp_call_int(call, "ignore"),
                        .weights = -1,
                        .total = -1};
    t.has_ignore = (double)t.ignore != NO_IGNORE;
    /* behind the required operands: the weights, and in the gradient the total weight */
    const int32_t required = call->op->min_in;
    const bool takes_total = call->op->max_in == required + 2;
    const bool without = takes_total && weighted_mean(call, false);
    const bool weights = call->n_in > required + (without ? 1 : 0);
    t.weights = weights ? required : -1;
    t.total = takes_total && weighted_mean(call, weights) ? call->n_in - 1 : -1;
    return t;
}

/* Operand `i`, if there is one, holds a weight for every class. */
static dtp_status check_weights(const dtp_op_call *call, int32_t i, dtp_err *err)
{
    if (i < 0) {
        return DTP_OK;
    }
    dtp_ttype want = dtp_rows__inside(call, &call->in[0]);
    want.dtype = dtp_op__sum_dtype(want.dtype);
    return dtp_rows__match(call, i, "weights", &want, false, err);
}

/* The type of the loss for rows of this type. */
static dtp_ttype loss_type(const dtp_op_call *call, const dtp_ttype *rows)
{
    dtp_ttype loss = *rows;
    if (dtp_call_int(call, "reduce") != DTP_LOSS_NONE) {
        loss = (dtp_ttype){.dtype = rows->dtype};
    }
    return loss;
}

static dtp_status infer_cross_entropy(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                      dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    dtp_ttype rows = dtp_rows__stats(call, &call->in[0]);
    dtp_ttype loss = loss_type(call, &rows);
    DTP_TRY(dtp_rows__match_ints(call, 1, "labels", &rows, err));
    DTP_TRY(check_weights(call, dtp_loss_terms_of(call).weights, err));
    DTP_TRY(dtp_rows__set_out(call, has_out, &loss, out, err));
    out[1] = rows;
    return DTP_OK;
}

static dtp_status infer_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    dtp_ttype rows = dtp_rows__stats(call, &call->in[0]);
    dtp_ttype loss = loss_type(call, &rows);
    DTP_TRY(dtp_rows__match_ints(call, 1, "labels", &rows, err));
    DTP_TRY(dtp_rows__match(call, 2, "lse", &rows, true, err));
    DTP_TRY(dtp_rows__match(call, 3, "dloss", &loss, true, err));
    dtp_loss_terms t = dtp_loss_terms_of(call);
    const dtp_ttype scalar = {.dtype = rows.dtype};
    int32_t expected = 4 + (t.weights >= 0 ? 1 : 0) + (t.total >= 0 ? 1 : 0);
    if (call->n_in != expected) {
        return DTP_FAIL(err, DTP_INVALID, "%d operands, expected %d", call->n_in, expected);
    }
    DTP_TRY(check_weights(call, t.weights, err));
    if (t.total >= 0) {
        DTP_TRY(dtp_rows__match(call, t.total, "total weight", &scalar, false, err));
    }
    return dtp_rows__set_out(call, has_out, &call->in[0], out, err);
}

static dtp_status infer_pick(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(dtp_rows__check(call, 0, err));
    dtp_ttype rows = dtp_rows__stats(call, &call->in[0]);
    DTP_TRY(dtp_rows__match_ints(call, 1, "labels", &rows, err));
    DTP_TRY(check_weights(call, dtp_loss_terms_of(call).weights, err));
    return dtp_rows__set_out(call, has_out, &rows, out, err);
}

static dtp_status infer_weight(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    dtp_ttype rows = call->in[0];
    rows.dtype = (dtp_dtype)dtp_call_int(call, "dtype");
    DTP_TRY(dtp_rows__match_ints(call, 0, "labels", &call->in[0], err));
    if (!dtp_dtype_is_float(rows.dtype)) {
        return DTP_FAIL(err, DTP_INVALID, "'dtype' is %s, expected floats",
                        dtp_dtype_name(rows.dtype));
    }
    if (call->n_in > 1) {
        DTP_TRY(dtp_rows__check(call, 1, err));
        if (call->in[1].rank != 1 || call->in[1].dtype != rows.dtype) {
            return DTP_FAIL(err, DTP_INVALID, "weights (operand 1) must be %s over one dim",
                            dtp_dtype_name(rows.dtype));
        }
    }
    DTP_TRY(dtp_rows__set_out(call, has_out, &rows, out, err));
    out[1] = (dtp_ttype){.dtype = rows.dtype};
    return DTP_OK;
}

static dtp_status infer_finish(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    const dtp_ttype *rows = &call->in[1];
    dtp_ttype loss = loss_type(call, rows), maxima = *rows;
    maxima.dtype = call->in[0].dtype; /* of the logits */
    if (!dtp_dtype_is_float(rows->dtype) || dtp_op__sum_dtype(maxima.dtype) != rows->dtype) {
        return DTP_FAIL(err, DTP_INVALID, "m and s (operands 0 and 1) are %s and %s",
                        dtp_dtype_name(maxima.dtype), dtp_dtype_name(rows->dtype));
    }
    DTP_TRY(dtp_rows__match(call, 0, "m", &maxima, true, err));
    DTP_TRY(dtp_rows__match(call, 2, "t", rows, true, err));
    if (call->n_in > 3) {
        DTP_TRY(dtp_rows__match(call, 3, "a", rows, true, err));
    }
    if (call->n_in > 4) {
        const dtp_ttype scalar = {.dtype = rows->dtype};
        DTP_TRY(dtp_rows__match(call, 4, "total weight", &scalar, false, err));
    }
    DTP_TRY(dtp_rows__set_out(call, has_out, &loss, out, err));
    out[1] = *rows;
    return DTP_OK;
}

/* Role of a row dim, which the loss sums over unless it is kept. */
static dtp_dim_role row_role(const dtp_op_call *call)
{
    bool kept = dtp_call_int(call, "reduce") == DTP_LOSS_NONE;
    return (dtp_dim_role){.role = kept ? DTP_ROLE_PARALLEL : DTP_ROLE_REDUCED,
                          .op = DTP_REDUCE_SUM};
}

static dtp_dim_role role_cross_entropy(const dtp_op_call *call, dtp_dim_id d)
{
    bool internal = dtp_rows__is_over(call, d) || weighted_mean(call, call->n_in > 2);
    return internal ? (dtp_dim_role){.role = DTP_ROLE_INTERNAL, .op = DTP_REDUCE_SUM}
                    : row_role(call);
}

/* The labels' rows are summed into the total. */
static dtp_dim_role role_weight(const dtp_op_call *call, dtp_dim_id d)
{
    bool row = dtp_ttype_find(&call->in[0], d) >= 0;
    return (dtp_dim_role){.role = row ? DTP_ROLE_REDUCED : DTP_ROLE_PARALLEL, .op = DTP_REDUCE_SUM};
}

/* A row for every dim by its role; the class weights stay whole. */
static void rules_weighted(const dtp_op_call *call, bool linear, dtp_sharding_rules *out)
{
    const int32_t weights = dtp_loss_terms_of(call).weights, before = out->n;
    (void)linear;
    dtp_sharding_rules_add_roles(out, call);
    for (int32_t i = before; weights >= 0 && i < out->n; i++) {
        out->rows[i].in[weights] = (dtp_placement){0};
    }
}

static dtp_dim_role role_finish(const dtp_op_call *call, dtp_dim_id d)
{
    (void)d;
    return row_role(call);
}

/* Reads one element per row, or with smoothing all of them. */
static void work_pick(const dtp_op_call *call, dtp_work *out)
{
    if (dtp_call_float(call, "smoothing") > 0.0) {
        dtp_rows__work(call, 2.0 * (double)dtp_ttype_elems(&call->in[0]), out);
        return;
    }
    dtp_rows__work_lookup(call, out);
}

static dtp_status vjp_cross_entropy(dtp_vjp *v, dtp_err *err)
{
    const dtp_node *node = &v->g->nodes[v->node];
    const bool weights = node->n_in > 2;
    DTP_TRY(dtp_rows__only_first(v, err));
    if (v->d_out[0] < 0) {
        return DTP_OK;
    }
    if (weights && v->need[2]) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "node '%s': cross_entropy has no gradient through its class weights",
                        node->name);
    }
    if (!v->need[0]) {
        return DTP_OK;
    }
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(v->g, node, &types);
    dtp_tensor_id in[6] = {v->in[0], v->in[1], v->out[1], v->d_out[0]};
    int32_t n = 4;
    const bool total = weighted_mean(&call, weights);
    if (weights) {
        in[n++] = v->in[2];
    }
    if (total) {
        const dtp_attr of[] = {*dtp_vjp_attr(v, "over"), *dtp_vjp_attr(v, "ignore"),
                               dtp_attr_int("dtype", dtp_op__sum_dtype(types.in[0].dtype))};
        const dtp_tensor_id labels[] = {v->in[1], weights ? v->in[2] : -1};
        dtp_tensor_id sums[2];
        DTP_TRY(dtp_vjp_emit_multi(v, &(dtp_vjp_op){"label_weight", weights ? 2 : 1, labels, 3, of},
                                   sums, err));
        in[n++] = sums[1];
    }
    const dtp_vjp_op op = {"cross_entropy_grad", n, in, call.n_attrs, call.attrs};
    return dtp_vjp_emit(v, &op, in[0], &v->d_in[0], err);
}

static dtp_status split_cross_entropy(dtp_graph *g, const dtp_op_call *call, const int32_t *ins,
                                      int32_t *outs, dtp_err *err)
{
    dtp_dim_id id;
    const dtp_loss_terms terms = dtp_loss_terms_of(call);
    const bool weights = terms.weights >= 0;
    const dtp_attr reduce = *dtp_call_attr(call, "reduce");
    const dtp_attr attrs[] = {*dtp_call_attr(call, "over"), *dtp_call_attr(call, "smoothing"),
                              *dtp_call_attr(call, "ignore"),
                              dtp_attr_int("dtype", dtp_op__sum_dtype(call->in[0].dtype))};
    const dtp_attr list = dtp_rows__over_list(&attrs[0], &id);
    dtp_tensor_id parts[5] = {-1, -1, -1, -1, -1};
    DTP_TRY(dtp_rows__emit_reduce(g, "max", ins[0], &list, &parts[0], err));
    const dtp_tensor_id sum_in[] = {ins[0], parts[0]};
    DTP_TRY(dtp_rows__emit(g, "sum_exp", 2, sum_in, 1, &list, &parts[1], err));
    DTP_TRY(dtp_rows__emit(g, "pick", call->n_in, ins, 3, attrs, &parts[2], err));
    int32_t n = 3;
    if (weights || terms.has_ignore) {
        DTP_TRY(
            dtp_rows__emit(g, "label_weight", weights ? 2 : 1, ins + 1, 4, attrs, &parts[3], err));
        n = weighted_mean(call, weights) ? 5 : 4;
    }
    return dtp_rows__emit(g, "cross_entropy_finish", n, parts, 1, &reduce, outs, err);
}

/* ---- of a linear layer, in chunks of rows ---- */

/* x: dims of the labels, then those that w has besides the classes. */
static dtp_status check_linear(const dtp_op_call *call, dtp_err *err)
{
    const dtp_ttype *x = &call->in[0], *w = &call->in[1], *labels = &call->in[2];
    const int32_t inner = x->rank - labels->rank;
    DTP_TRY(dtp_op__need_float(call, 0, err));
    DTP_TRY(dtp_op__same_dtype(call, 1, 0, err));
    DTP_TRY(dtp_rows__need_ints(call, 2, "labels", err));
    bool fits = (double)dtp_call_int(call, "ignore") == NO_IGNORE && inner > 0 &&
                labels->rank > 0 && w->rank == inner + 1 &&
                dtp_ttype_find(w, dtp_call_dim(call, "over")) >= 0;
    for (int32_t i = 0; i < x->rank && fits; i++) {
        const dtp_tdim *d = &x->dims[i];
        const int32_t at = dtp_ttype_find(w, d->id);
        fits = i < labels->rank
                   ? d->id == labels->dims[i].id && d->size == labels->dims[i].size && at < 0
                   : at >= 0 && w->dims[at].size == d->size;
    }
    return fits ? DTP_OK
                : DTP_FAIL(err, DTP_INVALID,
                           "x (operand 0) has other dims than labels and w, or labels are ignored");
}

static dtp_status infer_linear(const dtp_op_call *call, bool has_out, dtp_ttype *out, dtp_err *err)
{
    DTP_TRY(check_linear(call, err));
    dtp_ttype rows = call->in[2];
    rows.dtype = dtp_op__sum_dtype(call->in[0].dtype);
    const dtp_ttype loss = loss_type(call, &rows);
    DTP_TRY(dtp_op__set_out(call, has_out, &loss, out, err));
    out[1] = rows;
    return DTP_OK;
}

static dtp_status infer_linear_grad(const dtp_op_call *call, bool has_out, dtp_ttype *out,
                                    dtp_err *err)
{
    DTP_TRY(check_linear(call, err));
    dtp_ttype rows = call->in[2];
    rows.dtype = dtp_op__sum_dtype(call->in[0].dtype);
    const dtp_ttype loss = loss_type(call, &rows);
    DTP_TRY(dtp_rows__match(call, 3, "dloss", &loss, false, err));
    DTP_TRY(dtp_op__set_out(call, has_out, &call->in[0], out, err));
    out[1] = call->in[1];
    out[2] = loss;
    return DTP_OK;
}

/* Rows are split; of the gradient they are summed into dw, and into the loss. */
static dtp_dim_role role_linear(const dtp_op_call *call, dtp_dim_id d)
{
    const bool row = dtp_ttype_find(&call->in[2], d) >= 0;
    return row ? row_role(call) : (dtp_dim_role){.role = DTP_ROLE_WHOLE, .op = DTP_REDUCE_SUM};
}

static dtp_dim_role role_linear_grad(const dtp_op_call *call, dtp_dim_id d)
{
    const bool row = dtp_ttype_find(&call->in[2], d) >= 0;
    return (dtp_dim_role){.role = row ? DTP_ROLE_REDUCED : DTP_ROLE_WHOLE, .op = DTP_REDUCE_SUM};
}

/* The products, one or, with gradients, three, and the logits that go through memory: written and
 * read, with gradients also read and written by theirs and read by two products. */
static void work_linear(const dtp_op_call *call, dtp_work *out)
{
    const int64_t rows = dtp_ttype_elems(&call->in[2]), inner = dtp_ttype_elems(&call->in[0]);
    const int32_t at = dtp_ttype_find(&call->in[1], dtp_call_dim(call, "over"));
    const int64_t classes = call->in[1].dims[at].size;
    out->cls = DTP_WORK_GEMM;
    out->bytes = dtp_call_bytes(call);
    out->batch = call->n_in == 3 ? 1 : 3;
    out->m = rows;
    out->n = classes;
    out->k = rows > 0 ? inner / rows : 0;
    out->trans_b = at == 0;
    out->flops = 2.0 * (double)out->batch * (double)inner * (double)classes;
    out->pack_bytes = (call->n_in == 3 ? 2.0 : 6.0) * (double)rows * (double)classes *
                      (double)dtp_dtype_bytes(call->in[0].dtype);
}

static const char *const LINEAR_GRADS[] = {"dw", "loss"};

#define LINEAR                                                                                     \
    .flags = DTP_OP_CHECKS_DATA | DTP_OP_INTERNAL_USE, .attrs = LINEAR_ATTRS, .work = work_linear, \
    .no_grad = DTP_NO_LOWERING_GRAD, .rates = "einsum"

const dtp_op_def dtp_ops_cross_entropy[] = {
    {
        DTP_ROW("linear_loss", "cross_entropy of x w, whose logits exist a chunk of rows at a time",
                3, 3, 2),
        LINEAR,
        .out_names = LSE_NAME,
        .infer = infer_linear,
        .role = role_linear,
        .bench = {"rt ct #r | over=c reduce=mean chunk=1024"},
    },
    {
        DTP_ROW("linear_loss_grad",
                "gradients of linear_loss, and the loss, in one pass over the logits", 4, 4, 3),
        LINEAR,
        .out_names = LINEAR_GRADS,
        .infer = infer_linear_grad,
        .role = role_linear_grad,
        .bench = {"rt ct #r _ | over=c reduce=mean chunk=1024"},
    },
    {
        DTP_ROW("cross_entropy", "negative log-likelihood of integer labels under softmax(logits)",
                2, 3, 2),
        .flags = DTP_OP_SOFTMAX_LOSS | DTP_OP_CHECKS_DATA | DTP_OP_WHOLE_OPERAND,
        .attrs = LOSS_ATTRS,
        .out_names = LSE_NAME,
        .infer = infer_cross_entropy,
        .role = role_cross_entropy,
        .rules = rules_weighted,
        .x_flops = 4.0,
        .vjp = vjp_cross_entropy,
        .decompose = split_cross_entropy,
        .bench = {"rc #r | over=c reduce=mean"},
    },
    {
        DTP_ROW("cross_entropy_grad", "gradient of cross_entropy", 4, 6, 1),
        .flags = DTP_OP_CHECKS_DATA | DTP_OP_INTERNAL_USE | DTP_OP_WHOLE_OPERAND,
        .attrs = LOSS_ATTRS,
        .infer = infer_grad,
        .role = dtp_rows__role_parallel,
        .rules = rules_weighted,
        .x_flops = 4.0,
        .no_grad = DTP_NO_GRAD_OF_GRAD,
        .inplace_in = {1},
        .bench = {"rc #r r _ | over=c reduce=mean"},
    },
    {
        DTP_ROW("pick",
                "the element that a label names, 0 when it is not on this rank; weighted, smoothed",
                2, 3, 1),
        .flags = DTP_OP_CHECKS_DATA | DTP_OP_INTERNAL_USE | DTP_OP_WHOLE_OPERAND,
        .attrs = PICK_ATTRS,
        .infer = infer_pick,
        .role = dtp_rows__role_reduced,
        .rules = rules_weighted,
        .work = work_pick,
        .no_grad = DTP_NO_PART_GRAD,
        .rates = "cross_entropy",
        .bench = {"rc #r | over=c"},
    },
    {
        DTP_ROW("label_weight",
                "coefficient of lse in the loss of every row, and the sum of the labels' weights",
                1, 2, 2),
        .flags = DTP_OP_CHECKS_DATA | DTP_OP_INTERNAL_USE | DTP_OP_WHOLE_OPERAND,
        .attrs = WEIGHT_ATTRS,
        .out_names = TOTAL_NAME,
        .infer = infer_weight,
        .role = role_weight,
        .rules = rules_weighted,
        .no_grad = DTP_NO_PART_GRAD,
        .rates = "cross_entropy",
        .bench = {"#r c | over=c"},
    },
    {
        DTP_ROW("cross_entropy_finish",
                "loss and lse from max, sum of exponentials and picked logit", 3, 5, 2),
        .flags = DTP_OP_INTERNAL_USE,
        .attrs = FINISH_ATTRS,
        .out_names = LSE_NAME,
        .infer = infer_finish,
        .role = role_finish,
        .x_flops = 4.0,
        .no_grad = DTP_NO_PART_GRAD,
        .rates = "cross_entropy",
        .bench = {"v v v | reduce=mean"},
    },
    {.name = NULL},
};

const dtp_op_def *dtp_linear_loss(bool grad)
{
    return &dtp_ops_cross_entropy[grad ? 1 : 0];
}

const dtp_op_def *dtp_loss_part(dtp_loss_op op)
{
    return &dtp_ops_cross_entropy[op == DTP_LOSS_GRADIENT ? 3 : 5];
}
