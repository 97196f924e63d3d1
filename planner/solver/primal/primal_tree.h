/* The best assignment of the variables of a forest, everything else fixed, under penalised costs:
 * min-sum along the trees. The forest is induced: between its variables there are no other
 * edges. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_TREE_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_TREE_H

#include "planner/solver/primal/primal_point.h"

typedef struct solver_forest solver_forest;

dtp_status solver_forest_create(const solver_graph *g, solver_forest **out,
                                dtp_err *err) DTP_MUST_CHECK;
void solver_forest_destroy(solver_forest *f);

/* Takes the candidates in their order, each if it closes no cycle. */
void solver_forest_pick(solver_forest *f, const int32_t *candidates, int32_t n);
/* Moves the walk to the optimum of the forest under theta (by strategy of the graph; those of the
 * forest are read). Among equals the one met first. The changes are logged. */
dtp_status solver_forest_solve(solver_forest *f, solver_point *w, const double *theta,
                               dtp_err *err) DTP_MUST_CHECK;
/* The variables of the forest. */
const int32_t *solver_forest_variables(const solver_forest *f, int32_t *n);

#endif
