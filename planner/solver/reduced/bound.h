/* A lower bound that holds in exact arithmetic, from any multipliers.
 *
 * With phi[e,x,s] for every edge e, end x and strategy s, and a multiplier lambda[r] >= 0 per row,
 *   theta_x(s)   = c_x(s) + sum_e phi[e,x,s] + sum_r lambda[r] use_x(s,r)
 *   theta_e(i,j) = c_e(i,j) - phi[e,u,i] - phi[e,v,j]
 *   L = constant + sum_x min theta_x + sum_e min theta_e - sum_r lambda[r] (limit - base[r])
 * is below the cost of every solution. Multipliers are rounded to fixed point first (2^shift units
 * per cost unit), and everything after that is integer; products with usages are rounded downwards.
 * A strategy or entry whose share above the minimum lifts L to the cutoff is forbidden.
 */
#ifndef DTP_PLANNER_SOLVER_REDUCED_BOUND_H
#define DTP_PLANNER_SOLVER_REDUCED_BOUND_H

#include "planner/solver/reduced/reduced.h"

typedef struct solver_multipliers {
    double *phi;             /* cost units */
    const int64_t *edge_phi; /* by edge: phi of u's strategies, then of v's, start here */
    double *lambda;          /* by row, cost units per usage unit */
} solver_multipliers;

/* The bound (0 when the numbers are too large for it); with `fix`, forbids what it excludes. */
dtp_status solver_bound(solver_reduced *w, const solver_multipliers *m, bool fix, int64_t *bound,
                        dtp_err *err) DTP_MUST_CHECK;

/* By strategy of a variable that is alive: no solution with it costs less, by the costs as they are
 * in w and w->multiplier; at most the cutoff, which is also the bound of dead strategies, 0 when
 * the numbers are too large for it. */
dtp_status solver_bound_strategies(solver_reduced *w, int32_t variable, int64_t *bound,
                                   dtp_err *err) DTP_MUST_CHECK;

#endif
