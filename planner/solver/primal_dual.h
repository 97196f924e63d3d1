/* The primal-dual loop for kernels too large for branch and bound: the search for solutions
 * (primal.h) and the ascent of the bound (dual.h) side by side, each on its snapshot; at fixed
 * counts of rounds they exchange what they found: the cost of the best solution makes the bound
 * exclude more, what is excluded makes the kernel smaller, and a search begins anew on a much
 * smaller one. With two threads each side has its own; the results are the same on one. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_DUAL_H
#define DTP_PLANNER_SOLVER_PRIMAL_DUAL_H

#include "planner/solver/state.h"

/* Until nothing cheaper is left (w infeasible), the rounds are used up or the time is up; unless
 * nothing is to follow (DTP_SOLVER_LARGE), also until neither side gets on. *bound as in
 * solver_branch.
 */
dtp_status solver_primal_dual(solver_state *v, solver_reduced *w, int64_t rounds, int64_t *bound,
                              dtp_err *err) DTP_MUST_CHECK;
/* For branch and bound, or by the options. */
bool solver_too_large(const solver_state *v, solver_reduced *w);

#endif
