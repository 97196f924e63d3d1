/* The selection problem as a reduced problem, before any reduction. */
#ifndef DTP_PLANNER_SOLVER_REDUCED_LOAD_H
#define DTP_PLANNER_SOLVER_REDUCED_LOAD_H

#include "planner/solver/reduced/reduced.h"

/* Borrows the problem, which must have been checked. */
dtp_status solver_reduced_create(const dtp_problem *p, const dtp_presolve_options *options,
                                 const dtp_solver_parameters *parameters, solver_reduced **out,
                                 dtp_err *err) DTP_MUST_CHECK;

#endif
