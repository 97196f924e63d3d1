/* What tying can cost: the certificate's bound of the problem in which every instance of a
 * repeated block decides for itself. */
#ifndef DTP_PLANNER_UNTIED_TYING_BOUND_H
#define DTP_PLANNER_UNTIED_TYING_BOUND_H

#include "planner/problem/tensors/tensor_problem.h"

/* Whether instances share decisions at all. */
bool dtp_tensor_is_tied(const dtp_tensor_problem *p);

typedef struct dtp_tying_bound {
    int64_t bound; /* picoseconds, 0 when nothing is proven */
    int32_t n_prices;
    dtp_memory_multiplier
        *prices; /* of times, with which the memory limit was brought in; n_prices = 0:
                               the bound did not need them */
} dtp_tying_bound;

/* dtp_untied_bound with a limited amount of work, which is small beside that of building
 * and solving the problem. Where much is missing to `cost`, what a plan is known to cost in
 * picoseconds, and the memory limit may be the reason, times get prices, in `arena`.
 * Deterministic. */
dtp_status dtp_tying_bound_find(const dtp_tensor_problem *p, int64_t cost, dtp_arena *arena,
                                dtp_tying_bound *out, dtp_err *err) DTP_MUST_CHECK;

#endif
