#include "planner/solver/around.h"

#include <stdlib.h>
#include <string.h>

#include "planner/solver/primal/conditional_modes.h"
#include "planner/solver/primal/primal_tree.h"

/* ---- around the start ---------------------------------------------------------------------------
 */

static int32_t *choice_of(const solver_primal_marginals *a, int32_t s)
{
    return a->variables + (size_t)s * (size_t)a->p->n_nodes;
}

/* Keeps a->assignment if it is the best with its strategy, or the first at all. */
static dtp_status offer(solver_primal_marginals *a, bool first, dtp_err *err)
{
    const int32_t s = a->assignment[a->node];
    dtp_problem_value value = {0};
    int64_t cost;
    DTP_TRY(dtp_evaluator_cost(a->evaluator, a->assignment, &cost, err));
    if (cost < a->cost[s]) {
        DTP_TRY(dtp_evaluator_run(a->evaluator, a->assignment, &value, err));
    }
    const bool better = value.feasible;
    if (better || first) {
        memcpy(choice_of(a, s), a->assignment, (size_t)a->p->n_nodes * sizeof *a->assignment);
        a->cost[s] = better ? value.cost : a->cost[s];
    }
    return DTP_OK;
}

dtp_status solver_primal_marginals_offer(solver_primal_marginals *a, const int32_t *assignment,
                                         dtp_err *err)
{
    memcpy(a->assignment, assignment, (size_t)a->p->n_nodes * sizeof *a->assignment);
    return offer(a, false, err);
}

/* a->assignment becomes one of the nodes that are alive; strategy 0 where presolve removed its. */
static void project(solver_primal_marginals *a, const solver_work *w)
{
    solver_project(w, a->assignment);
    for (int32_t i = 0; i < a->p->n_nodes; i++) {
        a->assignment[i] = a->assignment[i] < 0 ? 0 : a->assignment[i];
    }
}

dtp_status solver_primal_marginals_descend(solver_primal_marginals *a, dtp_err *err)
{
    solver_conditional *d = NULL;
    dtp_status status = DTP_OK;
    DTP_TRY(solver_conditional_create(a->p, &d, err));
    for (int32_t s = 0; s < a->k && status == DTP_OK; s++) {
        memcpy(a->assignment, choice_of(a, s), (size_t)a->p->n_nodes * sizeof *a->assignment);
        solver_conditional_modes(d, a->node, a->assignment);
        status = offer(a, a->cost[s] >= DTP_FORBIDDEN, err);
    }
    solver_conditional_destroy(d);
    return status;
}

static dtp_status begin(solver_primal_marginals *a, const int32_t *start, dtp_err *err)
{
    const size_t n = (size_t)a->p->n_nodes;
    DTP_TRY(dtp_evaluator_create(a->p, &a->evaluator, err));
    a->variables = calloc(n * (size_t)a->k + 1, sizeof *a->variables);
    a->cost = calloc((size_t)a->k + 1, sizeof *a->cost);
    a->assignment = calloc(n + 1, sizeof *a->assignment);
    if (a->variables == NULL || a->cost == NULL || a->assignment == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d solutions", a->k);
    }
    for (int32_t s = 0; s < a->k; s++) {
        memcpy(choice_of(a, s), start, n * sizeof *start);
        choice_of(a, s)[a->node] = s;
        a->cost[s] = DTP_FORBIDDEN;
    }
    DTP_TRY(solver_primal_marginals_offer(a, start, err));
    return a->cost[start[a->node]] < DTP_FORBIDDEN
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "the solution to start from is not feasible");
}

dtp_status solver_primal_marginals_create(const dtp_problem *p, int32_t node, const int32_t *start,
                                          solver_primal_marginals *out, dtp_err *err)
{
    *out = (solver_primal_marginals){.p = p, .node = node, .k = dtp_problem_n_strategies(p, node)};
    const dtp_status status = begin(out, start, err);
    if (status != DTP_OK) {
        solver_primal_marginals_destroy(out);
    }
    return status;
}

void solver_primal_marginals_destroy(solver_primal_marginals *a)
{
    dtp_evaluator_destroy(a->evaluator);
    free(a->variables);
    free(a->cost);
    free(a->assignment);
    *a = (solver_primal_marginals){0};
}

/* ---- forests ------------------------------------------------------------------------------------
 */

typedef struct grove {
    const solver_work *w;
    solver_graph *graph;
    solver_forest *forest;
    solver_point walk;
    int32_t *order, *start; /* by node of the graph */
    int32_t n_order;        /* all but the node that is held */
    int32_t held;
} grove;

static void leave(grove *g)
{
    solver_point_destroy(&g->walk);
    solver_forest_destroy(g->forest);
    solver_graph_destroy(g->graph);
    free(g->order);
}

static dtp_status enter(grove *g, int32_t node, dtp_err *err)
{
    DTP_TRY(solver_graph_create(g->w, &g->graph, err));
    const size_t n = (size_t)g->graph->n;
    g->order = calloc(2 * n + 1, sizeof *g->order);
    if (g->order == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", g->graph->n);
    }
    g->start = g->order + n;
    for (int32_t i = 0; i < g->graph->n; i++) {
        if (g->graph->nodes[i].origin == node) {
            g->held = i;
        } else {
            g->order[g->n_order++] = i;
        }
    }
    DTP_TRY(solver_forest_create(g->graph, &g->forest, err));
    DTP_TRY(solver_point_create(g->graph, g->start, 1, &g->walk, err));
    memcpy(g->walk.multiplier, g->graph->multiplier,
           (size_t)g->graph->n_rows * sizeof *g->walk.multiplier);
    solver_point_reprice(&g->walk);
    return DTP_OK;
}

/* From the best with strategy s, which is strategy i of the work. */
static dtp_status improve(solver_primal_marginals *a, grove *g, int32_t i, int32_t s,
                          int32_t forests, dtp_err *err)
{
    memcpy(a->assignment, choice_of(a, s), (size_t)a->p->n_nodes * sizeof *a->assignment);
    project(a, g->w);
    for (int32_t n = 0; n < g->graph->n; n++) {
        g->start[n] = a->assignment[g->graph->nodes[n].origin];
    }
    g->start[g->held] = i;
    solver_point_jump(&g->walk, g->start);
    for (int32_t f = 0; f < forests && g->n_order > 0; f++) {
        solver_point_mark(&g->walk);
        solver_point_shuffle(&g->walk, g->order, g->n_order);
        solver_forest_pick(g->forest, g->order, g->n_order);
        DTP_TRY(solver_forest_solve(g->forest, &g->walk, g->walk.theta, err));
    }
    if (!solver_point_feasible(&g->walk)) {
        return DTP_OK;
    }
    for (int32_t n = 0; n < g->graph->n; n++) {
        a->assignment[g->graph->nodes[n].origin] = g->walk.assignment[n];
    }
    solver_restore(g->w, a->assignment);
    return offer(a, false, err);
}

dtp_status solver_primal_marginals_improve(solver_primal_marginals *a, const solver_work *w,
                                           const int32_t *origin, int32_t forests, dtp_err *err)
{
    grove g = {.w = w, .held = -1};
    const solver_node *x = &w->nodes[a->node];
    dtp_status status = enter(&g, a->node, err);
    for (int32_t i = 0; status == DTP_OK && i < x->k; i++) {
        status = solver_dead(x, i) ? DTP_OK : improve(a, &g, i, origin[i], forests, err);
    }
    leave(&g);
    return status;
}
