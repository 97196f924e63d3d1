#include "planner/solver/primal_dual.h"

#include <pthread.h>
#include <string.h>

#include "planner/solver/dive.h"
#include "planner/solver/dual/dual.h"
#include "planner/solver/primal/primal.h"

enum {
    EPOCH_SEARCH = 10,  /* rounds of the search between exchanges */
    EPOCH_ASCENT = 200, /* rounds of the ascent meanwhile */
    FIRST_DIVE = 800,   /* rounds of the ascent before the first dive */
    NEXT_DIVE = 200,    /* before the next one after one that found a better plan */
    LATER_DIVE = 800,   /* and after one that did not */
    PATIENCE = 6        /* epochs without a gain before something else is tried */
};

typedef struct search {
    sel_primal *primal;
    int64_t n_undo;      /* records of the work when the search began */
    int64_t entries;     /* of its kernel */
    int64_t gap;         /* between best cost and bound then */
    int64_t rounds;      /* of the next epoch */
    int64_t cost, bound; /* at the last gain */
    int32_t stalled;     /* epochs since */
    int64_t dive_at;     /* rounds of the ascent */
    double end_s;
    dtp_status status; /* of the last epoch */
    dtp_err err;
} search;

/* ---- the search --------------------------------------------------------------------------------
 */

static dtp_status begin_search(sel_solver *v, sel_work *w, search *h, int64_t bound, dtp_err *err)
{
    sel_primal_destroy(h->primal);
    h->primal = NULL;
    memcpy(v->choice, v->best, (size_t)w->n_nodes * sizeof *v->choice);
    sel_project(w, v->choice);
    for (int32_t i = 0; i < w->n_nodes; i++) {
        v->choice[i] = v->choice[i] < 0 ? 0 : v->choice[i];
    }
    h->n_undo = w->n_undo;
    h->entries = sel_size(w).entries;
    h->gap = v->cutoff - bound;
    return sel_primal_create(w, v->choice, v->seed, &h->primal, err);
}

static void *run_search(void *user)
{
    search *h = user;
    h->status = sel_primal_run(h->primal, h->rounds, h->end_s, &h->err);
    return NULL;
}

/* What the search found so far. */
static dtp_status collect(sel_solver *v, const sel_work *w, const search *h, dtp_err *err)
{
    return sel_primal_best(h->primal, v->choice) ? sel_offer(v, w, h->n_undo, v->choice, err)
                                                 : DTP_OK;
}

/* ---- one epoch ---------------------------------------------------------------------------------
 */

/* Both sides, each on its snapshot. */
static dtp_status run_both(sel_solver *v, search *h, sel_dual *d, dtp_err *err)
{
    pthread_t thread;
    const bool apart = v->options->threads > 1 && pthread_create(&thread, NULL, run_search, h) == 0;
    if (!apart) {
        (void)run_search(h);
    }
    sel_dual_run(d, EPOCH_ASCENT, sel_time_left(v));
    if (apart) {
        (void)pthread_join(thread, NULL);
    }
    if (h->status != DTP_OK && err != NULL) {
        *err = h->err;
    }
    return h->status;
}

static dtp_status epoch(sel_solver *v, sel_work *w, search *h, int64_t *bound, dtp_err *err)
{
    sel_dual *d = NULL;
    int64_t found = 0;
    DTP_TRY(sel_dual_create(w, &d, err));
    dtp_status s = run_both(v, h, d, err);
    if (s == DTP_OK) {
        s = collect(v, w, h, err);
    }
    if (s == DTP_OK) {
        w->cutoff = v->cutoff;
        s = sel_dual_apply(d, w, v->options->presolve.cap, &found, err);
    }
    *bound = found > *bound ? found : *bound;
    sel_dual_destroy(d);
    return s == DTP_OK ? sel_reduce(v, w, err) : s;
}

static dtp_status dive(sel_solver *v, sel_work *w, search *h, dtp_err *err)
{
    const int64_t before = v->cutoff;
    if (w->infeasible || w->ascended < h->dive_at) {
        return DTP_OK;
    }
    DTP_TRY(sel_dive(v, w, err));
    h->dive_at = w->ascended + (v->cutoff < before ? NEXT_DIVE : LATER_DIVE);
    return v->cutoff < before ? sel_reduce(v, w, err) : DTP_OK;
}

bool sel_too_large(const sel_solver *v, sel_work *w)
{
    return v->options->solver == DTP_SELECT_LARGE || sel_size(w).entries > v->options->max_entries;
}

/* On a much smaller kernel, or with much better prices. */
static bool worth_restarting(const sel_solver *v, sel_work *w, const search *h, int64_t bound)
{
    const int64_t gap = v->cutoff - bound;
    return 2 * sel_size(w).entries < h->entries || (2 * gap < h->gap && gap < v->cutoff / 33);
}

/* Neither side got on much in the last epochs. */
static bool stalled(search *h, int64_t cost, int64_t bound)
{
    const bool gained = cost < h->cost || bound - h->bound > (cost - bound) / 100;
    if (gained) {
        h->cost = cost;
        h->bound = bound;
    }
    h->stalled = gained ? 0 : h->stalled + 1;
    return h->stalled >= PATIENCE;
}

static dtp_status loop(sel_solver *v, sel_work *w, search *h, int64_t left, int64_t *bound,
                       dtp_err *err)
{
    for (bool done = false;
         left > 0 && !done && !w->infeasible && !sel_close(v, *bound) && !sel_time_is_up(v);
         left -= h->rounds) {
        if (h->primal == NULL || worth_restarting(v, w, h, *bound)) {
            DTP_TRY(begin_search(v, w, h, *bound, err));
        }
        h->rounds = left < EPOCH_SEARCH ? left : EPOCH_SEARCH;
        DTP_TRY(epoch(v, w, h, bound, err));
        DTP_TRY(dive(v, w, h, err));
        done = stalled(h, v->cutoff, *bound) && v->options->solver != DTP_SELECT_LARGE;
    }
    return DTP_OK;
}

dtp_status sel_large(sel_solver *v, sel_work *w, int64_t rounds, int64_t *bound, dtp_err *err)
{
    search h = {.end_s = v->end_s, .cost = INT64_MAX, .dive_at = FIRST_DIVE};
    dtp_status s = loop(v, w, &h, rounds, bound, err);
    *bound = w->infeasible ? v->cutoff : *bound;
    sel_primal_destroy(h.primal);
    return s;
}
