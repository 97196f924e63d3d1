/* Large-neighbourhood search on a kernel: all of the best plan stays as it is but for a region,
 * some nodes around one or several chosen at random, for which branch and bound looks for something
 * cheaper. What it leaves undecided makes the next regions smaller, what it closes larger. */
#ifndef DTP_PLANNER_SOLVER_LARGE_NEIGHBOURHOOD_H
#define DTP_PLANNER_SOLVER_LARGE_NEIGHBOURHOOD_H

#include "planner/solver/solver.h"

/* At most so many rounds of two regions each, fewer when a long stretch of them gains
 * little of the gap to the bound. Needs
 * a best plan; w, presolved, is reduced further with every better one. The answer does not depend
 * on the number of threads. */
dtp_status sel_regions(sel_solver *v, sel_work *w, int64_t rounds, int64_t bound,
                       dtp_err *err) DTP_MUST_CHECK;

#endif
