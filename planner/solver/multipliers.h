/* What the usage limit costs at single times: multipliers of the limit from an ascent of the dual
 * (planner/solver/dual/dual.h). */
#ifndef DTP_PLANNER_SOLVER_MULTIPLIERS_H
#define DTP_PLANNER_SOLVER_MULTIPLIERS_H

#include "core/base/arena.h"
#include "planner/problem/problem.h"

/* What a unit of usage costs at one time, in cost units; not negative. */
typedef struct dtp_time_price {
    int64_t time;
    double price;
} dtp_time_price;

/* Prices in order of time, in `arena`; *n = 0 where no choice meets the limit. Any prices give a
 * valid bound; these are good ones for the problem that is given. Fewer rounds than `rounds` where
 * the problem is large. Deterministic. */
dtp_status dtp_select_time_prices(const dtp_select_problem *p, int64_t rounds, dtp_arena *arena,
                                  int32_t *n, dtp_time_price **prices, dtp_err *err) DTP_MUST_CHECK;

#endif
