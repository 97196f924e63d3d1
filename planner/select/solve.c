/* Branch and bound, depth first. In every node: presolve, the relaxation, what its duals exclude,
 * its rounding improved by the heuristic; if entries enough went, again. Else the least decided
 * node is split: its favoured strategy, or any other. Only solutions cheaper than the best known
 * are looked for, so a node is done when nothing is left; that this is so rests on integers alone.
 */
#include "planner/select/solve.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "planner/select/heuristic.h"
#include "planner/select/relax.h"

enum { MAX_DEPTH = 400 };

typedef struct solver {
    const dtp_select_problem *p;
    const dtp_select_options *options;
    dtp_select_result *out;
    double start_s;
    int64_t cutoff;         /* cost of the best solution */
    bool found;
    int32_t *best;          /* that solution, once found */
    int32_t *choice, *full; /* scratch */
} solver;

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds left, 0 = no limit. */
static double time_left(const solver *v)
{
    const double left = v->options->time_limit_s - (now_s() - v->start_s);
    return v->options->time_limit_s > 0.0 ? (left > 0.001 ? left : 0.001) : 0.0;
}

static bool time_is_up(const solver *v)
{
    return v->options->time_limit_s > 0.0 && now_s() - v->start_s >= v->options->time_limit_s;
}

dtp_select_options dtp_select_options_init(void)
{
    return (dtp_select_options){.presolve = dtp_presolve_options_init(),
                                .iterations = 400,
                                .seed = 1,
                                .max_entries = 250000};
}

double dtp_select_gap(const dtp_select_result *r)
{
    return r->value.cost > 0 ? (double)(r->value.cost - r->bound) / (double)r->value.cost : 0.0;
}

/* Restores, evaluates and keeps a solution of w if it is the best so far. */
static dtp_status offer(solver *v, const sel_work *w, const int32_t *choice, dtp_err *err)
{
    dtp_select_value value;
    memcpy(v->full, choice, (size_t)v->p->n_nodes * sizeof *choice);
    sel_restore(w, v->full);
    DTP_TRY(dtp_select_evaluate(v->p, v->full, &value, err));
    if (value.feasible && value.cost < v->cutoff) {
        int32_t *worse = v->best;
        v->best = v->full;
        v->full = worse;
        v->out->value = value;
        v->cutoff = value.cost;
        v->found = true;
    }
    return DTP_OK;
}

/* Improves v->choice and offers what comes of it; where nothing follows, it may take its time. */
static dtp_status improve(solver *v, sel_work *w, int64_t rounds, dtp_err *err)
{
    const bool alone = sel_size(w).entries > v->options->max_entries;
    const sel_search search = {.rounds = rounds,
                               .time_limit_s = time_left(v) * (alone ? 0.8 : 0.3),
                               .seed = v->options->seed};
    bool found = false;
    DTP_TRY(sel_improve(w, &search, v->choice, &found, err));
    if (found) {
        DTP_TRY(offer(v, w, v->choice, err));
    }
    w->cutoff = v->cutoff;
    return DTP_OK;
}

/* A presolved w in which nothing is left to choose is one solution. */
static dtp_status finish_if_decided(solver *v, sel_work *w, dtp_err *err)
{
    for (int32_t i = 0; i < w->n_nodes && !w->infeasible; i++) {
        const sel_node *x = &w->nodes[i];
        for (int32_t s = 0; x->alive && s < x->k; s++) {
            v->choice[i] = sel_dead(x, s) ? v->choice[i] : s;
        }
        if (x->alive && x->n_live > 1) {
            return DTP_OK;
        }
    }
    if (!w->infeasible) {
        DTP_TRY(offer(v, w, v->choice, err));
        w->infeasible = true; /* nothing cheaper is left */
    }
    return DTP_OK;
}

static dtp_status reduce(solver *v, sel_work *w, dtp_err *err)
{
    w->cutoff = v->cutoff;
    DTP_TRY(sel_presolve(w, err));
    return finish_if_decided(v, w, err);
}

static dtp_status explore(solver *v, sel_work *w, int32_t depth, int64_t *bound, dtp_err *err);

/* A copy in which a node has (or has not) a strategy. */
static dtp_status explore_child(solver *v, const sel_work *w, const sel_relaxation *r, bool keep,
                                int32_t depth, int64_t *bound, dtp_err *err)
{
    sel_work *child = NULL;
    int64_t split = 0;
    DTP_TRY(sel_copy(w, &child, err));
    dtp_status s = DTP_OK;
    const sel_node *x = &child->nodes[r->split_node];
    for (int32_t i = 0; i < x->k && s == DTP_OK && !child->infeasible; i++) {
        if ((i == r->split_strategy) != keep && !sel_dead(x, i)) {
            s = sel_kill(child, r->split_node, i, &split, err);
        }
    }
    if (s == DTP_OK) {
        s = explore(v, child, depth, bound, err);
    }
    sel_work_destroy(child);
    return s;
}

/* Raises *bound to what holds for all of w: its own relaxation, or both halves. */
static dtp_status split(solver *v, sel_work *w, const sel_relaxation *r, int32_t depth,
                        int64_t *bound, dtp_err *err)
{
    int64_t with = *bound, without = *bound;
    DTP_TRY(explore_child(v, w, r, true, depth + 1, &with, err));
    DTP_TRY(explore_child(v, w, r, false, depth + 1, &without, err));
    *bound = with < without ? with : without;
    return DTP_OK;
}

/* Without a hint from the relaxation, the node of most strategies is split. */
static void choose_split(const sel_work *w, sel_relaxation *r)
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

static bool any_choice_left(const sel_work *w)
{
    for (int32_t i = 0; i < w->n_nodes; i++) {
        if (w->nodes[i].alive && w->nodes[i].n_live > 1) {
            return !w->infeasible;
        }
    }
    return false;
}

static bool limit_reached(const solver *v, int64_t entries, int32_t depth)
{
    return v->out->nodes >= v->options->iterations || depth > MAX_DEPTH || time_is_up(v) ||
           entries > v->options->max_entries;
}

/* *bound: in, what holds for w already; out, the same or more; at least the cutoff when nothing in
 * w is cheaper than the best solution. */
static dtp_status explore(solver *v, sel_work *w, int32_t depth, int64_t *bound, dtp_err *err)
{
    for (int64_t before = INT64_MAX / 16;;) {
        sel_relaxation r;
        DTP_TRY(reduce(v, w, err));
        const dtp_presolve_size size = sel_size(w);
        const int64_t now = size.entries + size.strategies;
        const int64_t simple = w->infeasible ? DTP_SELECT_FORBIDDEN : sel_lower_bound(w);
        *bound = simple > *bound ? simple : *bound;
        if (depth == 0 && v->out->nodes == 0) {
            v->out->presolve = w->report;
        }
        if (*bound >= v->cutoff || limit_reached(v, size.entries, depth)) {
            return DTP_OK;
        }
        v->out->nodes++;
        DTP_TRY(sel_relax(w, time_left(v), v->choice, &r, err));
        *bound = r.bound > *bound ? r.bound : *bound;
        if (*bound < v->cutoff && !w->infeasible && r.split_node >= 0) {
            DTP_TRY(improve(v, w, 20, err));
        }
        const bool little = 10 * now >= 8 * before;
        before = now;
        if (*bound < v->cutoff && little && any_choice_left(w)) {
            choose_split(w, &r);
            return split(v, w, &r, depth, bound, err);
        }
    }
}

/* Keeps the solution that is known beforehand. */
static dtp_status begin(solver *v, dtp_err *err)
{
    const dtp_select_options *o = v->options;
    v->cutoff = o->cutoff > 0 ? o->cutoff : DTP_SELECT_FORBIDDEN;
    if (o->start == NULL) {
        return DTP_OK;
    }
    dtp_select_value value;
    DTP_TRY(dtp_select_evaluate(v->p, o->start, &value, err));
    if (value.feasible && value.cost < v->cutoff) {
        memcpy(v->best, o->start, (size_t)v->p->n_nodes * sizeof *v->best);
        v->out->value = value;
        v->cutoff = value.cost;
        v->found = true;
    }
    return DTP_OK;
}

static dtp_status run(solver *v, sel_work *w, dtp_err *err)
{
    dtp_select_result *out = v->out;
    int64_t bound = 0;
    DTP_TRY(begin(v, err));
    DTP_TRY(reduce(v, w, err));
    out->presolve = w->report;
    if (!w->infeasible) {
        sel_cheapest(w, v->choice);
        DTP_TRY(improve(v, w, v->options->iterations, err));
    }
    DTP_TRY(explore(v, w, 0, &bound, err));
    const bool found = v->found;
    out->bound = bound < v->cutoff ? bound : v->cutoff;
    if (out->bound == v->cutoff) {
        out->status = found ? DTP_CERT_OPTIMAL : DTP_CERT_INFEASIBLE;
    } else {
        out->status = found ? DTP_CERT_FEASIBLE : DTP_CERT_TIME_LIMIT;
    }
    return DTP_OK;
}

dtp_status dtp_select_solve(const dtp_select_problem *p, const dtp_select_options *options,
                            dtp_select_result *out, dtp_err *err)
{
    *out = (dtp_select_result){0};
    solver v = {.p = p, .options = options, .out = out, .start_s = now_s()};
    sel_work *w = NULL;
    const size_t n = (size_t)p->n_nodes + 1;
    int32_t *block = calloc(3 * n, sizeof *block);
    if (block == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a solution");
    }
    v.choice = block;
    v.full = block + n;
    v.best = block + 2 * n;
    dtp_status s = sel_work_create(p, &options->presolve, &w, err);
    if (s == DTP_OK) {
        s = run(&v, w, err);
    }
    if (s == DTP_OK && v.found) {
        out->choice = malloc(n * sizeof *out->choice);
        if (out->choice != NULL) {
            memcpy(out->choice, v.best, n * sizeof *out->choice);
        } else {
            s = DTP_FAIL(err, DTP_NOMEM, "out of memory for a solution");
        }
    }
    sel_work_destroy(w);
    free(block);
    return s;
}

void dtp_select_result_free(dtp_select_result *r)
{
    free(r->choice);
    r->choice = NULL;
}
