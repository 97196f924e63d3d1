/* One strategy of the node at a time, and what a run owns. Beside a strategy whose bound is near
 * the cost of its solution little is left of the problem: elimination, some rounds of ascent, or
 * branch and bound solve that. */
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "planner/solver/branch.h"
#include "planner/solver/primal/variable_elimination.h"
#include "planner/solver/primal_dual.h"
#include "planner/solver/min_marginals_internal.h"

enum {
    ALONE_LOOKS = 4, /* what to begin costs */
    ALONE_ASCENTS = 4,
    ALONE_ROUNDS = 10, /* of each; of search beside the ascent, where solving is thorough */
    ALONE_NODES = 8,   /* of branch and bound then */
    THOROUGH_NODES = 400,
    BRANCH_LOOKS = 1500, /* what branch and bound costs, in looks at all entries */
    SMALL_ENTRIES = 3000 /* up to so many, branch and bound */
};

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static dtp_status ascend_alone(sel_work *w, int64_t *effort, dtp_err *err)
{
    sel_dual *d = NULL;
    *effort -= (ALONE_ROUNDS + SEL_MARGINALS_PASS_LOOKS) * sel_marginals__looks(w);
    DTP_TRY(sel_dual_create(w, &d, err));
    sel_dual_run(d, ALONE_ROUNDS, 0.0);
    const dtp_status status = sel_marginals__apply(d, w, err);
    sel_dual_destroy(d);
    return status;
}

/* ---- one strategy on its own --------------------------------------------------------------------
 */

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

/* Whatever it takes. */
static dtp_status search_thoroughly(sel_solver *v, sel_work *w, int64_t *bound, dtp_err *err)
{
    DTP_TRY(sel_reduce(v, w, err));
    const bool branch = sel_size(w).entries <= v->options->max_entries;
    if (!w->infeasible) {
        DTP_TRY(search_large(v, w, branch, bound, err));
    }
    DTP_TRY(sel_reduce(v, w, err));
    return w->infeasible || !branch ? DTP_OK : sel_branch(v, w, bound, err);
}

/* Without usage: by elimination, if that is quick. Nothing cheaper is left of the work then. */
static dtp_status eliminate_alone(sel_marginals *m, sel_solver *v, sel_work *w, dtp_err *err)
{
    sel_bucket *b = NULL;
    int64_t used = 0;
    if (w->infeasible || w->n_rows > 0 || *m->effort <= 0) {
        return DTP_OK;
    }
    DTP_TRY(sel_bucket_create(w, -1, SEL_MARGINALS_TABLE_LOOKS, &b, &used, err));
    *m->effort -= b != NULL ? SEL_MARGINALS_TABLE_COST * used + sel_marginals__looks(w) : 0;
    dtp_status status = DTP_OK;
    if (b != NULL && sel_bucket_choose(b, 0, v->choice)) {
        status = sel_offer(v, w, w->n_undo, v->choice, err);
    }
    w->infeasible = b != NULL;
    sel_bucket_destroy(b);
    return status;
}

/* Ascents while they bring something, then branch and bound if what is left is small. */
static dtp_status search_quickly(sel_marginals *m, sel_solver *v, sel_work *w, int64_t *bound,
                                 dtp_err *err)
{
    int64_t before = INT64_MAX;
    DTP_TRY(sel_reduce(v, w, err));
    for (int32_t i = 0; i < ALONE_ASCENTS << m->depth && !w->infeasible && *m->effort > 0; i++) {
        const int64_t now = sel_size(w).entries;
        if (now == 0 || (m->depth == 0 && now > before / 10 * 7)) {
            break;
        }
        before = now;
        DTP_TRY(eliminate_alone(m, v, w, err));
        if (!w->infeasible) {
            DTP_TRY(ascend_alone(w, m->effort, err));
            DTP_TRY(sel_reduce(v, w, err));
        }
    }
    if (!w->infeasible) {
        *bound = larger(*bound, sel_lower_bound(w));
    }
    const int64_t cost = (BRANCH_LOOKS << m->depth) * sel_marginals__looks(w);
    if (!w->infeasible && sel_size(w).entries <= SMALL_ENTRIES << m->depth && cost < *m->effort) {
        *m->effort -= cost;
        DTP_TRY(sel_branch(v, w, bound, err));
    }
    return DTP_OK;
}

/* Strategy s of the problem, solved in a work in which nothing else is left of the node. */
static dtp_status solve_alone(sel_marginals *m, sel_work *w, int32_t s, bool thorough, dtp_err *err)
{
    dtp_select_result result = {0};
    dtp_select_options options = dtp_select_options_init();
    const size_t bytes = (size_t)m->p->n_nodes * sizeof *m->best;
    int32_t *known = m->around.choices + (size_t)s * (size_t)m->p->n_nodes;
    int64_t bound = 0;
    sel_solver v = {.p = m->p,
                    .evaluator = m->around.evaluator,
                    .options = &options,
                    .out = &result,
                    .cutoff = thorough ? m->out[s].cost : m->top[s],
                    .seed = options.seed,
                    .max_nodes = thorough ? THOROUGH_NODES : ALONE_NODES << m->depth,
                    .found = m->out[s].cost < DTP_SELECT_FORBIDDEN,
                    .best = m->best,
                    .choice = m->choice,
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
        m->out[s].cost = m->around.cost[s] = v.cutoff;
        memcpy(known, v.best, bytes);
    }
    return DTP_OK;
}

/* Strategy i of a work in a copy, at its true cost. */
static dtp_status take_out(sel_marginals *m, sel_work *w, int32_t i, int32_t s, dtp_err *err)
{
    sel_work *alone = NULL;
    const int64_t cutoff = w->cutoff;
    *m->effort -= sel_marginals__looks(w);
    DTP_TRY(sel_copy_with(w, m->node, i, &alone, err));
    alone->constant -= cutoff - m->top[s];
    alone->cutoff = m->top[s];
    alone->options.dominance = false; /* slow where the bound leaves so little */
    *m->effort -= ALONE_LOOKS * sel_marginals__looks(alone);
    const dtp_status status = solve_alone(m, alone, s, false, err);
    sel_work_destroy(alone);
    m->open[s] = m->out[s].bound < m->out[s].cost;
    return status;
}

dtp_status sel_marginals__one_by_one(sel_marginals *m, sel_work *w, bool waiting, dtp_err *err)
{
    const sel_node *x = &w->nodes[m->node];
    int64_t n = 0;
    dtp_keyed *order = calloc(2 * (size_t)x->k + 1, sizeof *order);
    if (order == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d strategies", x->k);
    }
    sel_marginals__find_origins(m, w);
    for (int32_t i = 0; i < x->k; i++) {
        const int32_t s = m->origin[i];
        if (!sel_dead(x, i) && m->open[s] && m->waits[s] == waiting) {
            order[n++] = (dtp_keyed){dtp_sort_key(m->top[s]), i};
        }
    }
    dtp_sort_keyed(order, order + n, n);
    dtp_status status = DTP_OK;
    for (int64_t j = 0; j < n && status == DTP_OK && *m->effort > 0; j++) {
        const int32_t i = (int32_t)order[j].item;
        status = take_out(m, w, i, m->origin[i], err);
    }
    free(order);
    return status;
}

/* ---- thoroughly
 * ----------------------------------------------------------------------------------
 */

dtp_status sel_marginals_finish(sel_marginals *m, int32_t s, dtp_err *err)
{
    const dtp_presolve_options options = dtp_presolve_options_init();
    int64_t killed = 0;
    sel_work *w = NULL;
    DTP_TRY(sel_work_create(m->p, &options, &w, err));
    dtp_status status = DTP_OK;
    for (int32_t i = 0; i < m->k && status == DTP_OK && !w->infeasible; i++) {
        if (i != s && !sel_dead(&w->nodes[m->node], i)) {
            status = sel_kill(w, m->node, i, &killed, err);
        }
    }
    status = status == DTP_OK ? solve_alone(m, w, s, true, err) : status;
    sel_work_destroy(w);
    return status;
}

/* ---- life ---------------------------------------------------------------------------------------
 */

static dtp_status allocate(sel_marginals *m, dtp_err *err)
{
    const size_t n = (size_t)m->p->n_nodes + 1, k = (size_t)m->k + 1;
    m->top = calloc(k, sizeof *m->top);
    m->bound = calloc(k, sizeof *m->bound);
    m->origin = calloc(k, sizeof *m->origin);
    m->open = calloc(k, sizeof *m->open);
    m->waits = calloc(k, sizeof *m->waits);
    m->choice = calloc(n, sizeof *m->choice);
    m->full = calloc(n, sizeof *m->full);
    m->best = calloc(n, sizeof *m->best);
    const bool ok = m->top != NULL && m->bound != NULL && m->origin != NULL && m->open != NULL &&
                    m->choice != NULL && m->full != NULL && m->best != NULL;
    return ok ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for %d strategies", m->k);
}

dtp_status sel_marginals_create(const dtp_select_problem *p, const dtp_marginal_options *options,
                                int64_t *effort, dtp_select_marginal *out, sel_marginals *m,
                                dtp_err *err)
{
    *m = (sel_marginals){.p = p,
                         .node = options->node,
                         .k = dtp_select_n_strategies(p, options->node),
                         .effort = effort,
                         .out = out};
    dtp_status status = allocate(m, err);
    for (int32_t s = 0; s < m->k && status == DTP_OK; s++) {
        m->open[s] = true;
    }
    status = status == DTP_OK ? sel_around_create(p, options->node, options->start, &m->around, err)
                              : status;
    if (status != DTP_OK) {
        sel_marginals_destroy(m);
    }
    return status;
}

void sel_marginals_destroy(sel_marginals *m)
{
    if (m->p != NULL) {
        sel_around_destroy(&m->around);
        sel_work_destroy(m->aside);
        sel_work_destroy(m->w);
        free(m->top);
        free(m->bound);
        free(m->origin);
        free(m->open);
        free(m->waits);
        free(m->choice);
        free(m->full);
        free(m->best);
    }
    *m = (sel_marginals){0};
}
