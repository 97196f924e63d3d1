/* A plan from the dual: decides the nodes whose priced costs leave least doubt, reduces, ascends
 * again, until nothing is left to choose. */
#ifndef DTP_PLANNER_SOLVER_DIVE_H
#define DTP_PLANNER_SOLVER_DIVE_H

#include "planner/solver/solver.h"

/* Offers what it finds to v. w, presolved and with prices, stays as it is. */
dtp_status sel_dive(sel_solver *v, const sel_work *w, dtp_err *err) DTP_MUST_CHECK;

#endif
