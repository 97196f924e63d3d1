#include "planner/untied/ascent_tied.h"

enum { ROUNDS = 60 };

int64_t dtp_ascent__time_of(const dtp_tensor_problem *p, int32_t node)
{
    const dtp_graph *g = p->graph;
    if (node < g->n_nodes) {
        return 4 * (int64_t)node + 1;
    }
    const int32_t x = node - g->n_nodes - g->n_tensors;
    const dtp_tensor_id t = x < 0 ? node - g->n_nodes : x / 3;
    return g->tensors[t].producer >= 0 ? 4 * (int64_t)g->tensors[t].producer + (x < 0 ? 2 : 3)
                                       : (x < 0 ? -1 : 0);
}

/* As a node of the problem without tying. */
static int32_t unfolded_node(const dtp_tensor_problem *p, const dtp_tensor_variable *c)
{
    const dtp_graph *g = p->graph;
    return c->kind == DTP_DECIDE_OP       ? c->node
           : c->kind == DTP_DECIDE_TENSOR ? g->n_nodes + c->tensor
                                          : g->n_nodes + g->n_tensors + 3 * c->tensor;
}

dtp_status dtp_ascent__tied(const dtp_tensor_problem *p, bool run, const ascent_prices *prices,
                            dtp_arena *arena, ascent *a, int64_t *off, bool *fits, dtp_err *err)
{
    const dtp_problem *s = p->select;
    const size_t n = (size_t)s->n_variables;
    int32_t *assignment = dtp_arena_alloc(arena, n, sizeof *assignment);
    ascent_place *places = dtp_arena_alloc(arena, n, sizeof *places);
    dtp_unfolded_edge *edges = dtp_arena_alloc(arena, (size_t)s->n_edges, sizeof *edges);
    if (assignment == NULL || places == NULL || edges == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu nodes", n);
    }
    for (int32_t i = 0; i < s->n_variables; i++) {
        assignment[i] = i;
        places[i] = (ascent_place){dtp_ascent__time_of(p, unfolded_node(p, &p->variables[i])), i};
    }
    for (int32_t e = 0; e < s->n_edges; e++) {
        edges[e] = (dtp_unfolded_edge){.edge = e, .a = s->edge_a[e], .b = s->edge_b[e]};
    }
    *a = (ascent){.p = p,
                  .n = s->n_variables,
                  .n_edges = s->n_edges,
                  .assignment = assignment,
                  .edges = edges,
                  .tied = true};
    DTP_TRY(dtp_ascent__find_costs(a, prices, arena, off, fits, err));
    DTP_TRY(dtp_ascent__prepare(a, places, arena, err));
    dtp_ascent__run(a, run ? ROUNDS : 0, DTP_ASCENT_LEAST_GAIN);
    return DTP_OK;
}
