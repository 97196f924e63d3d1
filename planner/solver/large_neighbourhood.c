/* Large neighbourhood search: branch and bound around the incumbent. */
#include "planner/solver/large_neighbourhood.h"

#include <pthread.h>
#include <string.h>

#include "planner/solver/branch.h"
#include "planner/solver/reduced/copy.h"

enum { SIDES = 2 }; /* neighbourhoods of a round, each on its own thread */

typedef struct neighbourhood {
    solver_state v; /* with scratch of its own */
    dtp_solve_result out;
    const solver_reduced *w;
    const int32_t *kept; /* by variable: its strategy in the incumbent, -1 = gone from w */
    int32_t *variables;  /* of the neighbourhood, sources first */
    uint64_t *stamp;     /* by variable: `now` when it is in the neighbourhood */
    uint64_t now, random;
    int32_t size;
    bool easy; /* the last one */
    dtp_status status;
    dtp_err err;
} neighbourhood;

typedef struct neighbourhoods {
    neighbourhood side[SIDES];
    int32_t *kept;
    int32_t *alive; /* the undecided variables */
    int32_t n_alive;
} neighbourhoods;

/* ---- choosing a neighbourhood ---- */

static void enter(neighbourhood *r, int32_t variable, int32_t *n)
{
    if (r->stamp[variable] != r->now) {
        r->stamp[variable] = r->now;
        r->variables[(*n)++] = variable;
    }
}

/* Breadth first from all sources at once, and from another one where these are surrounded; of a
 * variable with many neighbours those come first that follow a random one. */
static void choose_neighbourhood(neighbourhood *r, const neighbourhoods *all)
{
    const int32_t sources = 1 + solver_random(&r->random, r->w->parameters->lns_sources);
    const int32_t drawn = r->size / 2 + solver_random(&r->random, r->size);
    const int32_t size = drawn < all->n_alive ? drawn : all->n_alive;
    int32_t n = 0;
    r->now++;
    for (int32_t i = 0; i < sources; i++) {
        enter(r, all->alive[solver_random(&r->random, all->n_alive)], &n);
    }
    for (int32_t at = 0; n < size; at++) {
        while (at == n) {
            enter(r, all->alive[solver_random(&r->random, all->n_alive)], &n);
        }
        const int32_t variable = r->variables[at];
        const solver_variable *x = &r->w->variables[variable];
        const int32_t from = x->n_adj > 0 ? solver_random(&r->random, x->n_adj) : 0;
        for (int32_t i = 0; i < x->n_adj && n < size; i++) {
            const solver_edge *e = &r->w->edges[x->adj[(from + i) % x->n_adj]];
            if (e->alive && (e->u == variable || e->v == variable)) {
                enter(r, e->u == variable ? e->v : e->u, &n);
            }
        }
    }
}

/* ---- solving it ---- */

/* Branch and bound with everything outside as in the incumbent; a thread. */
static void *solve_neighbourhood(void *user)
{
    neighbourhood *r = user;
    dtp_err *err = &r->err;
    solver_reduced *part = NULL;
    int64_t bound = 0;
    r->out.nodes = 0;
    dtp_status s = solver_copy(r->w, &part, err);
    for (int32_t i = 0; s == DTP_OK && i < part->n_variables && !part->infeasible; i++) {
        if (part->variables[i].alive && r->stamp[i] != r->now && r->kept[i] >= 0) {
            s = solver_fix(part, i, r->kept[i], err);
        }
    }
    s = s == DTP_OK && !part->infeasible ? solver_compact(part, err) : s;
    s = s == DTP_OK && !part->infeasible ? solver_branch(&r->v, part, &bound, err) : s;
    r->easy = part != NULL && (part->infeasible || bound >= r->v.cutoff) &&
              r->out.nodes <= r->w->parameters->lns_easy_nodes;
    r->status = s;
    solver_reduced_destroy(part);
    return NULL;
}

/* ---- rounds ---- */

static dtp_status run_round(solver_state *v, solver_reduced *w, neighbourhoods *all, dtp_err *err)
{
    const dtp_solver_parameters *c = v->options->parameters;
    pthread_t thread;
    neighbourhood *last = &all->side[SIDES - 1];
    memcpy(all->kept, v->best, (size_t)w->n_variables * sizeof *all->kept);
    solver_project(w, all->kept);
    all->n_alive = 0;
    for (int32_t i = 0; i < w->n_variables; i++) {
        if (w->variables[i].alive && w->variables[i].n_live > 1) {
            all->alive[all->n_alive++] = i;
        }
    }
    if (all->n_alive == 0) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < SIDES; i++) {
        neighbourhood *r = &all->side[i];
        r->v.cutoff = v->cutoff;
        r->w = w;
        r->kept = all->kept;
        choose_neighbourhood(r, all);
    }
    const bool apart =
        v->options->threads > 1 && pthread_create(&thread, NULL, solve_neighbourhood, last) == 0;
    for (int32_t i = 0; i < SIDES - (apart ? 1 : 0); i++) {
        (void)solve_neighbourhood(&all->side[i]);
    }
    if (apart) {
        (void)pthread_join(thread, NULL);
    }
    for (int32_t i = 0; i < SIDES; i++) {
        neighbourhood *r = &all->side[i];
        r->size =
            r->easy ? r->size + r->size / c->lns_growth + 1 : r->size - r->size / c->lns_shrink;
        r->size = r->size < c->lns_least_size ? c->lns_least_size : r->size;
        if (r->status != DTP_OK && err != NULL) {
            *err = r->err;
        }
        DTP_TRY(r->status);
        if (r->v.cutoff < v->cutoff) {
            memcpy(v->best, r->v.best, (size_t)v->p->n_variables * sizeof *v->best);
            v->out->value = r->out.value;
            v->cutoff = r->v.cutoff;
        }
    }
    return DTP_OK;
}

static dtp_status search(solver_state *v, solver_reduced *w, int64_t rounds, int64_t bound,
                         dtp_arena *arena, dtp_err *err)
{
    const int32_t n = v->p->n_variables;
    neighbourhoods all = {0};
    int32_t waited = 0;
    double gained = 0.0;
    DTP_TRY(DTP_NEW(arena, all.kept, n, err));
    DTP_TRY(DTP_NEW(arena, all.alive, n, err));
    for (int32_t i = 0; i < SIDES; i++) {
        neighbourhood *r = &all.side[i];
        r->v = (solver_state){.p = v->p,
                              .evaluator = v->evaluator,
                              .options = v->options,
                              .out = &r->out,
                              .seed = v->seed,
                              .found = true,
                              .searched = true,
                              .max_nodes = v->options->parameters->lns_nodes};
        DTP_TRY(DTP_NEW(arena, r->v.assignment, n, err));
        DTP_TRY(DTP_NEW(arena, r->v.full, n, err));
        DTP_TRY(DTP_NEW(arena, r->v.best, n, err));
        DTP_TRY(DTP_NEW(arena, r->variables, n, err));
        DTP_TRY(DTP_NEW(arena, r->stamp, n, err));
        r->random = v->seed * SIDES + (uint64_t)i;
        r->size = v->options->parameters->lns_first_size;
    }
    for (int64_t i = 0; i < rounds && waited < w->parameters->lns_patience && !w->infeasible &&
                        !dtp_stopped(v->options->stop);
         i++) {
        const int64_t before = v->cutoff;
        DTP_TRY(run_round(v, w, &all, err));
        gained += (double)(before - v->cutoff);
        waited++;
        if (gained > w->parameters->lns_gain * (double)(v->cutoff - bound)) {
            gained = 0.0;
            waited = 0;
        }
        if (v->cutoff < before) {
            DTP_TRY(solver_reduce(v, w, err));
        }
    }
    return DTP_OK;
}

dtp_status solver_large_neighbourhood(solver_state *v, solver_reduced *w, int64_t rounds,
                                      int64_t bound, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    const dtp_status s = search(v, w, rounds, bound, arena, err);
    dtp_arena_destroy(arena);
    return s;
}
