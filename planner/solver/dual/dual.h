/* Lower bounds of large kernels: ascent of the Lagrangian dual of planner/solver/reduced/bound.h in
 * floating point, evaluated exactly at the end.
 *
 * A solver_dual is a snapshot of a presolved solver_reduced: it may run on a thread of its own
 * while others read (or change) the reduced problem. solver_dual_apply writes its multipliers into
 * the reduced problem without changing what any solution costs: phi moves costs between edges and
 * variables (all of them stay integers that are not negative, the minima go to `constant`), and
 * lambda becomes w->multiplier. So presolve goes on with them, the next solver_dual_create begins
 * where this one ended whatever presolve has merged in between, and a search reads the
 * reparametrised costs from the reduced problem itself.
 *
 *   solver_presolve(w)
 *   repeat
 *     solver_dual_create(w, &d); solver_dual_run(d, ...); solver_dual_apply(d, w, ...);
 *     solver_dual_destroy(d) solver_presolve(w)
 */
#ifndef DTP_PLANNER_SOLVER_DUAL_DUAL_H
#define DTP_PLANNER_SOLVER_DUAL_DUAL_H

#include "planner/solver/reduced/reduced.h"

typedef struct solver_dual solver_dual;

/* Expects compact variables (right after solver_presolve) of a reduced problem that is not
 * infeasible. Starts at phi = 0 and lambda = w->multiplier. */
dtp_status solver_dual_create(const solver_reduced *w, solver_dual **out,
                              dtp_err *err) DTP_MUST_CHECK;
void solver_dual_destroy(solver_dual *d);

/* So many rounds of ascent, fewer when `stop` fires first. Steps are large at
 * first and fall over the rounds of a cycle; where in its cycle the ascent is passes through the
 * reduced problem, so runs may be as short as the caller likes. */
void solver_dual_run(solver_dual *d, int64_t rounds, const dtp_stop *stop);
/* Rounds for the multipliers of the memory rows as they are in the reduced problem, until a few of
 * them lift the bound by less than this share or `stop` fires. */
void solver_dual_settle(solver_dual *d, int64_t rounds, double least_gain, const dtp_stop *stop);
/* Starts at what an ascent over a smaller problem found, whose variables stand for several ones
 * each: for variable i of the problem of d that is variable[i] of the problem of `like`, -1: none.
 * Edges that one of `like` stands for get equal parts of its multipliers. Both without presolve. */
dtp_status solver_dual_start_like(solver_dual *d, const solver_dual *like, const int32_t *variable,
                                  dtp_err *err) DTP_MUST_CHECK;
/* From now on small steps only, here and in what is created from the reduced problem later: for
 * parts of a reduced problem whose own ascent has come to its end. Without effect where there was
 * none. */
void solver_dual_cool(solver_dual *d);
/* The best bound so far, in floating point. */
double solver_dual_value(const solver_dual *d);

/* The exact bound of the best multipliers (at most the cutoff), for a reduced problem that has not
 * changed since the snapshot but for a lower cutoff. With `fix`, what they exclude is forbidden,
 * which may make w infeasible. */
dtp_status solver_dual_bound(const solver_dual *d, solver_reduced *w, bool fix, int64_t *bound,
                             dtp_err *err) DTP_MUST_CHECK;
/* The same; then moves the multipliers into w, which must be presolved again; d is of no use any
 * more. */
dtp_status solver_dual_apply(const solver_dual *d, solver_reduced *w, bool fix, int64_t *bound,
                             dtp_err *err) DTP_MUST_CHECK;

#endif
