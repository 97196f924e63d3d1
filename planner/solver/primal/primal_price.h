/* The search for multipliers under which good solutions are feasible. A step: a pass of messages
 * under the present multipliers picks a assignment, a random forest improves it, and the
 * multipliers follow its usage,
 *   multiplier[r] += step * (mean over the last steps of usage[r] - limit), not below 0.
 * The step shrinks whenever the assignment crosses the limit and grows while it stays on one
 * side. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_PRICE_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_PRICE_H

#include "planner/solver/primal/primal_messages.h"
#include "planner/solver/primal/primal_tree.h"

typedef struct solver_pricing {
    solver_messages messages;
    solver_forest *forest; /* borrowed */
    int32_t *assignment;   /* by node: of the last pass */
    int32_t *order;        /* scratch: the nodes in random order */
    double *direction;     /* by row: the mean of usage beyond the limit, in limits */
    int64_t *used;         /* by row */
    double step, first_step;
    int64_t n_steps, on_this_side;
    bool warm;  /* the graph came with multipliers */
    bool above; /* the limit was exceeded last time */
} solver_pricing;

dtp_status solver_pricing_create(const solver_graph *g, solver_forest *forest, solver_pricing *out,
                                 dtp_err *err) DTP_MUST_CHECK;
void solver_pricing_destroy(solver_pricing *p);

/* One step; the walk is at the improved assignment afterwards, its multipliers are the next
 * ones. */
dtp_status solver_pricing_step(solver_pricing *p, solver_point *w, dtp_err *err) DTP_MUST_CHECK;
/* Large steps again, by this share of the first. */
void solver_pricing_restart(solver_pricing *p, double share);
/* As at the beginning. */
void solver_pricing_reset(solver_pricing *p, const solver_graph *g);

#endif
