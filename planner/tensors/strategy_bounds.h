/* What every option of a selection problem of tensor mode costs at least, when everything else is
 * chosen for the best: from one dual ascent for all of them (strategy_bounds.c). Less sharp than
 * what planner/solver/min_marginals.h finds for one assignment, but of all variables at once. */
#ifndef DTP_PLANNER_TENSORS_STRATEGY_BOUNDS_H
#define DTP_PLANNER_TENSORS_STRATEGY_BOUNDS_H

#include "planner/problem/tensors/tensor_problem.h"

typedef struct dtp_strategy_bounds {
    int64_t base;   /* no selection costs less; picoseconds, not negative */
    int64_t *above; /* by strategy of the selection problem, not negative: no selection with it
                       costs less than base + above. At most 2^48: or more, or there is none */
} dtp_strategy_bounds;

/* Holds for selections within the memory limit, in exact arithmetic, and for the same options with
 * fewer others beside them. Prices of times (any; none) bring the limit in. Deterministic. Storage
 * from the arena. */
dtp_status dtp_tensor_option_bounds(const dtp_tensor_problem *p, int32_t n_prices,
                                    const dtp_memory_multiplier *prices, dtp_arena *arena,
                                    dtp_strategy_bounds *out, dtp_err *err) DTP_MUST_CHECK;

#endif
