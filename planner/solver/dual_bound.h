/* Lower bounds of a problem as it is: dual ascent without the reductions of presolve, so that edges
 * that share a matrix share it to the end, and a large problem of many equal parts takes little
 * memory. */
#ifndef DTP_PLANNER_SOLVER_DUAL_BOUND_H
#define DTP_PLANNER_SOLVER_DUAL_BOUND_H

#include "core/base/stop.h"
#include "planner/solver/multipliers.h"

/* Where the ascent begins; any start gives a valid bound. */
typedef struct dtp_dual_start {
    const dtp_problem *tied; /* NULL: none. A problem whose variables stand for several ones each */
    const int32_t *variable; /* by variable: that of `tied`; -1: none */
    int32_t n_multipliers; /* of the limit, which is left out without any; they stay as they are */
    const dtp_memory_multiplier *multipliers;
    int64_t enough;       /* a bound that is not below this ends the ascent; 0: none does */
    const dtp_stop *stop; /* ends the ascent early; NULL: none */
} dtp_dual_start;

/* No assignment within the limit costs less than *bound. At most so many rounds of ascent, fewer
 * when they gain little. Deterministic; holds in exact arithmetic. */
dtp_status dtp_dual_bound(const dtp_problem *p, const dtp_dual_start *start, int64_t rounds,
                          int64_t *bound, dtp_err *err) DTP_MUST_CHECK;

/* The same with each strategy of a variable: no assignment within the limit that has strategy s
 * costs less than bound[s], DTP_FORBIDDEN: there is none. One ascent serves all: a strategy costs
 * its reduced cost more than the bound. Deterministic; holds in exact arithmetic. */
dtp_status dtp_strategy_bounds(const dtp_problem *p, int32_t variable, int64_t *bound,
                               dtp_err *err) DTP_MUST_CHECK;

#endif
