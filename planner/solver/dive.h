/* A plan from the dual: decides the nodes whose penalised costs leave least doubt, reduces, ascends
 * again, until nothing is left to choose. */
#ifndef DTP_PLANNER_SOLVER_DIVE_H
#define DTP_PLANNER_SOLVER_DIVE_H

#include "planner/solver/state.h"

/* Offers what it finds to v. w, presolved and with multipliers, stays as it is. */
dtp_status solver_dive(solver_state *v, const solver_reduced *w, dtp_err *err) DTP_MUST_CHECK;

#endif
