/* Iterated local search by perturbations under the true limit. */
#include "planner/solver/primal/perturbation.h"

#include <stdlib.h>

dtp_status solver_perturbation_create(const solver_graph *g, solver_forest *forest,
                                      solver_perturbation *out, dtp_err *err)
{
    solver_perturbation p = {.forest = forest};
    p.near = calloc((size_t)g->n + 1, sizeof *p.near);
    p.stamp = calloc((size_t)g->n + 1, sizeof *p.stamp);
    if (p.near == NULL || p.stamp == NULL) {
        solver_perturbation_destroy(&p);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a search over %d nodes", g->n);
    }
    *out = p;
    return DTP_OK;
}

void solver_perturbation_destroy(solver_perturbation *p)
{
    free(p->near);
    free(p->stamp);
    *p = (solver_perturbation){0};
}

static bool visit(solver_perturbation *p, int32_t variable)
{
    const bool first = p->stamp[variable] != p->now;
    p->stamp[variable] = p->now;
    return first;
}

/* Breadth first from a variable, which comes first; of a variable with many neighbours, some at
 * random. */
static int32_t neighbourhood(solver_perturbation *p, solver_point *w, int32_t variable,
                             int32_t size)
{
    int32_t n = 0;
    p->now++;
    (void)visit(p, variable);
    p->near[n++] = variable;
    for (int32_t at = 0; at < n && n < size; at++) {
        const solver_vertex *x = &w->g->vertices[p->near[at]];
        const int32_t from = x->n_arcs > 0 ? solver_point_random(w, x->n_arcs) : 0;
        for (int32_t a = 0; a < x->n_arcs && n < size; a++) {
            const int32_t y = x->arcs[(from + a) % x->n_arcs].other;
            if (visit(p, y)) {
                p->near[n++] = y;
            }
        }
    }
    w->work += 2 * n;
    return n;
}

static dtp_status adapt(solver_perturbation *p, solver_point *w, int32_t n, bool with_perturbed,
                        dtp_err *err)
{
    const int32_t skip = with_perturbed ? 0 : 1;
    solver_point_shuffle(w, p->near + 1, n - 1);
    solver_forest_pick(p->forest, p->near + skip, n - skip);
    return solver_forest_solve(p->forest, w, w->theta, err);
}

dtp_status solver_perturbation_step(solver_perturbation *p, solver_point *w, bool *better,
                                    dtp_err *err)
{
    const dtp_solver_parameters *c = w->g->parameters;
    const int32_t sizes[] = {c->perturbation_small, c->perturbation_medium, c->perturbation_large};
    const int32_t variable = solver_point_random(w, w->g->n);
    const int32_t strategy = solver_point_random(w, w->g->vertices[variable].k);
    const int32_t n = neighbourhood(p, w, variable, sizes[solver_point_random(w, 3)]);
    solver_point_mark(w);
    DTP_TRY(solver_point_set(w, variable, strategy, err));
    DTP_TRY(adapt(p, w, n, false, err));
    DTP_TRY(adapt(p, w, n, false, err));
    DTP_TRY(adapt(p, w, n, true, err));
    *better = w->cost < w->marked_cost && solver_point_feasible(w);
    if (w->cost > w->marked_cost || !solver_point_feasible(w)) {
        solver_point_undo(w);
    }
    return DTP_OK;
}
