/* What the usage limit costs at single times: multipliers of the limit from an ascent of the dual
 * (planner/solver/dual/dual.h). */
#ifndef DTP_PLANNER_SOLVER_MULTIPLIERS_H
#define DTP_PLANNER_SOLVER_MULTIPLIERS_H

#include "core/base/arena.h"
#include "planner/problem/problem.h"

/* What a unit of usage costs at one time, in cost units; not negative. */
typedef struct dtp_memory_multiplier {
    int64_t time;
    double multiplier;
} dtp_memory_multiplier;

/* Multipliers in order of time, in `arena`; *n = 0 where no assignment meets the limit. Any
 * multipliers give a valid bound; these are good ones for the problem that is given. Fewer rounds
 * than `rounds` where the problem is large. Deterministic. */
dtp_status dtp_memory_multipliers(const dtp_problem *p, int64_t rounds, dtp_arena *arena,
                                  int32_t *n, dtp_memory_multiplier **multipliers,
                                  dtp_err *err) DTP_MUST_CHECK;

#endif
