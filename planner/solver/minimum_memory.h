/* The smallest usage limit under which a selection problem has a solution. */
#ifndef DTP_PLANNER_SOLVER_MINIMUM_MEMORY_H
#define DTP_PLANNER_SOLVER_MINIMUM_MEMORY_H

#include "planner/solver/solve.h"

typedef struct dtp_minimum_memory {
    bool possible;       /* false: proven that no limit helps */
    int64_t usage;       /* a limit that works; 0 when none was found */
    int64_t bound;       /* proven: none below works */
    int32_t *assignment; /* by node, with that usage; NULL when none was found. Owned */
} dtp_minimum_memory;

/* Bisection with costs left out, so that every step asks only for a solution; with DTP_SOLVER_GLPK
 * one integer program. Limits above `upper` (0 = none) are not looked at. */
dtp_status dtp_minimum_memory_find(const dtp_problem *p, const dtp_solve_options *options,
                                   int64_t upper, dtp_minimum_memory *out,
                                   dtp_err *err) DTP_MUST_CHECK;
void dtp_minimum_memory_free(dtp_minimum_memory *l);

#endif
