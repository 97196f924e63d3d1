/* Variable elimination, for problems without usage: a variable goes with a
 * table of its best strategies beside all strategies of its neighbours, which become neighbours of
 * each other (bucket elimination, Bertele and Brioschi 1972). One run tells the best solutions with
 * each strategy of one variable, the root, which stays. For reduced problems of small width. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_VARIABLE_ELIMINATION_H
#define DTP_PLANNER_SOLVER_PRIMAL_VARIABLE_ELIMINATION_H

#include "planner/solver/reduced/reduced.h"

typedef struct solver_elimination solver_elimination;

/* *out = NULL when it takes more than `most` work units; *work_units: how many it took.
 * Expects compact variables of a reduced problem that is not infeasible and has no rows; root -1:
 * none. */
dtp_status solver_elimination_create(const solver_reduced *w, int32_t root, int64_t most,
                                     solver_elimination **out, int64_t *work_units,
                                     dtp_err *err) DTP_MUST_CHECK;
void solver_elimination_destroy(solver_elimination *b);

/* The best solution with a strategy of the root (0 without one), by variable of the reduced problem
 * for those that are alive; false when there is none. */
bool solver_elimination_choose(const solver_elimination *b, int32_t strategy, int32_t *assignment);

#endif
