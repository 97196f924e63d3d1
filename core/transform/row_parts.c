/* How every tensor of a graph depends on the rows of the batch. */
#include "core/transform/row_parts.h"

#include <inttypes.h>
#include <string.h>

#include "core/graph/op_rules.h"
#include "core/graph/ops/cross_entropy.h"

bool dtp_row_parts_cut(const dtp_row_parts *w, dtp_dim_id d)
{
    bool is = false;
    for (int32_t i = 0; i < w->n_dims; i++) {
        is = is || w->dims[i] == d;
    }
    return is;
}

/* The dim is cut wherever it occurs. */
static dtp_status cut(dtp_row_parts *w, dtp_tensor_id t, int32_t axis, dtp_err *err)
{
    const dtp_tdim d = w->g->tensors[t].type.dims[axis];
    if (d.size % w->count != 0) {
        return DTP_FAIL(
            err, DTP_INVALID, "%s: dim '%s' of '%s' has size %" PRId64 ", which %d does not divide",
            w->what, dtp_dims_name(&w->g->dims, d.id), w->g->tensors[t].name, d.size, w->count);
    }
    w->part[t] = DTP_ROWS_CUT;
    w->axis[t] = axis;
    if (dtp_row_parts_cut(w, d.id)) {
        return DTP_OK;
    }
    if (w->n_dims == DTP_MAX_MICRO_DIMS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: dim '%s' is renamed more than %d times", w->what,
                        dtp_dims_name(&w->g->dims, w->dim), DTP_MAX_MICRO_DIMS - 1);
    }
    w->dims[w->n_dims++] = d.id;
    return DTP_OK;
}

/* ---- one node by a row of its rules ---- */

bool dtp_row_parts_whole_gradient(const dtp_row_parts *w, const dtp_node *node, int32_t i)
{
    return node->phase == DTP_BACKWARD && node->origin >= 0 && !node->repeats &&
           w->part[node->in[i]] == DTP_ROWS_SUM && w->statistic[w->g->nodes[node->origin].out[0]];
}

static bool operand_fits(const dtp_row_parts *w, const dtp_node *node, int32_t i,
                         const dtp_placement *p)
{
    const dtp_tensor_id t = node->in[i];
    switch (dtp_row_parts_whole_gradient(w, node, i) ? DTP_ROWS_WHOLE : w->part[t]) {
    case DTP_ROWS_CUT:
        return p->kind == DTP_SHARD && p->axis == w->axis[t];
    case DTP_ROWS_SUM:
    case DTP_ROWS_MEAN:
        return p->kind == DTP_PARTIAL && p->op == DTP_REDUCE_SUM;
    case DTP_ROWS_WHOLE:
        return p->kind == DTP_REPLICATE;
    default:
        return false;
    }
}

/* The first axis along a cut dim, -1: there is none. */
static int32_t cut_axis(const dtp_row_parts *w, dtp_tensor_id t)
{
    const dtp_ttype *type = &w->g->tensors[t].type;
    int32_t axis = 0;
    while (axis < type->rank && !dtp_row_parts_cut(w, type->dims[axis].id)) {
        axis++;
    }
    return axis < type->rank ? axis : -1;
}

static bool row_fits(const dtp_row_parts *w, const dtp_node *node, const dtp_op_call *call,
                     const dtp_sharding_rule *row)
{
    bool fits = !row->internal;
    for (int32_t i = 0; i < node->n_in && fits; i++) {
        fits = operand_fits(w, node, i, &row->in[i]);
    }
    for (int32_t i = 0; i < node->n_out && fits; i++) {
        const dtp_placement *p = &row->out[i]; /* what has a cut dim must come out cut */
        const bool folded = p->op == DTP_REDUCE_SUM ||
                            (w->folds && (p->op == DTP_REDUCE_MAX || p->op == DTP_REDUCE_MIN));
        fits = (cut_axis(w, node->out[i]) < 0 || p->kind == DTP_SHARD) &&
               (p->kind != DTP_PARTIAL || folded);
    }
    const bool renames = (node->op->flags & DTP_OP_RENAMES) != 0 && row->dim >= 0;
    return fits && (!renames || dtp_renaming_fits(call, row, w->count));
}

/* What the partial output of a node is: of operands that add up, what all of those are. */
static dtp_row_part partial_of(const dtp_row_parts *w, const dtp_node *node,
                               const dtp_op_call *call, const dtp_placement *p)
{
    bool sums = false, means = false;
    if (p->op != DTP_REDUCE_SUM) {
        return p->op == DTP_REDUCE_MAX ? DTP_ROWS_MAX : DTP_ROWS_MIN;
    }
    for (int32_t i = 0; i < node->n_in; i++) {
        sums = sums || w->part[node->in[i]] == DTP_ROWS_SUM;
        means = means || w->part[node->in[i]] == DTP_ROWS_MEAN;
    }
    if (!w->folds) {
        return DTP_ROWS_SUM; /* kernels know the whole batch: a mean is a sum of parts */
    }
    if (!sums && !means) {
        const uint32_t flags = call->op->flags;
        const bool averages = /* it divides what it sums up by the rows that it sees */
            ((flags & DTP_OP_REDUCTION) != 0 &&
             strcmp(dtp_call_choice(call, "kind"), "mean") == 0) ||
            ((flags & DTP_OP_SOFTMAX_LOSS) != 0 && dtp_call_int(call, "reduce") == DTP_LOSS_MEAN);
        return averages ? DTP_ROWS_MEAN : DTP_ROWS_SUM;
    }
    return sums && means ? DTP_ROWS_RESULT : means ? DTP_ROWS_MEAN : DTP_ROWS_SUM;
}

static dtp_status take_row(dtp_row_parts *w, const dtp_node *node, const dtp_op_call *call,
                           const dtp_sharding_rule *row, dtp_err *err)
{
    for (int32_t i = 0; i < node->n_out; i++) {
        const dtp_placement *p = &row->out[i];
        if (p->kind == DTP_SHARD) {
            DTP_TRY(cut(w, node->out[i], p->axis, err));
        } else {
            w->part[node->out[i]] =
                p->kind == DTP_PARTIAL ? partial_of(w, node, call, p) : DTP_ROWS_WHOLE;
        }
    }
    return DTP_OK;
}

/* ---- nodes that no row fits ---- */

static dtp_status refuse(const dtp_row_parts *w, const dtp_node *node, const dtp_op_call *call,
                         dtp_err *err)
{
    const char *dim = dtp_dims_name(&w->g->dims, w->dim);
    if (dtp_loss_weighs_labels(call)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "%s: node '%s' (%s) divides by the weights of the labels of the "
                        "whole batch: make it the loss itself, or take reduce 'sum' and 'scale' it "
                        "by a constant",
                        w->what, node->name, node->op->name);
    }
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_row_part part = w->part[node->in[i]];
        const bool sum = part == DTP_ROWS_SUM || part == DTP_ROWS_MEAN;
        if (part != DTP_ROWS_CUT && part != DTP_ROWS_WHOLE) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "%s: node '%s' (%s) reads '%s', %s all of dim '%s': "
                            "compute '%s' row by row of '%s' and sum up last%s",
                            w->what, node->name, node->op->name, w->g->tensors[node->in[i]].name,
                            sum ? "a sum over" : "which depends on", dim, node->name, dim,
                            w->folds ? "" : ", or train without microbatches");
        }
    }
    return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: node '%s' (%s) needs the whole of dim '%s'", w->what,
                    node->name, node->op->name, dim);
}

/* A mean by weights of the rows, and what is computed of values of all rows. */
static dtp_status fold(dtp_row_parts *w, const dtp_node *node, const dtp_op_call *call,
                       dtp_err *err)
{
    bool weighs = dtp_loss_weighs_labels(call) && w->folds, once = w->folds;
    for (int32_t i = 0; i < node->n_in; i++) { /* logits and labels are cut, class weights not */
        const dtp_row_part part = w->part[node->in[i]];
        weighs = weighs && part == (i < 2 ? DTP_ROWS_CUT : DTP_ROWS_WHOLE);
        once = once && part != DTP_ROWS_CUT;
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        once = once && cut_axis(w, node->out[i]) < 0;
    }
    if (!once && !weighs) {
        return refuse(w, node, call, err);
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        const int32_t axis = cut_axis(w, node->out[i]); /* of a loss: what its rows have */
        w->part[node->out[i]] = weighs ? DTP_ROWS_WEIGHTED : DTP_ROWS_RESULT;
        DTP_TRY(axis >= 0 ? cut(w, node->out[i], axis, err) : DTP_OK);
    }
    return DTP_OK;
}

/* The axis at which a relabel of one row puts it; -1: the node is another one, or has no such axis.
 * Rules do not say it of a dim of size 1: it lies behind as many elements as before, and among
 * several such axes at that of the same name. */
static int32_t relabelled_row(const dtp_row_parts *w, const dtp_node *node)
{
    const dtp_tensor_id t = node->n_in > 0 ? node->in[0] : -1;
    if (!w->folds || (node->op->flags & DTP_OP_RELABEL) == 0 || w->part[t] != DTP_ROWS_CUT ||
        w->g->tensors[t].type.dims[w->axis[t]].size != 1) {
        return -1;
    }
    const dtp_ttype *in = &w->g->tensors[t].type, *out = &w->g->tensors[node->out[0]].type;
    int64_t before = 1, outer = 1;
    int32_t found = -1;
    for (int32_t i = 0; i < w->axis[t]; i++) {
        before *= in->dims[i].size;
    }
    for (int32_t i = 0; i < out->rank; i++) {
        const bool same = out->dims[i].id == in->dims[w->axis[t]].id;
        found = outer == before && (found < 0 || same) ? i : found;
        outer *= out->dims[i].size;
    }
    return found;
}

/* Whether the node is one of training that takes a sum over rows: parts have statistics of their
 * own. */
static bool takes_statistic(const dtp_row_parts *w, const dtp_node *node)
{
    return !w->folds && (node->op->flags & DTP_OP_IN_TRAINING) != 0 &&
           w->part[node->in[0]] == DTP_ROWS_SUM;
}

static dtp_status find_node(dtp_row_parts *w, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[n];
    dtp_call_types types;
    dtp_sharding_rules set;
    const dtp_op_call call = dtp_node_call(w->g, node, &types);
    const int32_t single = relabelled_row(w, node);
    int32_t r = 0;
    if ((node->op->flags & DTP_OP_SCALE) != 0 && cut_axis(w, node->out[0]) < 0) {
        w->part[node->out[0]] = DTP_ROWS_WHOLE;
        return DTP_OK;
    }
    if (takes_statistic(w, node)) {
        w->part[node->out[0]] = DTP_ROWS_WHOLE;
        w->statistic[node->in[0]] = w->own[node->out[0]] = true;
        return DTP_OK;
    }
    if (single >= 0) {
        return cut(w, node->out[0], single, err);
    }
    dtp_sharding_rules_of(&call, true, &set);
    while (r < set.n && !row_fits(w, node, &call, &set.rows[r])) {
        r++;
    }
    /* An op without operands may give a row what its place in the batch says. */
    const bool counts = node->n_in == 0 && w->folds && cut_axis(w, node->out[0]) >= 0 &&
                        (node->op->flags & (DTP_OP_CONSTANT | DTP_OP_RANDOM)) == 0;
    if (counts) {
        return refuse(w, node, &call, err);
    }
    DTP_TRY(r < set.n ? take_row(w, node, &call, &set.rows[r], err) : fold(w, node, &call, err));
    for (int32_t i = 0; i < node->n_in; i++) {
        for (int32_t o = 0; o < node->n_out; o++) {
            w->own[node->out[o]] = w->own[node->out[o]] || w->own[node->in[i]] ||
                                   dtp_row_parts_whole_gradient(w, node, i);
        }
    }
    return DTP_OK;
}

/* ---- the graph ---- */

static dtp_status cut_inputs(dtp_row_parts *w, dtp_err *err)
{
    bool any = false;
    for (dtp_tensor_id t = 0; t < w->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &w->g->tensors[t];
        const int32_t axis = dtp_ttype_find(&tensor->type, w->dim);
        if (axis < 0 || tensor->kind == DTP_TENSOR_VALUE) {
            continue;
        }
        if (tensor->kind != DTP_TENSOR_INPUT) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: the parameter '%s' has the dim '%s'",
                            w->what, tensor->name, dtp_dims_name(&w->g->dims, w->dim));
        }
        any = true;
        DTP_TRY(cut(w, t, axis, err));
    }
    return any ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "%s: no input of '%s' has the dim '%s'", w->what,
                          w->g->name, dtp_dims_name(&w->g->dims, w->dim));
}

/* A dim is cut wherever it occurs. */
static dtp_status check_dims(const dtp_row_parts *w, dtp_err *err)
{
    for (dtp_tensor_id t = 0; t < w->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &w->g->tensors[t];
        for (int32_t i = 0; i < tensor->type.rank; i++) {
            const bool here = w->part[t] == DTP_ROWS_CUT && w->axis[t] == i;
            if (dtp_row_parts_cut(w, tensor->type.dims[i].id) != here) {
                return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: '%s' needs the whole of dim '%s'",
                                w->what, tensor->name,
                                dtp_dims_name(&w->g->dims, tensor->type.dims[i].id));
            }
        }
    }
    return DTP_OK;
}

dtp_status dtp_row_parts_find(dtp_row_parts *w, dtp_arena *arena, dtp_err *err)
{
    DTP_TRY(DTP_NEW(arena, w->part, w->g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, w->axis, w->g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, w->own, w->g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, w->statistic, w->g->n_tensors, err));
    w->n_dims = 0;
    DTP_TRY(cut_inputs(w, err));
    for (dtp_node_id n = 0; n < w->g->n_nodes; n++) {
        if (w->g->nodes[n].phase != DTP_UPDATE) {
            DTP_TRY(find_node(w, n, err));
        }
    }
    return check_dims(w, err);
}
