/* Lower bounds by dual ascent without presolve. */
#include "planner/solver/dual_bound.h"

#include <stdlib.h>

#include "planner/solver/dual/dual.h"
#include "planner/solver/reduced/bound.h"
#include "planner/solver/reduced/load.h"

/* Rounds that lift the bound by a smaller share end the ascent. */
static const double LEAST_GAIN = 1e-5;

/* Multipliers that are not below this are left out. */
static const double MOST_MULTIPLIER = 1e12;

/* Of an ascent up to a bound that is enough, so many rounds are made at a time. */
enum { TIED_ROUNDS = 60, ROUNDS_AT_A_TIME = 2 };

typedef struct ascent {
    solver_reduced *w;
    solver_dual *d;
} ascent;

static void destroy(ascent *a)
{
    solver_dual_destroy(a->d);
    solver_reduced_destroy(a->w);
}

/* a->d = NULL: no assignment is left. */
static dtp_status create(const dtp_problem *p, const dtp_dual_start *start, ascent *a, dtp_err *err)
{
    const dtp_presolve_options options = {.memory_rows = true};
    DTP_TRY(solver_reduced_create(p, &options, dtp_solver_parameters_default(), &a->w, err));
    for (int32_t i = 0; i < start->n_multipliers && a->w->n_rows > 0; i++) {
        const dtp_memory_multiplier *m = &start->multipliers[i];
        int32_t row = 0; /* the first one at or after the time, or the last one */
        while (row + 1 < a->w->n_rows && a->w->time[row] < m->time) {
            row++;
        }
        if (m->multiplier > 0.0 && m->multiplier < MOST_MULTIPLIER) {
            a->w->multiplier[row] += m->multiplier;
        }
    }
    return a->w->infeasible ? DTP_OK : solver_dual_create(a->w, &a->d, err);
}

static dtp_status start_tied(const ascent *a, const dtp_dual_start *start, dtp_err *err)
{
    ascent tied = {0};
    dtp_status s = create(start->tied, start, &tied, err);
    if (s == DTP_OK && tied.d != NULL) {
        solver_dual_settle(tied.d, TIED_ROUNDS, LEAST_GAIN, start->stop);
        s = solver_dual_start_like(a->d, tied.d, start->variable, err);
    }
    destroy(&tied);
    return s;
}

static dtp_status ascend(const ascent *a, const dtp_dual_start *start, int64_t rounds,
                         int64_t *bound, dtp_err *err)
{
    const int64_t most = start->enough > 0 ? ROUNDS_AT_A_TIME : rounds;
    *bound = 0;
    for (int64_t done = 0; done < rounds && (done == 0 || *bound < start->enough);) {
        const int64_t now = rounds - done < most ? rounds - done : most;
        solver_dual_settle(a->d, now, LEAST_GAIN, start->stop);
        DTP_TRY(solver_dual_bound(a->d, a->w, false, bound, err));
        done += now;
    }
    return DTP_OK;
}

dtp_status dtp_dual_bound(const dtp_problem *p, const dtp_dual_start *start, int64_t rounds,
                          int64_t *bound, dtp_err *err)
{
    ascent a = {0};
    dtp_status s = create(p, start, &a, err);
    if (s == DTP_OK && a.d == NULL) {
        *bound = DTP_FORBIDDEN;
    } else if (s == DTP_OK) {
        s = start->tied != NULL ? start_tied(&a, start, err) : DTP_OK;
        s = s == DTP_OK ? ascend(&a, start, rounds, bound, err) : s;
    }
    destroy(&a);
    return s;
}

/* ---- by strategy ---- */

/* Rounds by the size of the problem, so that an answer takes about as long for all. */
static int64_t rounds_for(solver_reduced *w)
{
    const dtp_solver_parameters *c = w->parameters;
    const int64_t rounds = c->explain_work / (solver_size(w).entries + 1);
    return rounds > c->explain_rounds         ? c->explain_rounds
           : rounds < c->explain_least_rounds ? c->explain_least_rounds
                                              : rounds;
}

/* Of the strategies that are left, by their indices in the problem. */
static dtp_status read_bounds(solver_reduced *w, int32_t variable, int64_t *bound, dtp_err *err)
{
    int64_t *left = calloc((size_t)w->variables[variable].k + 1, sizeof *left);
    int32_t *at = calloc((size_t)w->n_variables + 1, sizeof *at);
    dtp_status status = DTP_MEMORY(err, left, at);
    status = status == DTP_OK ? solver_bound_strategies(w, variable, left, err) : status;
    for (int32_t s = 0; s < dtp_problem_n_strategies(w->p, variable) && status == DTP_OK; s++) {
        at[variable] = s;
        solver_project(w, at);
        bound[s] = at[variable] >= 0 ? left[at[variable]] : DTP_FORBIDDEN;
    }
    free(left);
    free(at);
    return status;
}

static dtp_status ascend_all(solver_reduced *w, int32_t variable, int64_t *bound, dtp_err *err)
{
    solver_dual *d = NULL;
    int64_t all;
    DTP_TRY(solver_presolve(w, err));
    if (w->infeasible) {
        return DTP_OK;
    }
    DTP_TRY(solver_dual_create(w, &d, err));
    solver_dual_run(d, rounds_for(w), NULL);
    dtp_status s = solver_dual_apply(d, w, false, &all, err);
    s = s == DTP_OK ? read_bounds(w, variable, bound, err) : s;
    solver_dual_destroy(d);
    return s;
}

dtp_status dtp_strategy_bounds(const dtp_problem *p, int32_t variable, int64_t *bound, dtp_err *err)
{
    /* no variable goes, and strategies that nothing goes with do */
    const dtp_presolve_options options = {.soft_arc_consistency = true, .memory_rows = true};
    solver_reduced *w = NULL;
    for (int32_t s = 0; s < dtp_problem_n_strategies(p, variable); s++) {
        bound[s] = DTP_FORBIDDEN;
    }
    DTP_TRY(solver_reduced_create(p, &options, dtp_solver_parameters_default(), &w, err));
    const dtp_status status = ascend_all(w, variable, bound, err);
    solver_reduced_destroy(w);
    return status;
}
