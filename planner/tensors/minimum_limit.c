/* The smallest memory limit that works: between what no solution of the problem is below and what
 * the programs of its solutions, and baselines, need. From a program that is known on, smaller ones
 * are looked for in large steps, then in single bytes, the last time just as planning with that
 * limit would, so that planning with one byte less than what is named finds nothing. */
#include "planner/tensors/plan_tensor_internal.h"

#include "cost_models/pipeline.h"
#include "planner/solver/minimum_memory.h"

/* The first step is so large a part of the way to what is proven to be needed. */
enum { MAX_STEPS_DOWN = 64, FIRST_PART = 4 };

/* The assignment with the least usage; *peak: of its program, a limit that works; 0: none. */
static dtp_status solve_memory(dtp_planning *p, dtp_minimum_memory *least, int64_t *peak,
                               dtp_err *err)
{
    tensor_state *state = p->state;
    const dtp_solve_options options = dtp_tensor__solver_options(p);
    DTP_TRY(dtp_stop_check(p->request->stop, err));
    DTP_TRY(dtp_minimum_memory_find(state->problem->select, &options, 0, least, err));
    if (least->assignment == NULL) {
        return DTP_OK;
    }
    dtp_solve_options cheap = options;
    dtp_tensor_round r;
    const dtp_certificate kept = p->certificate;
    cheap.start = least->assignment;
    dtp_overlay_init(state->problem->select, &state->search.overlay);
    state->search.overlay.problem.usage_limit = least->usage;
    const dtp_status s = dtp_tensor__solve_once(p, &cheap, SOLVE_PLAIN, &r, err);
    dtp_overlay_free(&state->search.overlay);
    *peak = r.peak;
    p->out->smallest_stage = r.peak_stage;
    p->certificate = kept;
    return s;
}

/* A baseline may need less than what was found. */
dtp_status dtp_tensor__compare_baselines(const dtp_planning *p, int64_t *smallest, dtp_err *err)
{
    for (int32_t i = 0; i < p->n_baselines; i++) {
        const dtp_candidate *c = &p->baselines[i];
        const int64_t peak = c->predicted.peak_bytes;
        const bool less =
            c->legal && p->planner->keeps_pins(p, c) && (*smallest == 0 || peak < *smallest);
        dtp_said how = DTP_SAID_NOT;
        DTP_TRY(less ? dtp_planning_is_said(p, c, &how, err) : DTP_OK);
        if (how != DTP_SAID_NOT) {
            *smallest = peak;
            p->out->smallest_stage = c->predicted.peak_stage;
        }
    }
    return DTP_OK;
}

/* The candidate that needs least of those that are found with `limit`: by the search for ever
 * smaller programs down to the floor, or with floor 0 just as planning with that limit does. */
static dtp_status solve_below(const dtp_planning *p, int64_t limit, int64_t floor, bool *found,
                              dtp_candidate *out, dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_plan_request request = *p->request;
    tensor_state tight = *state;
    dtp_planning below = *p;
    request.options.memory_limit_bytes = limit;
    request.options.objective = DTP_OBJECTIVE_MEMORY;
    tight.search.limit = limit;
    tight.search.floor = floor;
    tight.search.peaks_only = true;
    below.request = &request;
    below.state = &tight;
    below.has_best = false;
    dtp_status s = p->graph->stages == NULL ? dtp_planning_offer_rules(&below, err) : DTP_OK;
    s = s == DTP_OK ? dtp_tensor__solve_limit(&below, limit, err) : s;
    state->search.step_part = tight.search.step_part;
    *found = below.has_best;
    *out = below.best;
    return s;
}

/* Offers what was found by its peak alone, with the overlap that it can have. */
static dtp_status offer(dtp_planning *p, dtp_candidate *c, dtp_err *err)
{
    dtp_lower_options options = dtp_planning_lowering(p, c->redistributor);
    if (p->request->options.objective == DTP_OBJECTIVE_TIME && dtp_planning_excess(p, c) > 0) {
        return DTP_OK;
    }
    DTP_TRY((p->graph->stages != NULL ? dtp_pipeline_choose : dtp_sharding_predict)(
        p->graph, &p->pricer, &c->sharding, &options, &c->predicted, NULL, err));
    c->overlap = options.overlap;
    return dtp_planning_offer(p, c, err);
}

/* Plans with ever smaller limits from one that works, until nothing is found; what is named as the
 * smallest limit is so that planning with it, or with one byte less, ends as it says. */
static dtp_status step_down(dtp_planning *p, int64_t bound, int64_t *smallest, dtp_err *err)
{
    tensor_state *state = p->state;
    bool found = true;
    state->search.step_part = FIRST_PART;
    const bool any = p->request->options.objective == DTP_OBJECTIVE_TIME;
    for (int32_t i = 0; i < MAX_STEPS_DOWN && found && *smallest > bound && !(any && p->has_best);
         i++) {
        dtp_candidate c;
        DTP_TRY(solve_below(p, *smallest - 1, bound, &found, &c, err));
        if (!found) {
            DTP_TRY(solve_below(p, *smallest - 1, 0, &found, &c, err));
        }
        if (found) {
            *smallest = c.predicted.peak_bytes;
            p->out->smallest_stage = c.predicted.peak_stage;
            DTP_TRY(offer(p, &c, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_tensor__find_minimum(dtp_planning *p, dtp_err *err)
{
    dtp_minimum_memory least = {0};
    int64_t smallest = 0;
    dtp_status s = solve_memory(p, &least, &smallest, err);
    if (s != DTP_OK) {
        dtp_minimum_memory_free(&least);
        return s;
    }
    s = dtp_tensor__compare_baselines(p, &smallest, err);
    /* What no solution of the problem needs less than, no program of one does. Baselines may, which
     * read what other nodes brought. */
    const int64_t bound = smallest > 0 && smallest < least.bound ? smallest : least.bound;
    if (s == DTP_OK && p->incumbent == NULL && smallest > least.bound && !p->request->trial) {
        s = step_down(p, least.bound, &smallest, err);
    }
    if (p->request->options.objective == DTP_OBJECTIVE_MEMORY) {
        const bool tight = least.assignment != NULL && least.bound == least.usage;
        p->certificate.status = tight ? DTP_CERT_OPTIMAL : DTP_CERT_FEASIBLE;
        p->certificate.bound = bound;
    }
    p->out->smallest_bound = p->has_best ? 0 : bound;
    p->out->smallest_peak_bytes = p->has_best ? 0 : smallest;
    p->out->smallest_stages =
        p->graph->stages != NULL && !p->has_best && smallest > 0 ? p->graph->stages->n : 0;
    dtp_minimum_memory_free(&least);
    return s;
}
