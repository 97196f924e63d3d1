#include "planner/solver/branch.h"

#include <string.h>

#include "planner/solver/dual/dual_split.h"
#include "planner/solver/primal/primal.h"
#include "planner/solver/relax.h"

enum { MAX_DEPTH = 150, FIRST_SEARCH = 10, NODE_SEARCH = 2 };
/* Of the dual: rounds of ascent at the root and below; splits that are tried near it and below. */
enum { ROOT_ROUNDS = 1700, ROUNDS = 40, NEAR = 4, NEAR_SPLITS = 24, SPLITS = 8, SEARCH_EVERY = 8 };

/* Improves v->choice and offers what comes of it. */
static dtp_status improve(sel_solver *v, sel_work *w, int64_t rounds, dtp_err *err)
{
    sel_primal *search = NULL;
    DTP_TRY(sel_primal_create(w, v->choice, v->seed, &search, err));
    dtp_status s = sel_primal_run(search, rounds, v->end_s, err);
    if (s == DTP_OK && sel_primal_best(search, v->choice)) {
        s = sel_offer(v, w, w->n_undo, v->choice, err);
    }
    sel_primal_destroy(search);
    w->cutoff = v->cutoff;
    return s;
}

static dtp_status explore(sel_solver *v, sel_work *w, int32_t depth, int64_t *bound, dtp_err *err);

/* A copy in which a node has only the strategies of one half. */
static dtp_status explore_child(sel_solver *v, const sel_work *w, const sel_split *split, bool keep,
                                int32_t depth, int64_t *bound, dtp_err *err)
{
    sel_work *child = NULL;
    int64_t killed = 0;
    DTP_TRY(sel_copy(w, &child, err));
    dtp_status s = DTP_OK;
    const sel_node *x = &child->nodes[split->node];
    for (int32_t i = 0; i < x->k && s == DTP_OK && !child->infeasible; i++) {
        if (sel_split_has(w, split, i) != keep && !sel_dead(x, i)) {
            s = sel_kill(child, split->node, i, &killed, err);
        }
    }
    if (s == DTP_OK) {
        s = explore(v, child, depth, bound, err);
    }
    sel_work_destroy(child);
    return s;
}

/* Raises *bound to what holds for all of w: its own relaxation, or both halves. */
static dtp_status halve(sel_solver *v, sel_work *w, const sel_split *split, int32_t depth,
                        int64_t *bound, dtp_err *err)
{
    int64_t with = *bound, without = *bound;
    DTP_TRY(explore_child(v, w, split, true, depth + 1, &with, err));
    DTP_TRY(explore_child(v, w, split, false, depth + 1, &without, err));
    *bound = with < without ? with : without;
    return DTP_OK;
}

/* Without a hint from the relaxation, the node of most strategies is split. */
static void split_linear(const sel_work *w, sel_relaxation *r)
{
    int32_t most = 1;
    if (r->split_node >= 0 && w->nodes[r->split_node].n_live > 1 &&
        !sel_dead(&w->nodes[r->split_node], r->split_strategy)) {
        return;
    }
    for (int32_t i = 0; i < w->n_nodes; i++) {
        const sel_node *x = &w->nodes[i];
        if (x->alive && x->n_live > most) {
            most = x->n_live;
            r->split_node = i;
        }
    }
    for (int32_t s = w->nodes[r->split_node].k - 1; s >= 0; s--) {
        r->split_strategy = sel_dead(&w->nodes[r->split_node], s) ? r->split_strategy : s;
    }
}

/* r: of the linear program; NULL: by the dual. */
static dtp_status choose_split(const sel_work *w, sel_relaxation *r, int32_t depth, int64_t bound,
                               sel_split *out, dtp_err *err)
{
    if (r == NULL) {
        return sel_dual_split(w, bound, depth < NEAR ? NEAR_SPLITS : SPLITS, out, err);
    }
    split_linear(w, r);
    *out = (sel_split){r->split_node, r->split_strategy, -1, 0};
    return DTP_OK;
}

static bool any_choice_left(const sel_work *w)
{
    for (int32_t i = 0; i < w->n_nodes; i++) {
        if (w->nodes[i].alive && w->nodes[i].n_live > 1) {
            return !w->infeasible;
        }
    }
    return false;
}

static bool limit_reached(const sel_solver *v, int64_t entries, int32_t depth)
{
    return v->out->nodes >= v->max_nodes || depth > MAX_DEPTH || sel_time_is_up(v) ||
           entries > v->options->max_entries;
}

/* The dual in place of the linear program. */
static dtp_status ascend(sel_solver *v, sel_work *w, sel_relaxation *r, dtp_err *err)
{
    const int64_t rounds = w->unit > 0.0 ? ROUNDS : ROOT_ROUNDS;
    *r = (sel_relaxation){.solved = true, .split_node = -1, .split_strategy = -1};
    DTP_TRY(sel_dual_relax(w, rounds, sel_time_left(v), &r->bound, err));
    return w->infeasible ? DTP_OK : sel_dual_choice(w, v->choice, err);
}

static dtp_status explore(sel_solver *v, sel_work *w, int32_t depth, int64_t *bound, dtp_err *err)
{
    for (int64_t before = INT64_MAX / 16;;) {
        sel_relaxation r;
        DTP_TRY(sel_reduce(v, w, err));
        const dtp_presolve_size size = sel_size(w);
        const int64_t now = size.entries + size.strategies;
        const int64_t simple = w->infeasible ? DTP_SELECT_FORBIDDEN : sel_lower_bound(w);
        *bound = simple > *bound ? simple : *bound;
        if (depth == 0 && v->out->nodes == 0) {
            v->out->presolve = w->report;
        }
        if (sel_close(v, *bound) || limit_reached(v, size.entries, depth)) {
            return DTP_OK;
        }
        v->out->nodes++;
        const bool linear = size.entries <= v->options->lp_entries;
        DTP_TRY(linear ? sel_relax(w, sel_time_left(v), v->choice, &r, err)
                       : ascend(v, w, &r, err));
        *bound = r.bound > *bound ? r.bound : *bound;
        if (*bound < v->cutoff && !w->infeasible &&
            (linear ? r.split_node >= 0 : depth % SEARCH_EVERY == 0)) {
            DTP_TRY(improve(v, w, NODE_SEARCH, err));
        }
        const bool little = 10 * now >= 8 * before;
        before = now;
        if (!sel_close(v, *bound) && little && any_choice_left(w)) {
            sel_split split;
            DTP_TRY(choose_split(w, linear ? &r : NULL, depth, *bound, &split, err));
            return halve(v, w, &split, depth, bound, err);
        }
    }
}

dtp_status sel_branch(sel_solver *v, sel_work *w, int64_t *bound, dtp_err *err)
{
    if (!v->searched && !w->infeasible && sel_size(w).entries <= v->options->max_entries) {
        memset(v->choice, 0, (size_t)w->n_nodes * sizeof *v->choice);
        DTP_TRY(improve(v, w, FIRST_SEARCH, err));
    }
    return explore(v, w, 0, bound, err);
}
