/* Dive: fixes the variables whose best penalised cost leads the second best by most, reduces,
 * ascends again, until every variable is decided. */
#ifndef DTP_PLANNER_SOLVER_DIVE_H
#define DTP_PLANNER_SOLVER_DIVE_H

#include "planner/solver/state.h"

/* Offers what it finds to v. w, presolved and with multipliers, stays as it is. */
dtp_status solver_dive(solver_state *v, const solver_reduced *w, dtp_err *err) DTP_MUST_CHECK;

#endif
