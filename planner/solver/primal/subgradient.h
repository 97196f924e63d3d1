/* The search for multipliers under which good solutions are feasible. A step: a pass of messages
 * under the present multipliers picks an assignment, a random forest improves it, and the
 * multipliers follow its usage,
 *   multiplier[r] += step * (mean over the last steps of usage[r] - limit), not below 0.
 * The step shrinks whenever the assignment crosses the limit and grows while it stays on one
 * side. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_PRICE_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_PRICE_H

#include "planner/solver/primal/primal_messages.h"
#include "planner/solver/primal/primal_tree.h"

typedef struct solver_subgradient {
    solver_messages messages;
    solver_forest *forest; /* borrowed */
    int32_t *assignment;   /* by variable: of the last pass */
    int32_t *order;        /* scratch: the variables in random order */
    double *direction;     /* by row: the mean of usage beyond the limit, in limits */
    int64_t *used;         /* by row */
    double step, first_step;
    int64_t n_steps, on_this_side;
    bool warm;  /* the graph came with multipliers */
    bool above; /* the limit was exceeded last time */
} solver_subgradient;

dtp_status solver_subgradient_create(const solver_graph *g, solver_forest *forest,
                                     solver_subgradient *out, dtp_err *err) DTP_MUST_CHECK;
void solver_subgradient_destroy(solver_subgradient *p);

/* One step; the walk is at the improved assignment afterwards, its multipliers are the next
 * ones. */
dtp_status solver_subgradient_step(solver_subgradient *p, solver_point *w,
                                   dtp_err *err) DTP_MUST_CHECK;
/* Large steps again, by this share of the first. */
void solver_subgradient_restart(solver_subgradient *p, double share);
/* As at the beginning. */
void solver_subgradient_reset(solver_subgradient *p, const solver_graph *g);

#endif
