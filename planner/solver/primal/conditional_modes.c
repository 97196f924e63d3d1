/* Coordinate descent by a queue: a variable that changes lets its neighbours decide again. */
#include "planner/solver/primal/conditional_modes.h"

#include <stdlib.h>
#include <string.h>

#include "planner/problem/adjacency.h"

/* A forbidden strategy or pair counts so much, more than all that is allowed together. */
static const double FORBIDDEN = 1e24;

struct solver_conditional {
    const dtp_problem *p;
    const dtp_solver_parameters *parameters;
    solver_adjacency at;
    int32_t *queue; /* a ring of n_nodes */
    bool *queued;   /* by variable */
    double *sum;    /* by strategy of one variable */
};

static double weight(int64_t cost)
{
    return cost >= DTP_FORBIDDEN ? FORBIDDEN : (double)cost;
}

dtp_status solver_conditional_create(const dtp_problem *p, const dtp_solver_parameters *parameters,
                                     solver_conditional **out, dtp_err *err)
{
    const size_t n = (size_t)p->n_variables + 2;
    int32_t most = 1;
    solver_conditional *d = calloc(1, sizeof *d);
    for (int32_t i = 0; i < p->n_variables; i++) {
        const int32_t k = dtp_problem_n_strategies(p, i);
        most = k > most ? k : most;
    }
    if (d != NULL) {
        *d = (solver_conditional){.p = p,
                                  .parameters = parameters,
                                  .queue = calloc(n, sizeof *d->queue),
                                  .queued = calloc(n, sizeof *d->queued),
                                  .sum = calloc((size_t)most, sizeof *d->sum)};
    }
    if (d == NULL || d->queue == NULL || d->queued == NULL || d->sum == NULL) {
        solver_conditional_destroy(d);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a descent over %d nodes",
                        p->n_variables);
    }
    const dtp_status status = solver_adjacency_create(p, &d->at, err);
    if (status != DTP_OK) {
        solver_conditional_destroy(d);
        return status;
    }
    *out = d;
    return DTP_OK;
}

void solver_conditional_destroy(solver_conditional *d)
{
    if (d != NULL) {
        solver_adjacency_destroy(&d->at);
        free(d->queue);
        free(d->queued);
        free(d->sum);
        free(d);
    }
}

/* The strategy that costs least given those of the neighbours. */
static int32_t cheapest(solver_conditional *d, int32_t variable, const int32_t *assignment)
{
    const dtp_problem *p = d->p;
    const int32_t k = dtp_problem_n_strategies(p, variable);
    int32_t best = assignment[variable];
    for (int32_t s = 0; s < k; s++) {
        d->sum[s] = weight(p->cost[p->first[variable] + s]);
    }
    for (int32_t i = d->at.first[variable]; i < d->at.first[variable + 1]; i++) {
        const int32_t e = d->at.edge[i], a = p->edge_a[e], b = p->edge_b[e];
        const int64_t cols = dtp_problem_n_strategies(p, b);
        const int64_t *m = p->edge_cost + p->edge_first[e];
        for (int32_t s = 0; s < k; s++) {
            d->sum[s] +=
                weight(a == variable ? m[s * cols + assignment[b]] : m[assignment[a] * cols + s]);
        }
    }
    for (int32_t s = 0; s < k; s++) {
        best = d->sum[s] < d->sum[best] ? s : best;
    }
    return best;
}

void solver_conditional_modes(solver_conditional *d, int32_t held, int32_t *assignment)
{
    const dtp_problem *p = d->p;
    const int32_t n = p->n_variables;
    int64_t left = (int64_t)d->parameters->modes_changes * n;
    int32_t head = 0, waiting = 0;
    memset(d->queued, 0, (size_t)n * sizeof *d->queued);
    for (int32_t at = held; at >= 0 && left-- > 0;) {
        for (int32_t i = d->at.first[at]; i < d->at.first[at + 1]; i++) {
            const int32_t e = d->at.edge[i], y = p->edge_a[e] == at ? p->edge_b[e] : p->edge_a[e];
            if (!d->queued[y] && y != held) {
                d->queued[y] = true;
                d->queue[(head + waiting++) % n] = y;
            }
        }
        at = -1;
        while (waiting > 0 && at < 0) {
            const int32_t y = d->queue[head];
            const int32_t best = cheapest(d, y, assignment);
            head = (head + 1) % n;
            waiting--;
            d->queued[y] = false;
            at = best != assignment[y] ? y : -1;
            assignment[y] = best;
        }
    }
}
