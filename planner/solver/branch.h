/* Branch and bound, depth first. At every node: presolve, a relaxation (the linear program of small
 * nodes, dual ascent of others), reduced-cost fixing by its duals, primal search from its rounding;
 * again if enough entries went. Else a variable is split: one strategy and the others, or large
 * usage and small. Only solutions below the cutoff count, so a node is closed when nothing is left;
 * that rests on integers alone. */
#ifndef DTP_PLANNER_SOLVER_BRANCH_H
#define DTP_PLANNER_SOLVER_BRANCH_H

#include "planner/solver/state.h"

/* *bound: in, what holds for w already; out, the same or more; the cutoff when nothing in w is
 * cheaper than the best solution. Does nothing but presolve when w is too large for it. */
dtp_status solver_branch(solver_state *v, solver_reduced *w, int64_t *bound,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
