/* A point of the search: strategies, their cost and usage, kept up to date. */
#include "planner/solver/primal/primal_point.h"

#include <stdlib.h>
#include <string.h>

dtp_status solver_point_create(const solver_graph *g, const int32_t *assignment, uint64_t seed,
                               solver_point *out, dtp_err *err)
{
    solver_point w = {.g = g, .random = seed};
    const size_t rows = (size_t)g->n_rows + 1;
    w.assignment = calloc((size_t)g->n + 1, sizeof *w.assignment);
    w.multiplier = calloc(rows, sizeof *w.multiplier);
    w.multiplier_sum = calloc(rows, sizeof *w.multiplier_sum);
    w.theta = calloc((size_t)g->n_strategies + 1, sizeof *w.theta);
    if (w.assignment == NULL || w.multiplier == NULL || w.multiplier_sum == NULL ||
        w.theta == NULL) {
        solver_point_destroy(&w);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a search over %d nodes", g->n);
    }
    dtp_status s = solver_usage_create(g->n_rows, g->base, &w.usage, err);
    if (s != DTP_OK) {
        solver_point_destroy(&w);
        return s;
    }
    memcpy(w.multiplier, g->multiplier, (size_t)g->n_rows * sizeof *w.multiplier);
    solver_point_jump(&w, assignment);
    solver_point_penalise(&w);
    *out = w;
    return DTP_OK;
}

void solver_point_destroy(solver_point *w)
{
    free(w->assignment);
    free(w->multiplier);
    free(w->multiplier_sum);
    free(w->theta);
    free(w->log);
    solver_usage_destroy(&w->usage);
    *w = (solver_point){0};
}

int32_t solver_point_random(solver_point *w, int32_t n)
{
    return solver_random(&w->random, n);
}

void solver_point_shuffle(solver_point *w, int32_t *items, int32_t n)
{
    for (int32_t i = n - 1; i > 0; i--) {
        const int32_t j = solver_point_random(w, i + 1);
        const int32_t kept = items[i];
        items[i] = items[j];
        items[j] = kept;
    }
}

/* Adds a cost of the point, or takes it away. */
static void account(solver_point *w, double cost, int32_t sign)
{
    if (cost >= w->g->forbidden) {
        w->n_forbidden += sign;
    } else {
        w->cost += (double)sign * cost;
    }
}

void solver_point_jump(solver_point *w, const int32_t *assignment)
{
    const solver_graph *g = w->g;
    memcpy(w->assignment, assignment, (size_t)g->n * sizeof *assignment);
    solver_usage_set(&w->usage, g->base);
    w->cost = 0.0;
    w->n_forbidden = 0;
    for (int32_t i = 0; i < g->n; i++) {
        const solver_vertex *x = &g->vertices[i];
        const int32_t s = assignment[i];
        account(w, x->cost[s], 1);
        for (int32_t a = 0; a < x->n_arcs; a++) {
            const solver_arc *arc = &x->arcs[a];
            if (arc->other < i) {
                account(w, arc->m[(int64_t)assignment[arc->other] * x->k + s], 1);
            }
        }
        for (int32_t j = 0; j < x->n_spans; j++) {
            if (x->spans[j].use[s] != 0) {
                solver_usage_add(&w->usage, x->spans[j].first, x->spans[j].last,
                                 x->spans[j].use[s]);
            }
        }
    }
    solver_point_mark(w);
}

void solver_point_mark(solver_point *w)
{
    w->n_log = 0;
    w->marked_cost = w->cost;
    w->marked_forbidden = w->n_forbidden;
}

static void change(solver_point *w, int32_t variable, int32_t to)
{
    const solver_vertex *x = &w->g->vertices[variable];
    const int32_t from = w->assignment[variable];
    account(w, x->cost[from], -1);
    account(w, x->cost[to], 1);
    for (int32_t a = 0; a < x->n_arcs; a++) {
        const double *line = x->arcs[a].m + (int64_t)w->assignment[x->arcs[a].other] * x->k;
        account(w, line[from], -1);
        account(w, line[to], 1);
    }
    for (int32_t j = 0; j < x->n_spans; j++) {
        const solver_span *span = &x->spans[j];
        if (span->use[to] != span->use[from]) {
            solver_usage_add(&w->usage, span->first, span->last, span->use[to] - span->use[from]);
        }
    }
    w->assignment[variable] = to;
    w->work += 2 * x->n_arcs + 16 * x->n_spans;
}

dtp_status solver_point_set(solver_point *w, int32_t variable, int32_t strategy, dtp_err *err)
{
    if (strategy == w->assignment[variable]) {
        return DTP_OK;
    }
    DTP_TRY(dtp_problem__reserve(&w->log, (int64_t)w->n_log + 1, &w->cap_log, sizeof *w->log, err));
    w->log[w->n_log++] = (solver_change){variable, w->assignment[variable]};
    change(w, variable, strategy);
    return DTP_OK;
}

void solver_point_undo(solver_point *w)
{
    for (int32_t i = w->n_log - 1; i >= 0; i--) {
        change(w, w->log[i].variable, w->log[i].before);
    }
    w->cost = w->marked_cost;
    w->n_forbidden = w->marked_forbidden;
    w->n_log = 0;
}

bool solver_point_feasible(const solver_point *w)
{
    return w->n_forbidden == 0 && solver_usage_peak(&w->usage) <= w->g->limit;
}

void solver_point_penalise(solver_point *w)
{
    const solver_graph *g = w->g;
    w->multiplier_sum[0] = 0.0;
    for (int32_t r = 0; r < g->n_rows; r++) {
        w->multiplier_sum[r + 1] = w->multiplier_sum[r] + w->multiplier[r];
    }
    for (int32_t i = 0; i < g->n; i++) {
        const solver_vertex *x = &g->vertices[i];
        double *theta = w->theta + x->at;
        for (int32_t s = 0; s < x->k; s++) {
            theta[s] = x->cost[s];
        }
        for (int32_t j = 0; j < x->n_spans; j++) {
            const solver_span *span = &x->spans[j];
            const double multiplier =
                w->multiplier_sum[span->last] - w->multiplier_sum[span->first];
            for (int32_t s = 0; multiplier > 0.0 && s < x->k; s++) {
                theta[s] += multiplier * (double)span->use[s];
            }
        }
    }
    w->work += g->n_rows + 3 * g->n_strategies;
}
