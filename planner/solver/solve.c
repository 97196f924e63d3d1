/* Solves a selection problem: presolve, search and bound, branch and bound. */
#include "planner/solver/solve.h"

#include <stdlib.h>
#include <string.h>

#include "planner/solver/branch.h"
#include "planner/solver/dive.h"
#include "planner/solver/primal_dual.h"
#include "planner/solver/large_neighbourhood.h"
#include "planner/solver/relax.h"
#include "planner/solver/state.h"
#include "planner/solver/reduced/load.h"
#include "planner/solver/reduced/copy.h"

dtp_solve_options dtp_solve_options_init(void)
{
    return (dtp_solve_options){.parameters = dtp_solver_parameters_default(),
                               .presolve = dtp_presolve_options_init(),
                               .solver = DTP_SOLVER_AUTO,
                               .threads = 2,
                               .seed = 1,
                               .lp_entries = 8000,
                               .max_entries = 250000};
}

dtp_status dtp_solver_parse(const char *name, dtp_solver *out, dtp_err *err)
{
    static const char *const names[] = {"auto", "exact", "large", "glpk"};
    for (int32_t i = 0; i < (int32_t)(sizeof names / sizeof names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (dtp_solver)i;
            return DTP_OK;
        }
    }
    return DTP_FAIL(err, DTP_INVALID, "--solver: '%.80s' is none of auto, exact, large, glpk",
                    name);
}

double dtp_solve_gap(const dtp_solve_result *r)
{
    return dtp_gap(r->value.cost, r->bound);
}

/* A little of it, and a dive, on a copy: it may be enough, and else branch and bound has a good
 * solution to begin with and costs that are not spread over the kernel. */
static dtp_status try_large(solver_state *v, const solver_reduced *w, int64_t rounds,
                            int64_t *bound, dtp_err *err)
{
    solver_reduced *copy = NULL;
    const int64_t first = v->options->parameters->solve_first_rounds;
    DTP_TRY(solver_copy(w, &copy, err));
    dtp_status s = solver_primal_dual(v, copy, rounds < first ? rounds : first, bound, err);
    if (s == DTP_OK && !copy->infeasible && !solver_close(v, *bound)) {
        s = solver_dive(v, copy, err);
    }
    solver_reduced_destroy(copy);
    return s;
}

/* Everything once: at most so many rounds of either search, and as many nodes; neighbourhoods,
 * which take long, where a limit was given. The bound of GLPK has its tolerances, so branch and
 * bound proves its answer. */
static dtp_status pass(solver_state *v, solver_reduced *w, int64_t most, int64_t *bound,
                       dtp_err *err)
{
    const dtp_solver solver = v->options->solver;
    if (solver == DTP_SOLVER_GLPK && !w->infeasible && !v->searched) {
        dtp_cert_status status;
        DTP_TRY(solver_integer(w, false, v->assignment, &status, err));
        if (status == DTP_CERT_OPTIMAL || status == DTP_CERT_FEASIBLE) {
            DTP_TRY(solver_offer(v, w, w->n_undo, v->assignment, err));
        }
        w->infeasible = status == DTP_CERT_INFEASIBLE;
    } else if (solver != DTP_SOLVER_EXACT && solver != DTP_SOLVER_GLPK && !w->infeasible) {
        DTP_TRY(solver_too_large(v, w) ? solver_primal_dual(v, w, most, bound, err)
                                       : try_large(v, w, most, bound, err));
    }
    DTP_TRY(solver_reduce(v, w, err));
    if (solver != DTP_SOLVER_LARGE || w->infeasible) {
        v->max_nodes = most < INT64_MAX - v->out->nodes ? v->out->nodes + most : INT64_MAX;
        DTP_TRY(solver_branch(v, w, bound, err));
    }
    DTP_TRY(solver_reduce(v, w, err));
    const bool limited = v->options->iterations > 0 || v->options->until_stopped;
    if (limited && solver == DTP_SOLVER_AUTO && !solver_close(v, *bound) && !w->infeasible &&
        v->found) {
        DTP_TRY(solver_large_neighbourhood(v, w, most, *bound, err));
    }
    return DTP_OK;
}

/* From the solution that is known beforehand, if any. Without a limit of iterations, again with
 * other random numbers and for longer until the time is up. */
static dtp_status run(solver_state *v, solver_reduced *w, dtp_err *err)
{
    const dtp_solve_options *o = v->options;
    dtp_problem_value value = {0};
    int64_t bound = 0, most = o->iterations > 0 ? o->iterations : o->parameters->solve_iterations;
    v->cutoff = o->cutoff > 0 ? o->cutoff : DTP_FORBIDDEN;
    if (o->start != NULL) {
        DTP_TRY(dtp_evaluator_run(v->evaluator, o->start, &value, err));
    }
    if (value.feasible && value.cost < v->cutoff) {
        memcpy(v->best, o->start, (size_t)v->p->n_variables * sizeof *v->best);
        v->out->value = value;
        v->cutoff = value.cost;
        v->found = true;
    }
    DTP_TRY(solver_reduce(v, w, err));
    v->out->presolve = w->report;
    v->gap = solver_size(w).entries > o->lp_entries ? o->gap : 0.0;
    const bool once = o->iterations > 0 || !o->until_stopped ||
                      (o->solver == DTP_SOLVER_EXACT && solver_too_large(v, w));
    do {
        DTP_TRY(pass(v, w, most, &bound, err));
        bound = w->infeasible ? v->cutoff : bound;
        most += most < INT64_MAX / 4 ? most / 2 : 0;
        v->seed++;
    } while (!once && !solver_close(v, bound) && !dtp_stopped(o->stop));
    v->out->bound = bound < v->cutoff ? bound : v->cutoff;
    if (v->out->bound == v->cutoff) {
        v->out->status = v->found ? DTP_CERT_OPTIMAL : DTP_CERT_INFEASIBLE;
    } else {
        v->out->status = v->found ? DTP_CERT_FEASIBLE : DTP_CERT_TIME_LIMIT;
    }
    return DTP_OK;
}

dtp_status dtp_solve(const dtp_problem *p, const dtp_solve_options *options, dtp_solve_result *out,
                     dtp_err *err)
{
    *out = (dtp_solve_result){0};
    solver_state v = {.p = p, .options = options, .out = out, .seed = options->seed};
    solver_reduced *w = NULL;
    dtp_evaluator *evaluator = NULL;
    const size_t n = (size_t)p->n_variables + 1;
    DTP_TRY(dtp_evaluator_create(p, &evaluator, err));
    v.evaluator = evaluator;
    int32_t *block = calloc(3 * n, sizeof *block);
    dtp_status s = DTP_MEMORY(err, block);
    if (s == DTP_OK) {
        v.assignment = block;
        v.full = block + n;
        v.best = block + 2 * n;
        s = solver_reduced_create(p, &options->presolve, options->parameters, &w, err);
    }
    if (s == DTP_OK) {
        w->stop = options->stop;
        s = run(&v, w, err);
    }
    if (s == DTP_OK && v.found) {
        out->assignment = malloc(n * sizeof *out->assignment);
        s = DTP_MEMORY(err, out->assignment);
    }
    if (s == DTP_OK && v.found) {
        memcpy(out->assignment, v.best, n * sizeof *out->assignment);
    }
    solver_reduced_destroy(w);
    free(block);
    dtp_evaluator_destroy(evaluator);
    return s;
}

void dtp_solve_result_free(dtp_solve_result *r)
{
    free(r->assignment);
    r->assignment = NULL;
}
