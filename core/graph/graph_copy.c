/* Rebuilding a graph with changes: a copy under way, node by node. */
#include "core/graph/graph_copy.h"

#include <string.h>

static dtp_status copy_training(const dtp_graph *from, dtp_graph *to, dtp_err *err)
{
    dtp_param_group *groups;
    const int32_t n = from->training.n_groups;
    DTP_TRY(DTP_NEW(to->arena, groups, n, err));
    for (int32_t i = 0; i < n; i++) {
        groups[i] = from->training.groups[i];
        groups[i].params = dtp_arena_strdup(to->arena, groups[i].params);
        DTP_TRY(DTP_MEMORY(err, groups[i].params));
    }
    to->training = from->training;
    to->training.groups = groups;
    return DTP_OK;
}

static dtp_status begin(dtp_graph_copy *c, dtp_err *err)
{
    const dtp_graph *from = c->from;
    dtp_graph *to = c->to;
    DTP_TRY(copy_training(from, to, err));
    to->tf32 = from->tf32;
    to->microbatches = from->microbatches;
    to->n_micro_dims = from->n_micro_dims;
    memcpy(to->micro_dims, from->micro_dims, sizeof to->micro_dims);
    DTP_TRY(DTP_NEW(to->arena, c->tensor, from->n_tensors, err));
    DTP_TRY(DTP_NEW(to->arena, c->node, from->n_nodes, err));
    for (int32_t t = 0; t < from->n_tensors; t++) {
        c->tensor[t] = -1;
    }
    for (int32_t n = 0; n < from->n_nodes; n++) {
        c->node[n] = -1;
    }
    for (dtp_dim_id d = 0; d < from->dims.n; d++) {
        dtp_dim_id same;
        DTP_TRY(dtp_dims_intern(&to->dims, from->dims.names[d], from->dims.sizes[d], &same, err));
    }
    DTP_TRY(dtp_arena_grow(to->arena, &to->blocks, 0, from->n_blocks, &to->cap_blocks,
                           sizeof *to->blocks, err));
    for (int32_t b = 0; b < from->n_blocks; b++) {
        to->blocks[b] = dtp_arena_strdup(to->arena, from->blocks[b]);
        DTP_TRY(DTP_MEMORY(err, to->blocks[b]));
        to->n_blocks++;
    }
    return DTP_OK;
}

dtp_status dtp_graph_copy_begin(const dtp_graph *from, dtp_graph_copy *out, dtp_err *err)
{
    *out = (dtp_graph_copy){.from = from};
    DTP_TRY(dtp_graph_create(from->name, from->ops, &out->to, err));
    dtp_status s = begin(out, err);
    if (s != DTP_OK) {
        dtp_graph_destroy(out->to);
        out->to = NULL;
    }
    return s;
}

dtp_status dtp_graph_copy_source(dtp_graph_copy *c, dtp_tensor_id t, const dtp_ttype *type,
                                 dtp_err *err)
{
    dtp_graph_tensor tensor = c->from->tensors[t];
    tensor.type = type != NULL ? *type : tensor.type;
    return dtp_graph_add_tensor(c->to, &tensor, &c->tensor[t], err);
}

dtp_node_spec dtp_graph_copy_spec(const dtp_graph_copy *c, dtp_node_id n,
                                  dtp_tensor_id in[DTP_MAX_OP_IN])
{
    const dtp_node *node = &c->from->nodes[n];
    dtp_node_spec spec = dtp_node_spec_init(node->name, node->op->name);
    for (int32_t i = 0; i < node->n_in; i++) {
        in[i] = c->tensor[node->in[i]];
    }
    spec.def = node->op;
    spec.n_in = node->n_in;
    spec.in = in;
    spec.n_attrs = node->n_attrs;
    spec.attrs = node->attrs;
    spec.out = &c->from->tensors[node->out[0]].type;
    spec.phase = node->phase;
    spec.origin = node->origin >= 0 ? c->node[node->origin] : -1;
    spec.block = node->block;
    spec.instance = node->instance;
    spec.repeats = node->repeats;
    return spec;
}

dtp_status dtp_graph_copy_node(dtp_graph_copy *c, dtp_node_id n, const dtp_node_spec *spec,
                               dtp_err *err)
{
    dtp_tensor_id out[DTP_MAX_OP_OUT];
    const dtp_node *node = &c->from->nodes[n];
    DTP_TRY(dtp_graph_add_node(c->to, spec, out, err));
    for (int32_t i = 0; i < node->n_out; i++) {
        c->tensor[node->out[i]] = out[i];
        c->to->tensors[out[i]].recomputed = c->from->tensors[node->out[i]].recomputed;
        c->to->tensors[out[i]].copies = c->from->tensors[node->out[i]].copies;
    }
    c->node[n] = c->to->n_nodes - 1;
    return DTP_OK;
}

void dtp_graph_mark_needed(const dtp_graph *g, bool evaluation, bool *needed)
{
    for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &g->nodes[n];
        const bool second = evaluation && (node->op->flags & DTP_OP_IN_TRAINING) != 0;
        bool any = false;
        for (int32_t i = 0; i < node->n_out; i++) {
            any = any || needed[node->out[i]];
        }
        needed[node->out[0]] = any; /* says it of the node from here on */
        for (int32_t i = second ? 1 : 0; i < node->n_in && any; i++) {
            needed[node->in[i]] = true;
        }
    }
}

dtp_status dtp_graph_copy_nodes(dtp_graph_copy *c, const bool *needed, dtp_err *err)
{
    for (dtp_tensor_id t = 0; t < c->from->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &c->from->tensors[t];
        if (tensor->kind != DTP_TENSOR_VALUE) {
            DTP_TRY(dtp_graph_copy_source(c, t, NULL, err));
        } else if (tensor->out_index == 0 && (needed == NULL || needed[t])) {
            dtp_tensor_id in[DTP_MAX_OP_IN];
            const dtp_node_spec spec = dtp_graph_copy_spec(c, tensor->producer, in);
            DTP_TRY(dtp_graph_copy_node(c, tensor->producer, &spec, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_graph_add_beside(dtp_graph *g, const dtp_node_spec *beside, const char *name,
                                const char *op, dtp_attr attr, dtp_tensor_id *t, dtp_err *err)
{
    dtp_node_spec spec = *beside;
    DTP_TRY(DTP_MEMORY(err, name));
    spec.name = name;
    spec.op = op;
    spec.def = NULL;
    spec.n_in = 1;
    spec.in = t;
    spec.n_attrs = 1;
    spec.attrs = &attr;
    spec.out = NULL;
    return dtp_graph_add_node(g, &spec, t, err);
}

dtp_status dtp_graph_copy_results(dtp_graph_copy *c, dtp_err *err)
{
    const dtp_graph *from = c->from;
    for (int32_t i = 0; i < from->n_outputs; i++) {
        const dtp_tensor_id t = c->tensor[from->outputs[i]];
        if (t >= 0) {
            DTP_TRY(dtp_graph_add_output(c->to, t, err));
        }
    }
    for (int32_t i = 0; i < from->n_updates; i++) {
        const dtp_update *u = &from->updates[i];
        DTP_TRY(dtp_graph_add_update(c->to, (dtp_update){c->tensor[u->target], c->tensor[u->value]},
                                     err));
    }
    for (int32_t i = 0; i < from->n_grads; i++) {
        const dtp_param_grad *pg = &from->grads[i];
        DTP_TRY(dtp_graph_add_grad(
            c->to, (dtp_param_grad){c->tensor[pg->param], c->tensor[pg->grad]}, err));
    }
    c->to->loss = from->loss >= 0 ? c->tensor[from->loss] : -1;
    c->to->norm = from->norm >= 0 ? c->tensor[from->norm] : -1;
    c->to->grad_factor = from->grad_factor >= 0 ? c->tensor[from->grad_factor] : -1;
    return DTP_OK;
}
