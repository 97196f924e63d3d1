/* A point of the search: one strategy per node, its cost and its usage, kept up to date by every
 * change; row prices and the priced cost of every strategy,
 *   theta_x(s) = c_x(s) + sum_r price[r] use_x(s, r). */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_WALK_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_WALK_H

#include "planner/solver/primal/primal_graph.h"
#include "planner/solver/primal/primal_usage.h"

typedef struct sel_change {
    int32_t node, before;
} sel_change;

typedef struct sel_walk {
    const sel_graph *g;
    int32_t *choice;
    sel_usage usage;
    double cost;         /* of what is not forbidden; without g->constant */
    int64_t n_forbidden; /* forbidden strategies and pairs */
    double *price;       /* by row */
    double *price_sum;   /* by row and one more: of the prices before it */
    double *theta;       /* by strategy of the graph */
    sel_change *log;     /* since sel_walk_mark */
    int64_t cap_log;
    int32_t n_log;
    double marked_cost;
    int64_t marked_forbidden;
    uint64_t random;
    int64_t work; /* numbers looked at: a clock that does not depend on the machine */
} sel_walk;

dtp_status sel_walk_create(const sel_graph *g, const int32_t *choice, uint64_t seed, sel_walk *out,
                           dtp_err *err) DTP_MUST_CHECK;
void sel_walk_destroy(sel_walk *w);

/* 0 <= result < n. */
int32_t sel_walk_random(sel_walk *w, int32_t n);
void sel_walk_shuffle(sel_walk *w, int32_t *items, int32_t n);

/* Jumps to a choice; the log is emptied. */
void sel_walk_jump(sel_walk *w, const int32_t *choice);
/* From here on changes are logged; undo takes them back. */
void sel_walk_mark(sel_walk *w);
dtp_status sel_walk_set(sel_walk *w, int32_t node, int32_t strategy, dtp_err *err) DTP_MUST_CHECK;
void sel_walk_undo(sel_walk *w);

/* Nothing forbidden, nothing beyond the limit. */
bool sel_walk_feasible(const sel_walk *w);

/* After a change of w->price. */
void sel_walk_reprice(sel_walk *w);
#endif
