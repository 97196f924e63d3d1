/* All strategies of a node by one run of the machinery of planner/select/solve.h.
 *
 * top(s) is the cost of the best solution known with strategy s (or a guess): only cheaper ones
 * matter. With max top - top(s) added to the cost of s, one cutoff, max top, says so for all
 * strategies at once, and every reduction and every bound below it holds as it stands, as long as
 * the node itself stays (sel_node.kept). A strategy that is removed costs top(s) at least.
 *
 * The bound of the whole is that of the strategy with the most room; the ascent works on that one.
 * Once it gains little there, the strategy is taken out and finished on its own, and the ascent
 * goes on with the others. */
#include "planner/select/marginals.h"

#include <stdlib.h>
#include <string.h>

#include "planner/select/around.h"
#include "planner/select/bound.h"
#include "planner/select/branch.h"
#include "planner/select/dual.h"
#include "planner/select/large.h"

enum {
    FORESTS = 6,       /* for every strategy after each ascent */
    SETTLED = 4,       /* strategies, where an ascent gained little */
    SEARCH_ROUNDS = 1, /* of each */
    SEARCH_LOOKS = 60, /* what a search costs, in looks at all entries */
    ROW_LOOKS = 4,     /* what a memory row costs besides, in looks at entries */
    MOST_ROUNDS = 50,  /* of the ascent at a time, as far as half of the effort lasts */
    LEAST_ROUNDS = 15,
    ALONE_ROUNDS = 10, /* of search beside the ascent, for a strategy on its own */
    ALONE_NODES = 8,   /* of branch and bound then */
    THOROUGH_NODES = 400,
    ALONE_LOOKS = 600,   /* what that costs, in looks at all entries */
    SMALL_ENTRIES = 3000 /* up to so many, branch and bound */
};

/* Of the distance to the cutoff: an ascent that gains less has come to its end. */
static const double LITTLE = 0.05;

typedef struct marginals {
    const dtp_select_problem *p;
    const dtp_marginal_options *o;
    dtp_select_marginal *out;
    int32_t k;
    int64_t *top;    /* by strategy */
    int64_t most;    /* the largest */
    int64_t *bound;  /* scratch, by strategy of the work */
    int32_t *origin; /* by strategy of the work: of the problem */
    bool *open;      /* by strategy: neither finished on its own nor without any solution */
    int32_t *choice, *full, *best; /* scratch, by node */
    sel_around around;
    sel_work *w;
    int64_t effort; /* left */
} marginals;

dtp_marginal_options dtp_marginal_options_init(int32_t node, const int32_t *start)
{
    return (dtp_marginal_options){.node = node, .start = start, .effort = 10000000};
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- solutions ----------------------------------------------------------------------------------
 */

static void take_costs(marginals *m)
{
    for (int32_t s = 0; s < m->k; s++) {
        m->out[s].cost = m->around.cost[s] < m->out[s].cost ? m->around.cost[s] : m->out[s].cost;
    }
}

/* Without a known solution: as far up as the dearest known one. */
static void set_tops(marginals *m)
{
    m->most = m->out[m->o->start[m->o->node]].cost;
    for (int32_t s = 0; s < m->k; s++) {
        m->most = m->out[s].cost < DTP_SELECT_FORBIDDEN ? larger(m->most, m->out[s].cost) : m->most;
    }
    for (int32_t s = 0; s < m->k; s++) {
        m->top[s] = m->out[s].cost < DTP_SELECT_FORBIDDEN ? m->out[s].cost : m->most;
    }
}

/* ---- the work -----------------------------------------------------------------------------------
 */

static void find_origins(marginals *m)
{
    for (int32_t s = 0; s < m->k; s++) {
        m->origin[s] = s;
    }
    for (int64_t i = 0; i < m->w->n_undo; i++) {
        const sel_undo *u = &m->w->undo[i];
        for (int32_t s = 0; u->node == m->o->node && s < u->kept; s++) {
            m->origin[s] = m->origin[u->table[s]];
        }
    }
}

/* Strategies that nothing goes with, or that do not fit beside what all others use at least. */
static dtp_status find_impossible(marginals *m, dtp_err *err)
{
    const sel_node *x = &m->w->nodes[m->o->node];
    DTP_TRY(sel_propagate(m->w, err));
    DTP_TRY(sel_memory_refresh(m->w, err));
    DTP_TRY(sel_propagate(m->w, err));
    for (int32_t s = 0; s < m->k; s++) {
        m->open[s] = !sel_dead(x, s);
        m->out[s].bound = m->open[s] ? 0 : DTP_SELECT_FORBIDDEN;
    }
    return DTP_OK;
}

static dtp_status begin(marginals *m, dtp_err *err)
{
    dtp_presolve_options options = dtp_presolve_options_init();
    options.dominance = false; /* slow and of little use before the ascent */
    DTP_TRY(sel_work_create(m->p, &options, &m->w, err));
    m->w->nodes[m->o->node].kept = true;
    DTP_TRY(find_impossible(m, err));
    for (int32_t s = 0; s < m->k && !m->w->infeasible; s++) {
        if (m->open[s]) {
            DTP_TRY(sel_add_cost(m->w, m->o->node, s, m->most - m->top[s], err));
        }
    }
    m->w->cutoff = m->most;
    return sel_presolve(m->w, err);
}

/* The work says of every open strategy that it is out, or what it costs at least. *worst is the
 * live strategy of the work with the lowest bound, -1 without one. */
static dtp_status read_bounds(marginals *m, int32_t *worst, dtp_err *err)
{
    const sel_node *x = &m->w->nodes[m->o->node];
    bool *live = calloc((size_t)m->k + 1, sizeof *live);
    *worst = -1;
    if (live == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d strategies", m->k);
    }
    dtp_status status = DTP_OK;
    if (!m->w->infeasible) {
        find_origins(m);
        status = sel_bound_strategies(m->w, m->o->node, m->bound, err);
    }
    for (int32_t i = 0; status == DTP_OK && !m->w->infeasible && i < x->k; i++) {
        const int32_t s = m->origin[i];
        if (!sel_dead(x, i)) {
            live[s] = true;
            m->out[s].bound = larger(m->out[s].bound, m->bound[i] - (m->most - m->top[s]));
            *worst = *worst < 0 || m->bound[i] < m->bound[*worst] ? i : *worst;
        }
    }
    for (int32_t s = 0; status == DTP_OK && s < m->k; s++) {
        if (m->open[s] && !live[s]) {
            m->out[s].bound = larger(m->out[s].bound, m->top[s]);
        }
    }
    free(live);
    return status;
}

static dtp_status ascend(marginals *m, dtp_err *err)
{
    sel_dual *d = NULL;
    int64_t bound;
    const int64_t looks = sel_size(m->w).entries + ROW_LOOKS * m->w->n_rows + 1;
    const int64_t some =
        m->effort / 2 / looks > LEAST_ROUNDS ? m->effort / 2 / looks : LEAST_ROUNDS;
    const int64_t rounds = some < MOST_ROUNDS ? some : MOST_ROUNDS;
    m->effort -= looks * rounds;
    DTP_TRY(sel_dual_create(m->w, &d, err));
    sel_dual_run(d, rounds, 0.0);
    dtp_status status = sel_dual_apply(d, m->w, true, &bound, err);
    sel_dual_destroy(d);
    m->w->options.dominance = true;
    return status == DTP_OK && !m->w->infeasible ? sel_presolve(m->w, err) : status;
}

/* ---- one strategy on its own --------------------------------------------------------------------
 */

static dtp_status hold(sel_work *w, int32_t node, int32_t strategy, dtp_err *err)
{
    int64_t killed = 0;
    w->nodes[node].kept = false;
    for (int32_t i = 0; i < w->nodes[node].k && !w->infeasible; i++) {
        if (i != strategy && !sel_dead(&w->nodes[node], i)) {
            DTP_TRY(sel_kill(w, node, i, &killed, err));
        }
    }
    return DTP_OK;
}

/* Search beside the ascent, on a copy where branch and bound is to follow: that does better on
 * costs that are not spread over the kernel. */
static dtp_status search_large(sel_solver *v, sel_work *w, bool branch, int64_t *bound,
                               dtp_err *err)
{
    sel_work *copy = NULL;
    if (!branch) {
        return sel_large(v, w, ALONE_ROUNDS, bound, err);
    }
    DTP_TRY(sel_copy(w, &copy, err));
    const dtp_status status = sel_large(v, copy, 2 * ALONE_ROUNDS, bound, err);
    sel_work_destroy(copy);
    return status;
}

static dtp_status search(sel_solver *v, sel_work *w, bool thorough, int64_t *bound, dtp_err *err)
{
    const int64_t most = thorough ? v->options->max_entries : SMALL_ENTRIES;
    DTP_TRY(sel_reduce(v, w, err));
    const bool branch = sel_size(w).entries <= most;
    if (!w->infeasible && (thorough || !branch)) {
        DTP_TRY(search_large(v, w, branch, bound, err));
    }
    DTP_TRY(sel_reduce(v, w, err));
    if (!w->infeasible && branch) {
        DTP_TRY(sel_branch(v, w, bound, err));
    }
    *bound = w->infeasible || *bound > v->cutoff ? v->cutoff : *bound;
    return DTP_OK;
}

/* Strategy s of the problem, solved in a work in which nothing else is left of the node. */
static dtp_status solve_alone(marginals *m, sel_work *w, int32_t s, bool thorough, dtp_err *err)
{
    dtp_select_result result = {0};
    dtp_select_options options = dtp_select_options_init();
    int64_t bound = 0;
    sel_solver v = {.p = m->p,
                    .options = &options,
                    .out = &result,
                    .cutoff = thorough ? m->out[s].cost : m->top[s],
                    .seed = options.seed,
                    .max_nodes = thorough ? THOROUGH_NODES : ALONE_NODES,
                    .found = m->out[s].cost < DTP_SELECT_FORBIDDEN,
                    .best = m->best,
                    .choice = m->choice,
                    .full = m->full};
    if (!thorough) {
        options.lp_entries = 0;
        options.threads = 1;
    }
    memcpy(m->best, m->around.choices + (size_t)s * (size_t)m->p->n_nodes,
           (size_t)m->p->n_nodes * sizeof *m->best);
    DTP_TRY(search(&v, w, thorough, &bound, err));
    m->best = v.best;
    m->full = v.full;
    m->out[s].bound = larger(m->out[s].bound, bound);
    m->out[s].cost = v.searched ? v.cutoff : m->out[s].cost;
    return DTP_OK;
}

/* A copy of the work in which strategy i is all that is left of the node, at its true cost. */
static dtp_status copy_with(marginals *m, int32_t i, sel_work **out, dtp_err *err)
{
    const int32_t s = m->origin[i];
    sel_work *alone = NULL;
    m->effort -= 4 * sel_size(m->w).entries;
    DTP_TRY(sel_copy(m->w, &alone, err));
    dtp_status status = hold(alone, m->o->node, i, err);
    alone->constant -= m->most - m->top[s];
    alone->cutoff = m->top[s];
    status = status == DTP_OK && !alone->infeasible ? sel_presolve(alone, err) : status;
    if (status != DTP_OK) {
        sel_work_destroy(alone);
        return status;
    }
    *out = alone;
    return DTP_OK;
}

/* Takes strategy i of the work out of it and finishes it in a copy, if effort is left for that. */
static dtp_status take_out(marginals *m, int32_t i, dtp_err *err)
{
    const int32_t s = m->origin[i];
    int64_t killed = 0;
    sel_work *alone = NULL;
    m->open[s] = false;
    DTP_TRY(copy_with(m, i, &alone, err));
    m->effort -= alone->infeasible ? 0 : ALONE_LOOKS * sel_size(alone).entries;
    dtp_status status = DTP_OK;
    if (m->effort > 0 || alone->infeasible) {
        status = solve_alone(m, alone, s, false, err);
    }
    sel_work_destroy(alone);
    DTP_TRY(status);
    DTP_TRY(sel_kill(m->w, m->o->node, i, &killed, err));
    return m->w->infeasible ? DTP_OK : sel_presolve(m->w, err);
}

/* ---- better solutions ---------------------------------------------------------------------------
 */

/* Tops come down to the costs of what was found. */
static dtp_status lower_tops(marginals *m, dtp_err *err)
{
    const sel_node *x = &m->w->nodes[m->o->node];
    bool lower = false;
    take_costs(m);
    for (int32_t i = 0; i < x->k && !m->w->infeasible; i++) {
        const int32_t s = m->origin[i];
        const int64_t down = m->top[s] - m->out[s].cost;
        if (!sel_dead(x, i) && down > 0) {
            m->top[s] -= down;
            lower = true;
            DTP_TRY(sel_add_cost(m->w, m->o->node, i, down, err));
        }
    }
    return m->w->infeasible || !lower ? DTP_OK : sel_presolve(m->w, err);
}

static dtp_status improve_all(marginals *m, dtp_err *err)
{
    const int64_t looks = sel_size(m->w).entries + ROW_LOOKS * m->w->n_rows;
    m->effort -= FORESTS * m->w->nodes[m->o->node].n_live * looks;
    DTP_TRY(sel_around_improve(&m->around, m->w, m->origin, FORESTS, err));
    return lower_tops(m, err);
}

/* A short search with strategy i of the work; its top falls, or it is out. */
static dtp_status improve_one(marginals *m, int32_t i, dtp_err *err)
{
    const int32_t s = m->origin[i];
    sel_work *alone = NULL;
    DTP_TRY(copy_with(m, i, &alone, err));
    dtp_status status = DTP_OK;
    if (!alone->infeasible) {
        m->effort -= SEARCH_LOOKS * sel_size(alone).entries;
        status = sel_around_search(&m->around, alone, s, SEARCH_ROUNDS, err);
    }
    sel_work_destroy(alone);
    return status == DTP_OK ? lower_tops(m, err) : status;
}

/* The strategy with the most room, where the ascent has come to its end: a better solution with it,
 * or it is taken out. */
static dtp_status settle(marginals *m, int32_t *worst, dtp_err *err)
{
    const int32_t s = m->origin[*worst];
    const int64_t before = m->top[s];
    DTP_TRY(improve_one(m, *worst, err));
    DTP_TRY(read_bounds(m, worst, err));
    if (m->top[s] == before && *worst >= 0 && m->origin[*worst] == s) {
        DTP_TRY(take_out(m, *worst, err));
        DTP_TRY(read_bounds(m, worst, err));
    }
    return DTP_OK;
}

/* ---- all together -------------------------------------------------------------------------------
 */

static dtp_status raise(marginals *m, dtp_err *err)
{
    int32_t worst;
    int64_t before = 0;
    DTP_TRY(read_bounds(m, &worst, err));
    while (worst >= 0 && m->effort > 0) {
        DTP_TRY(ascend(m, err));
        DTP_TRY(read_bounds(m, &worst, err));
        if (worst >= 0) {
            DTP_TRY(improve_all(m, err));
            DTP_TRY(read_bounds(m, &worst, err));
        }
        const int64_t now = worst >= 0 ? m->bound[worst] : m->most;
        const bool little = (double)(now - before) < LITTLE * (double)(m->most - before);
        for (int32_t n = 0; little && n < SETTLED && worst >= 0 && m->effort > 0; n++) {
            DTP_TRY(settle(m, &worst, err));
        }
        before = worst >= 0 ? m->bound[worst] : 0;
    }
    return DTP_OK;
}

static dtp_status finish(marginals *m, dtp_err *err)
{
    const dtp_presolve_options options = dtp_presolve_options_init();
    for (int32_t s = 0; s < m->k; s++) {
        sel_work *w = NULL;
        if (m->out[s].bound >= m->out[s].cost) {
            continue;
        }
        DTP_TRY(sel_work_create(m->p, &options, &w, err));
        dtp_status status = hold(w, m->o->node, s, err);
        status = status == DTP_OK ? solve_alone(m, w, s, true, err) : status;
        sel_work_destroy(w);
        DTP_TRY(status);
    }
    return DTP_OK;
}

static dtp_status run(marginals *m, dtp_err *err)
{
    DTP_TRY(sel_around_create(m->p, m->o->node, m->o->start, &m->around, err));
    take_costs(m);
    set_tops(m);
    DTP_TRY(begin(m, err));
    DTP_TRY(raise(m, err));
    return m->o->exact ? finish(m, err) : DTP_OK;
}

dtp_status dtp_select_marginals(const dtp_select_problem *p, const dtp_marginal_options *options,
                                dtp_select_marginal *out, dtp_err *err)
{
    const int32_t k = dtp_select_n_strategies(p, options->node);
    const size_t n = (size_t)p->n_nodes + 1, n_k = (size_t)k + 1;
    marginals m = {.p = p, .o = options, .out = out, .k = k, .effort = options->effort};
    int32_t *block = calloc(3 * n, sizeof *block);
    m.top = calloc(2 * n_k, sizeof *m.top);
    m.origin = calloc(n_k, sizeof *m.origin);
    m.open = calloc(n_k, sizeof *m.open);
    dtp_status status = DTP_OK;
    if (block == NULL || m.top == NULL || m.origin == NULL || m.open == NULL) {
        status = DTP_FAIL(err, DTP_NOMEM, "out of memory for %d strategies", k);
    } else {
        m.bound = m.top + n_k;
        m.choice = block;
        m.full = block + n;
        m.best = block + 2 * n;
        status = run(&m, err);
    }
    sel_around_destroy(&m.around);
    sel_work_destroy(m.w);
    free(block);
    free(m.top);
    free(m.origin);
    free(m.open);
    return status;
}
