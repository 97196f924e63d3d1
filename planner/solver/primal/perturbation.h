/* Iterated local search under the true limit: a variable is forced to another strategy, the
 * variables around it adapt (exact moves of random forests, under the multipliers), and the result
 * stays if it is feasible and not dearer.
 */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PERTURBATION_H
#define DTP_PLANNER_SOLVER_PRIMAL_PERTURBATION_H

#include "planner/solver/primal/primal_tree.h"

typedef struct solver_perturbation {
    solver_forest *forest; /* borrowed */
    int32_t *near;         /* scratch: variables around the perturbed one */
    int32_t *stamp, now;
} solver_perturbation;

dtp_status solver_perturbation_create(const solver_graph *g, solver_forest *forest,
                                      solver_perturbation *out, dtp_err *err) DTP_MUST_CHECK;
void solver_perturbation_destroy(solver_perturbation *p);

/* One perturbation of a feasible walk; *better when its cost fell. */
dtp_status solver_perturbation_step(solver_perturbation *p, solver_point *w, bool *better,
                                    dtp_err *err) DTP_MUST_CHECK;

#endif
