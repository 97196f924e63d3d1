/* Min-sum messages along the edges of the whole kernel, sequentially reweighted (TRW-S): what every
 * neighbour would like a node to choose, as far as the rest of the kernel is concerned. A pass over
 * the nodes, forwards and backwards in turn, updates them and picks a choice node by node.
 *
 * V. Kolmogorov, Convergent tree-reweighted message passing for energy minimization, 2006. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_MESSAGES_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_MESSAGES_H

#include "planner/solver/primal/primal_walk.h"

typedef struct sel_messages {
    const sel_graph *g;
    int64_t *first; /* by node: the messages to it, one line of k numbers per arc */
    double *message;
    int64_t n;
    double *sum; /* scratch, by strategy of one node */
    bool backwards;
} sel_messages;

dtp_status sel_messages_create(const sel_graph *g, sel_messages *out, dtp_err *err) DTP_MUST_CHECK;
void sel_messages_destroy(sel_messages *m);

/* All 0 again. */
void sel_messages_clear(sel_messages *m);
/* One pass under w->theta; the picked choice, by node of the graph. */
void sel_messages_pass(sel_messages *m, sel_walk *w, int32_t *choice);

#endif
