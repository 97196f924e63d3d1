/* What branch and bound needs of the dual: a bound from where the multipliers are, and the variable
 * to split. Both much cheaper than the linear program of planner/solver/relax.h, to which the bound
 * converges. */
#ifndef DTP_PLANNER_SOLVER_DUAL_DUAL_SPLIT_H
#define DTP_PLANNER_SOLVER_DUAL_DUAL_SPLIT_H

#include "planner/solver/reduced/reduced.h"

/* Ascends, forbids what the bound excludes (with incumbent filtering; w may become infeasible),
 * moves the multipliers into w. Expects compact variables. *bound: exact, at most the cutoff. */
dtp_status solver_dual_relax(solver_reduced *w, int64_t rounds, const dtp_stop *stop,
                             int64_t *bound, dtp_err *err) DTP_MUST_CHECK;

/* theta[s]: cost of a variable's strategy s in w and the multiplier of its usage, sum_r
 * multiplier[r] use(s, r); sums, by row and one more, comes from solver_multiplier_sums. */
void solver_multiplier_sums(const solver_reduced *w, double *sums);
void solver_penalised_costs(const solver_reduced *w, const double *sums, int32_t variable,
                            double *theta);

/* The live strategy of least theta, and by how much it leads the second (infinite without one). */
int32_t solver_dual_cheapest(const solver_variable *x, const double *theta, double *lead);

/* The cheapest strategy of every variable under the multipliers of w. */
dtp_status solver_dual_choice(const solver_reduced *w, int32_t *assignment,
                              dtp_err *err) DTP_MUST_CHECK;

/* Two halves of a variable's strategies: one strategy and the others, or those that use at least so
 * much in a piece and the others. */
typedef struct solver_split {
    int32_t variable, strategy;
    int32_t piece; /* of the variable; -1: by the strategy */
    int64_t use;
} solver_split;

/* Whether a strategy is in the first half; w as it was when the split was found. */
bool solver_split_has(const solver_reduced *w, const solver_split *split, int32_t strategy);

/* The split that raises the bounds of both halves most, of so many promising ones; `bound` is that
 * of w. Expects a variable with at least two live strategies. */
dtp_status solver_dual_split(const solver_reduced *w, int64_t bound, int32_t candidates,
                             solver_split *out, dtp_err *err) DTP_MUST_CHECK;

#endif
