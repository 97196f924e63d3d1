/* The primal-dual loop for kernels too large for branch and bound. */
#include "planner/solver/primal_dual.h"

#include <pthread.h>
#include <string.h>

#include "planner/solver/dive.h"
#include "planner/solver/dual/dual.h"
#include "planner/solver/primal/primal.h"

typedef struct primal_search {
    solver_primal *primal;
    int64_t n_undo;      /* records of the reduced problem when the search began */
    int64_t entries;     /* of its kernel */
    int64_t gap;         /* between best cost and bound then */
    int64_t rounds;      /* of the next epoch */
    int64_t full;        /* rounds of a later one */
    int64_t ascent;      /* rounds of the ascent meanwhile */
    int64_t cost, bound; /* at the last gain */
    int32_t stalled;     /* epochs since */
    int64_t dive_at;     /* rounds of the ascent */
    const dtp_stop *stop;
    dtp_status status; /* of the last epoch */
    dtp_err err;
} primal_search;

/* ---- one epoch ---- */

static void *run_search(void *user)
{
    primal_search *h = user;
    h->status = solver_primal_run(h->primal, h->rounds, h->stop, &h->err);
    return NULL;
}

/* Both sides, each on its snapshot, or the ascent alone while there is no search; then they
 * exchange what they found. */
static dtp_status epoch(solver_state *v, solver_reduced *w, primal_search *h, int64_t *bound,
                        dtp_err *err)
{
    solver_dual *d = NULL;
    int64_t found = 0;
    pthread_t thread;
    DTP_TRY(solver_dual_create(w, &d, err));
    const bool searches = h->primal != NULL;
    const bool apart =
        searches && v->options->threads > 1 && pthread_create(&thread, NULL, run_search, h) == 0;
    if (searches && !apart) {
        (void)run_search(h);
    }
    solver_dual_run(d, h->ascent, v->options->stop);
    if (apart) {
        (void)pthread_join(thread, NULL);
    }
    dtp_status s = h->status;
    if (s != DTP_OK && err != NULL) {
        *err = h->err;
    }
    if (s == DTP_OK && searches && solver_primal_best(h->primal, v->assignment)) {
        s = solver_offer(v, w, h->n_undo, v->assignment, err);
    }
    if (s == DTP_OK) {
        w->cutoff = v->cutoff;
        s = solver_dual_apply(d, w, v->options->presolve.incumbent_filter, &found, err);
    }
    *bound = found > *bound ? found : *bound;
    solver_dual_destroy(d);
    return s == DTP_OK ? solver_reduce(v, w, err) : s;
}

bool solver_too_large(const solver_state *v, solver_reduced *w)
{
    return v->options->solver == DTP_SOLVER_LARGE ||
           solver_size(w).entries > v->options->max_entries;
}

/* Little is left to gain. On a kernel that has become small, the rest is cheap. */
static bool is_close(const solver_state *v, solver_reduced *w, int64_t bound, int64_t small)
{
    return bound >= v->cutoff || (solver_close(v, bound) && solver_size(w).entries > small);
}

/* Neither side got on much in the last epochs. */
static bool stalled(const dtp_solver_parameters *c, primal_search *h, int64_t cost, int64_t bound)
{
    const bool gained = cost < h->cost || bound - h->bound > (cost - bound) / c->epoch_gain;
    if (gained) {
        h->cost = cost;
        h->bound = bound;
    }
    h->stalled = gained ? 0 : h->stalled + (h->rounds < h->full ? 0 : 1);
    return h->stalled >= c->epoch_patience;
}

static dtp_status begin_search(solver_state *v, solver_reduced *w, primal_search *h, int64_t bound,
                               dtp_err *err)
{
    solver_primal_destroy(h->primal);
    h->primal = NULL;
    memcpy(v->assignment, v->best, (size_t)w->n_variables * sizeof *v->assignment);
    solver_project(w, v->assignment);
    for (int32_t i = 0; i < w->n_variables; i++) {
        v->assignment[i] = v->assignment[i] < 0 ? 0 : v->assignment[i];
    }
    h->n_undo = w->n_undo;
    h->entries = solver_size(w).entries;
    h->gap = v->cutoff - bound;
    return solver_primal_create(w, v->assignment, v->seed, &h->primal, err);
}

/* A search of so many rounds, which begins anew on a much smaller kernel or with much better
 * multipliers; an epoch; a dive when it is due. */
static dtp_status step(solver_state *v, solver_reduced *w, primal_search *h, int64_t rounds,
                       int64_t *bound, dtp_err *err)
{
    const dtp_solver_parameters *c = w->parameters;
    const int64_t gap = v->cutoff - *bound;
    h->rounds = rounds;
    if (h->primal == NULL || 2 * solver_size(w).entries < h->entries ||
        (2 * gap < h->gap && gap < v->cutoff / c->epoch_small_gap)) {
        DTP_TRY(begin_search(v, w, h, *bound, err));
    }
    DTP_TRY(epoch(v, w, h, bound, err));
    const int64_t before = v->cutoff;
    if (w->infeasible || w->ascended < h->dive_at) {
        return DTP_OK;
    }
    DTP_TRY(solver_dive(v, w, err));
    h->dive_at = w->ascended + (v->cutoff < before ? c->dive_next : c->dive_later);
    return v->cutoff < before ? solver_reduce(v, w, err) : DTP_OK;
}

dtp_status solver_primal_dual(solver_state *v, solver_reduced *w, int64_t rounds, int64_t *bound,
                              dtp_err *err)
{
    const dtp_solver_parameters *c = w->parameters;
    primal_search h = {.full = c->epoch_search,
                       .stop = v->options->stop,
                       .cost = INT64_MAX,
                       .dive_at = c->dive_first};
    const int64_t part = solver_size(w).entries / c->epoch_small_kernel;
    const int64_t small = part > v->options->lp_entries ? part : v->options->lp_entries;
    dtp_status s = DTP_OK;
    /* To the optimum, long ones leave branch and bound a better start. */
    int64_t left = rounds, next = v->gap > 0.0 ? 1 : h.full;
    if (v->found && solver_size(w).entries > c->epoch_large) { /* a search has less to do then */
        h.ascent = c->epoch_first;
        s = epoch(v, w, &h, bound, err);
    }
    for (bool done = false; left > 0 && s == DTP_OK && !done && !w->infeasible &&
                            !is_close(v, w, *bound, small) && !dtp_stopped(v->options->stop);
         left -= h.rounds) {
        next = next < h.full ? next : h.full;
        h.ascent = (c->epoch_ascent * next + h.full - 1) / h.full;
        s = step(v, w, &h, left < next ? left : next, bound, err);
        next *= 2;
        done = stalled(c, &h, v->cutoff, *bound) && v->options->solver != DTP_SOLVER_LARGE;
    }
    *bound = w->infeasible ? v->cutoff : *bound;
    solver_primal_destroy(h.primal);
    return s;
}
