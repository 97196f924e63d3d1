/* The smallest usage limit under which a selection problem has a solution. */
#include "planner/solver/minimum_memory.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "planner/solver/reduced/load.h"
#include "planner/solver/reduced/reduced.h"
#include "planner/solver/relax.h"

/* At every time each interval with its largest usage: every assignment is within it. */
static dtp_status most_usage(const dtp_problem *p, int64_t *most, dtp_err *err)
{
    const int32_t n = dtp_problem_n_intervals(p);
    dtp_keyed *events = calloc(4 * (size_t)n + 1, sizeof *events);
    int64_t now = 0;
    *most = 0;
    DTP_TRY(DTP_MEMORY(err, events));
    for (int32_t i = 0; i < n; i++) {
        const dtp_problem_interval x = dtp_problem_interval_at(p, i);
        int64_t large = 0;
        for (int32_t s = 0; s < dtp_problem_n_strategies(p, x.variable); s++) {
            large = x.usage[s] > large ? x.usage[s] : large;
        }
        large = x.begin < x.end ? large : 0;
        events[i] = (dtp_keyed){dtp_sort_key(x.end), -large}; /* those that end come first */
        events[n + i] = (dtp_keyed){dtp_sort_key(x.begin), large};
    }
    dtp_sort_keyed(events, events + 2 * (size_t)n, 2 * (int64_t)n);
    for (int32_t i = 0; i < 2 * n; i++) {
        now += events[i].item;
        *most = now > *most ? now : *most;
    }
    free(events);
    return DTP_OK;
}

static void keep(dtp_solve_result *r, dtp_minimum_memory *out)
{
    if (r->assignment != NULL && (out->assignment == NULL || r->value.peak < out->usage)) {
        free(out->assignment);
        out->assignment = r->assignment;
        out->usage = r->value.peak;
        r->assignment = NULL;
    }
    dtp_solve_result_free(r);
}

/* Between `out->bound` and what is known to work. A step that finds nothing sends the search up,
 * whether it proves that there is nothing or not. */
static dtp_status bisect(dtp_problem *p, const dtp_solve_options *options, dtp_minimum_memory *out,
                         dtp_err *err)
{
    int64_t low = out->bound;
    dtp_solve_result r;
    DTP_TRY(dtp_solve(p, options, &r, err));
    out->possible = r.status != DTP_CERT_INFEASIBLE;
    keep(&r, out);
    while (out->assignment != NULL && low < out->usage && !dtp_stopped(options->stop)) {
        p->usage_limit = low + (out->usage - 1 - low) / 2;
        DTP_TRY(dtp_solve(p, options, &r, err));
        if (r.assignment == NULL) {
            low = p->usage_limit + 1;
            out->bound = r.status == DTP_CERT_INFEASIBLE ? low : out->bound;
        }
        keep(&r, out);
    }
    return DTP_OK;
}

/* As one integer program; optimal up to GLPK's tolerances. That there is nothing only presolve
 * proves: GLPK says it of programs with badly scaled rows that have solutions. */
static dtp_status solve_by_glpk(const dtp_problem *p, const dtp_solve_options *options,
                                dtp_minimum_memory *out, dtp_err *err)
{
    dtp_presolve_options presolve = options->presolve;
    solver_reduced *w = NULL;
    dtp_solve_result r = {0};
    dtp_cert_status status = DTP_CERT_INFEASIBLE;
    presolve.memory_rows = false; /* all times matter, whatever the limit */
    DTP_TRY(solver_reduced_create(p, &presolve, options->parameters, &w, err));
    w->stop = options->stop;
    dtp_status s = solver_presolve(w, err);
    if (s == DTP_OK && !w->infeasible) {
        r.assignment = calloc((size_t)w->n_variables + 1, sizeof *r.assignment);
        s = DTP_MEMORY(err, r.assignment);
        s = s == DTP_OK ? solver_integer(w, true, r.assignment, &status, err) : s;
    }
    out->possible = s != DTP_OK || !w->infeasible;
    if (s == DTP_OK && (status == DTP_CERT_OPTIMAL || status == DTP_CERT_FEASIBLE)) {
        solver_restore(w, r.assignment);
        s = dtp_problem_evaluate(w->p, r.assignment, &r.value, err);
        if (s == DTP_OK && r.value.feasible) {
            keep(&r, out);
            out->bound = status == DTP_CERT_OPTIMAL ? out->usage : out->bound;
        }
    }
    dtp_solve_result_free(&r);
    solver_reduced_destroy(w);
    return s;
}

dtp_status dtp_minimum_memory_find(const dtp_problem *p, const dtp_solve_options *options,
                                   int64_t upper, dtp_minimum_memory *out, dtp_err *err)
{
    dtp_solve_options o = *options;
    memset(out, 0, sizeof *out);
    o.cutoff = 0;
    DTP_TRY(dtp_minimum_peak(p, &out->bound, err));
    int64_t most;
    DTP_TRY(most_usage(p, &most, err));
    /* a copy that shares everything but the costs, which are 0 where they are allowed */
    const int64_t strategies = p->first[p->n_variables];
    int64_t *costs = calloc((size_t)(strategies + p->n_stored) + 1, sizeof *costs);
    DTP_TRY(DTP_MEMORY(err, costs));
    dtp_problem plain = *p;
    plain.cost = costs;
    plain.edge_cost = costs + strategies;
    plain.usage_limit = upper > 0 ? upper : most;
    for (int64_t i = 0; i < strategies; i++) {
        plain.cost[i] = p->cost[i] >= DTP_FORBIDDEN ? DTP_FORBIDDEN : 0;
    }
    for (int64_t i = 0; i < p->n_stored; i++) {
        plain.edge_cost[i] = p->edge_cost[i] >= DTP_FORBIDDEN ? DTP_FORBIDDEN : 0;
    }
    const bool glpk = o.solver == DTP_SOLVER_GLPK;
    dtp_status s = glpk ? solve_by_glpk(&plain, &o, out, err) : DTP_OK;
    if (s == DTP_OK && (!glpk || (out->possible && out->assignment == NULL))) {
        o.solver = glpk ? DTP_SOLVER_AUTO : o.solver; /* where GLPK has no answer */
        s = bisect(&plain, &o, out, err);
    }
    free(costs);
    if (s != DTP_OK) {
        dtp_minimum_memory_free(out);
    }
    return s;
}

void dtp_minimum_memory_free(dtp_minimum_memory *l)
{
    free(l->assignment);
    l->assignment = NULL;
}
