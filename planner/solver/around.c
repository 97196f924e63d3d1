#include "planner/solver/around.h"

#include <stdlib.h>
#include <string.h>

#include "planner/solver/primal/conditional_modes.h"
#include "planner/solver/primal/primal_tree.h"

/* ---- around the start ---------------------------------------------------------------------------
 */

static int32_t *choice_of(const sel_around *a, int32_t s)
{
    return a->choices + (size_t)s * (size_t)a->p->n_nodes;
}

/* Keeps a->choice if it is the best with its strategy, or the first at all. */
static dtp_status offer(sel_around *a, bool first, dtp_err *err)
{
    const int32_t s = a->choice[a->node];
    dtp_select_value value = {0};
    int64_t cost;
    DTP_TRY(dtp_select_evaluator_cost(a->evaluator, a->choice, &cost, err));
    if (cost < a->cost[s]) {
        DTP_TRY(dtp_select_evaluator_run(a->evaluator, a->choice, &value, err));
    }
    const bool better = value.feasible;
    if (better || first) {
        memcpy(choice_of(a, s), a->choice, (size_t)a->p->n_nodes * sizeof *a->choice);
        a->cost[s] = better ? value.cost : a->cost[s];
    }
    return DTP_OK;
}

dtp_status sel_around_offer(sel_around *a, const int32_t *choice, dtp_err *err)
{
    memcpy(a->choice, choice, (size_t)a->p->n_nodes * sizeof *a->choice);
    return offer(a, false, err);
}

/* a->choice becomes one of the nodes that are alive; strategy 0 where presolve removed its. */
static void project(sel_around *a, const sel_work *w)
{
    sel_project(w, a->choice);
    for (int32_t i = 0; i < a->p->n_nodes; i++) {
        a->choice[i] = a->choice[i] < 0 ? 0 : a->choice[i];
    }
}

dtp_status sel_around_descend(sel_around *a, dtp_err *err)
{
    sel_descent *d = NULL;
    dtp_status status = DTP_OK;
    DTP_TRY(sel_descent_create(a->p, &d, err));
    for (int32_t s = 0; s < a->k && status == DTP_OK; s++) {
        memcpy(a->choice, choice_of(a, s), (size_t)a->p->n_nodes * sizeof *a->choice);
        sel_descend(d, a->node, a->choice);
        status = offer(a, a->cost[s] >= DTP_SELECT_FORBIDDEN, err);
    }
    sel_descent_destroy(d);
    return status;
}

static dtp_status begin(sel_around *a, const int32_t *start, dtp_err *err)
{
    const size_t n = (size_t)a->p->n_nodes;
    DTP_TRY(dtp_select_evaluator_create(a->p, &a->evaluator, err));
    a->choices = calloc(n * (size_t)a->k + 1, sizeof *a->choices);
    a->cost = calloc((size_t)a->k + 1, sizeof *a->cost);
    a->choice = calloc(n + 1, sizeof *a->choice);
    if (a->choices == NULL || a->cost == NULL || a->choice == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d solutions", a->k);
    }
    for (int32_t s = 0; s < a->k; s++) {
        memcpy(choice_of(a, s), start, n * sizeof *start);
        choice_of(a, s)[a->node] = s;
        a->cost[s] = DTP_SELECT_FORBIDDEN;
    }
    DTP_TRY(sel_around_offer(a, start, err));
    return a->cost[start[a->node]] < DTP_SELECT_FORBIDDEN
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "the solution to start from is not feasible");
}

dtp_status sel_around_create(const dtp_select_problem *p, int32_t node, const int32_t *start,
                             sel_around *out, dtp_err *err)
{
    *out = (sel_around){.p = p, .node = node, .k = dtp_select_n_strategies(p, node)};
    const dtp_status status = begin(out, start, err);
    if (status != DTP_OK) {
        sel_around_destroy(out);
    }
    return status;
}

void sel_around_destroy(sel_around *a)
{
    dtp_select_evaluator_destroy(a->evaluator);
    free(a->choices);
    free(a->cost);
    free(a->choice);
    *a = (sel_around){0};
}

/* ---- forests ------------------------------------------------------------------------------------
 */

typedef struct grove {
    const sel_work *w;
    sel_graph *graph;
    sel_forest *forest;
    sel_walk walk;
    int32_t *order, *start; /* by node of the graph */
    int32_t n_order;        /* all but the node that is held */
    int32_t held;
} grove;

static void leave(grove *g)
{
    sel_walk_destroy(&g->walk);
    sel_forest_destroy(g->forest);
    sel_graph_destroy(g->graph);
    free(g->order);
}

static dtp_status enter(grove *g, int32_t node, dtp_err *err)
{
    DTP_TRY(sel_graph_create(g->w, &g->graph, err));
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
    DTP_TRY(sel_forest_create(g->graph, &g->forest, err));
    DTP_TRY(sel_walk_create(g->graph, g->start, 1, &g->walk, err));
    memcpy(g->walk.price, g->graph->price, (size_t)g->graph->n_rows * sizeof *g->walk.price);
    sel_walk_reprice(&g->walk);
    return DTP_OK;
}

/* From the best with strategy s, which is strategy i of the work. */
static dtp_status improve(sel_around *a, grove *g, int32_t i, int32_t s, int32_t forests,
                          dtp_err *err)
{
    memcpy(a->choice, choice_of(a, s), (size_t)a->p->n_nodes * sizeof *a->choice);
    project(a, g->w);
    for (int32_t n = 0; n < g->graph->n; n++) {
        g->start[n] = a->choice[g->graph->nodes[n].origin];
    }
    g->start[g->held] = i;
    sel_walk_jump(&g->walk, g->start);
    for (int32_t f = 0; f < forests && g->n_order > 0; f++) {
        sel_walk_mark(&g->walk);
        sel_walk_shuffle(&g->walk, g->order, g->n_order);
        sel_forest_pick(g->forest, g->order, g->n_order);
        DTP_TRY(sel_forest_solve(g->forest, &g->walk, g->walk.theta, err));
    }
    if (!sel_walk_feasible(&g->walk)) {
        return DTP_OK;
    }
    for (int32_t n = 0; n < g->graph->n; n++) {
        a->choice[g->graph->nodes[n].origin] = g->walk.choice[n];
    }
    sel_restore(g->w, a->choice);
    return offer(a, false, err);
}

dtp_status sel_around_improve(sel_around *a, const sel_work *w, const int32_t *origin,
                              int32_t forests, dtp_err *err)
{
    grove g = {.w = w, .held = -1};
    const sel_node *x = &w->nodes[a->node];
    dtp_status status = enter(&g, a->node, err);
    for (int32_t i = 0; status == DTP_OK && i < x->k; i++) {
        status = sel_dead(x, i) ? DTP_OK : improve(a, &g, i, origin[i], forests, err);
    }
    leave(&g);
    return status;
}
