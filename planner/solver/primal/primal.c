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
    int32_t *assignment;
    double *multiplier;
    double cost; /* INFINITY = none */
} record;

struct solver_primal {
    solver_graph *graph;
    solver_point walk;
    solver_forest *forest;
    solver_pricing pricing;
    solver_perturbation perturb;
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

static dtp_status create_record(const solver_graph *g, record *r, dtp_err *err)
{
    r->assignment = calloc((size_t)g->n + 1, sizeof *r->assignment);
    r->multiplier = calloc((size_t)g->n_rows + 1, sizeof *r->multiplier);
    r->cost = (double)INFINITY;
    return r->assignment != NULL && r->multiplier != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOMEM, "out of memory for a solution");
}

static void keep(record *r, const solver_point *w)
{
    memcpy(r->assignment, w->assignment, (size_t)w->g->n * sizeof *r->assignment);
    memcpy(r->multiplier, w->multiplier, (size_t)w->g->n_rows * sizeof *r->multiplier);
    r->cost = w->cost;
}

static void go_to(solver_point *w, const record *r)
{
    memcpy(w->multiplier, r->multiplier, (size_t)w->g->n_rows * sizeof *r->multiplier);
    solver_point_reprice(w);
    solver_point_jump(w, r->assignment);
}

static dtp_status create(solver_primal *p, const solver_work *w, const int32_t *start,
                         uint64_t seed, dtp_err *err)
{
    DTP_TRY(solver_graph_create(w, &p->graph, err));
    const solver_graph *g = p->graph;
    DTP_TRY(create_record(g, &p->best, err));
    DTP_TRY(create_record(g, &p->phase, err));
    for (int32_t i = 0; i < g->n; i++) {
        p->best.assignment[i] = start[g->nodes[i].origin];
    }
    DTP_TRY(solver_point_create(g, p->best.assignment, seed, &p->walk, err));
    DTP_TRY(solver_forest_create(g, &p->forest, err));
    DTP_TRY(solver_pricing_create(g, p->forest, &p->pricing, err));
    DTP_TRY(solver_perturbation_create(g, p->forest, &p->perturb, err));
    p->unit = g->n_entries + 3 * g->n_arcs + 3 * g->n_strategies + g->n_rows + 1;
    if (solver_point_feasible(&p->walk)) {
        keep(&p->best, &p->walk);
    }
    return DTP_OK;
}

dtp_status solver_primal_create(const solver_work *w, const int32_t *start, uint64_t seed,
                                solver_primal **out, dtp_err *err)
{
    solver_primal *p = calloc(1, sizeof *p);
    dtp_status s = p != NULL ? create(p, w, start, seed, err)
                             : DTP_FAIL(err, DTP_NOMEM, "out of memory for a search");
    if (s != DTP_OK) {
        solver_primal_destroy(p);
        return s;
    }
    *out = p;
    return DTP_OK;
}

void solver_primal_destroy(solver_primal *p)
{
    if (p == NULL) {
        return;
    }
    solver_perturbation_destroy(&p->perturb);
    solver_pricing_destroy(&p->pricing);
    solver_forest_destroy(p->forest);
    solver_point_destroy(&p->walk);
    free(p->best.assignment);
    free(p->best.multiplier);
    free(p->phase.assignment);
    free(p->phase.multiplier);
    solver_graph_destroy(p->graph);
    free(p);
}

bool solver_primal_best(const solver_primal *p, int32_t *assignment)
{
    for (int32_t i = 0; p->best.cost < (double)INFINITY && i < p->graph->n; i++) {
        assignment[p->graph->nodes[i].origin] = p->best.assignment[i];
    }
    return p->best.cost < (double)INFINITY;
}

/* ---- the phases --------------------------------------------------------------------------------
 */

static void note(solver_primal *p)
{
    p->waited = 0;
    keep(&p->phase, &p->walk);
    if (p->walk.cost < p->best.cost) {
        keep(&p->best, &p->walk);
    }
}

static dtp_status multiplier(solver_primal *p, dtp_err *err)
{
    DTP_TRY(solver_pricing_step(&p->pricing, &p->walk, err));
    p->waited++;
    if (p->walk.cost < p->phase.cost && solver_point_feasible(&p->walk)) {
        note(p);
    }
    if (p->waited > PRICING_PATIENCE && p->phase.cost < (double)INFINITY) {
        p->polishing = true;
        p->waited = 0;
        go_to(&p->walk, &p->phase);
    }
    return DTP_OK;
}

/* Every other time from the multipliers at which the best was found, with large or small steps;
 * else from the first multipliers, with other random numbers than before. */
static void begin_pricing(solver_primal *p)
{
    static const double SHARES[] = {1.0, 0.1, 0.3, 0.03};
    const int64_t n = p->n_phases++;
    go_to(&p->walk, &p->best);
    if (n % 2 == 1) {
        memcpy(p->walk.multiplier, p->graph->multiplier,
               (size_t)p->graph->n_rows * sizeof *p->walk.multiplier);
        solver_point_reprice(&p->walk);
        solver_pricing_reset(&p->pricing, p->graph);
    } else {
        solver_pricing_restart(&p->pricing, SHARES[n / 2 % 4]);
    }
    p->polishing = false;
    p->waited = 0;
    p->phase.cost = (double)INFINITY;
}

static dtp_status perturb(solver_primal *p, dtp_err *err)
{
    const int64_t before = p->walk.work;
    bool better = false;
    DTP_TRY(solver_perturbation_step(&p->perturb, &p->walk, &better, err));
    p->waited += p->walk.work - before;
    if (better) {
        note(p);
    }
    if (p->waited > POLISH_PATIENCE * p->unit) {
        begin_pricing(p);
    }
    return DTP_OK;
}

dtp_status solver_primal_run(solver_primal *p, int64_t rounds, double end_s, dtp_err *err)
{
    const double end = end_s > 0.0 ? end_s : (double)INFINITY;
    for (int64_t round = 0; round < rounds; round++) {
        const int64_t until = p->walk.work + ROUND_PASSES * p->unit;
        while (p->walk.work < until) {
            if (now_s() >= end) {
                return DTP_OK;
            }
            DTP_TRY(p->polishing ? perturb(p, err) : multiplier(p, err));
        }
    }
    return DTP_OK;
}
