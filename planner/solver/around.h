/* Good solutions with each strategy of one node, around a solution that is known: by descent on the
 * problem, then by best variables of random forests of what presolve and dual ascent leave. */
#ifndef DTP_PLANNER_SOLVER_AROUND_H
#define DTP_PLANNER_SOLVER_AROUND_H

#include "planner/problem/check.h"
#include "planner/solver/reduced/work.h"

typedef struct solver_primal_marginals {
    const dtp_problem *p;
    int32_t node, k; /* k: its strategies */
    dtp_evaluator *evaluator;
    int32_t *variables;  /* by strategy, by node: the best so far, which need not be feasible */
    int64_t *cost;       /* by strategy: of it; DTP_FORBIDDEN: it is not feasible */
    int32_t *assignment; /* scratch, by node */
} solver_primal_marginals;

/* Only the start is there, with every strategy of the node put into it. Borrows the problem.
 * DTP_INVALID when the start is not feasible. */
dtp_status solver_primal_marginals_create(const dtp_problem *p, int32_t node, const int32_t *start,
                                          solver_primal_marginals *out,
                                          dtp_err *err) DTP_MUST_CHECK;
void solver_primal_marginals_destroy(solver_primal_marginals *a);

/* By descent from what is there. */
dtp_status solver_primal_marginals_descend(solver_primal_marginals *a, dtp_err *err) DTP_MUST_CHECK;

/* Keeps a assignment if it is feasible and better than what is there with its strategy. */
dtp_status solver_primal_marginals_offer(solver_primal_marginals *a, const int32_t *assignment,
                                         dtp_err *err) DTP_MUST_CHECK;

/* So many forests for every strategy of the node that is left in w; origin: their indices in the
 * problem. Expects compact nodes of a work that is not infeasible, in which the node is kept. */
dtp_status solver_primal_marginals_improve(solver_primal_marginals *a, const solver_work *w,
                                           const int32_t *origin, int32_t forests,
                                           dtp_err *err) DTP_MUST_CHECK;

#endif
