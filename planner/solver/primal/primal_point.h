/* A point of the search: one strategy per variable, its cost and its usage, kept up to date by
 * every change; row multipliers and the penalised cost of every strategy,
 *   theta_x(s) = c_x(s) + sum_r multiplier[r] use_x(s, r). */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_WALK_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_WALK_H

#include "planner/solver/primal/primal_graph.h"
#include "planner/solver/primal/primal_usage.h"

typedef struct solver_change {
    int32_t variable, before;
} solver_change;

typedef struct solver_point {
    const solver_graph *g;
    int32_t *assignment;
    solver_usage usage;
    double cost;            /* of what is not forbidden; without g->constant */
    int64_t n_forbidden;    /* forbidden strategies and pairs */
    double *multiplier;     /* by row */
    double *multiplier_sum; /* by row and one more: of the multipliers before it */
    double *theta;          /* by strategy of the graph */
    solver_change *log;     /* since solver_point_mark */
    int64_t cap_log;
    int32_t n_log;
    double marked_cost;
    int64_t marked_forbidden;
    uint64_t random;
    int64_t work; /* numbers looked at: a clock that does not depend on the machine */
} solver_point;

dtp_status solver_point_create(const solver_graph *g, const int32_t *assignment, uint64_t seed,
                               solver_point *out, dtp_err *err) DTP_MUST_CHECK;
void solver_point_destroy(solver_point *w);

/* 0 <= result < n. */
int32_t solver_point_random(solver_point *w, int32_t n);
void solver_point_shuffle(solver_point *w, int32_t *items, int32_t n);

/* Jumps to an assignment; the log is emptied. */
void solver_point_jump(solver_point *w, const int32_t *assignment);
/* From here on changes are logged; undo takes them back. */
void solver_point_mark(solver_point *w);
dtp_status solver_point_set(solver_point *w, int32_t variable, int32_t strategy,
                            dtp_err *err) DTP_MUST_CHECK;
void solver_point_undo(solver_point *w);

/* Nothing forbidden, nothing beyond the limit. */
bool solver_point_feasible(const solver_point *w);

/* After a change of w->multiplier. */
void solver_point_penalise(solver_point *w);
#endif
