/* Min-sum messages along the edges of the whole kernel, sequentially reweighted (TRW-S): what every
 * neighbour would like a variable to choose, as far as the rest of the kernel is concerned. A pass
 * over the variables, forwards and backwards in turn, updates them and picks an assignment variable
 * by variable.
 *
 * V. Kolmogorov, Convergent tree-reweighted message passing for energy minimization, 2006. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_MESSAGES_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_MESSAGES_H

#include "planner/solver/primal/primal_point.h"

typedef struct solver_messages {
    const solver_graph *g;
    int64_t *first; /* by variable: the messages to it, one line of k numbers per arc */
    double *message;
    int64_t n;
    double *sum; /* scratch, twice by strategy of one variable */
    bool backwards;
} solver_messages;

dtp_status solver_messages_create(const solver_graph *g, solver_messages *out,
                                  dtp_err *err) DTP_MUST_CHECK;
void solver_messages_destroy(solver_messages *m);

/* All 0 again. */
void solver_messages_clear(solver_messages *m);
/* One pass under w->theta; the picked assignment, by variable of the graph. */
void solver_messages_pass(solver_messages *m, solver_point *w, int32_t *assignment);

/* to[t] = min_s (from[s] + matrix[s][t]) for k strategies s and k_to strategies t. */
void solver_min_plus(const double *restrict from, int32_t k, const double *restrict matrix,
                     int32_t k_to, double *restrict to);

#endif
