/* State of one solve, shared by its parts: limits, the incumbent and its cost as the cutoff. The
 * parts are the entry (solve.c), the primal-dual loop, branch and bound, dives and
 * large-neighbourhood search. */
#ifndef DTP_PLANNER_SOLVER_STATE_H
#define DTP_PLANNER_SOLVER_STATE_H

#include "planner/problem/check.h"
#include "planner/solver/solve.h"
#include "planner/solver/reduced/reduced.h"

typedef struct solver_state {
    const dtp_problem *p;
    const dtp_evaluator *evaluator; /* of p */
    const dtp_solve_options *options;
    dtp_solve_result *out;
    double gap;        /* between cost and bound at which to stop, as a share of the cost */
    uint64_t seed;     /* of the search */
    int64_t max_nodes; /* branch and bound ends when out->nodes reaches it */
    int64_t cutoff;    /* cost of the best solution */
    bool found;        /* a solution; else the cutoff is what was asked for */
    bool searched;     /* ... that was not known beforehand */
    int32_t *best;     /* the incumbent */
    int32_t *assignment, *full; /* scratch, by variable */
} solver_state;

/* A bound that leaves nothing to search: at the cutoff, or within the gap of a solution. */
bool solver_close(const solver_state *v, int64_t bound);

/* Restores, evaluates and keeps a solution of w, as w was when it had n_undo records, if it is the
 * best so far. */
dtp_status solver_offer(solver_state *v, const solver_reduced *w, int64_t n_undo,
                        const int32_t *assignment, dtp_err *err) DTP_MUST_CHECK;
/* Presolves for solutions cheaper than the cutoff; when nothing is left to choose, offers what
 * there is, after which w is infeasible: nothing cheaper is left. */
dtp_status solver_reduce(solver_state *v, solver_reduced *w, dtp_err *err) DTP_MUST_CHECK;

#endif
