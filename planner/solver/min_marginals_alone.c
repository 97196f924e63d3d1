/* One strategy of the variable at a time, and what a run owns. Beside a strategy whose bound is
 * near the cost of its solution little is left of the problem: elimination, some rounds of ascent,
 * or branch and bound solve that. */
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "planner/solver/branch.h"
#include "planner/solver/primal/variable_elimination.h"
#include "planner/solver/primal_dual.h"
#include "planner/solver/min_marginals_internal.h"
#include "planner/solver/reduced/load.h"
#include "planner/solver/reduced/copy.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t solver_min_marginals__work_units(solver_reduced *w)
{
    return solver_size(w).entries + (int64_t)w->parameters->marginals_row_work * w->n_rows + 1;
}

dtp_status solver_min_marginals__apply(const solver_dual *d, solver_reduced *w, dtp_err *err)
{
    int64_t bound;
    DTP_TRY(solver_dual_apply(d, w, true, &bound, err));
    return w->infeasible ? DTP_OK : solver_presolve(w, err);
}

void solver_min_marginals__find_origins(solver_min_marginals *m, const solver_reduced *w)
{
    for (int32_t s = 0; s < m->k; s++) {
        m->origin[s] = s;
    }
    for (int64_t i = 0; i < w->n_undo; i++) {
        const solver_undo *u = &w->undo[i];
        for (int32_t s = 0; u->variable == m->variable && s < u->kept; s++) {
            m->origin[s] = m->origin[u->table[s]];
        }
    }
}

static dtp_status ascend_alone(solver_reduced *w, int64_t *work_units, dtp_err *err)
{
    solver_dual *d = NULL;
    *work_units -= (w->parameters->alone_rounds + w->parameters->marginals_pass_work) *
                   solver_min_marginals__work_units(w);
    DTP_TRY(solver_dual_create(w, &d, err));
    solver_dual_run(d, w->parameters->alone_rounds, NULL);
    const dtp_status status = solver_min_marginals__apply(d, w, err);
    solver_dual_destroy(d);
    return status;
}

/* ---- one strategy on its own ----------------------------------------------------------------- */

/* Search beside the ascent, on a copy where branch and bound is to follow: that does better on
 * costs that are not spread over the kernel. */
static dtp_status search_large(solver_state *v, solver_reduced *w, bool branch, int64_t *bound,
                               dtp_err *err)
{
    solver_reduced *copy = NULL;
    if (!branch) {
        return solver_primal_dual(v, w, w->parameters->alone_rounds, bound, err);
    }
    DTP_TRY(solver_copy(w, &copy, err));
    const dtp_status status =
        solver_primal_dual(v, copy, 2 * w->parameters->alone_rounds, bound, err);
    solver_reduced_destroy(copy);
    return status;
}

/* Whatever it takes. */
static dtp_status search_thoroughly(solver_state *v, solver_reduced *w, int64_t *bound,
                                    dtp_err *err)
{
    DTP_TRY(solver_reduce(v, w, err));
    const bool branch = solver_size(w).entries <= v->options->max_entries;
    if (!w->infeasible) {
        DTP_TRY(search_large(v, w, branch, bound, err));
    }
    DTP_TRY(solver_reduce(v, w, err));
    return w->infeasible || !branch ? DTP_OK : solver_branch(v, w, bound, err);
}

/* Without usage: by elimination, if that is quick. Nothing cheaper is left of the reduced problem
 * then. */
static dtp_status eliminate_alone(solver_min_marginals *m, solver_state *v, solver_reduced *w,
                                  dtp_err *err)
{
    solver_elimination *b = NULL;
    int64_t used = 0;
    if (w->infeasible || w->n_rows > 0 || *m->work_units <= 0) {
        return DTP_OK;
    }
    DTP_TRY(solver_elimination_create(w, -1, m->parameters->marginals_table_work, &b, &used, err));
    *m->work_units -=
        b != NULL ? m->parameters->marginals_table_cost * used + solver_min_marginals__work_units(w)
                  : 0;
    dtp_status status = DTP_OK;
    if (b != NULL && solver_elimination_choose(b, 0, v->assignment)) {
        status = solver_offer(v, w, w->n_undo, v->assignment, err);
    }
    w->infeasible = b != NULL;
    solver_elimination_destroy(b);
    return status;
}

/* Ascents while they bring something, then branch and bound if what is left is small. */
static dtp_status search_quickly(solver_min_marginals *m, solver_state *v, solver_reduced *w,
                                 int64_t *bound, dtp_err *err)
{
    int64_t before = INT64_MAX;
    DTP_TRY(solver_reduce(v, w, err));
    for (int32_t i = 0; i < (int64_t)m->parameters->alone_ascents << m->depth && !w->infeasible &&
                        *m->work_units > 0;
         i++) {
        const int64_t now = solver_size(w).entries;
        if (now == 0 || (m->depth == 0 && now > before / 10 * 7)) {
            break;
        }
        before = now;
        DTP_TRY(eliminate_alone(m, v, w, err));
        if (!w->infeasible) {
            DTP_TRY(ascend_alone(w, m->work_units, err));
            DTP_TRY(solver_reduce(v, w, err));
        }
    }
    if (!w->infeasible) {
        *bound = larger(*bound, solver_lower_bound(w));
    }
    const int64_t cost = ((int64_t)m->parameters->alone_branch_work << m->depth) *
                         solver_min_marginals__work_units(w);
    if (!w->infeasible &&
        solver_size(w).entries <= (int64_t)m->parameters->alone_branch_entries << m->depth &&
        cost < *m->work_units) {
        *m->work_units -= cost;
        DTP_TRY(solver_branch(v, w, bound, err));
    }
    return DTP_OK;
}

/* Strategy s of the problem, solved in a reduced problem in which nothing else is left of the
 * variable. */
static dtp_status solve_alone(solver_min_marginals *m, solver_reduced *w, int32_t s, bool thorough,
                              dtp_err *err)
{
    dtp_solve_result result = {0};
    dtp_solve_options options = dtp_solve_options_init();
    options.parameters = m->parameters;
    const size_t bytes = (size_t)m->p->n_variables * sizeof *m->best;
    int32_t *known = m->primal.assignments + (size_t)s * (size_t)m->p->n_variables;
    int64_t bound = 0;
    solver_state v = {.p = m->p,
                      .evaluator = m->primal.evaluator,
                      .options = &options,
                      .out = &result,
                      .cutoff = thorough ? m->out[s].cost : m->top[s],
                      .seed = options.seed,
                      .max_nodes = thorough ? m->parameters->alone_thorough_nodes
                                            : (int64_t)m->parameters->alone_nodes << m->depth,
                      .found = m->out[s].cost < DTP_FORBIDDEN,
                      .best = m->best,
                      .assignment = m->assignment,
                      .full = m->full};
    if (!thorough) {
        options.lp_entries = 0;
        options.threads = 1;
    }
    memcpy(m->best, known, bytes);
    DTP_TRY(thorough ? search_thoroughly(&v, w, &bound, err)
                     : search_quickly(m, &v, w, &bound, err));
    m->best = v.best;
    m->full = v.full;
    bound = w->infeasible || bound > v.cutoff ? v.cutoff : bound;
    m->out[s].bound = larger(m->out[s].bound, bound);
    if (v.searched) {
        m->out[s].cost = m->primal.cost[s] = v.cutoff;
        memcpy(known, v.best, bytes);
    }
    return DTP_OK;
}

/* Strategy i of a reduced problem in a copy, at its true cost. */
static dtp_status take_out(solver_min_marginals *m, solver_reduced *w, int32_t i, int32_t s,
                           dtp_err *err)
{
    solver_reduced *alone = NULL;
    const int64_t cutoff = w->cutoff;
    *m->work_units -= solver_min_marginals__work_units(w);
    DTP_TRY(solver_copy_with(w, m->variable, i, &alone, err));
    alone->constant -= cutoff - m->top[s];
    alone->cutoff = m->top[s];
    alone->options.dominance = false; /* slow where the bound leaves so little */
    *m->work_units -= m->parameters->alone_work * solver_min_marginals__work_units(alone);
    const dtp_status status = solve_alone(m, alone, s, false, err);
    solver_reduced_destroy(alone);
    m->open[s] = m->out[s].bound < m->out[s].cost;
    return status;
}

dtp_status solver_min_marginals__one_by_one(solver_min_marginals *m, solver_reduced *w,
                                            bool waiting, dtp_err *err)
{
    const solver_variable *x = &w->variables[m->variable];
    int64_t n = 0;
    dtp_keyed *order = calloc(2 * (size_t)x->k + 1, sizeof *order);
    DTP_TRY(DTP_MEMORY(err, order));
    solver_min_marginals__find_origins(m, w);
    for (int32_t i = 0; i < x->k; i++) {
        const int32_t s = m->origin[i];
        if (!solver_dead(x, i) && m->open[s] && m->waits[s] == waiting) {
            order[n++] = (dtp_keyed){dtp_sort_key(m->top[s]), i};
        }
    }
    dtp_sort_keyed(order, order + n, n);
    dtp_status status = DTP_OK;
    for (int64_t j = 0; j < n && status == DTP_OK && *m->work_units > 0; j++) {
        const int32_t i = (int32_t)order[j].item;
        status = take_out(m, w, i, m->origin[i], err);
    }
    free(order);
    return status;
}

/* ---- thoroughly ------------------------------------------------------------------------------ */

dtp_status solver_min_marginals_finish(solver_min_marginals *m, int32_t s, dtp_err *err)
{
    const dtp_presolve_options options = dtp_presolve_options_init();
    solver_reduced *w = NULL;
    DTP_TRY(solver_reduced_create(m->p, &options, m->parameters, &w, err));
    dtp_status status = solver_fix(w, m->variable, s, err);
    status = status == DTP_OK ? solve_alone(m, w, s, true, err) : status;
    solver_reduced_destroy(w);
    return status;
}

/* ---- life ------------------------------------------------------------------------------------ */

static dtp_status allocate(solver_min_marginals *m, dtp_err *err)
{
    const size_t n = (size_t)m->p->n_variables + 1, k = (size_t)m->k + 1;
    m->top = calloc(k, sizeof *m->top);
    m->bound = calloc(k, sizeof *m->bound);
    m->origin = calloc(k, sizeof *m->origin);
    m->open = calloc(k, sizeof *m->open);
    m->waits = calloc(k, sizeof *m->waits);
    m->assignment = calloc(n, sizeof *m->assignment);
    m->full = calloc(n, sizeof *m->full);
    m->best = calloc(n, sizeof *m->best);
    const bool ok = m->top != NULL && m->bound != NULL && m->origin != NULL && m->open != NULL &&
                    m->assignment != NULL && m->full != NULL && m->best != NULL;
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d strategies", m->k);
}

dtp_status solver_min_marginals_create(const dtp_problem *p,
                                       const dtp_min_marginal_options *options, int64_t *work_units,
                                       dtp_min_marginal *out, solver_min_marginals *m, dtp_err *err)
{
    *m = (solver_min_marginals){.p = p,
                                .parameters = options->parameters,
                                .variable = options->variable,
                                .k = dtp_problem_n_strategies(p, options->variable),
                                .work_units = work_units,
                                .out = out};
    dtp_status status = allocate(m, err);
    for (int32_t s = 0; s < m->k && status == DTP_OK; s++) {
        m->open[s] = true;
    }
    status = status == DTP_OK
                 ? solver_primal_marginals_create(p, options->parameters, options->variable,
                                                  options->start, &m->primal, err)
                 : status;
    if (status != DTP_OK) {
        solver_min_marginals_destroy(m);
    }
    return status;
}

void solver_min_marginals_destroy(solver_min_marginals *m)
{
    if (m->p != NULL) {
        solver_primal_marginals_destroy(&m->primal);
        solver_reduced_destroy(m->aside);
        solver_reduced_destroy(m->w);
        free(m->top);
        free(m->bound);
        free(m->origin);
        free(m->open);
        free(m->waits);
        free(m->assignment);
        free(m->full);
        free(m->best);
    }
    *m = (solver_min_marginals){0};
}
