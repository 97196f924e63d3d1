/* The relaxation of the marginal form of what presolve left, solved by GLPK (docs/solve.md).
 *
 *   min  sum_x c_x(s) y[x,s] + sum_e c_e(i,j) z[e,i,j]
 *   sum_s y[x,s] = 1
 *   sum_j z[e,i,j] = y[u,i],  sum_i z[e,i,j] = y[v,j]     for every edge e = (u,v)
 *   sum_x sum_s use_x(s,r) y[x,s] <= limit - base[r] + t   for the rows r that were violated
 *   y, z, t >= 0, t at a high multiplier, no column for what is forbidden
 *
 * This is the linearisation of products of assignment variables by Adams and Sherali (1986), as
 * Koster, van Hoesel and Kolen (1998) use it for frequency assignment and Alpa (Zheng et al., 2022)
 * for layouts. Where every strategy j of v leaves at most one of u (a map), z[e,i,j] is y[v,j]
 * itself: no columns for the edge, and no rows for v.
 *
 * Costs and usages are scaled; the bound is recomputed in exact arithmetic from the duals
 * (planner/solver/reduced/bound.h). */
#ifndef DTP_PLANNER_SOLVER_RELAX_H
#define DTP_PLANNER_SOLVER_RELAX_H

#include "core/plan/plan.h"
#include "planner/solver/reduced/reduced.h"

typedef struct solver_relaxation {
    bool solved;   /* false: the limit came first, or the relaxation has no solution */
    int64_t bound; /* exact, at most the cutoff; 0 = none */
    int32_t split_variable,
        split_strategy; /* the least decided variable and its largest value; -1 = none */
} solver_relaxation;

/* assignment becomes the rounding of the relaxation, by variable that is alive. With incumbent
 * filtering, what the duals exclude is forbidden, which may make w infeasible. Expects compact
 * variables. */
dtp_status solver_relax(solver_reduced *w, const dtp_stop *stop, int32_t *assignment,
                        solver_relaxation *out, dtp_err *err) DTP_MUST_CHECK;

/* The same with y integer: one integer program, solved by GLPK up to its tolerances or a limit;
 * t = 0, or, with `minimum_memory`, t <= 0 is minimised in place of the cost. *status: what GLPK
 * says; OPTIMAL and FEASIBLE: assignment is a solution, by variable that is alive, within the
 * limit. Memory rows are added when a solution violates them. Expects compact variables. DTP_RANGE:
 * more columns than GLPK is given. */
dtp_status solver_integer(solver_reduced *w, bool minimum_memory, int32_t *assignment,
                          dtp_cert_status *status, dtp_err *err) DTP_MUST_CHECK;

#endif
