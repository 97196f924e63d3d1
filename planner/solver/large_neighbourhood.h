/* Large-neighbourhood search on a kernel: all of the best plan stays as it is but for a
 * neighbourhood, some nodes around one or several chosen at random, for which branch and bound
 * looks for something cheaper. What it leaves undecided makes the next neighbourhoods smaller, what
 * it closes larger. */
#ifndef DTP_PLANNER_SOLVER_LARGE_NEIGHBOURHOOD_H
#define DTP_PLANNER_SOLVER_LARGE_NEIGHBOURHOOD_H

#include "planner/solver/state.h"

/* At most so many rounds of two neighbourhoods each, fewer when a long stretch of them gains
 * little of the gap to the bound. Needs
 * a best plan; w, presolved, is reduced further with every better one. The answer does not depend
 * on the number of threads. */
dtp_status solver_large_neighbourhood(solver_state *v, solver_reduced *w, int64_t rounds,
                                      int64_t bound, dtp_err *err) DTP_MUST_CHECK;

#endif
