#include "core/transform/evaluation.h"

#include "core/transform/mean_loss.h"
#include "core/transform/microbatch.h"

/* What has no row for each row of the batch is one number, or a few, of the whole. */
static bool is_metric(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_ttype *type = &g->tensors[t].type;
    return type->dtype != DTP_BOOL && dtp_ttype_find(type, dtp_microbatch_dim(g)) < 0;
}

/* What is computed for output i of the graph, or of the model; -1: nothing. */
static dtp_tensor_id wanted_output(const dtp_graph *g, const dtp_graph *outputs_of, int32_t i)
{
    if (outputs_of != NULL) {
        return dtp_graph_find(g, outputs_of->tensors[outputs_of->outputs[i]].name);
    }
    return is_metric(g, g->outputs[i]) ? g->outputs[i] : -1;
}

/* needed: by tensor, of a node by its first output. */
static void mark_needed(const dtp_graph *g, const dtp_graph *outputs_of, bool *needed)
{
    const int32_t n_wanted = outputs_of != NULL ? outputs_of->n_outputs : g->n_outputs;
    needed[g->loss] = outputs_of == NULL;
    for (int32_t i = 0; i < n_wanted; i++) {
        const dtp_tensor_id t = wanted_output(g, outputs_of, i);
        if (t >= 0) {
            needed[t] = true;
        }
    }
    dtp_graph_mark_needed(g, needed);
}

/* A sum over microbatches is what one of them gives. */
static dtp_status copy_node(dtp_graph_copy *c, dtp_node_id n, dtp_err *err)
{
    const dtp_tensor_id t = c->from->nodes[n].out[0], part = dtp_microbatch_part(c->from, t);
    dtp_tensor_id in[DTP_MAX_OP_IN];
    if (part != t) {
        c->tensor[t] = c->tensor[part];
        return DTP_OK;
    }
    dtp_node_spec spec = dtp_graph_copy_spec(c, n, in);
    spec.name = dtp_microbatch_name(c->from, n);
    spec.phase = DTP_FORWARD;
    return dtp_graph_copy_node(c, n, &spec, err);
}

static dtp_status copy_needed(dtp_graph_copy *c, const bool *needed, dtp_err *err)
{
    const dtp_graph *from = c->from;
    for (dtp_tensor_id t = 0; t < from->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &from->tensors[t];
        if (tensor->kind != DTP_TENSOR_VALUE) {
            const bool stays = (needed[t] && !tensor->per_step) || tensor->kind == DTP_TENSOR_INPUT;
            DTP_TRY(stays ? dtp_graph_copy_source(c, t, NULL, err) : DTP_OK);
        } else if (tensor->out_index == 0 && needed[t]) {
            DTP_TRY(copy_node(c, tensor->producer, err));
        }
    }
    return DTP_OK;
}

/* What the loss divides by, where the data says it; of a mean over labels it is a node of its own.
 */
static dtp_status find_weight(dtp_graph_copy *c, dtp_err *err)
{
    const dtp_graph *from = c->from;
    const dtp_node_id n = from->tensors[from->loss].producer;
    dtp_tensor_id in[DTP_MAX_OP_IN];
    const dtp_tensor_id divisor = dtp_loss_divisor(from);
    if (divisor >= 0) {
        c->to->weight = c->tensor[divisor];
    } else if (dtp_has_mean_loss(from)) {
        const dtp_node_spec spec = dtp_graph_copy_spec(c, n, in);
        const char *name = dtp_arena_printf(c->to->arena, "%s.count", spec.name);
        DTP_TRY(dtp_graph_add_loss_count(c->to, &spec, name, from->tensors[from->loss].type.dtype,
                                         &c->to->weight, err));
    }
    return c->to->weight >= 0 ? dtp_graph_add_output(c->to, c->to->weight, err) : DTP_OK;
}

static dtp_status build(dtp_graph_copy *c, const dtp_graph *outputs_of, dtp_err *err)
{
    const dtp_graph *from = c->from;
    dtp_graph *to = c->to;
    const int32_t n = outputs_of != NULL ? outputs_of->n_outputs : from->n_outputs;
    bool *needed;
    DTP_TRY(DTP_NEW(to->arena, needed, from->n_tensors, err));
    mark_needed(from, outputs_of, needed);
    to->microbatches = to->n_micro_dims = 0; /* the sizes of the dims are those of one already */
    DTP_TRY(copy_needed(c, needed, err));
    for (int32_t i = 0; i < n; i++) {
        const dtp_tensor_id t = wanted_output(from, outputs_of, i);
        DTP_TRY(t >= 0 ? dtp_graph_add_output(to, c->tensor[t], err) : DTP_OK);
    }
    if (outputs_of == NULL) {
        to->loss = c->tensor[from->loss];
        DTP_TRY(find_weight(c, err));
    }
    return dtp_graph_without_dropout(to, err);
}

dtp_status dtp_graph_evaluation(const dtp_graph *g, const dtp_graph *outputs_of,
                                dtp_graph_copy *out, dtp_err *err)
{
    if (g->loss < 0) {
        return DTP_FAIL(err, DTP_INVALID, "the model '%s' has no loss to evaluate", g->name);
    }
    DTP_TRY(dtp_graph_copy_begin(g, out, err));
    const dtp_status s = build(out, outputs_of, err);
    if (s != DTP_OK) {
        dtp_graph_destroy(out->to);
        out->to = NULL;
    }
    return s;
}
