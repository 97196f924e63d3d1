#include "planner/solver/primal/primal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "planner/solver/primal/perturbation.h"
#include "planner/solver/primal/primal_price.h"

enum {
    ROUND_PASSES = 50,      /* work of a round, in looks at the whole kernel */
    PRICING_PATIENCE = 400, /* steps without anything better in this phase */
    POLISH_PATIENCE = 500   /* looks at the whole kernel without anything better */
};

typedef struct record {
    int32_t *choice;
    double *price;
    double cost; /* INFINITY = none */
} record;

struct sel_primal {
    sel_graph *graph;
    sel_walk walk;
    sel_forest *forest;
    sel_pricing pricing;
    sel_polish polish;
    record best, phase; /* of all; of this phase */
    bool polishing;
    int64_t unit;   /* of work: one look at the whole kernel */
    int64_t waited; /* steps of pricing, or work of polishing, since the last gain */
    int64_t n_phases;
};

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static dtp_status create_record(const sel_graph *g, record *r, dtp_err *err)
{
    r->choice = calloc((size_t)g->n + 1, sizeof *r->choice);
    r->price = calloc((size_t)g->n_rows + 1, sizeof *r->price);
    r->cost = (double)INFINITY;
    return r->choice != NULL && r->price != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOMEM, "out of memory for a solution");
}

static void keep(record *r, const sel_walk *w)
{
    memcpy(r->choice, w->choice, (size_t)w->g->n * sizeof *r->choice);
    memcpy(r->price, w->price, (size_t)w->g->n_rows * sizeof *r->price);
    r->cost = w->cost;
}

static void go_to(sel_walk *w, const record *r)
{
    memcpy(w->price, r->price, (size_t)w->g->n_rows * sizeof *r->price);
    sel_walk_reprice(w);
    sel_walk_jump(w, r->choice);
}

static dtp_status create(sel_primal *p, const sel_work *w, const int32_t *start, uint64_t seed,
                         dtp_err *err)
{
    DTP_TRY(sel_graph_create(w, &p->graph, err));
    const sel_graph *g = p->graph;
    DTP_TRY(create_record(g, &p->best, err));
    DTP_TRY(create_record(g, &p->phase, err));
    for (int32_t i = 0; i < g->n; i++) {
        p->best.choice[i] = start[g->nodes[i].origin];
    }
    DTP_TRY(sel_walk_create(g, p->best.choice, seed, &p->walk, err));
    DTP_TRY(sel_forest_create(g, &p->forest, err));
    DTP_TRY(sel_pricing_create(g, p->forest, &p->pricing, err));
    DTP_TRY(sel_polish_create(g, p->forest, &p->polish, err));
    p->unit = g->n_entries + 3 * g->n_arcs + 3 * g->n_strategies + g->n_rows + 1;
    if (sel_walk_feasible(&p->walk)) {
        keep(&p->best, &p->walk);
    }
    return DTP_OK;
}

dtp_status sel_primal_create(const sel_work *w, const int32_t *start, uint64_t seed,
                             sel_primal **out, dtp_err *err)
{
    sel_primal *p = calloc(1, sizeof *p);
    dtp_status s = p != NULL ? create(p, w, start, seed, err)
                             : DTP_FAIL(err, DTP_NOMEM, "out of memory for a search");
    if (s != DTP_OK) {
        sel_primal_destroy(p);
        return s;
    }
    *out = p;
    return DTP_OK;
}

void sel_primal_destroy(sel_primal *p)
{
    if (p == NULL) {
        return;
    }
    sel_polish_destroy(&p->polish);
    sel_pricing_destroy(&p->pricing);
    sel_forest_destroy(p->forest);
    sel_walk_destroy(&p->walk);
    free(p->best.choice);
    free(p->best.price);
    free(p->phase.choice);
    free(p->phase.price);
    sel_graph_destroy(p->graph);
    free(p);
}

bool sel_primal_best(const sel_primal *p, int32_t *choice)
{
    for (int32_t i = 0; p->best.cost < (double)INFINITY && i < p->graph->n; i++) {
        choice[p->graph->nodes[i].origin] = p->best.choice[i];
    }
    return p->best.cost < (double)INFINITY;
}

/* ---- the phases --------------------------------------------------------------------------------
 */

static void note(sel_primal *p)
{
    p->waited = 0;
    keep(&p->phase, &p->walk);
    if (p->walk.cost < p->best.cost) {
        keep(&p->best, &p->walk);
    }
}

static dtp_status price(sel_primal *p, dtp_err *err)
{
    DTP_TRY(sel_pricing_step(&p->pricing, &p->walk, err));
    p->waited++;
    if (p->walk.cost < p->phase.cost && sel_walk_feasible(&p->walk)) {
        note(p);
    }
    if (p->waited > PRICING_PATIENCE && p->phase.cost < (double)INFINITY) {
        p->polishing = true;
        p->waited = 0;
        go_to(&p->walk, &p->phase);
    }
    return DTP_OK;
}

/* Every other time from the prices at which the best was found, with large or small steps; else
 * from the first prices, with other random numbers than before. */
static void begin_pricing(sel_primal *p)
{
    static const double SHARES[] = {1.0, 0.1, 0.3, 0.03};
    const int64_t n = p->n_phases++;
    go_to(&p->walk, &p->best);
    if (n % 2 == 1) {
        memcpy(p->walk.price, p->graph->price, (size_t)p->graph->n_rows * sizeof *p->walk.price);
        sel_walk_reprice(&p->walk);
        sel_pricing_reset(&p->pricing, p->graph);
    } else {
        sel_pricing_restart(&p->pricing, SHARES[n / 2 % 4]);
    }
    p->polishing = false;
    p->waited = 0;
    p->phase.cost = (double)INFINITY;
}

static dtp_status polish(sel_primal *p, dtp_err *err)
{
    const int64_t before = p->walk.work;
    bool better = false;
    DTP_TRY(sel_polish_kick(&p->polish, &p->walk, &better, err));
    p->waited += p->walk.work - before;
    if (better) {
        note(p);
    }
    if (p->waited > POLISH_PATIENCE * p->unit) {
        begin_pricing(p);
    }
    return DTP_OK;
}

dtp_status sel_primal_run(sel_primal *p, int64_t rounds, double end_s, dtp_err *err)
{
    const double end = end_s > 0.0 ? end_s : (double)INFINITY;
    for (int64_t round = 0; round < rounds; round++) {
        const int64_t until = p->walk.work + ROUND_PASSES * p->unit;
        while (p->walk.work < until) {
            if (now_s() >= end) {
                return DTP_OK;
            }
            DTP_TRY(p->polishing ? polish(p, err) : price(p, err));
        }
    }
    return DTP_OK;
}
