/* Bounds of options (planner/tensors/strategy_bounds.h) in a plan file, and what they are good for:
 * a problem without the options that cost too much to matter. */
#ifndef DTP_PLANNER_TENSORS_PLAN_BOUNDS_H
#define DTP_PLANNER_TENSORS_PLAN_BOUNDS_H

#include "core/plan/plan.h"
#include "planner/problem/tensors/tensor_problem.h"

/* Fills *out, in `arena`, for the plan with sharding s, when that is a selection of p; else n = 0.
 * Prices of times bring the memory limit in. */
dtp_status dtp_plan_bounds_find(const dtp_tensor_problem *p, const dtp_sharding *s,
                                int32_t n_prices, const dtp_memory_multiplier *prices,
                                dtp_arena *arena, dtp_plan_strategy_bounds *out,
                                dtp_err *err) DTP_MUST_CHECK;

/* Whether the bounds are those of the variables of p, with all of their options. */
bool dtp_plan_bounds_match(const dtp_plan_strategy_bounds *b, const dtp_tensor_problem *p);

/* No selection with option k of a assignment costs less; picoseconds. */
int64_t dtp_plan_bound_at(const dtp_plan_strategy_bounds *b, int32_t assignment, int32_t k);

/* keep[] by option, in the order of the variables: those with the least bounds, `most` of them, and
 * more where bounds are the same. Returns what a selection with one of the others costs more than;
 * INT64_MAX when there are none. */
int64_t dtp_plan_bounds_keep(const dtp_plan_strategy_bounds *b, int32_t most, bool *keep);

#endif
