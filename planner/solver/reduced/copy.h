/* Copies of a reduced problem that can be reduced further. */
#ifndef DTP_PLANNER_SOLVER_REDUCED_COPY_H
#define DTP_PLANNER_SOLVER_REDUCED_COPY_H

#include "planner/solver/reduced/reduced.h"

/* A copy that can be reduced further. It reads the matrices of the original until it changes them:
 * the original must outlive it and stay as it is, or solver_own_all makes the copy independent. */
dtp_status solver_copy(const solver_reduced *w, solver_reduced **out, dtp_err *err) DTP_MUST_CHECK;

#endif
