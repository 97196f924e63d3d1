#include "planner/solver/primal_marginals.h"

#include <stdlib.h>
#include <string.h>

#include "planner/solver/primal/conditional_modes.h"
#include "planner/solver/primal/primal_tree.h"

/* ---- solutions ------------------------------------------------------------------------------- */

static int32_t *assignment_of(const solver_primal_marginals *a, int32_t s)
{
    return a->assignments + (size_t)s * (size_t)a->p->n_variables;
}

/* Keeps a->assignment if it is the best with its strategy, or the first at all. */
static dtp_status offer(solver_primal_marginals *a, bool first, dtp_err *err)
{
    const int32_t s = a->assignment[a->variable];
    dtp_problem_value value = {0};
    int64_t cost;
    DTP_TRY(dtp_evaluator_cost(a->evaluator, a->assignment, &cost, err));
    if (cost < a->cost[s]) {
        DTP_TRY(dtp_evaluator_run(a->evaluator, a->assignment, &value, err));
    }
    const bool better = value.feasible;
    if (better || first) {
        memcpy(assignment_of(a, s), a->assignment,
               (size_t)a->p->n_variables * sizeof *a->assignment);
        a->cost[s] = better ? value.cost : a->cost[s];
    }
    return DTP_OK;
}

dtp_status solver_primal_marginals_offer(solver_primal_marginals *a, const int32_t *assignment,
                                         dtp_err *err)
{
    memcpy(a->assignment, assignment, (size_t)a->p->n_variables * sizeof *a->assignment);
    return offer(a, false, err);
}

dtp_status solver_primal_marginals_descend(solver_primal_marginals *a, dtp_err *err)
{
    solver_conditional *d = NULL;
    dtp_status status = DTP_OK;
    DTP_TRY(solver_conditional_create(a->p, a->parameters, &d, err));
    for (int32_t s = 0; s < a->k && status == DTP_OK; s++) {
        memcpy(a->assignment, assignment_of(a, s),
               (size_t)a->p->n_variables * sizeof *a->assignment);
        solver_conditional_modes(d, a->variable, a->assignment);
        status = offer(a, a->cost[s] >= DTP_FORBIDDEN, err);
    }
    solver_conditional_destroy(d);
    return status;
}

dtp_status solver_primal_marginals_create(const dtp_problem *p,
                                          const dtp_solver_parameters *parameters, int32_t variable,
                                          const int32_t *start, solver_primal_marginals *out,
                                          dtp_err *err)
{
    *out = (solver_primal_marginals){.parameters = parameters,
                                     .p = p,
                                     .variable = variable,
                                     .k = dtp_problem_n_strategies(p, variable)};
    const size_t n = (size_t)p->n_variables, k = (size_t)out->k;
    dtp_status status = dtp_evaluator_create(p, &out->evaluator, err);
    out->assignments = calloc(n * k + 1, sizeof *out->assignments);
    out->cost = calloc(k + 1, sizeof *out->cost);
    out->assignment = calloc(n + 1, sizeof *out->assignment);
    if (status == DTP_OK) {
        status = DTP_MEMORY(err, out->assignments, out->cost, out->assignment);
    }
    for (int32_t s = 0; s < out->k && status == DTP_OK; s++) {
        memcpy(assignment_of(out, s), start, n * sizeof *start);
        assignment_of(out, s)[variable] = s;
        out->cost[s] = DTP_FORBIDDEN;
    }
    status = status == DTP_OK ? solver_primal_marginals_offer(out, start, err) : status;
    if (status == DTP_OK && out->cost[start[variable]] >= DTP_FORBIDDEN) {
        status = DTP_FAIL(err, DTP_INVALID, "the solution to start from is not feasible");
    }
    if (status != DTP_OK) {
        solver_primal_marginals_destroy(out);
    }
    return status;
}

void solver_primal_marginals_destroy(solver_primal_marginals *a)
{
    dtp_evaluator_destroy(a->evaluator);
    free(a->assignments);
    free(a->cost);
    free(a->assignment);
    *a = (solver_primal_marginals){0};
}

/* ---- forests --------------------------------------------------------------------------------- */

typedef struct grove {
    const solver_reduced *w;
    solver_graph *graph;
    solver_forest *forest;
    solver_point point;
    int32_t *order, *start; /* by variable of the graph */
    int32_t n_order;        /* all but the variable that is held */
    int32_t held;
} grove;

static dtp_status enter(grove *g, int32_t variable, dtp_err *err)
{
    DTP_TRY(solver_graph_create(g->w, &g->graph, err));
    const size_t n = (size_t)g->graph->n;
    g->order = calloc(2 * n + 1, sizeof *g->order);
    DTP_TRY(DTP_MEMORY(err, g->order));
    g->start = g->order + n;
    for (int32_t i = 0; i < g->graph->n; i++) {
        if (g->graph->vertices[i].origin == variable) {
            g->held = i;
        } else {
            g->order[g->n_order++] = i;
        }
    }
    DTP_TRY(solver_forest_create(g->graph, &g->forest, err));
    DTP_TRY(solver_point_create(g->graph, g->start, 1, &g->point, err));
    memcpy(g->point.multiplier, g->graph->multiplier,
           (size_t)g->graph->n_rows * sizeof *g->point.multiplier);
    solver_point_penalise(&g->point);
    return DTP_OK;
}

/* From the best with strategy s, which is strategy i of the reduced problem. */
static dtp_status improve(solver_primal_marginals *a, grove *g, int32_t i, int32_t s,
                          int32_t forests, dtp_err *err)
{
    memcpy(a->assignment, assignment_of(a, s), (size_t)a->p->n_variables * sizeof *a->assignment);
    solver_project(g->w, a->assignment);
    for (int32_t n = 0; n < a->p->n_variables; n++) { /* presolve may have removed its strategy */
        a->assignment[n] = a->assignment[n] < 0 ? 0 : a->assignment[n];
    }
    for (int32_t n = 0; n < g->graph->n; n++) {
        g->start[n] = a->assignment[g->graph->vertices[n].origin];
    }
    g->start[g->held] = i;
    solver_point_jump(&g->point, g->start);
    for (int32_t f = 0; f < forests && g->n_order > 0; f++) {
        solver_point_mark(&g->point);
        solver_point_shuffle(&g->point, g->order, g->n_order);
        solver_forest_pick(g->forest, g->order, g->n_order);
        DTP_TRY(solver_forest_solve(g->forest, &g->point, g->point.theta, err));
    }
    if (!solver_point_feasible(&g->point)) {
        return DTP_OK;
    }
    for (int32_t n = 0; n < g->graph->n; n++) {
        a->assignment[g->graph->vertices[n].origin] = g->point.assignment[n];
    }
    solver_restore(g->w, a->assignment);
    return offer(a, false, err);
}

dtp_status solver_primal_marginals_improve(solver_primal_marginals *a, const solver_reduced *w,
                                           const int32_t *origin, int32_t forests, dtp_err *err)
{
    grove g = {.w = w, .held = -1};
    const solver_variable *x = &w->variables[a->variable];
    dtp_status status = enter(&g, a->variable, err);
    for (int32_t i = 0; status == DTP_OK && i < x->k; i++) {
        status = solver_dead(x, i) ? DTP_OK : improve(a, &g, i, origin[i], forests, err);
    }
    solver_point_destroy(&g.point);
    solver_forest_destroy(g.forest);
    solver_graph_destroy(g.graph);
    free(g.order);
    return status;
}
