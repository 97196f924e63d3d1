/* The search for prices under which good solutions are feasible. A step: a pass of messages under
 * the present prices picks a choice, a random forest improves it, and the prices follow its usage,
 *   price[r] += step * (mean over the last steps of usage[r] - limit), not below 0.
 * The step shrinks whenever the choice crosses the limit and grows while it stays on one side. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_PRICE_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_PRICE_H

#include "planner/solver/primal/primal_messages.h"
#include "planner/solver/primal/primal_tree.h"

typedef struct sel_pricing {
    sel_messages messages;
    sel_forest *forest; /* borrowed */
    int32_t *choice;    /* by node: of the last pass */
    int32_t *order;     /* scratch: the nodes in random order */
    double *direction;  /* by row: the mean of usage beyond the limit, in limits */
    int64_t *used;      /* by row */
    double step, first_step;
    int64_t n_steps, on_this_side;
    bool warm;  /* the graph came with prices */
    bool above; /* the limit was exceeded last time */
} sel_pricing;

dtp_status sel_pricing_create(const sel_graph *g, sel_forest *forest, sel_pricing *out,
                              dtp_err *err) DTP_MUST_CHECK;
void sel_pricing_destroy(sel_pricing *p);

/* One step; the walk is at the improved choice afterwards, its prices are the next ones. */
dtp_status sel_pricing_step(sel_pricing *p, sel_walk *w, dtp_err *err) DTP_MUST_CHECK;
/* Large steps again, by this share of the first. */
void sel_pricing_restart(sel_pricing *p, double share);
/* As at the beginning. */
void sel_pricing_reset(sel_pricing *p, const sel_graph *g);

#endif
