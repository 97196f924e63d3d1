/* The sum of prices is not quite what a step takes: where communication overlaps with compute, its
 * price is discounted by what timelines hide, of all communication alike at first and then tensor
 * by tensor: a gather that waits for the compute before it costs more than one that runs beside it,
 * and of plans with one sum of prices the timelines differ by several percent. Every solution is
 * judged by the timeline of its own program. */
#include <stdlib.h>
#include <string.h>

#include "planner/tensors/plan_tensor_internal.h"

/* Of the solves: what is known of single tensors counts by these parts (measured:
 * docs/decisions/0020-timeline-and-sum.md). */
static const double WEIGHTS[] = {0.0, 0.1, 0.3, 0.3};
enum { ROUNDS = sizeof WEIGHTS / sizeof WEIGHTS[0], ITERATIONS = 20 };
/* Cost and bound may differ by this share. */
static const double GAP = 0.005;
/* Nothing is discounted when less than this part is hidden. */
static const double HIDDEN = 0.02;

static dtp_status solve_rounds(dtp_planning *p, const int64_t *full, dtp_err *err)
{
    const tensor_state *state = p->state;
    dtp_solve_options options = dtp_tensor__solver_options(p);
    options.iterations = ITERATIONS;
    options.gap = GAP;
    DTP_TRY(dtp_tensor__start_from(p, &p->best, &options.start, err));
    for (int32_t i = 0; i < ROUNDS && state->exposed.share < 1.0 - HIDDEN; i++) {
        dtp_tensor_round r;
        DTP_TRY(dtp_exposed_discount(&state->exposed, state->problem, WEIGHTS[i], full, err));
        DTP_TRY(dtp_tensor__solve_once(p, &options, false, &r, err));
    }
    return DTP_OK;
}

dtp_status dtp_tensor__solve_exposed(dtp_planning *p, dtp_err *err)
{
    const tensor_state *state = p->state;
    dtp_problem *s = state->problem->select;
    const dtp_certificate kept = p->certificate;
    const int64_t n = s->n_stored;
    int64_t *full = malloc(((size_t)n + 1) * sizeof *full);
    if (full == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a copy of a selection problem");
    }
    memcpy(full, s->edge_cost, (size_t)n * sizeof *full);
    const dtp_status status = solve_rounds(p, full, err);
    memcpy(s->edge_cost, full, (size_t)n * sizeof *full);
    free(full);
    p->certificate = kept;
    return status;
}
