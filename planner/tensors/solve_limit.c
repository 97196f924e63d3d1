/* The loop of tensor mode on one mesh.
 *
 * Memory. The problem counts at most what a program needs, so the program of a solution may be too
 * large. Then the limit is lowered by the excess and the problem solved again, which is quick and
 * often loses nothing. Where it loses something, what the program needs beyond the problem is added
 * where it is missing (memory_corrections.h), under the limit itself.
 *
 * Overlap. The additive cost counts communication in full; a step takes only the part that no
 * compute hides. From the first solution that fits on, step_search.c looks for a shorter step.
 * Every solution is judged by the simulated makespan of its own program. */
#include "planner/tensors/plan_tensor_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Solves with corrections, and with a lowered limit, until a program fits; rounds of branch and
 * bound where no bound is asked for. */
enum {
    MAX_ROUNDS = 12,
    MAX_LOWERED = 6,
    CORRECTED_STARTS = 4,
    LATER_ITERATIONS = 10,
    BELOW_ITERATIONS = 2 /* ... and any solution will do */
};

/* Of an excess that is due to packing, at first. */
enum { FIRST_PART = 8 };
/* Of the way from a program that fits to the floor, steps are parts, smaller ones by STEP_FACTOR,
 * and one byte when LAST_STEP was too much. */
enum { STEP_FACTOR = 4, LAST_STEP = 16 };

/* Where no bound is asked for, cost and bound may differ by this share. */
static const double LATER_GAP = 0.005;

/* ---- what a solve starts from ---- */

/* The incumbent as an assignment, where it is one: options->start, scratch of the state. */
static dtp_status start_from_best(const dtp_planning *p, dtp_solve_options *options, dtp_err *err)
{
    const tensor_state *state = p->state;
    bool found = false;
    if (p->has_best) {
        DTP_TRY(
            dtp_tensor_assignment(state->problem, &p->best.sharding, state->start, &found, err));
    }
    options->start = found ? state->start : NULL;
    return DTP_OK;
}

/* A plan here has to cost less than the incumbent of other meshes, unless a candidate here is
 * already faster. */
static int64_t cutoff_of(const dtp_planning *p)
{
    const dtp_plan *incumbent = p->incumbent;
    const bool beaten = incumbent != NULL && p->has_best &&
                        p->best.predicted.step_time_s < incumbent->predicted.step_time_s;
    return incumbent == NULL || beaten || p->request->options.objective == DTP_OBJECTIVE_MEMORY
               ? 0
               : incumbent->certificate.cost;
}

/* ---- within the limit ---- */

/* Where buffers could not be packed tightly, which no correction helps against, the limit is
 * lowered so far that there is another solution, and by a part of the excess that doubles every
 * time: another one may well be packed better. Below the floor nothing is. False when nothing is
 * left. */
static bool tighten(dtp_problem *s, const dtp_tensor_round *r, int64_t floor, int64_t *part)
{
    if (r->corrected > 0) {
        return true;
    }
    const int64_t below = (s->usage_limit < r->usage ? s->usage_limit : r->usage) - 1;
    const int64_t lowered = below - r->over / *part;
    s->usage_limit = lowered < floor ? floor : lowered;
    *part = *part > 1 ? *part / 2 : 1;
    return s->usage_limit > 0 && s->usage_limit <= below;
}

static bool fits(const dtp_tensor_round *r)
{
    return r->found && r->over <= 0;
}

/* From a solution whose program is too large on: a limit that is lower by the excess; where that is
 * not enough, by what is left of it in parts, as a full step often loses more than it has to.
 * Leaves the last one in the overlay. */
static dtp_status solve_lowered(dtp_planning *p, dtp_tensor_round *r, dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_problem *s = &state->search.overlay.problem;
    dtp_solve_options options = dtp_tensor__solver_options(p);
    int64_t part = 1;
    options.cutoff = cutoff_of(p);
    options.iterations = LATER_ITERATIONS;
    options.gap = LATER_GAP;
    options.lp_entries = 0;
    DTP_TRY(start_from_best(p, &options, err));
    for (int32_t i = 0; i < MAX_LOWERED && r->found && !fits(r) && tighten(s, r, 0, &part); i++) {
        DTP_TRY(dtp_tensor__solve_once(p, &options, SOLVE_PLAIN, r, err));
        part = i == 0 ? FIRST_PART : part;
    }
    return DTP_OK;
}

/* Rounds with corrections, those of rounds before included; a limit that was lowered too far goes
 * half way back up. *last: what came of the last one. */
static dtp_status solve_corrected(dtp_planning *p, dtp_tensor_round *last, dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_problem *s = &state->search.overlay.problem;
    dtp_solve_options options = dtp_tensor__solver_options(p);
    int64_t part = FIRST_PART, above = s->usage_limit;
    bool left = true;
    options.cutoff = cutoff_of(p);
    /* No bound is asked for: little branch and bound, by the dual. A wide gap of the request says
     * how dear a plan may be, not that none may be found. */
    options.iterations = LATER_ITERATIONS;
    options.gap = LATER_GAP;
    options.lp_entries = 0;
    options.iterations = state->search.floor > 0 ? BELOW_ITERATIONS : options.iterations;
    DTP_TRY(start_from_best(p, &options, err));
    *last = (dtp_tensor_round){0};
    for (int32_t i = 0; i < MAX_ROUNDS && !fits(last) && left; i++) {
        DTP_TRY(dtp_tensor__solve_once(p, &options, SOLVE_CORRECTED, last, err));
        if (last->found && !fits(last)) {
            above = s->usage_limit;
            left = tighten(s, last, state->search.floor, &part);
        } else if (!last->found) {
            left = s->usage_limit < above;
            s->usage_limit += (above - s->usage_limit + 1) / 2;
        }
    }
    return DTP_OK;
}

/* Programs that are ever smaller, in steps that are a part of what is above the floor, smaller ones
 * once nothing is found. */
static dtp_status descend(dtp_planning *p, dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_tensor_round r;
    DTP_TRY(solve_corrected(p, &r, err));
    int64_t peak = fits(&r) ? r.peak : 0;
    while (state->search.step_part <= LAST_STEP && peak > state->search.floor) {
        state->search.limit = peak - 1 - (peak - 1 - state->search.floor) / state->search.step_part;
        state->search.overlay.problem.usage_limit = state->search.limit;
        DTP_TRY(solve_corrected(p, &r, err));
        peak = fits(&r) ? r.peak : peak;
        state->search.step_part *= fits(&r) ? 1 : STEP_FACTOR;
    }
    return DTP_OK;
}

/* Forgets corrections. */
static void start_anew(tensor_state *state, int64_t usage_limit)
{
    dtp_overlay_free(&state->search.overlay);
    dtp_overlay_init(state->problem->select, &state->search.overlay);
    state->search.overlay.problem.usage_limit = usage_limit;
}

/* From a solution whose program is too large to one that fits; *r: what came of it. Corrections are
 * tried where a lowered limit finds nothing close to the bound. They add up and may rule out what
 * they were not made for, so where they find nothing they start anew from lower limits, down to the
 * lowered one. */
static dtp_status make_fit(dtp_planning *p, int64_t usage_limit, dtp_tensor_round *r, dtp_err *err)
{
    tensor_state *state = p->state;
    dtp_tensor_round lowered = *r;
    DTP_TRY(solve_lowered(p, &lowered, err));
    if (fits(&lowered) && p->has_best &&
        dtp_gap(p->best.cost_ps, p->certificate.bound) <= LATER_GAP) {
        *r = lowered;
        return DTP_OK;
    }
    const int64_t limit = state->search.overlay.problem.usage_limit;
    *r = (dtp_tensor_round){0};
    const int32_t n_starts = p->has_best ? CORRECTED_STARTS : 1; /* else, perhaps none fits */
    for (int32_t i = 0; i < n_starts && !fits(r); i++) {
        start_anew(state, usage_limit - (usage_limit - limit) / n_starts * i);
        DTP_TRY(solve_corrected(p, r, err));
    }
    if (!fits(r) && fits(&lowered)) {
        start_anew(state, limit);
        *r = lowered;
    }
    return DTP_OK;
}

/* ---- the loop ---- */

static dtp_status search(dtp_planning *p, int64_t usage_limit, dtp_err *err)
{
    const tensor_state *state = p->state;
    dtp_solve_options options = dtp_tensor__solver_options(p);
    dtp_tensor_round r;
    if (state->search.floor > 0) {
        return descend(p, err);
    }
    options.cutoff = cutoff_of(p);
    if (p->request->of_finer && options.gap < LATER_GAP) { /* nobody reads its certificate */
        options.gap = LATER_GAP;
    }
    DTP_TRY(start_from_best(p, &options, err));
    DTP_TRY(dtp_tensor__solve_once(p, &options, SOLVE_FIRST, &r, err));
    const bool searched = dtp_pricer_overlaps(&p->pricer) && r.found &&
                          p->request->options.objective == DTP_OBJECTIVE_TIME;
    /* Whether any plan fits does not depend on them: the smallest limit is named without them. */
    const bool coarser = searched && p->has_best && !p->request->trial && p->graph->stages == NULL;
    DTP_TRY(coarser ? dtp_tensor__offer_coarser(p, err) : DTP_OK);
    if (r.found && !fits(&r)) {
        DTP_TRY(make_fit(p, usage_limit, &r, err));
    }
    return searched && fits(&r) ? dtp_tensor__shorten_step(p, err) : DTP_OK;
}

dtp_status dtp_tensor__solve_limit(dtp_planning *p, int64_t usage_limit, dtp_err *err)
{
    tensor_state *state = p->state;
    const int64_t limit = state->search.limit;
    dtp_overlay_init(state->problem->select, &state->search.overlay);
    state->search.overlay.problem.usage_limit = usage_limit;
    const dtp_status s = search(p, usage_limit, err);
    dtp_overlay_free(&state->search.overlay);
    state->search.limit = limit;
    return s;
}
