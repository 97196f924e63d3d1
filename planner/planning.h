/* Planning on one mesh: what rules mode and tensor mode share (docs/how-a-plan-is-found.md). A mode
 * offers candidates, decisions that were lowered and predicted; the best of them that keeps limit
 * and pins is the incumbent, and at the end the plan. The order of one mesh:
 *
 *   begin    pins; baselines are priced
 *   solve    the mode offers its solutions, fills status and bound
 *   decide   the incumbent becomes the plan
 *   finish   frees what the mode holds
 */
#ifndef DTP_PLANNER_PLANNING_H
#define DTP_PLANNER_PLANNING_H

#include "cost_models/redistribution_price.h"
#include "planner/baselines/baselines.h"
#include "planner/plan_search.h"
#include "planner/ties.h"
#include "spmd/redistribute/redistribute_cache.h"

enum { DTP_MAX_TIGHTENINGS = 8 };

struct dtp_planner;

typedef struct dtp_planning {
    const dtp_graph *model; /* as it was read */
    const dtp_graph *graph; /* what is lowered: the same, or what the mode made of it */
    const dtp_machine *machine;
    const dtp_plan_request *request;
    const struct dtp_planner *planner;
    dtp_pricer pricer;
    dtp_redistribution_pricer *redistributions; /* at the pricer's prices */
    dtp_redistribute_cache *generic;            /* at those of the generic machine */
    dtp_arena *arena;                           /* of the plan */
    const dtp_plan *incumbent; /* incumbent of other meshes, or the request's; NULL: none */
    const dtp_plan *others;    /* the best plan of other meshes; NULL: none */
    void *state;               /* the mode's own */

    dtp_candidate best; /* has_best: the incumbent */
    bool has_best;
    dtp_ties ties; /* objective time: what takes about as long, for the plan */
    /* Of a form with has_modules: the best by modules and by placements alone. */
    dtp_prediction by_form[2];
    bool has_form[2];
    dtp_candidate cheapest; /* has_best: the least additive cost of what fits and keeps the pins */
    int32_t n_baselines;
    dtp_candidate *baselines;

    dtp_certificate certificate; /* the mode fills status, bound, solver, nodes; before that
                                    nothing is proven */
    bool pruned;                 /* by the mode: the mesh is pruned, `incumbent` stays better */
    dtp_plan_result *out;
} dtp_planning;

/* A mode of planning. */
typedef struct dtp_planner {
    /* Pins, baselines and whatever else the mode needs, in planning->state; `finish` is called in
     * any case. DTP_STOPPED from here or from `solve`: the incumbent is the plan. */
    dtp_status (*begin)(dtp_planning *p, dtp_err *err);
    void (*finish)(dtp_planning *p);
    /* Offers solutions and fills status and bound; or finds the mesh pruned or infeasible. */
    dtp_status (*solve)(dtp_planning *p, dtp_err *err);
    bool (*keeps_pins)(const dtp_planning *p, const dtp_candidate *c);
    /* Whether the solver could have chosen it: then its cost is not below the bound. */
    dtp_status (*in_space)(const dtp_planning *p, const dtp_candidate *c, bool *is, dtp_err *err);
    /* Writes the decision, its mode and its pins into the plan. */
    dtp_status (*decide)(dtp_planning *p, dtp_plan *plan, dtp_err *err);
    bool rules_only; /* baselines: only those that are layout rules */
} dtp_planner;

/* Planning on one mesh. p has planner, model, graph, machine, request and incumbent; without error
 * the rest of p is what came of it, p->arena the arena of the plan or NULL. */
dtp_status dtp_planning_on_mesh(dtp_planning *p, const dtp_mesh *mesh, dtp_plan_result *out,
                                dtp_err *err) DTP_MUST_CHECK;
/* Planning on the mesh of the request, or on the best one (planning_run.c). */
dtp_status dtp_planning_run(const dtp_planner *planner, const dtp_graph *g,
                            const dtp_machine *machine, const dtp_plan_request *request,
                            dtp_plan_result *out, dtp_err *err) DTP_MUST_CHECK;

/* Keeps `next` in place of *best where it is taken, and frees the other one; what the other form of
 * two would take, and the fastest plan within the slack, are those of both. */
void dtp_plan_result_keep(dtp_plan_result *best, dtp_plan_result *next, bool taken, double slack);
/* Whether a result is better than the best one so far: of two plans the shorter step, or, of two
 * that take about as long, less memory; a plan before none, the smaller limit that
 * works among those without a plan, the smaller bound of it where that is not known. */
bool dtp_plan_result_better(const dtp_plan_request *request, const dtp_plan_result *a,
                            const dtp_plan_result *b);

/* ---- for the modes ---- */

/* Decides on the steps of all redistributions, by the machine's prices. */
const dtp_redistributor *dtp_planning_redistributor(const dtp_planning *p);

/* Bytes by which a predicted candidate exceeds the memory limit; not positive when it fits. */
int64_t dtp_planning_excess(const dtp_planning *p, const dtp_candidate *c);
/* How a candidate is lowered: for the target, with the overlap that suits it best within the memory
 * that it may need. */
dtp_lower_options dtp_planning_lowering(const dtp_planning *p,
                                        const dtp_redistributor *redistributor);
/* Keeps a predicted candidate if it is legal, fits, keeps the pins, loses nothing in the form of
 * the request, and is better than the incumbent by the one objective: for time the simulated
 * makespan, for memory the peak; the other breaks ties. */
dtp_status dtp_planning_offer(dtp_planning *p, const dtp_candidate *c, dtp_err *err) DTP_MUST_CHECK;
/* Whether the form of the request, if there is one, says all of a candidate. */
dtp_status dtp_planning_is_said(const dtp_planning *p, const dtp_candidate *c, dtp_said *how,
                                dtp_err *err) DTP_MUST_CHECK;
/* Prices the baselines, the first candidates: by `begin`, before anything that takes long. */
dtp_status dtp_planning_price_baselines(dtp_planning *p, dtp_err *err) DTP_MUST_CHECK;
/* Offers them; where no mode does it they are offered after `solve`. */
dtp_status dtp_planning_offer_baselines(dtp_planning *p, dtp_err *err) DTP_MUST_CHECK;
/* "rules batch:x", "memory 1024", ...: appends a text to the plan's list of pins, which has room.
 */
dtp_status dtp_planning_add_pin(dtp_plan *plan, const char *text, dtp_err *err) DTP_MUST_CHECK;

/* Tells whoever watches how far planning is. */
void dtp_planning_tell(const dtp_planning *p);

/* Solutions of rules mode as candidates of another mode: without pins, the certificate unchanged.
 */
dtp_status dtp_planning_offer_rules(dtp_planning *p, dtp_err *err) DTP_MUST_CHECK;

#endif
