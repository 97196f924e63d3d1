/* What the tensors of a graph are there for. */
#include "core/graph/uses.h"

/* Whether an operand before it is the same tensor. */
static bool reads_before(const dtp_node *node, int32_t i)
{
    for (int32_t j = 0; j < i; j++) {
        if (node->in[j] == node->in[i]) {
            return true;
        }
    }
    return false;
}

dtp_status dtp_readers_find(const dtp_graph *g, dtp_arena *arena, dtp_readers *out, dtp_err *err)
{
    int32_t n = 0;
    DTP_TRY(DTP_NEW(arena, out->first, g->n_tensors + 2, err));
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        for (int32_t i = 0; i < g->nodes[id].n_in; i++) {
            if (!reads_before(&g->nodes[id], i)) {
                out->first[g->nodes[id].in[i] + 2]++;
                n++;
            }
        }
    }
    DTP_TRY(DTP_NEW(arena, out->node, n, err));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        out->first[t + 2] += out->first[t + 1];
    }
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        for (int32_t i = 0; i < g->nodes[id].n_in; i++) {
            if (!reads_before(&g->nodes[id], i)) {
                out->node[out->first[g->nodes[id].in[i] + 1]++] = id;
            }
        }
    }
    return DTP_OK;
}

bool dtp_node_copies_view(const dtp_graph *g, const bool *survives, dtp_node_id node)
{
    const bool renames = (g->nodes[node].op->flags & DTP_OP_RELABEL) != 0;
    dtp_tensor_id t = renames && survives[g->nodes[node].out[0]] ? g->nodes[node].in[0] : -1;
    while (t >= 0 && g->tensors[t].producer >= 0) {
        const dtp_node *n = &g->nodes[g->tensors[t].producer];
        t = (n->op->flags & DTP_OP_RELABEL) != 0 ? n->in[0] : -1;
    }
    return t >= 0 &&
           (g->tensors[t].kind == DTP_TENSOR_PARAM || g->tensors[t].kind == DTP_TENSOR_STATE);
}

dtp_status dtp_uses_find(const dtp_graph *g, dtp_arena *arena, dtp_uses *out, dtp_err *err)
{
    DTP_TRY(DTP_NEW(arena, out->survives, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, out->replaces, g->n_tensors, err));
    DTP_TRY(DTP_NEW(arena, out->needed, g->n_tensors, err));
    for (int32_t i = 0; i < g->n_outputs; i++) {
        out->survives[g->outputs[i]] = true;
    }
    if (g->loss >= 0) {
        out->survives[g->loss] = true;
    }
    if (g->norm >= 0) {
        out->survives[g->norm] = true;
    }
    if (g->grad_factor >= 0) {
        out->survives[g->grad_factor] = true;
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        out->replaces[g->updates[i].value] = true;
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        out->needed[t] = out->survives[t] || out->replaces[t];
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            out->needed[g->nodes[n].in[i]] = true;
        }
    }
    return DTP_OK;
}

const char *const dtp_memory_use_names[DTP_N_MEMORY_USES] = {"parameters", "optimizer states",
                                                             "inputs", "activations", "gradients"};

dtp_memory_use dtp_memory_use_of(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_node_id maker = g->tensors[t].producer;
    switch (g->tensors[t].kind) {
    case DTP_TENSOR_PARAM:
        return DTP_USE_PARAMETER;
    case DTP_TENSOR_STATE:
        return DTP_USE_STATE;
    case DTP_TENSOR_INPUT:
        return DTP_USE_INPUT;
    default:
        return maker >= 0 && g->nodes[maker].phase != DTP_FORWARD && !g->nodes[maker].repeats
                   ? DTP_USE_GRADIENT
                   : DTP_USE_ACTIVATION;
    }
}

void dtp_graph_mark_gradients(const dtp_graph *g, bool *gradient)
{
    for (int32_t i = 0; i < g->n_grads; i++) {
        gradient[g->grads[i].grad] = true;
    }
    /* Nodes come in order: what casts or adds up a gradient stands behind what it reads. */
    for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &g->nodes[n];
        const bool passes = (node->op->flags & DTP_OP_CAST) != 0 ||
                            ((node->op->flags & DTP_OP_UPDATE) != 0 && node->phase != DTP_UPDATE);
        for (int32_t k = 0; k < node->n_in && passes && gradient[node->out[0]]; k++) {
            gradient[node->in[k]] = true;
        }
    }
}
