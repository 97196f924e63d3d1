/* auto_mtf's replicas of other graphs: from a dtp_graph, and as a cost graph. */
#include "planner/mtf/mtf_graph.h"
#include "core/graph/op_rules.h"

#include <stdlib.h>
#include <string.h>

typedef struct conversion {
    const dtp_graph *from;
    dtp_mtf_graph *to;
    int32_t *tensor; /* by dtp_tensor_id, -1 = not made yet */
    dtp_sharding_rules *rules;
    dtp_call_types *types;
} conversion;

static dtp_mtf_shape shape_of(const dtp_graph *g, dtp_tensor_id t)
{
    const dtp_ttype *type = &g->tensors[t].type;
    dtp_mtf_shape shape = {.n = type->rank};
    for (int32_t i = 0; i < type->rank; i++) {
        shape.dims[i] = (dtp_mtf_dim){.name = dtp_dims_name(&g->dims, type->dims[i].id),
                                      .size = type->dims[i].size};
    }
    return shape;
}

static dtp_status add_source(conversion *c, dtp_tensor_id t, dtp_err *err)
{
    dtp_mtf_shape shape = shape_of(c->from, t);
    return dtp_mtf_constant(c->to, c->from->tensors[t].name, c->from->tensors[t].type.dtype, &shape,
                            &c->tensor[t], err);
}

static bool may_split(const dtp_sharding_rules *rules, dtp_dim_id d)
{
    for (int32_t r = 0; r < rules->n; r++) {
        if (rules->rows[r].dim == d || rules->rows[r].out_dim == d) {
            return true;
        }
    }
    return false;
}

static dtp_status add_node(conversion *c, dtp_node_id n, dtp_err *err)
{
    const dtp_graph *g = c->from;
    const dtp_node *node = &g->nodes[n];
    int32_t in[DTP_MAX_OP_IN];
    for (int32_t i = 0; i < node->n_in; i++) {
        dtp_tensor_id t = node->in[i];
        if (c->tensor[t] < 0) {
            DTP_TRY(add_source(c, t, err));
        }
        in[i] = c->tensor[t];
    }
    dtp_mtf_shape out[DTP_MAX_OP_OUT];
    for (int32_t i = 0; i < node->n_out; i++) {
        out[i] = shape_of(g, node->out[i]);
    }
    const char *unsplittable[DTP_MAX_OP_DIMS];
    dtp_mtf_op_spec spec = {.name = node->name,
                            .n_in = node->n_in,
                            .in = in,
                            .n_out = node->n_out,
                            .out = out,
                            .dtype = g->tensors[node->out[0]].type.dtype,
                            .unsplittable = unsplittable};
    dtp_op_call call = dtp_node_call(g, node, c->types);
    dtp_dim_id dims[DTP_MAX_OP_DIMS];
    int32_t n_dims = (node->op->flags & DTP_OP_RELABEL) != 0 ? 0 : dtp_call_dims(&call, dims);
    dtp_sharding_rules_of(&call, false, c->rules);
    for (int32_t i = 0; i < n_dims; i++) {
        if (!may_split(c->rules, dims[i])) {
            unsplittable[spec.n_unsplittable++] = dtp_dims_name(&g->dims, dims[i]);
        }
    }
    int32_t first = 0;
    DTP_TRY(dtp_mtf_add_op(c->to, &spec, &first, err));
    for (int32_t i = 0; i < node->n_out; i++) {
        c->tensor[node->out[i]] = first + i;
    }
    return DTP_OK;
}

static dtp_status convert(conversion *c, dtp_err *err)
{
    const dtp_graph *g = c->from;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        c->tensor[t] = -1;
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        DTP_TRY(add_node(c, n, err));
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (c->tensor[g->outputs[i]] >= 0) {
            dtp_mtf_set_final(c->to, c->tensor[g->outputs[i]]);
        }
    }
    if (g->loss >= 0 && c->tensor[g->loss] >= 0) {
        dtp_mtf_set_final(c->to, c->tensor[g->loss]);
    }
    return DTP_OK;
}

dtp_status dtp_mtf_from_graph(const dtp_graph *g, dtp_mtf_graph **out, dtp_err *err)
{
    if (g == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "auto_mtf: no graph");
    }
    conversion c = {.from = g};
    DTP_TRY(dtp_mtf_graph_create(&c.to, err));
    c.tensor = malloc(((size_t)g->n_tensors + 1) * sizeof *c.tensor);
    c.rules = malloc(sizeof *c.rules);
    c.types = malloc(sizeof *c.types);
    dtp_status status = c.tensor != NULL && c.rules != NULL && c.types != NULL
                            ? convert(&c, err)
                            : DTP_FAIL(err, DTP_NOMEM, "out of memory for the auto_mtf graph");
    free(c.tensor);
    free(c.rules);
    free(c.types);
    if (status != DTP_OK) {
        dtp_mtf_graph_destroy(c.to);
        return status;
    }
    *out = c.to;
    return DTP_OK;
}

/* ---- cost graph ---- */

static bool device_counts(const char *device, int32_t n, const char *const *devices)
{
    bool counts = devices == NULL || device == NULL;
    for (int32_t i = 0; i < n && !counts; i++) {
        counts = strcmp(device, devices[i]) == 0;
    }
    return counts;
}

static void cost_output(const dtp_mtf_tensor *t, bool counts, dtp_mtf_cost_output *out)
{
    *out = (dtp_mtf_cost_output){.dtype = t->dtype, .alias_input_port = -1, .has_shape = counts};
    if (counts) {
        out->bytes = t->bytes;
        out->shape = t->shape;
    }
}

dtp_status dtp_mtf_cost_graph(const dtp_mtf_graph *g, int32_t n_devices, const char *const *devices,
                              const dtp_mtf_cost_node **out, dtp_err *err)
{
    dtp_mtf_cost_node *nodes = dtp_arena_alloc(g->arena, (size_t)g->n_ops, sizeof *nodes);
    *out = NULL;
    if (nodes == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the cost graph");
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        const dtp_mtf_op *op = &g->ops[i];
        dtp_mtf_cost_input *ins = dtp_arena_alloc(g->arena, (size_t)op->n_in, sizeof *ins);
        dtp_mtf_cost_output *outs = dtp_arena_alloc(g->arena, (size_t)op->n_out, sizeof *outs);
        if (ins == NULL || outs == NULL) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for the cost graph");
        }
        nodes[i] =
            (dtp_mtf_cost_node){.id = i, .name = op->name, .n_in = op->n_in, .n_out = op->n_out};
        for (int32_t k = 0; k < op->n_in; k++) {
            const dtp_mtf_tensor *t = &g->tensors[op->in[k]];
            ins[k] = (dtp_mtf_cost_input){.preceding_node = t->op, .preceding_port = t->out_index};
        }
        for (int32_t k = 0; k < op->n_out; k++) {
            const dtp_mtf_tensor *t = &g->tensors[op->out[k]];
            cost_output(t, device_counts(t->device, n_devices, devices), &outs[k]);
            nodes[i].is_final = nodes[i].is_final || t->final;
            nodes[i].device = t->device;
        }
        nodes[i].in = ins;
        nodes[i].out = outs;
    }
    *out = nodes;
    return DTP_OK;
}
