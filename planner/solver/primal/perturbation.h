/* Kicks under the true limit: a node is forced to another strategy, the nodes around it adapt
 * (exact moves of random forests, under the prices), and the result stays if it is feasible and not
 * dearer.
 */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PERTURBATION_H
#define DTP_PLANNER_SOLVER_PRIMAL_PERTURBATION_H

#include "planner/solver/primal/primal_tree.h"

typedef struct sel_polish {
    sel_forest *forest; /* borrowed */
    int32_t *near;      /* scratch: nodes around the kicked one */
    int32_t *stamp, now;
} sel_polish;

dtp_status sel_polish_create(const sel_graph *g, sel_forest *forest, sel_polish *out,
                             dtp_err *err) DTP_MUST_CHECK;
void sel_polish_destroy(sel_polish *p);

/* One kick of a feasible walk; *better when its cost fell. */
dtp_status sel_polish_kick(sel_polish *p, sel_walk *w, bool *better, dtp_err *err) DTP_MUST_CHECK;

#endif
