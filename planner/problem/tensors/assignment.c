/* Assignments as shardings, and shardings as assignments. */
#include <stdlib.h>
#include <string.h>

#include "planner/problem/tensors/tensor_problem.h"
#include "core/plan/node_layouts.h"
#include "spmd/lower/lower.h"

static const dtp_tensor_strategy *chosen(const dtp_tensor_problem *p, const int32_t *assignment,
                                         int32_t i)
{
    return &p->variables[i].strategies[assignment[i]];
}

/* What a strategy leaves and wants, splits in mesh order. */
static dtp_status natural_layouts(const dtp_tensor_problem *p, dtp_node_id id,
                                  const dtp_strategy *strategy, dtp_node_layouts *out, dtp_err *err)
{
    const dtp_mesh *mesh = &p->pricer->mesh;
    dtp_call_types types;
    const dtp_op_call call = dtp_node_call(p->graph, &p->graph->nodes[id], &types);
    dtp_layout whole[DTP_MAX_OP_IN];
    for (int32_t i = 0; i < call.n_in; i++) {
        whole[i] = dtp_layout_replicated(call.in[i].rank, mesh->n_dims);
    }
    return dtp_node_layouts_find(mesh, &call, NULL, strategy, whole, NULL, out, err);
}

/* ---- assignment -> sharding ---- */

/* Whether another operand is the same tensor in another layout. */
static bool read_otherwise(const dtp_node *node, const dtp_node_layouts *l, int32_t i)
{
    bool other = false;
    for (int32_t j = 0; j < node->n_in; j++) {
        other = other || (node->in[j] == node->in[i] && !dtp_layout_equal(&l->in[j], &l->in[i]));
    }
    return other;
}

/* In *l the layouts in which a node that runs as its decomposition leaves its results, which are
 * not those of its rules. */
static dtp_status find_left(const dtp_tensor_problem *p, dtp_node_id id,
                            const dtp_strategy *strategy, dtp_node_layouts *l, dtp_err *err)
{
    const dtp_node *node = &p->graph->nodes[id];
    dtp_program *q;
    DTP_TRY(dtp_program_create(p->graph, &p->pricer->mesh, p->pricer->target, &q, err));
    q->plain_names = true;
    q->redistributor = dtp_tensor_redistributor(p);
    const dtp_status s = dtp_lower_node(q, id, strategy, l->in, NULL, NULL, err);
    for (int32_t i = 0; i < node->n_out && s == DTP_OK; i++) {
        l->out[i] = q->values[q->tensor_value[node->out[i]]].layout;
    }
    dtp_program_destroy(q);
    return s;
}

/* Tensors without a variable are kept as their op reads them, or leaves them. */
static dtp_status place_node(const dtp_tensor_problem *p, dtp_node_id id, dtp_sharding *out,
                             dtp_err *err)
{
    const dtp_node *node = &p->graph->nodes[id];
    dtp_node_layouts l;
    bool passes = false;
    DTP_TRY(natural_layouts(p, id, &out->strategies[id], &l, err));
    for (int32_t i = 0; i < node->n_out; i++) {
        passes = passes || p->variable_of_tensor[node->out[i]] < 0;
    }
    if (passes && l.internal != 0) {
        DTP_TRY(find_left(p, id, &out->strategies[id], &l, err));
    }
    for (int32_t i = 0; i < node->n_in; i++) {
        if (p->variable_of_tensor[node->in[i]] < 0 && !read_otherwise(node, &l, i)) {
            out->layouts[node->in[i]] = l.in[i];
        }
    }
    for (int32_t i = 0; i < node->n_out; i++) {
        if (p->variable_of_tensor[node->out[i]] < 0) {
            out->layouts[node->out[i]] = l.out[i];
        }
    }
    return DTP_OK;
}

dtp_status dtp_tensor_sharding(const dtp_tensor_problem *p, const int32_t *assignment,
                               dtp_arena *arena, dtp_sharding *out, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    *out =
        (dtp_sharding){.mesh = p->pricer->mesh, .n_tensors = g->n_tensors, .n_nodes = g->n_nodes};
    out->layouts = dtp_arena_alloc(arena, (size_t)g->n_tensors, sizeof *out->layouts);
    out->strategies = dtp_arena_alloc(arena, (size_t)g->n_nodes, sizeof *out->strategies);
    DTP_TRY(out->layouts != NULL && out->strategies != NULL
                ? DTP_OK
                : DTP_FAIL(err, DTP_NOMEM, "out of memory for the layouts of %d tensors",
                           g->n_tensors));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const int32_t c = p->variable_of_tensor[t];
        out->layouts[t] = c >= 0 ? chosen(p, assignment, c)->layout
                                 : dtp_layout_replicated(g->tensors[t].type.rank, out->mesh.n_dims);
    }
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        out->strategies[id] = chosen(p, assignment, p->variable_of_node[id])->strategy;
        DTP_TRY(place_node(p, id, out, err));
    }
    DTP_TRY(dtp_sharding_add_replicas(out, arena, err));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        for (int phase = 0; phase < 3; phase++) {
            const int32_t c = p->variable_of_replica[phase][t];
            if (c >= 0) {
                out->replicas[phase][t] = chosen(p, assignment, c)->layout;
            }
        }
    }
    return DTP_OK;
}

/* ---- sharding -> assignment ---- */

static int32_t find_layout(const dtp_tensor_variable *c, const dtp_layout *layout, bool own)
{
    for (int32_t i = 0; i < c->n_strategies; i++) {
        if (c->strategies[i].own == own && dtp_layout_equal(&c->strategies[i].layout, layout)) {
            return i;
        }
    }
    return -1;
}

static bool same_node_layouts(const dtp_node *node, const dtp_node_layouts *a,
                              const dtp_node_layouts *b)
{
    bool same = true;
    for (int32_t i = 0; i < node->n_in && same; i++) {
        same = dtp_layout_equal(&a->in[i], &b->in[i]);
    }
    for (int32_t i = 0; i < node->n_out && same; i++) {
        same = dtp_layout_equal(&a->out[i], &b->out[i]);
    }
    return same;
}

/* The strategy with these rows, or else with their layouts: -1 when there is none. */
static dtp_status find_strategy(const dtp_tensor_problem *p, dtp_node_id id,
                                const dtp_strategy *strategy, int32_t *out, dtp_err *err)
{
    const dtp_tensor_variable *c = &p->variables[p->variable_of_node[id]];
    dtp_node_layouts want, have;
    *out = -1;
    for (int32_t i = 0; i < c->n_strategies && *out < 0; i++) {
        *out = memcmp(&c->strategies[i].strategy, strategy, sizeof *strategy) == 0 ? i : -1;
    }
    if (*out >= 0 || natural_layouts(p, id, strategy, &want, NULL) != DTP_OK) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < c->n_strategies && *out < 0; i++) {
        DTP_TRY(natural_layouts(p, id, &c->strategies[i].strategy, &have, err));
        *out = same_node_layouts(&p->graph->nodes[id], &want, &have) ? i : -1;
    }
    return DTP_OK;
}

/* False when an instance decided otherwise, or the strategy is not there. */
static bool settle(int32_t *assignment, int32_t variable, int32_t strategy)
{
    const bool agrees =
        strategy >= 0 && (assignment[variable] < 0 || assignment[variable] == strategy);
    assignment[variable] = strategy;
    return agrees;
}

static dtp_status find_options(const dtp_tensor_problem *p, const dtp_sharding *s,
                               int32_t *assignment, bool *found, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    for (dtp_node_id id = 0; id < g->n_nodes && *found; id++) {
        int32_t strategy;
        DTP_TRY(find_strategy(p, id, &s->strategies[id], &strategy, err));
        *found = settle(assignment, p->variable_of_node[id], strategy);
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors && *found; t++) {
        const int32_t c = p->variable_of_tensor[t];
        *found =
            c < 0 || settle(assignment, c, find_layout(&p->variables[c], &s->layouts[t], false));
        for (int phase = 0; phase < 3 && *found && dtp_sharding_has_replicas(s); phase++) {
            const int32_t v = p->variable_of_replica[phase][t];
            const dtp_layout *view = &s->replicas[phase][t];
            const bool own = dtp_layout_equal(view, &s->layouts[t]);
            *found = v < 0 || settle(assignment, v, find_layout(&p->variables[v], view, own));
        }
    }
    return DTP_OK;
}

dtp_status dtp_tensor_assignment(const dtp_tensor_problem *p, const dtp_sharding *s,
                                 int32_t *assignment, bool *found, dtp_err *err)
{
    *found = s->n_nodes == p->graph->n_nodes && s->n_tensors == p->graph->n_tensors;
    for (int32_t i = 0; i < p->n_variables; i++) {
        assignment[i] = -1;
    }
    DTP_TRY(find_options(p, s, assignment, found, err));
    if (!*found || dtp_sharding_has_replicas(s)) {
        return DTP_OK;
    }
    int64_t *cost = calloc((size_t)p->select->first[p->n_variables] + 1, sizeof *cost);
    DTP_TRY(DTP_MEMORY(err, cost));
    /* The cheapest strategy of every replica, the rest as it is. */
    const dtp_problem *select = p->select;
    for (int32_t i = 0; i < p->n_variables; i++) {
        const dtp_tensor_variable *c = &p->variables[i];
        if (c->kind != DTP_DECIDE_REPLICA) {
            continue;
        }
        for (int32_t k = 0; k < c->n_strategies; k++) {
            cost[select->first[i] + k] = select->cost[select->first[i] + k];
        }
    }
    for (int32_t e = 0; e < select->n_edges; e++) {
        const int32_t a = select->edge_a[e], b = select->edge_b[e];
        const int32_t view = p->variables[a].kind == DTP_DECIDE_REPLICA   ? a
                             : p->variables[b].kind == DTP_DECIDE_REPLICA ? b
                                                                          : -1;
        const int64_t cols = dtp_problem_n_strategies(select, b);
        for (int32_t k = 0; view >= 0 && k < p->variables[view].n_strategies; k++) {
            const int64_t row = view == a ? k : assignment[a], col = view == b ? k : assignment[b];
            int64_t *to = &cost[select->first[view] + k];
            *to = dtp_problem_add_cost(*to,
                                       select->edge_cost[select->edge_first[e] + row * cols + col]);
        }
    }
    for (int32_t i = 0; i < p->n_variables; i++) {
        for (int32_t k = 0;
             p->variables[i].kind == DTP_DECIDE_REPLICA && k < p->variables[i].n_strategies; k++) {
            const int64_t at = select->first[i];
            assignment[i] =
                assignment[i] < 0 || cost[at + k] < cost[at + assignment[i]] ? k : assignment[i];
        }
    }
    free(cost);
    return DTP_OK;
}
