/* The search for multipliers under which good solutions are feasible. */
#include "planner/solver/primal/subgradient.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

dtp_status solver_subgradient_create(const solver_graph *g, solver_forest *forest,
                                     solver_subgradient *out, dtp_err *err)
{
    solver_subgradient p = {.forest = forest};
    const size_t n = (size_t)g->n + 1, rows = (size_t)g->n_rows + 1;
    p.assignment = calloc(n, sizeof *p.assignment);
    p.order = calloc(n, sizeof *p.order);
    p.direction = calloc(rows, sizeof *p.direction);
    p.used = calloc(rows, sizeof *p.used);
    dtp_status s = p.assignment != NULL && p.order != NULL && p.direction != NULL && p.used != NULL
                       ? solver_messages_create(g, &p.messages, err)
                       : DTP_FAIL(err, DTP_NOMEM, "out of memory for prices of %d rows", g->n_rows);
    if (s != DTP_OK) {
        solver_subgradient_destroy(&p);
        return s;
    }
    for (int32_t i = 0; i < g->n; i++) {
        p.order[i] = i;
    }
    for (int32_t r = 0; r < g->n_rows; r++) {
        p.warm = p.warm || g->multiplier[r] > 0.0;
    }
    *out = p;
    return DTP_OK;
}

void solver_subgradient_destroy(solver_subgradient *p)
{
    solver_messages_destroy(&p->messages);
    free(p->assignment);
    free(p->order);
    free(p->direction);
    free(p->used);
    *p = (solver_subgradient){0};
}

static void follow_usage(solver_subgradient *p, solver_point *w)
{
    const solver_graph *g = w->g;
    const dtp_solver_parameters *c = g->parameters;
    const double limit = (double)g->limit + 1.0, memory = c->subgradient_memory;
    const bool above = solver_usage_peak(&w->usage) > g->limit;
    solver_usage_read(&w->usage, p->used);
    double square = 0.0; /* of the direction, where multipliers can follow it */
    double most = 0.0;
    for (int32_t r = 0; r < g->n_rows; r++) {
        double *d = &p->direction[r];
        *d = memory * *d + (1.0 - memory) * (double)(p->used[r] - g->limit) / limit;
        square += *d > 0.0 || w->multiplier[r] > 0.0 ? *d * *d : 0.0;
        most = fmax(most, w->multiplier[r]);
    }
    if (p->first_step <= 0.0 && square > 0.0) {
        const double cost = w->cost + fmax(g->constant, 0.0);
        p->step = p->first_step = p->warm ? c->subgradient_warm_step * most
                                          : c->subgradient_first_step * cost / (square * limit);
    }
    if (above != p->above) {
        p->step *= c->subgradient_shrink;
        p->on_this_side = 0;
    } else if (++p->on_this_side > c->subgradient_calm) {
        p->step *= above ? c->subgradient_growth_above : c->subgradient_growth_below;
    }
    p->above = above;
    for (int32_t r = 0; r < g->n_rows; r++) {
        w->multiplier[r] = fmax(0.0, w->multiplier[r] + p->step * p->direction[r]);
    }
    solver_point_penalise(w);
}

dtp_status solver_subgradient_step(solver_subgradient *p, solver_point *w, dtp_err *err)
{
    const int32_t n = w->g->n;
    solver_messages_pass(&p->messages, w, p->assignment);
    solver_point_jump(w, p->assignment);
    solver_point_shuffle(w, p->order, n);
    solver_forest_pick(p->forest, p->order, n);
    DTP_TRY(solver_forest_solve(p->forest, w, w->theta, err));
    if (++p->n_steps > w->g->parameters->subgradient_free_steps) {
        follow_usage(p, w);
    }
    return DTP_OK;
}

void solver_subgradient_restart(solver_subgradient *p, double share)
{
    p->step = share * p->first_step;
    p->on_this_side = 0;
}

void solver_subgradient_reset(solver_subgradient *p, const solver_graph *g)
{
    memset(p->direction, 0, (size_t)g->n_rows * sizeof *p->direction);
    solver_messages_clear(&p->messages);
    p->n_steps = 0;
    solver_subgradient_restart(p, 1.0);
}
