/* Good solutions with each strategy of one node, around a solution that is known: by descent on the
 * problem, then by best choices of random forests of what presolve and dual ascent leave. */
#ifndef DTP_PLANNER_SOLVER_AROUND_H
#define DTP_PLANNER_SOLVER_AROUND_H

#include "planner/problem/check.h"
#include "planner/solver/reduced/work.h"

typedef struct sel_around {
    const dtp_select_problem *p;
    int32_t node, k; /* k: its strategies */
    dtp_select_evaluator *evaluator;
    int32_t *choices; /* by strategy, by node: the best so far, which need not be feasible */
    int64_t *cost;    /* by strategy: of it; DTP_SELECT_FORBIDDEN: it is not feasible */
    int32_t *choice;  /* scratch, by node */
} sel_around;

/* Only the start is there, with every strategy of the node put into it. Borrows the problem.
 * DTP_INVALID when the start is not feasible. */
dtp_status sel_around_create(const dtp_select_problem *p, int32_t node, const int32_t *start,
                             sel_around *out, dtp_err *err) DTP_MUST_CHECK;
void sel_around_destroy(sel_around *a);

/* By descent from what is there. */
dtp_status sel_around_descend(sel_around *a, dtp_err *err) DTP_MUST_CHECK;

/* Keeps a choice if it is feasible and better than what is there with its strategy. */
dtp_status sel_around_offer(sel_around *a, const int32_t *choice, dtp_err *err) DTP_MUST_CHECK;

/* So many forests for every strategy of the node that is left in w; origin: their indices in the
 * problem. Expects compact nodes of a work that is not infeasible, in which the node is kept. */
dtp_status sel_around_improve(sel_around *a, const sel_work *w, const int32_t *origin,
                              int32_t forests, dtp_err *err) DTP_MUST_CHECK;

#endif
