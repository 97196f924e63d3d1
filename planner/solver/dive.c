/* In every step a share of the undecided variables, those whose best strategy leads the second best
 * by most, keep that strategy alone. Where this leaves no solution below the cutoff, the step is
 * taken back and a smaller share tried. */
#include "planner/solver/dive.h"

#include <stdlib.h>

#include "planner/solver/dual/dual_split.h"
#include "planner/solver/reduced/copy.h"

typedef struct lead {
    double by;
    int32_t variable, strategy;
} lead;

static int compare_leads(const void *a, const void *b)
{
    const lead *x = a, *y = b;
    const int by_lead = (x->by < y->by) - (x->by > y->by);
    return by_lead != 0 ? by_lead : (x->variable > y->variable) - (x->variable < y->variable);
}

/* The undecided variables, largest lead first. */
static dtp_status find_leads(const solver_reduced *w, lead *list, int32_t *n, dtp_err *err)
{
    int32_t most = 1;
    for (int32_t i = 0; i < w->n_variables; i++) {
        most = w->variables[i].alive && w->variables[i].k > most ? w->variables[i].k : most;
    }
    double *sums = malloc(((size_t)w->n_rows + 1) * sizeof *sums);
    double *theta = malloc((size_t)most * sizeof *theta);
    const bool ok = sums != NULL && theta != NULL;
    *n = 0;
    if (ok) {
        solver_multiplier_sums(w, sums);
    }
    for (int32_t i = 0; ok && i < w->n_variables; i++) {
        if (w->variables[i].alive && w->variables[i].n_live > 1) {
            solver_penalised_costs(w, sums, i, theta);
            lead *x = &list[(*n)++];
            x->variable = i;
            x->strategy = solver_dual_cheapest(&w->variables[i], theta, &x->by);
        }
    }
    free(sums);
    free(theta);
    qsort(list, (size_t)*n, sizeof *list, compare_leads);
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", w->n_variables);
}

/* A copy in which the variables of largest lead are decided; NULL when nothing is left in it. */
static dtp_status step(solver_state *v, const solver_reduced *w, lead *list, double share,
                       solver_reduced **out, dtp_err *err)
{
    const dtp_solver_parameters *c = w->parameters;
    solver_reduced *next = NULL;
    int32_t n = 0;
    *out = NULL;
    DTP_TRY(find_leads(w, list, &n, err));
    DTP_TRY(solver_copy(w, &next, err));
    const int32_t some = n > 0 ? 1 + (int32_t)(share * (double)n) : 0;
    dtp_status s = DTP_OK;
    for (int32_t i = 0; i < some && s == DTP_OK && !next->infeasible; i++) {
        s = solver_fix(next, list[i].variable, list[i].strategy, err);
    }
    s = s == DTP_OK && !next->infeasible ? solver_reduce(v, next, err) : s;
    if (s == DTP_OK && !next->infeasible) {
        int64_t bound;
        s = solver_dual_relax(next, c->dive_rounds, v->options->stop, &bound, err);
    }
    s = s == DTP_OK && !next->infeasible ? solver_reduce(v, next, err) : s;
    if (s == DTP_OK && !next->infeasible) {
        *out = next;
    } else {
        solver_reduced_destroy(next);
    }
    return s;
}

/* chain[i + 1] is a copy of chain[i]; all but the last are retired. */
static dtp_status descend(solver_state *v, solver_reduced **chain, int32_t *n, lead *list,
                          dtp_err *err)
{
    const int64_t before = v->cutoff;
    const dtp_solver_parameters *c = v->options->parameters;
    double share = c->dive_share;
    for (int32_t retreats = 0;
         retreats < c->dive_retreats && *n < c->dive_steps && !dtp_stopped(v->options->stop);) {
        solver_reduced *next = NULL;
        DTP_TRY(step(v, chain[*n - 1], list, share, &next, err));
        if (next != NULL) {
            const dtp_status owned = solver_own_all(next, err);
            solver_retire(chain[*n - 1]);
            chain[(*n)++] = next;
            DTP_TRY(owned);
        } else if (v->cutoff < before) {
            return DTP_OK;
        } else {
            share *= 0.5;
            retreats++;
        }
    }
    return DTP_OK;
}

dtp_status solver_dive(solver_state *v, const solver_reduced *w, dtp_err *err)
{
    int32_t n = 0;
    const size_t steps = (size_t)w->parameters->dive_steps;
    solver_reduced **chain = calloc(steps, sizeof(solver_reduced *));
    lead *list = malloc(((size_t)w->n_variables + 1) * sizeof *list);
    dtp_status s = list != NULL && chain != NULL
                       ? solver_copy(w, &chain[0], err)
                       : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d nodes", w->n_variables);
    if (s == DTP_OK) {
        n = 1;
        s = descend(v, chain, &n, list, err);
    }
    while (n > 0) {
        solver_reduced_destroy(chain[--n]);
    }
    free(chain);
    free(list);
    return s;
}
