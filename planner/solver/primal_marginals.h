/* Good solutions with each strategy of one variable, around a solution that is known: by descent on
 * the problem, then by best assignments of random forests of what presolve and dual ascent
 * leave. */
#ifndef DTP_PLANNER_SOLVER_AROUND_H
#define DTP_PLANNER_SOLVER_AROUND_H

#include "planner/problem/check.h"
#include "planner/solver/reduced/reduced.h"

typedef struct solver_primal_marginals {
    const dtp_problem *p;
    const dtp_solver_parameters *parameters;
    int32_t variable, k; /* k: its strategies */
    dtp_evaluator *evaluator;
    int32_t
        *assignments;    /* by strategy, by variable: the best so far, which need not be feasible */
    int64_t *cost;       /* by strategy: of it; DTP_FORBIDDEN: it is not feasible */
    int32_t *assignment; /* scratch, by variable */
} solver_primal_marginals;

/* Only the start is there, with every strategy of the variable put into it. Borrows the problem.
 * DTP_INVALID when the start is not feasible. */
dtp_status solver_primal_marginals_create(const dtp_problem *p,
                                          const dtp_solver_parameters *parameters, int32_t variable,
                                          const int32_t *start, solver_primal_marginals *out,
                                          dtp_err *err) DTP_MUST_CHECK;
void solver_primal_marginals_destroy(solver_primal_marginals *a);

/* By descent from what is there. */
dtp_status solver_primal_marginals_descend(solver_primal_marginals *a, dtp_err *err) DTP_MUST_CHECK;

/* Keeps an assignment if it is feasible and better than what is there with its strategy. */
dtp_status solver_primal_marginals_offer(solver_primal_marginals *a, const int32_t *assignment,
                                         dtp_err *err) DTP_MUST_CHECK;

/* So many forests for every strategy of the variable that is left in w; origin: their indices in
 * the problem. Expects compact variables of a reduced problem that is not infeasible, in which the
 * variable is kept. */
dtp_status solver_primal_marginals_improve(solver_primal_marginals *a, const solver_reduced *w,
                                           const int32_t *origin, int32_t forests,
                                           dtp_err *err) DTP_MUST_CHECK;

#endif
