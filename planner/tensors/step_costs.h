/* What a step pays of the prices of a selection problem (docs/how-a-plan-is-found.md). Compute runs
 * on one queue and communication on another, so the sum of all prices is not the time of a step.
 * Communication is of two kinds:
 *
 *   deferrable  gathers of parameters, and of what is made of parameters alone, which may start
 *               long before they are needed; reductions of what updates alone read, which may end
 *               long after. They are paid when the communication queue is full.
 *   waiting     all other: a reader needs the result at once.
 */
#ifndef DTP_PLANNER_TENSORS_STEP_COSTS_H
#define DTP_PLANNER_TENSORS_STEP_COSTS_H

#include "planner/problem/overlay.h"
#include "planner/problem/tensors/tensor_problem.h"

typedef struct dtp_step_weights {
    double compute, waiting, deferrable; /* of prices: kernels, communication of both kinds */
    double issue;                        /* of the host's time to issue a redistribution */
    double paid; /* of the share that a schedule pays of an edge, instead of these */
    double late; /* by this share those of results cost less and those of operands more */
} dtp_step_weights;

typedef struct dtp_step_costs {
    const dtp_tensor_problem *problem; /* borrowed */
    bool *deferrable;                  /* by edge */
    double *paid; /* by edge: of its time in a schedule, the part in which compute waits; -1: it
                     sends nothing there */
} dtp_step_costs;

/* Storage from `arena`. */
dtp_status dtp_step_costs_create(const dtp_tensor_problem *p, dtp_arena *arena, dtp_step_costs *out,
                                 dtp_err *err) DTP_MUST_CHECK;
/* Fills `paid` from the schedule of a priced program of the problem's graph. */
dtp_status dtp_step_costs_pay(dtp_step_costs *c, const dtp_program *program,
                              dtp_err *err) DTP_MUST_CHECK;
/* Gives strategies and edges of an overlay of the problem their weighted costs. */
dtp_status dtp_step_costs_weigh(const dtp_step_costs *c, const dtp_step_weights *w, dtp_overlay *o,
                                dtp_err *err) DTP_MUST_CHECK;

#endif
