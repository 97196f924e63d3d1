/* What one microbatch has of every tensor: from the inputs on, each node runs by the row of its
 * rules that fits what it reads. */
#include <inttypes.h>

#include "core/transform/microbatch_internal.h"
#include "core/graph/op_rules.h"

bool dtp_micro__is_cut(const dtp_micro_work *w, dtp_dim_id d)
{
    bool is = false;
    for (int32_t i = 0; i < w->n_dims; i++) {
        is = is || w->dims[i] == d;
    }
    return is;
}

static dtp_status cut(dtp_micro_work *w, dtp_tensor_id t, int32_t axis, dtp_err *err)
{
    const dtp_tdim d = w->g->tensors[t].type.dims[axis];
    if (d.size % w->count != 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "microbatches: dim '%s' of '%s' has size %" PRId64
                        ", which %d does not divide",
                        dtp_dims_name(&w->g->dims, d.id), w->g->tensors[t].name, d.size, w->count);
    }
    w->part[t] = DTP_MICRO_CUT;
    w->axis[t] = axis;
    if (dtp_micro__is_cut(w, d.id)) {
        return DTP_OK;
    }
    if (w->n_dims == DTP_MAX_MICRO_DIMS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "microbatches: dim '%s' is renamed more than %d times",
                        dtp_dims_name(&w->g->dims, w->dim), DTP_MAX_MICRO_DIMS - 1);
    }
    w->dims[w->n_dims++] = d.id;
    return DTP_OK;
}

static bool operand_fits(const dtp_micro_work *w, dtp_tensor_id t, const dtp_placement *p)
{
    switch (w->part[t]) {
    case DTP_MICRO_CUT:
        return p->kind == DTP_SHARD && p->axis == w->axis[t];
    case DTP_MICRO_SUM:
        return p->kind == DTP_PARTIAL && p->op == DTP_REDUCE_SUM;
    default:
        return p->kind == DTP_REPLICATE;
    }
}

/* Outputs that have a cut dim must come out cut. */
static bool output_fits(const dtp_micro_work *w, dtp_tensor_id t, const dtp_placement *p)
{
    const dtp_ttype *type = &w->g->tensors[t].type;
    bool has = false;
    for (int32_t i = 0; i < type->rank; i++) {
        has = has || dtp_micro__is_cut(w, type->dims[i].id);
    }
    return !has || p->kind == DTP_SHARD;
}

static bool row_fits(const dtp_micro_work *w, const dtp_node *node, const dtp_op_call *call,
                     const dtp_sharding_rule *row)
{
    bool fits = !row->internal;
    for (int32_t i = 0; i < node->n_in && fits; i++) {
        fits = operand_fits(w, node->in[i], &row->in[i]);
    }
    for (int32_t i = 0; i < node->n_out && fits; i++) {
        const dtp_placement *p = &row->out[i];
        fits =
            output_fits(w, node->out[i], p) && (p->kind != DTP_PARTIAL || p->op == DTP_REDUCE_SUM);
    }
    const bool renames = (node->op->flags & DTP_OP_RENAMES) != 0 && row->dim >= 0;
    return fits && (!renames || dtp_renaming_fits(call, row, w->count));
}

/* The row by which a node runs on one microbatch alone. */
static dtp_status run_node(dtp_micro_work *w, dtp_node_id n, dtp_err *err)
{
    const dtp_node *node = &w->g->nodes[n];
    dtp_call_types types;
    dtp_sharding_rules set;
    const dtp_op_call call = dtp_node_call(w->g, node, &types);
    int32_t r = 0;
    dtp_sharding_rules_of(&call, true, &set);
    while (r < set.n && !row_fits(w, node, &call, &set.rows[r])) {
        r++;
    }
    if (r == set.n) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "microbatches: node '%s' (%s) needs the whole of dim '%s'", node->name,
                        node->op->name, dtp_dims_name(&w->g->dims, w->dim));
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        const dtp_placement *p = &set.rows[r].out[i];
        if (p->kind == DTP_SHARD) {
            DTP_TRY(cut(w, node->out[i], p->axis, err));
        } else {
            w->part[node->out[i]] = p->kind == DTP_PARTIAL ? DTP_MICRO_SUM : DTP_MICRO_WHOLE;
        }
    }
    return DTP_OK;
}

static void mark_needed(dtp_micro_work *w)
{
    const dtp_graph *g = w->g;
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in && g->nodes[n].phase == DTP_UPDATE; i++) {
            w->needed[g->nodes[n].in[i]] = true;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        w->needed[g->outputs[i]] = w->part[g->outputs[i]] != DTP_MICRO_CUT;
    }
    for (int32_t i = 0; i < g->n_grads; i++) {
        w->needed[g->grads[i].grad] = true;
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        w->needed[g->updates[i].value] = true;
    }
    w->needed[g->loss] = true;
}

dtp_status dtp_micro__find_parts(dtp_micro_work *w, dtp_arena *scratch, dtp_err *err)
{
    const size_t tensors = (size_t)w->g->n_tensors;
    DTP_TRY(DTP_NEW(scratch, w->part, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->axis, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->needed, tensors, err));
    DTP_TRY(DTP_NEW(scratch, w->sum, tensors, err));
    for (size_t t = 0; t < tensors; t++) {
        w->sum[t] = -1;
    }
    bool any = false;
    for (dtp_tensor_id t = 0; t < w->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &w->g->tensors[t];
        const int32_t axis = dtp_ttype_find(&tensor->type, w->dim);
        if (axis < 0 || tensor->kind == DTP_TENSOR_VALUE) {
            continue;
        }
        if (tensor->kind != DTP_TENSOR_INPUT) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "microbatches: the parameter '%s' has the dim '%s'", tensor->name,
                            dtp_dims_name(&w->g->dims, w->dim));
        }
        any = true;
        DTP_TRY(cut(w, t, axis, err));
    }
    if (!any) {
        return DTP_FAIL(err, DTP_INVALID, "microbatches: no input of '%s' has the dim '%s'",
                        w->g->name, dtp_dims_name(&w->g->dims, w->dim));
    }
    for (dtp_node_id n = 0; n < w->g->n_nodes; n++) {
        if (w->g->nodes[n].phase != DTP_UPDATE) {
            DTP_TRY(run_node(w, n, err));
        }
    }
    mark_needed(w);
    /* A dim is cut wherever it occurs, and what is needed once per step is not cut. */
    for (dtp_tensor_id t = 0; t < w->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &w->g->tensors[t];
        for (int32_t i = 0; i < tensor->type.rank; i++) {
            const bool here = w->part[t] == DTP_MICRO_CUT && w->axis[t] == i;
            if (dtp_micro__is_cut(w, tensor->type.dims[i].id) != here) {
                return DTP_FAIL(err, DTP_UNSUPPORTED,
                                "microbatches: '%s' needs the whole of dim '%s'", tensor->name,
                                dtp_dims_name(&w->g->dims, tensor->type.dims[i].id));
            }
        }
        if (w->needed[t] && w->part[t] == DTP_MICRO_CUT) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "microbatches: '%s' has one row per row of the batch but is used once "
                            "per step",
                            tensor->name);
        }
    }
    return DTP_OK;
}
