/* What folding can cost: the certificate's bound of the problem in which every instance of a
 * repeated block decides for itself. */
#ifndef DTP_PLANNER_TENSOR_FOLD_BOUND_H
#define DTP_PLANNER_TENSOR_FOLD_BOUND_H

#include "planner/tensor/tensor_problem.h"

/* Whether instances share decisions at all. */
bool dtp_tensor_is_folded(const dtp_tensor_problem *p);

/* dtp_tensor_unfolded_bound with a limited amount of work, which is small beside that of building
 * and solving the problem. Where much is missing to `cost`, what a plan is known to cost in
 * picoseconds, and the memory limit may be the reason, times get prices. *bound is in picoseconds,
 * 0 when nothing is proven. Deterministic. */
dtp_status dtp_tensor_fold_bound(const dtp_tensor_problem *p, int64_t cost, int64_t *bound,
                                 dtp_err *err) DTP_MUST_CHECK;

#endif
