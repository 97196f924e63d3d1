/* The best choice of the nodes of a forest, everything else fixed, under priced costs: min-sum
 * along the trees. The forest is induced: between its nodes there are no other edges. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_TREE_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_TREE_H

#include "planner/solver/primal/primal_walk.h"

typedef struct sel_forest sel_forest;

dtp_status sel_forest_create(const sel_graph *g, sel_forest **out, dtp_err *err) DTP_MUST_CHECK;
void sel_forest_destroy(sel_forest *f);

/* Takes the candidates in their order, each if it closes no cycle. */
void sel_forest_pick(sel_forest *f, const int32_t *candidates, int32_t n);
/* Moves the walk to the optimum of the forest under theta (by strategy of the graph; those of the
 * forest are read). Among equals the one met first. The changes are logged. */
dtp_status sel_forest_solve(sel_forest *f, sel_walk *w, const double *theta,
                            dtp_err *err) DTP_MUST_CHECK;
/* The nodes of the forest. */
const int32_t *sel_forest_nodes(const sel_forest *f, int32_t *n);

#endif
