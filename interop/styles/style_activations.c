/* The styles that speak of what nodes read and make: sequence, replicate, loss_parallel, context,
 * prepare_input and prepare_output. */
#include <string.h>

#include "interop/layout_forms.h"
#include "interop/styles/style_internal.h"

static bool is_param(const dtp_style_job *job, dtp_tensor_id t)
{
    return dtp_graph_param_of(job->g, t) >= 0;
}

/* ---- sequence, replicate ---- */

/* The sequence dim: dim=NAME, or the second dim of the first activation (the first when it has
 * fewer than three); -1 when the node reads no activation that has it. */
static dtp_dim_id sequence_dim(const dtp_style_job *job, const dtp_node *node)
{
    if (job->style->dim != NULL) {
        return dtp_dims_find(&job->g->dims, job->style->dim);
    }
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_ttype *type = &job->g->tensors[node->in[i]].type;
        if (!is_param(job, node->in[i]) && type->rank > 0) {
            return type->dims[type->rank >= 3 ? 1 : 0].id;
        }
    }
    return -1;
}

dtp_status dtp_style__sequence(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err)
{
    const dtp_node *node = &job->g->nodes[n];
    const dtp_dim_id d = sequence_dim(job, node);
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        const int32_t axis = d < 0 ? -1 : dtp_ttype_find(&job->g->tensors[t].type, d);
        if (is_param(job, t)) {
            DTP_TRY(dtp_style__pin(job, t, -1, -1, err));
        } else if (axis >= 0) {
            DTP_TRY(dtp_style__pin(job, t, n, axis, err));
            *applies = true;
        }
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        const int32_t axis = d < 0 ? -1 : dtp_ttype_find(&job->g->tensors[node->out[i]].type, d);
        if (axis >= 0) {
            DTP_TRY(dtp_style__pin(job, node->out[i], -1, axis, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_style__replicate(dtp_style_job *job, dtp_err *err)
{
    const dtp_graph *g = job->g;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (job->param[t]) {
            DTP_TRY(dtp_style__pin(job, t, -1, -1, err));
        }
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        const bool inside = dtp_style__in_group(job, n);
        for (int32_t i = 0; i < node->n_in && inside; i++) {
            DTP_TRY(dtp_style__pin(job, node->in[i], is_param(job, node->in[i]) ? -1 : n, -1, err));
        }
        for (int32_t i = 0; i < node->n_out && inside; i++) {
            DTP_TRY(dtp_style__pin(job, node->out[i], -1, -1, err));
        }
    }
    return DTP_OK;
}

/* ---- loss, attention ---- */

/* A node that reads the logits, or what computes them again, keeps them split over the dim called
 * `over`. */
static dtp_status split_logits(dtp_style_job *job, dtp_node_id n, dtp_tensor_id logits,
                               dtp_dim_id over, dtp_err *err)
{
    const dtp_node *node = &job->g->nodes[n];
    const int32_t axis = dtp_ttype_find(&job->g->tensors[logits].type, over);
    for (int32_t i = 0; i < node->n_in; i++) {
        if (dtp_graph_repeated(job->g, node->in[i]) == logits) {
            DTP_TRY(dtp_style__pin(job, node->in[i], n, axis, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_style__loss_parallel(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err)
{
    const dtp_node *node = &job->g->nodes[n];
    dtp_call_types types;
    if ((node->op->flags & DTP_OP_SOFTMAX_LOSS) == 0) {
        return DTP_OK;
    }
    dtp_op_call call = dtp_node_call(job->g, node, &types);
    const dtp_dim_id over = dtp_call_dim(&call, "over");
    *applies = true;
    DTP_TRY(split_logits(job, n, node->in[0], over, err));
    for (int32_t i = job->gradients.first[n]; i < job->gradients.first[n + 1]; i++) {
        DTP_TRY(split_logits(job, job->gradients.nodes[i], node->in[0], over, err));
    }
    return DTP_OK;
}

/* What a node of attention reads: keys and values (operands 1 and 2) split over their positions,
 * all else over the positions of the queries. */
static dtp_status split_reads(dtp_style_job *job, dtp_node_id n, dtp_dim_id query, dtp_dim_id key,
                              dtp_err *err)
{
    const dtp_node *node = &job->g->nodes[n];
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_dim_id d = i == 1 || i == 2 ? key : query;
        const int32_t axis = dtp_ttype_find(&job->g->tensors[node->in[i]].type, d);
        DTP_TRY(dtp_style__pin(job, node->in[i], n, axis, err));
    }
    return DTP_OK;
}

/* What is made is split over the positions of the queries. Backward the same. */
dtp_status dtp_style__context(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err)
{
    const dtp_node *node = &job->g->nodes[n];
    dtp_call_types types;
    if ((node->op->flags & DTP_OP_ATTENTION) == 0) {
        return DTP_OK;
    }
    dtp_op_call call = dtp_node_call(job->g, node, &types);
    const dtp_dim_id query = dtp_call_dim(&call, "query");
    const dtp_dim_id key = dtp_call_dim(&call, "key") >= 0 ? dtp_call_dim(&call, "key") : query;
    *applies = true;
    DTP_TRY(split_reads(job, n, query, key, err));
    for (int32_t i = 0; i < node->n_out; i++) {
        const int32_t axis = dtp_ttype_find(&types.out[i], query);
        DTP_TRY(dtp_style__pin(job, node->out[i], -1, axis, err));
    }
    for (int32_t i = job->gradients.first[n]; i < job->gradients.first[n + 1]; i++) {
        const dtp_node_id b = job->gradients.nodes[i];
        if ((job->g->nodes[b].op->flags & DTP_OP_ATTENTION_GRAD) != 0) {
            DTP_TRY(split_reads(job, b, query, key, err));
        }
    }
    return dtp_style__set(job, n, err);
}

/* ---- prepare ---- */

/* Pins the mesh dims that the layout names (all when it names none, or the one in parentheses). */
static dtp_status pin_layout(dtp_style_job *job, dtp_tensor_id t, dtp_node_id node, dtp_err *err)
{
    const dtp_ttype *type = &job->g->tensors[t].type;
    const int32_t m_style = job->m;
    dtp_layout layout;
    bool names_any = false;
    DTP_TRY(dtp_layout_parse_any(job->style->layout, job->mesh, type, &job->g->dims, &layout, err));
    for (int32_t m = 0; m < job->mesh->n_dims; m++) {
        names_any = names_any || layout.placement[m].kind == DTP_SHARD;
        if (layout.placement[m].kind == DTP_PARTIAL) {
            return DTP_FAIL(err, DTP_INVALID, "'%.100s': a style cannot ask for partial sums",
                            job->style->layout);
        }
    }
    for (int32_t m = 0; m < job->mesh->n_dims; m++) {
        const bool split = layout.placement[m].kind == DTP_SHARD;
        const bool asked = job->style->mesh_dim != NULL ? m == m_style : !names_any;
        job->m = m;
        if (split) {
            DTP_TRY(dtp_style__pin(job, t, node, layout.placement[m].axis, err));
        } else if (asked) {
            DTP_TRY(dtp_style__pin(job, t, node, -1, err));
        }
    }
    job->m = m_style;
    return DTP_OK;
}

/* The first activation of the node that comes from outside the group. */
dtp_status dtp_style__prepare_input(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err)
{
    const dtp_node *node = &job->g->nodes[n];
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_node_id p = job->g->tensors[node->in[i]].producer;
        if (!is_param(job, node->in[i]) && (p < 0 || !dtp_style__in_group(job, p))) {
            *applies = true;
            return pin_layout(job, node->in[i], n, err);
        }
    }
    return DTP_OK;
}

dtp_status dtp_style__prepare_output(dtp_style_job *job, dtp_node_id n, bool *applies, dtp_err *err)
{
    const dtp_tensor_id out = job->g->nodes[n].out[0];
    if (!dtp_style__leaves(job, out)) {
        return DTP_OK;
    }
    *applies = true;
    return pin_layout(job, out, -1, err);
}
