/* Lowering of an op that is split along a dim its kernel needs whole (softmax over a split class
 * dim): the op's own decomposition is built as a small graph on the node's global types and lowered
 * node by node under the layout rules "the dims that the strategy splits, and the dims that its
 * renaming nodes make of them". A result that the decomposition goes on using is reduced at once
 * when it is partial; a final result is handed back as it is.
 */
#include <stdio.h>
#include <string.h>

#include "core/plan/sharding.h"
#include "spmd/lower/lower_internal.h"
#include "core/graph/op_rules.h"

enum { MAX_DEPTH = 4 };

/* A decomposition being lowered. */
typedef struct decomposition {
    dtp_graph *graph;
    dtp_layout_rules rules;
    dtp_value_id *value; /* by tensor of the graph */
    bool *used;          /* by tensor: an operand of some node */
    dtp_tensor_id in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
} decomposition;

/* The dim table is the program's: ids mean the same inside and outside, and new names stay. */
static dtp_status build_graph(dtp_program *p, const dtp_op_call *outer, decomposition *s,
                              dtp_err *err)
{
    s->graph->dims = p->dims;
    for (int32_t i = 0; i < outer->n_in; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "in%d", i);
        dtp_graph_tensor spec = {.name = name, .kind = DTP_TENSOR_INPUT, .type = outer->in[i]};
        DTP_TRY(dtp_graph_add_tensor(s->graph, &spec, &s->in[i], err));
    }
    dtp_op_call call = *outer;
    call.dims = &s->graph->dims;
    dtp_status status = call.op->decompose(s->graph, &call, s->in, s->out, err);
    p->dims = s->graph->dims;
    DTP_TRY(status);
    for (int32_t i = 0; i < call.n_out; i++) {
        if (!dtp_ttype_equal(&s->graph->tensors[s->out[i]].type, &call.out[i])) {
            return DTP_FAIL(err, DTP_INTERNAL,
                            "%s: output %d of the decomposition has another type", call.op->name,
                            i);
        }
    }
    return DTP_OK;
}

/* A new name of a split dim is split the same way, if the pieces fit both. */
static void follow_renames(const dtp_mesh *mesh, decomposition *s)
{
    for (int32_t n = 0; n < s->graph->n_nodes; n++) {
        dtp_call_types types;
        dtp_sharding_rules set;
        dtp_op_call call = dtp_node_call(s->graph, &s->graph->nodes[n], &types);
        if ((call.op->flags & DTP_OP_RENAMES) == 0) {
            continue;
        }
        dtp_sharding_rules_of(&call, false, &set);
        for (int32_t r = 1; r < set.n; r++) {
            const dtp_sharding_rule *row = &set.rows[r];
            const dtp_rule_splits *from = &s->rules.splits[row->dim];
            int64_t parts = 1;
            for (int8_t i = 0; i < from->n; i++) {
                parts *= mesh->sizes[from->mesh_dims[i]];
            }
            if (row->dim != row->out_dim && s->rules.splits[row->out_dim].n == 0 && from->n > 0 &&
                dtp_renaming_fits(&call, row, parts)) {
                s->rules.splits[row->out_dim] = *from;
            }
        }
    }
}

static dtp_status lower_inner(const dtp_lower_env *env, const decomposition *s, dtp_node_id id,
                              dtp_err *err)
{
    const dtp_node *node = &s->graph->nodes[id];
    const dtp_mesh *mesh = &env->p->mesh;
    dtp_strategy strategy;
    dtp_value_id in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT];
    dtp_layout layouts[DTP_MAX_OP_OUT];
    dtp_lower_request r = {.strategy = &strategy, .in = in, .out_layouts = layouts};
    DTP_TRY(dtp_strategy_from_rules(s->graph, id, mesh, &s->rules, &strategy, err));
    for (int32_t i = 0; i < node->n_in; i++) {
        in[i] = s->value[node->in[i]];
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        const dtp_ttype *type = &s->graph->tensors[node->out[i]].type;
        DTP_TRY(dtp_layout_rules_layout(&s->rules, mesh, &s->graph->dims, type, true, &layouts[i],
                                        err));
        r.wanted |= s->used[node->out[i]] ? 1U << i : 0U;
    }
    DTP_TRY(dtp_lower__node(env, id, &r, out, err));
    for (int32_t i = 0; i < node->n_out; i++) {
        s->value[node->out[i]] = out[i];
    }
    return DTP_OK;
}

static dtp_status lower_scratch(const dtp_lower_env *outer, dtp_node_id node, decomposition *s,
                                const dtp_node_layouts *layouts, const dtp_value_id *in,
                                dtp_value_id *out, dtp_err *err)
{
    const dtp_node *n = &outer->graph->nodes[node];
    dtp_call_types types;
    dtp_op_call call = dtp_node_call(outer->graph, n, &types);
    call.parts = dtp_mesh_set_size(&outer->p->mesh, layouts->internal);
    dtp_lower_env env = {.p = outer->p,
                         .graph = s->graph,
                         .scratch = true,
                         .node = outer->scratch ? outer->node : node,
                         .phase = outer->scratch ? outer->phase : n->phase,
                         .depth = outer->depth + 1,
                         .forgets = outer->forgets,
                         .since = outer->since,
                         .inside = outer->scratch ? outer->inside : outer->p->n_values,
                         .replicas = outer->replicas,
                         .alone = outer->alone,
                         .shared = outer->shared};
    DTP_TRY(build_graph(outer->p, &call, s, err));
    DTP_TRY(dtp_layout_rules_create(s->graph->arena, s->graph->dims.n, &s->rules, err));
    for (int32_t depth = 0; depth < outer->p->mesh.n_dims; depth++) {
        for (int32_t m = 0; m < outer->p->mesh.n_dims; m++) {
            if (layouts->dim[m] >= 0 && layouts->order[m] == depth) {
                dtp_rule_splits *splits = &s->rules.splits[layouts->dim[m]];
                splits->mesh_dims[splits->n++] = (int8_t)m;
            }
        }
    }
    follow_renames(&outer->p->mesh, s);
    const dtp_graph *g = s->graph;
    DTP_TRY(DTP_NEW(g->arena, s->value, g->n_tensors, err));
    DTP_TRY(DTP_NEW(g->arena, s->used, g->n_tensors, err));
    for (int32_t i = 0; i < call.n_in; i++) {
        s->value[s->in[i]] = in[i];
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int32_t k = 0; k < g->nodes[i].n_in; k++) {
            s->used[g->nodes[i].in[k]] = true;
        }
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        DTP_TRY(lower_inner(&env, s, i, err));
    }
    for (int32_t i = 0; i < call.n_out; i++) {
        out[i] = s->value[s->out[i]];
    }
    return DTP_OK;
}

dtp_status dtp_lower__decomposed(const dtp_lower_env *env, dtp_node_id node,
                                 const dtp_node_layouts *layouts, const dtp_value_id *in,
                                 dtp_value_id *out, dtp_err *err)
{
    const dtp_op_def *op = env->graph->nodes[node].op;
    decomposition s = {0};
    if (op->decompose == NULL || env->depth >= MAX_DEPTH) {
        return DTP_FAIL(err, DTP_INTERNAL, "%s has an internal rule but no decomposition",
                        op->name);
    }
    if (layouts->linear) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "%s cannot run as its decomposition on one mesh dim and pass partial sums "
                        "through on another",
                        op->name);
    }
    DTP_TRY(dtp_graph_create(op->name, env->graph->ops, &s.graph, err));
    dtp_status status = lower_scratch(env, node, &s, layouts, in, out, err);
    dtp_graph_destroy(s.graph);
    return status;
}
