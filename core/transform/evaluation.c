#include "core/transform/evaluation.h"

#include "core/transform/microbatch.h"

/* What has no row for each row of the batch is one number, or a few, of the whole. */
static bool is_metric(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_ttype *type = &g->tensors[t].type;
    return dtp_dtype_is_float(type->dtype) && dtp_ttype_find(type, dtp_microbatch_dim(g)) < 0;
}

/* needed: by tensor, of a node by its first output. */
static void mark_needed(const dtp_graph *g, bool *needed)
{
    needed[dtp_microbatch_part(g, g->loss)] = true;
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const dtp_tensor_id t = dtp_microbatch_part(g, g->outputs[i]);
        needed[t] = needed[t] || is_metric(g, g->outputs[i]);
    }
    for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &g->nodes[n];
        bool any = false;
        for (int32_t i = 0; i < node->n_out; i++) {
            any = any || needed[node->out[i]];
        }
        needed[node->out[0]] = any;
        for (int32_t i = 0; i < node->n_in && any; i++) {
            needed[node->in[i]] = true;
        }
    }
}

static dtp_status copy_needed(dtp_graph_copy *c, const bool *needed, dtp_err *err)
{
    const dtp_graph *from = c->from;
    for (dtp_tensor_id t = 0; t < from->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &from->tensors[t];
        if (tensor->kind != DTP_TENSOR_VALUE) {
            const bool stays = needed[t] || tensor->kind == DTP_TENSOR_INPUT;
            DTP_TRY(stays ? dtp_graph_copy_source(c, t, NULL, err) : DTP_OK);
        } else if (tensor->out_index == 0 && needed[t]) {
            dtp_tensor_id in[DTP_MAX_OP_IN];
            dtp_node_spec spec = dtp_graph_copy_spec(c, tensor->producer, in);
            spec.name = dtp_microbatch_name(from, tensor->producer);
            DTP_TRY(dtp_graph_copy_node(c, tensor->producer, &spec, err));
        }
    }
    return DTP_OK;
}

static dtp_status build(dtp_graph_copy *c, dtp_err *err)
{
    const dtp_graph *from = c->from;
    dtp_graph *to = c->to;
    bool *needed;
    DTP_TRY(DTP_NEW(to->arena, needed, from->n_tensors, err));
    mark_needed(from, needed);
    to->microbatches = to->n_micro_dims = 0; /* the sizes of the dims are those of one already */
    DTP_TRY(copy_needed(c, needed, err));
    for (int32_t i = 0; i < from->n_outputs; i++) {
        const dtp_tensor_id t = dtp_microbatch_part(from, from->outputs[i]);
        DTP_TRY(is_metric(from, from->outputs[i]) ? dtp_graph_add_output(to, c->tensor[t], err)
                                                  : DTP_OK);
    }
    to->loss = c->tensor[dtp_microbatch_part(from, from->loss)];
    return dtp_graph_without_dropout(to, err);
}

dtp_status dtp_graph_evaluation(const dtp_graph *g, dtp_graph_copy *out, dtp_err *err)
{
    if (g->loss < 0) {
        return DTP_FAIL(err, DTP_INVALID, "the model '%s' has no loss to evaluate", g->name);
    }
    DTP_TRY(dtp_graph_copy_begin(g, out, err));
    const dtp_status s = build(out, err);
    if (s != DTP_OK) {
        dtp_graph_destroy(out->to);
        out->to = NULL;
    }
    return s;
}
