/* What tying can cost: the certificate's bound of the problem in which every instance of a
 * repeated block decides for itself. */
#ifndef DTP_PLANNER_TENSORS_TYING_BOUND_H
#define DTP_PLANNER_TENSORS_TYING_BOUND_H

#include "planner/problem/tensors/tensor_problem.h"

/* Whether instances share decisions at all. */
bool dtp_tensor_is_tied(const dtp_tensor_problem *p);

/* The bound, in picoseconds; 0 when nothing is proven. Builds the problem without tying; a limited
 * amount of work, which is small beside that of building and solving the tied one. Where much is
 * missing to `cost`, what a plan is known to cost in picoseconds, and the memory limit may be the
 * reason, it is brought in by the multipliers of the tied problem. A bound that is not below
 * `enough` ends the ascent; 0: none does. Deterministic. */
dtp_status dtp_tying_bound_find(const dtp_tensor_problem *p, int64_t cost, int64_t enough,
                                int64_t *bound, dtp_err *err) DTP_MUST_CHECK;

#endif
