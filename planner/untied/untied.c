/* A bound of the problem without tying, which is never built: dual ascent over all instances,
 * which share the matrices of the tied problem. The multipliers of an ascent on the tied
 * problem, divided among its instances, are the start.
 */
#include "planner/untied/ascent_exact.h"
#include "planner/untied/ascent_tied.h"

static void fill_variables(const dtp_tensor_problem *p, int32_t *assignment, ascent_place *places,
                           int32_t n)
{
    const dtp_graph *g = p->graph;
    for (int32_t i = 0; i < n; i++) {
        const int32_t t = i - g->n_nodes, x = t - g->n_tensors;
        assignment[i] = t < 0   ? p->variable_of_node[i]
                        : x < 0 ? p->variable_of_tensor[t]
                                : p->variable_of_replica[x % 3][x / 3];
        places[i] = (ascent_place){dtp_ascent__time_of(p, i), i};
    }
    for (int32_t i = 0; i < g->n_updates;
         i++) { /* decided with their targets; accumulators are not */
        const dtp_update *u = &g->updates[i];
        if (p->variable_of_tensor[u->value] == p->variable_of_tensor[u->target]) {
            assignment[g->n_nodes + u->value] = -1;
        }
    }
}

static void share_multipliers(const ascent *tied, const ascent *a)
{
    for (int32_t e = 0; e < a->n_edges; e++) {
        const int32_t from = a->edges[e].edge;
        const int64_t n = a->first_phi[e + 1] - a->first_phi[e];
        const float count = (float)a->p->edge_count[from];
        for (int64_t k = 0; k < n; k++) {
            a->phi[a->first_phi[e] + k] = tied->phi[tied->first_phi[from] + k] / count;
        }
    }
}

static dtp_status bound_unfolded(const dtp_tensor_problem *p, int32_t rounds,
                                 const ascent_prices *prices, dtp_arena *arena, int64_t *bound,
                                 dtp_err *err)
{
    const dtp_graph *g = p->graph;
    ascent tied, a = {.p = p, .n_edges = p->n_unfolded, .edges = p->unfolded};
    ascent_exact x;
    int64_t off;
    bool fits;
    a.n = g->n_nodes + 4 * g->n_tensors;
    int32_t *assignment = dtp_arena_alloc(arena, (size_t)a.n, sizeof *assignment);
    ascent_place *places = dtp_arena_alloc(arena, (size_t)a.n, sizeof *places);
    if (assignment == NULL || places == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", a.n);
    }
    *bound = 0;
    fill_variables(p, assignment, places, a.n);
    a.assignment = assignment;
    DTP_TRY(dtp_ascent__find_costs(&a, prices, arena, &off, &fits, err));
    if (!fits) {
        return DTP_OK;
    }
    DTP_TRY(dtp_ascent__tied(p, rounds > 0, prices, arena, &tied, &off, &fits, err));
    DTP_TRY(dtp_ascent__prepare(&a, places, arena, err));
    share_multipliers(&tied, &a);
    dtp_ascent__run(&a, rounds, DTP_ASCENT_LEAST_GAIN);
    DTP_TRY(dtp_ascent__exact(&a, arena, &x, err));
    *bound = x.ok && x.bound > off ? x.bound - off : 0;
    return DTP_OK;
}

dtp_status dtp_untied_bound(const dtp_tensor_problem *p, int32_t rounds, int32_t n_prices,
                            const dtp_memory_multiplier *prices, int64_t *bound, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    ascent_prices x;
    if (arena == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a bound");
    }
    dtp_status s = dtp_ascent__read_prices(p->select, n_prices, prices, arena, &x, err);
    s = s == DTP_OK ? bound_unfolded(p, rounds, &x, arena, bound, err) : s;
    dtp_arena_destroy(arena);
    return s;
}
