/* Large-neighbourhood search: all variables keep the strategies of the incumbent but those of a
 * neighbourhood, grown around one or several variables chosen at random, which branch and bound
 * solves. Neighbourhoods that it closes make the next ones larger, others smaller. */
#ifndef DTP_PLANNER_SOLVER_LARGE_NEIGHBOURHOOD_H
#define DTP_PLANNER_SOLVER_LARGE_NEIGHBOURHOOD_H

#include "planner/solver/state.h"

/* At most so many rounds of two neighbourhoods each, fewer when a long stretch of them gains little
 * of the gap to the bound. Needs an incumbent; w, presolved, is reduced further with every better
 * one. The answer does not depend on the number of threads. */
dtp_status solver_large_neighbourhood(solver_state *v, solver_reduced *w, int64_t rounds,
                                      int64_t bound, dtp_err *err) DTP_MUST_CHECK;

#endif
