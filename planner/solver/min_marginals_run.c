/* All strategies of a variable by one run of the machinery of planner/solver/solve.h.
 *
 * top(s) is the cost of the best solution known with strategy s (or a guess): an upper bound of the
 * min-marginal of s, so only cheaper solutions matter. max top - top(s) is added to the cost of s.
 * Then one cutoff, max top, serves all strategies, and every reduction and bound of the solver
 * holds as it stands, provided that the variable itself stays (solver_variable.kept). A strategy
 * that is removed has a min-marginal of at least top(s).
 *
 *   1. All strategies together: rounds of dual ascent whose messages lead to the variable (the
 *      root), so that the bound of every strategy rises; what they exclude goes.
 *   2. Strategies with the largest difference of top and bound keep the common problem large: they
 *      are set aside.
 *   3. One strategy at a time, the cheapest first (min_marginals_alone.c): with a bound near its
 *      top little is left of the problem, which elimination, ascent or branch and bound solves. */
#include "planner/solver/min_marginals_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "planner/solver/reduced/bound.h"
#include "planner/solver/primal/variable_elimination.h"
#include "planner/solver/dual/dual.h"
#include "planner/solver/reduced/load.h"
#include "planner/solver/reduced/copy.h"
#include "planner/solver/reduced/memory_rows.h"

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- solutions ------------------------------------------------------------------------------- */

static void take_costs(solver_min_marginals *m)
{
    for (int32_t s = 0; s < m->k; s++) {
        m->out[s].cost = m->primal.cost[s] < m->out[s].cost ? m->primal.cost[s] : m->out[s].cost;
    }
}

/* Without a known solution: as far up as the dearest known one. */
static void set_tops(solver_min_marginals *m)
{
    m->most = 0;
    for (int32_t s = 0; s < m->k; s++) {
        m->most = m->out[s].cost < DTP_FORBIDDEN ? larger(m->most, m->out[s].cost) : m->most;
    }
    for (int32_t s = 0; s < m->k; s++) {
        m->top[s] = m->out[s].cost < DTP_FORBIDDEN ? m->out[s].cost : m->most;
    }
}

/* ---- the reduced problem --------------------------------------------------------------------- */

/* Strategies that nothing goes with, or that do not fit beside what all others use at least. */
static dtp_status find_impossible(solver_min_marginals *m, dtp_err *err)
{
    const solver_variable *x = &m->w->variables[m->variable];
    int64_t killed = 0;
    DTP_TRY(solver_propagate(m->w, err));
    DTP_TRY(solver_memory_refresh(m->w, err));
    DTP_TRY(solver_propagate(m->w, err));
    for (int32_t s = 0; s < m->k && !m->w->infeasible; s++) {
        if (solver_dead(x, s)) {
            m->out[s].bound = DTP_FORBIDDEN;
            m->open[s] = false;
        } else if (!m->open[s]) {
            DTP_TRY(solver_kill(m->w, m->variable, s, &killed, err));
        }
    }
    return DTP_OK;
}

static dtp_status begin(solver_min_marginals *m, dtp_err *err)
{
    dtp_presolve_options options = dtp_presolve_options_init();
    options.dominance = false; /* slow and of little use before the ascent */
    DTP_TRY(solver_reduced_create(m->p, &options, m->parameters, &m->w, err));
    *m->work_units -= m->parameters->marginals_pass_work * solver_min_marginals__work_units(m->w);
    m->w->variables[m->variable].kept = true;
    DTP_TRY(find_impossible(m, err));
    for (int32_t s = 0; s < m->k && !m->w->infeasible; s++) {
        if (m->open[s]) {
            DTP_TRY(solver_add_cost(m->w, m->variable, s, m->most - m->top[s], err));
        }
    }
    m->w->cutoff = m->most;
    return solver_presolve(m->w, err);
}

/* The reduced problem says of every open strategy that it is out, or what it costs at least; *n are
 * left. */
static dtp_status read_bounds(solver_min_marginals *m, int32_t *n, dtp_err *err)
{
    const solver_variable *x = &m->w->variables[m->variable];
    bool *live = calloc((size_t)m->k + 1, sizeof *live);
    *n = 0;
    DTP_TRY(DTP_MEMORY(err, live));
    dtp_status status = DTP_OK;
    if (!m->w->infeasible) {
        solver_min_marginals__find_origins(m, m->w);
        status = solver_bound_strategies(m->w, m->variable, m->bound, err);
    }
    for (int32_t i = 0; status == DTP_OK && !m->w->infeasible && i < x->k; i++) {
        const int32_t s = m->origin[i];
        if (!solver_dead(x, i)) {
            live[s] = true;
            m->out[s].bound = larger(m->out[s].bound, m->bound[i] - (m->most - m->top[s]));
            (*n)++;
        }
    }
    for (int32_t s = 0; status == DTP_OK && s < m->k; s++) {
        if (m->open[s] && !live[s] && !m->waits[s]) {
            m->out[s].bound = larger(m->out[s].bound, m->top[s]);
            m->open[s] = false;
        }
    }
    free(live);
    return status;
}

/* ---- better solutions ------------------------------------------------------------------------ */

/* Tops come down to the costs of what was found; the reduced problem is to be presolved again. */
static dtp_status lower_tops(solver_min_marginals *m, bool *lower, dtp_err *err)
{
    const solver_variable *x = &m->w->variables[m->variable];
    *lower = false;
    take_costs(m);
    for (int32_t i = 0; i < x->k && !m->w->infeasible; i++) {
        const int32_t s = m->origin[i];
        const int64_t down = m->top[s] - m->out[s].cost;
        if (!solver_dead(x, i) && down > 0) {
            m->top[s] -= down;
            *lower = true;
            DTP_TRY(solver_add_cost(m->w, m->variable, i, down, err));
        }
    }
    return DTP_OK;
}

/* Solutions that the messages to the variable suggest. */
static dtp_status choose_all(solver_min_marginals *m, solver_dual *d, dtp_err *err)
{
    const solver_variable *x = &m->w->variables[m->variable];
    bool lower;
    for (int32_t i = 0; i < x->k; i++) {
        if (!solver_dead(x, i)) {
            solver_dual_choose(d, i, m->assignment);
            solver_restore(m->w, m->assignment);
            DTP_TRY(solver_primal_marginals_offer(&m->primal, m->assignment, err));
        }
    }
    return lower_tops(m, &lower, err);
}

static dtp_status ascend_all(solver_min_marginals *m, dtp_err *err)
{
    solver_dual *d = NULL;
    const int64_t lasts = *m->work_units / 2 / solver_min_marginals__work_units(m->w) -
                          m->parameters->marginals_pass_work;
    const int64_t rounds = lasts > m->parameters->marginals_rounds ? m->parameters->marginals_rounds
                           : lasts < m->parameters->marginals_least_rounds
                               ? m->parameters->marginals_least_rounds
                               : lasts;
    *m->work_units -=
        (rounds + m->parameters->marginals_pass_work) * solver_min_marginals__work_units(m->w);
    DTP_TRY(solver_dual_create_rooted(m->w, m->variable, &d, err));
    solver_dual_run(d, rounds, NULL);
    solver_dual_gather(d);
    dtp_status status = choose_all(m, d, err);
    m->w->options.dominance =
        solver_size(m->w).entries < m->parameters->marginals_dominance_entries;
    status = status == DTP_OK ? solver_min_marginals__apply(d, m->w, err) : status;
    solver_dual_destroy(d);
    return status;
}

static dtp_status improve_all(solver_min_marginals *m, dtp_err *err)
{
    *m->work_units -= m->parameters->marginals_forests * m->w->variables[m->variable].n_live *
                      solver_min_marginals__work_units(m->w) / 4;
    DTP_TRY(solver_primal_marginals_improve(&m->primal, m->w, m->origin,
                                            m->parameters->marginals_forests, err));
    bool lower;
    DTP_TRY(lower_tops(m, &lower, err));
    return m->w->infeasible || !lower ? DTP_OK : solver_presolve(m->w, err);
}

/* All at once by elimination, if there is no usage and it is quick. */
static dtp_status eliminate_all(solver_min_marginals *m, int32_t *left, dtp_err *err)
{
    solver_reduced *w = m->w;
    solver_elimination *b = NULL;
    int64_t used = 0;
    if (*left == 0 || w->infeasible || w->n_rows > 0 || *m->work_units <= 0) {
        return DTP_OK;
    }
    const int64_t worth = (int64_t)*left * m->parameters->marginals_table_work / 2,
                  affordable = m->parameters->marginals_table_shares * *m->work_units;
    DTP_TRY(solver_elimination_create(w, m->variable, worth < affordable ? worth : affordable, &b,
                                      &used, err));
    *m->work_units -=
        b != NULL ? m->parameters->marginals_table_cost * used + solver_min_marginals__work_units(w)
                  : 0;
    dtp_status status = DTP_OK;
    for (int32_t i = 0; b != NULL && status == DTP_OK && i < w->variables[m->variable].k; i++) {
        const int32_t s = m->origin[i];
        if (solver_elimination_choose(b, i, m->assignment)) {
            solver_restore(w, m->assignment);
            status = solver_primal_marginals_offer(&m->primal, m->assignment, err);
        }
        m->out[s].cost = m->primal.cost[s] < m->out[s].cost ? m->primal.cost[s] : m->out[s].cost;
        m->out[s].bound =
            larger(m->out[s].bound, m->out[s].cost < m->top[s] ? m->out[s].cost : m->top[s]);
        m->open[s] = false;
    }
    *left = b != NULL ? 0 : *left;
    solver_elimination_destroy(b);
    return status;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* How far the bound of strategy i of the reduced problem is from its top; without a solution all
 * the way. */
static int64_t room_of(const solver_min_marginals *m, int32_t i)
{
    const int32_t s = m->origin[i];
    return m->out[s].cost < DTP_FORBIDDEN ? m->top[s] - m->out[s].bound : DTP_FORBIDDEN;
}

/* The room of the strategy in the middle. */
static int64_t usual_room(const solver_min_marginals *m, dtp_keyed *list)
{
    const solver_variable *x = &m->w->variables[m->variable];
    int64_t n = 0;
    for (int32_t i = 0; i < x->k; i++) {
        if (!solver_dead(x, i)) {
            list[n++].key = dtp_sort_key(room_of(m, i));
        }
    }
    dtp_sort_keyed(list, list + x->k, n);
    return n > 0 ? dtp_sort_value(list[n / 2].key) : 0;
}

/* Takes those out that have much more room than others. */
static dtp_status set_aside(solver_min_marginals *m, int32_t *left, dtp_err *err)
{
    const solver_variable *x = &m->w->variables[m->variable];
    const int32_t k = x->k;
    int64_t killed = 0;
    dtp_keyed *list = calloc(2 * (size_t)k + 1, sizeof *list);
    DTP_TRY(DTP_MEMORY(err, list));
    const int64_t most = usual_room(m, list);
    free(list);
    for (int32_t i = 0; i < k && most < DTP_FORBIDDEN / m->parameters->marginals_room; i++) {
        const int32_t s = m->origin[i];
        if (solver_dead(x, i) || room_of(m, i) <= m->parameters->marginals_room * most) {
            continue;
        }
        if (m->aside == NULL) {
            DTP_TRY(solver_copy(m->w, &m->aside, err));
            DTP_TRY(solver_own_all(m->aside, err));
        }
        m->waits[s] = true;
        (*left)--;
        DTP_TRY(solver_kill(m->w, m->variable, i, &killed, err));
    }
    return killed > 0 && !m->w->infeasible ? solver_presolve(m->w, err) : DTP_OK;
}

static dtp_status all_together(solver_min_marginals *m, int32_t *left, dtp_err *err)
{
    int64_t before = INT64_MAX;
    DTP_TRY(read_bounds(m, left, err));
    for (int32_t i = 0; i<m->parameters->marginals_ascents && * left> 0 && *m->work_units > 0;
         i++) {
        const int64_t now = solver_size(m->w).entries;
        if (now > before / 4 * 3 &&
            (m->w->n_rows == 0 || now > m->parameters->marginals_worth_entries)) {
            break;
        }
        before = now;
        DTP_TRY(ascend_all(m, err));
        DTP_TRY(read_bounds(m, left, err));
        if (*left > 0 && m->w->n_rows > 0 && *m->work_units > 0) {
            DTP_TRY(improve_all(m, err));
            DTP_TRY(read_bounds(m, left, err));
        }
        if (*left > 0 && i == 0) {
            DTP_TRY(set_aside(m, left, err));
            DTP_TRY(read_bounds(m, left, err));
        }
        DTP_TRY(eliminate_all(m, left, err));
    }
    return DTP_OK;
}

static bool any_open(const solver_min_marginals *m)
{
    bool open = false;
    for (int32_t s = 0; s < m->k; s++) {
        open = open || m->open[s];
    }
    return open;
}

/* Solutions first, where there is usage: without it, messages have told them. */
static dtp_status go_deeper(solver_min_marginals *m, int32_t *left, dtp_err *err)
{
    if (*left > 0 && !m->w->infeasible && m->w->n_rows > 0) {
        DTP_TRY(improve_all(m, err));
        DTP_TRY(read_bounds(m, left, err));
    }
    m->depth++;
    return DTP_OK;
}

dtp_status solver_min_marginals_run(solver_min_marginals *m, dtp_err *err)
{
    int32_t left = 0;
    DTP_TRY(solver_primal_marginals_descend(&m->primal, err));
    take_costs(m);
    set_tops(m);
    DTP_TRY(begin(m, err));
    DTP_TRY(all_together(m, &left, err));
    while (m->depth<m->parameters->marginals_depths && * m->work_units> 0 && any_open(m)) {
        if (left > 0 && !m->w->infeasible) {
            DTP_TRY(solver_min_marginals__one_by_one(m, m->w, false, err));
        }
        if (m->aside != NULL) {
            DTP_TRY(solver_min_marginals__one_by_one(m, m->aside, true, err));
        }
        DTP_TRY(go_deeper(m, &left, err));
    }
    return DTP_OK;
}
