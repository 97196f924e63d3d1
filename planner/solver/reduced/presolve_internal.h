/* The reductions of presolve in files of their own; each leaves edges that changed to
 * solver_propagate. */
#ifndef DTP_PLANNER_SOLVER_REDUCED_PRESOLVE_INTERNAL_H
#define DTP_PLANNER_SOLVER_REDUCED_PRESOLVE_INTERNAL_H

#include "planner/solver/reduced/reduced.h"

/* functional_dependency.c. Expects compact variables. */
dtp_status solver_merge_dependent(solver_reduced *w, dtp_err *err) DTP_MUST_CHECK;
/* dominance.c */
dtp_status solver_dominance(solver_reduced *w, dtp_err *err) DTP_MUST_CHECK;
/* pbqp_reductions.c */
dtp_status solver_eliminate(solver_reduced *w, dtp_err *err) DTP_MUST_CHECK;

#endif
