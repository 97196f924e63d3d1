/* Search for good solutions of a large kernel: multipliers, then perturbations. */
#include "planner/solver/primal/primal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/solver/primal/perturbation.h"
#include "planner/solver/primal/subgradient.h"

typedef struct primal_record {
    int32_t *assignment;
    double *multiplier;
    double cost; /* INFINITY = none */
} primal_record;

struct solver_primal {
    solver_graph *graph;
    solver_point point;
    solver_forest *forest;
    solver_subgradient subgradient;
    solver_perturbation perturb;
    primal_record best, phase; /* of all; of this phase */
    bool perturbing;
    int64_t unit;   /* work units of one pass over the whole kernel */
    int64_t waited; /* subgradient steps, or work units of perturbations, since the last gain */
    int64_t n_phases;
};

static dtp_status create_record(const solver_graph *g, primal_record *r, dtp_err *err)
{
    r->assignment = calloc((size_t)g->n + 1, sizeof *r->assignment);
    r->multiplier = calloc((size_t)g->n_rows + 1, sizeof *r->multiplier);
    r->cost = (double)INFINITY;
    return r->assignment != NULL && r->multiplier != NULL
               ? DTP_OK
               : DTP_FAIL(err, DTP_NOMEM, "out of memory for a solution");
}

static void keep(primal_record *r, const solver_point *w)
{
    memcpy(r->assignment, w->assignment, (size_t)w->g->n * sizeof *r->assignment);
    memcpy(r->multiplier, w->multiplier, (size_t)w->g->n_rows * sizeof *r->multiplier);
    r->cost = w->cost;
}

static void go_to(solver_point *w, const primal_record *r)
{
    memcpy(w->multiplier, r->multiplier, (size_t)w->g->n_rows * sizeof *r->multiplier);
    solver_point_penalise(w);
    solver_point_jump(w, r->assignment);
}

static dtp_status create(solver_primal *p, const solver_reduced *w, const int32_t *start,
                         uint64_t seed, dtp_err *err)
{
    DTP_TRY(solver_graph_create(w, &p->graph, err));
    const solver_graph *g = p->graph;
    DTP_TRY(create_record(g, &p->best, err));
    DTP_TRY(create_record(g, &p->phase, err));
    for (int32_t i = 0; i < g->n; i++) {
        p->best.assignment[i] = start[g->vertices[i].origin];
    }
    DTP_TRY(solver_point_create(g, p->best.assignment, seed, &p->point, err));
    DTP_TRY(solver_forest_create(g, &p->forest, err));
    DTP_TRY(solver_subgradient_create(g, p->forest, &p->subgradient, err));
    DTP_TRY(solver_perturbation_create(g, p->forest, &p->perturb, err));
    p->unit = g->n_entries + 3 * g->n_arcs + 3 * g->n_strategies + g->n_rows + 1;
    if (solver_point_feasible(&p->point)) {
        keep(&p->best, &p->point);
    }
    return DTP_OK;
}

dtp_status solver_primal_create(const solver_reduced *w, const int32_t *start, uint64_t seed,
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
    solver_subgradient_destroy(&p->subgradient);
    solver_forest_destroy(p->forest);
    solver_point_destroy(&p->point);
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
        assignment[p->graph->vertices[i].origin] = p->best.assignment[i];
    }
    return p->best.cost < (double)INFINITY;
}

/* ---- the phases ---- */

static void note(solver_primal *p)
{
    p->waited = 0;
    keep(&p->phase, &p->point);
    if (p->point.cost < p->best.cost) {
        keep(&p->best, &p->point);
    }
}

static dtp_status step_multipliers(solver_primal *p, dtp_err *err)
{
    DTP_TRY(solver_subgradient_step(&p->subgradient, &p->point, err));
    p->waited++;
    if (p->point.cost < p->phase.cost && solver_point_feasible(&p->point)) {
        note(p);
    }
    if (p->waited > p->graph->parameters->primal_subgradient_patience &&
        p->phase.cost < (double)INFINITY) {
        p->perturbing = true;
        p->waited = 0;
        go_to(&p->point, &p->phase);
    }
    return DTP_OK;
}

/* Every other time from the multipliers at which the best was found, with large or small steps;
 * else from the first multipliers, with other random numbers than before. */
static void begin_subgradient(solver_primal *p)
{
    static const double SHARES[] = {1.0, 0.1, 0.3, 0.03};
    const int64_t n = p->n_phases++;
    go_to(&p->point, &p->best);
    if (n % 2 == 1) {
        memcpy(p->point.multiplier, p->graph->multiplier,
               (size_t)p->graph->n_rows * sizeof *p->point.multiplier);
        solver_point_penalise(&p->point);
        solver_subgradient_reset(&p->subgradient, p->graph);
    } else {
        solver_subgradient_restart(&p->subgradient, SHARES[n / 2 % 4]);
    }
    p->perturbing = false;
    p->waited = 0;
    p->phase.cost = (double)INFINITY;
}

static dtp_status perturb(solver_primal *p, dtp_err *err)
{
    const int64_t before = p->point.work;
    bool better = false;
    DTP_TRY(solver_perturbation_step(&p->perturb, &p->point, &better, err));
    p->waited += p->point.work - before;
    if (better) {
        note(p);
    }
    if (p->waited > p->graph->parameters->primal_perturbation_patience * p->unit) {
        begin_subgradient(p);
    }
    return DTP_OK;
}

dtp_status solver_primal_run(solver_primal *p, int64_t rounds, const dtp_stop *stop, dtp_err *err)
{
    for (int64_t round = 0; round < rounds; round++) {
        const int64_t until = p->point.work + p->graph->parameters->primal_round_passes * p->unit;
        while (p->point.work < until) {
            if (dtp_stopped(stop)) {
                return DTP_OK;
            }
            DTP_TRY(p->perturbing ? perturb(p, err) : step_multipliers(p, err));
        }
    }
    return DTP_OK;
}
