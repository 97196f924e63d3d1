/* Branch and bound, depth first. In every node: presolve, the relaxation, what its duals exclude,
 * its rounding improved by the search; if entries enough went, again. Else the least decided node
 * is split: its favoured strategy, or any other. Only solutions cheaper than the best known are
 * looked for, so a node is done when nothing is left; that this is so rests on integers alone. */
#ifndef DTP_PLANNER_SOLVER_BRANCH_H
#define DTP_PLANNER_SOLVER_BRANCH_H

#include "planner/solver/state.h"

/* *bound: in, what holds for w already; out, the same or more; the cutoff when nothing in w is
 * cheaper than the best solution. Does nothing but presolve when w is too large for it. */
dtp_status solver_branch(solver_state *v, solver_reduced *w, int64_t *bound,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
