/* Search for good solutions of a large kernel: multipliers (subgradient.h) until they lead to
 * nothing better, then perturbations under the true limit (perturbation.h) on the best of them,
 * and again. Works on a snapshot: the reduced problem may change, and other threads may run,
 * meanwhile. Deterministic unless the time comes first. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_H

#include "planner/solver/reduced/reduced.h"

typedef struct solver_primal solver_primal;

/* Expects compact variables that are not infeasible. start: by variable of w that is alive. */
dtp_status solver_primal_create(const solver_reduced *w, const int32_t *start, uint64_t seed,
                                solver_primal **out, dtp_err *err) DTP_MUST_CHECK;
void solver_primal_destroy(solver_primal *p);

/* So many rounds of about equal work, until `stop` fires; goes
 * on where the last call ended. */
dtp_status solver_primal_run(solver_primal *p, int64_t rounds, const dtp_stop *stop,
                             dtp_err *err) DTP_MUST_CHECK;

/* False when nothing feasible was found; else the best, by variable of w that is alive. */
bool solver_primal_best(const solver_primal *p, int32_t *assignment);

#endif
