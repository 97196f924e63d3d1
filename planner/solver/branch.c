/* Branch and bound, depth first. */
#include "planner/solver/branch.h"

#include <string.h>

#include "planner/solver/dual/dual_split.h"
#include "planner/solver/primal/primal.h"
#include "planner/solver/relax.h"
#include "planner/solver/reduced/copy.h"

/* Primal search from v->assignment; offers the result. */
static dtp_status improve(solver_state *v, solver_reduced *w, int64_t rounds, dtp_err *err)
{
    solver_primal *search = NULL;
    DTP_TRY(solver_primal_create(w, v->assignment, v->seed, &search, err));
    dtp_status s = solver_primal_run(search, rounds, v->options->stop, err);
    if (s == DTP_OK && solver_primal_best(search, v->assignment)) {
        s = solver_offer(v, w, w->n_undo, v->assignment, err);
    }
    solver_primal_destroy(search);
    w->cutoff = v->cutoff;
    return s;
}

static dtp_status explore(solver_state *v, solver_reduced *w, int32_t depth, int64_t *bound,
                          dtp_err *err);

/* The child in which the split variable has only the strategies of one half. */
static dtp_status explore_child(solver_state *v, const solver_reduced *w, const solver_split *split,
                                bool keep, int32_t depth, int64_t *bound, dtp_err *err)
{
    solver_reduced *child = NULL;
    int64_t killed = 0;
    DTP_TRY(solver_copy(w, &child, err));
    dtp_status s = DTP_OK;
    const solver_variable *x = &child->variables[split->variable];
    for (int32_t i = 0; i < x->k && s == DTP_OK && !child->infeasible; i++) {
        if (solver_split_has(w, split, i) != keep && !solver_dead(x, i)) {
            s = solver_kill(child, split->variable, i, &killed, err);
        }
    }
    if (s == DTP_OK) {
        s = explore(v, child, depth, bound, err);
    }
    solver_reduced_destroy(child);
    return s;
}

/* Without a fractional variable, the one of most strategies is split. */
static void split_linear(const solver_reduced *w, solver_relaxation *r)
{
    int32_t most = 1;
    if (r->split_variable >= 0 && w->variables[r->split_variable].n_live > 1 &&
        !solver_dead(&w->variables[r->split_variable], r->split_strategy)) {
        return;
    }
    for (int32_t i = 0; i < w->n_variables; i++) {
        const solver_variable *x = &w->variables[i];
        if (x->alive && x->n_live > most) {
            most = x->n_live;
            r->split_variable = i;
        }
    }
    for (int32_t s = w->variables[r->split_variable].k - 1; s >= 0; s--) {
        r->split_strategy =
            solver_dead(&w->variables[r->split_variable], s) ? r->split_strategy : s;
    }
}

static bool any_variable_left(const solver_reduced *w)
{
    for (int32_t i = 0; i < w->n_variables; i++) {
        if (w->variables[i].alive && w->variables[i].n_live > 1) {
            return !w->infeasible;
        }
    }
    return false;
}

static dtp_status explore(solver_state *v, solver_reduced *w, int32_t depth, int64_t *bound,
                          dtp_err *err)
{
    const dtp_solver_parameters *c = w->parameters;
    for (int64_t before = INT64_MAX / 128;;) {
        solver_relaxation r;
        DTP_TRY(solver_reduce(v, w, err));
        const dtp_presolve_size size = solver_size(w);
        const int64_t now = size.entries + size.strategies;
        const int64_t simple = w->infeasible ? DTP_FORBIDDEN : solver_lower_bound(w);
        *bound = simple > *bound ? simple : *bound;
        if (depth == 0 && v->out->nodes == 0) {
            v->out->presolve = w->report;
        }
        if (solver_close(v, *bound) || v->out->nodes >= v->max_nodes ||
            depth > c->branch_max_depth || dtp_stopped(v->options->stop) ||
            size.entries > v->options->max_entries) {
            return DTP_OK;
        }
        v->out->nodes++;
        const bool linear =
            v->options->solver == DTP_SOLVER_GLPK || size.entries <= v->options->lp_entries;
        if (linear) {
            DTP_TRY(solver_relax(w, v->options->stop, v->assignment, &r, err));
        } else { /* the dual in place of the linear program */
            r = (solver_relaxation){.solved = true, .split_variable = -1, .split_strategy = -1};
            DTP_TRY(solver_dual_relax(w, w->unit > 0.0 ? c->branch_rounds : c->branch_root_rounds,
                                      v->options->stop, &r.bound, err));
            if (!w->infeasible) {
                DTP_TRY(solver_dual_choice(w, v->assignment, err));
            }
        }
        *bound = r.bound > *bound ? r.bound : *bound;
        if (*bound < v->cutoff && !w->infeasible &&
            (linear ? r.split_variable >= 0 : depth % c->branch_search_every == 0)) {
            DTP_TRY(improve(v, w, c->branch_search, err));
        }
        const bool little = 100 * now >= c->branch_shrink_percent * before;
        before = now;
        if (!solver_close(v, *bound) && little && any_variable_left(w)) {
            solver_split split;
            if (linear) {
                split_linear(w, &r);
                split = (solver_split){r.split_variable, r.split_strategy, -1, 0};
            } else {
                const int32_t candidates =
                    depth < c->branch_near_depth ? c->branch_near_splits : c->branch_splits;
                DTP_TRY(solver_dual_split(w, *bound, candidates, &split, err));
            }
            int64_t with = *bound, without = *bound;
            DTP_TRY(explore_child(v, w, &split, true, depth + 1, &with, err));
            DTP_TRY(explore_child(v, w, &split, false, depth + 1, &without, err));
            *bound = with < without ? with : without;
            return DTP_OK;
        }
    }
}

dtp_status solver_branch(solver_state *v, solver_reduced *w, int64_t *bound, dtp_err *err)
{
    if (!v->searched && !w->infeasible && solver_size(w).entries <= v->options->max_entries) {
        memset(v->assignment, 0, (size_t)w->n_variables * sizeof *v->assignment);
        DTP_TRY(improve(v, w, w->parameters->branch_first_search, err));
    }
    return explore(v, w, 0, bound, err);
}
