/* Descent on the problem itself, without presolve: one node is held, every other one takes its
 * cheapest strategy beside its neighbours, from the held one outwards, until nothing changes. What
 * was forbidden becomes allowed where single changes can do it. Usage plays no part. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_CONDITIONAL_MODES_H
#define DTP_PLANNER_SOLVER_PRIMAL_CONDITIONAL_MODES_H

#include "planner/problem/problem.h"

typedef struct sel_descent sel_descent;

/* Borrows the problem, which must have been checked. */
dtp_status sel_descent_create(const dtp_select_problem *p, sel_descent **out,
                              dtp_err *err) DTP_MUST_CHECK;
void sel_descent_destroy(sel_descent *d);

/* choice: by node. Deterministic; ends after a number of changes that is linear in the nodes. */
void sel_descend(sel_descent *d, int32_t held, int32_t *choice);

#endif
