/* The memory constraint of a reduced problem: usage in every row, and which rows are contended. */
#ifndef DTP_PLANNER_SOLVER_REDUCED_MEMORY_ROWS_H
#define DTP_PLANNER_SOLVER_REDUCED_MEMORY_ROWS_H

#include "planner/solver/reduced/reduced.h"

/* Disjoint pieces with smallest usage 0, only contended rows, and no strategy whose usage exceeds
 * the limit beside what all others use at least. */
dtp_status solver_memory_refresh(solver_reduced *w, dtp_err *err) DTP_MUST_CHECK;

#endif
