/* Iterated conditional modes on the problem itself, without presolve: one variable is held, every
 * other one takes its cheapest strategy beside its neighbours, from the held one outwards, until
 * nothing changes. What was forbidden becomes allowed where single changes can do it. Usage plays
 * no part. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_CONDITIONAL_MODES_H
#define DTP_PLANNER_SOLVER_PRIMAL_CONDITIONAL_MODES_H

#include "planner/problem/problem.h"
#include "planner/solver/parameters/parameters.h"

typedef struct solver_conditional solver_conditional;

/* Borrows the problem, which must have been checked. */
dtp_status solver_conditional_create(const dtp_problem *p, const dtp_solver_parameters *parameters,
                                     solver_conditional **out, dtp_err *err) DTP_MUST_CHECK;
void solver_conditional_destroy(solver_conditional *d);

/* assignment: by variable. Deterministic; ends after a number of changes that is linear in the
 * variables. */
void solver_conditional_modes(solver_conditional *d, int32_t held, int32_t *assignment);

#endif
