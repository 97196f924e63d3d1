/* The selection problem while it shrinks: presolve works on it, the solvers solve what is left.
 *
 * Nodes keep the indices of the original problem. A strategy whose cost is DTP_FORBIDDEN is
 * dead until solver_compact removes it. Two nodes are joined by at most one edge. Time is cut into
 * rows (one per clique of intervals that matters); a node's usage is a list of pieces, each a range
 * of rows with one usage per strategy, and pieces may overlap until solver_memory_refresh. What
 * every strategy of a node uses is moved into `base`.
 */
#ifndef DTP_PLANNER_SOLVER_REDUCED_WORK_H
#define DTP_PLANNER_SOLVER_REDUCED_WORK_H

#include "core/base/arena.h"
#include "planner/solver/presolve/presolve.h"

typedef struct solver_piece {
    int32_t first, last; /* rows first..last - 1 */
    int64_t *use;        /* by strategy; owned */
} solver_piece;

typedef struct solver_node {
    int32_t k, n_live;
    int64_t *cost; /* by strategy; owned */
    solver_piece *pieces;
    int32_t n_pieces;
    int64_t cap_pieces;
    int32_t *adj; /* edges; those that died or moved away are dropped by solver_purge */
    int32_t n_adj;
    int64_t cap_adj;
    bool alive;
    bool kept; /* stays to the end, and its strategies keep their best solutions each */
    bool memory_changed, changed; /* for solver_memory_refresh; for dominance */
} solver_node;

typedef struct solver_edge {
    int32_t u, v;
    int64_t *m;               /* rows by strategies of u */
    const int64_t *borrowed;  /* the original matrix while m is NULL */
    bool alive, dirty, check; /* dirty: consistency to be restored; check: may have become a map */
} solver_edge;

/* assignment[node] = table[assignment[a] * kb + assignment[b]], absent ones (-1) counting 0. */
typedef struct solver_undo {
    int32_t node, a, b, kb;
    const int32_t *table;
    int32_t kept; /* a == node: the strategies that were left, whose old indices the table holds */
} solver_undo;

typedef struct solver_slot {
    uint64_t key;
    int32_t edge; /* -1 = free */
} solver_slot;

typedef struct solver_queue {
    int32_t *items;
    int64_t capacity;
    int32_t n;
} solver_queue;

typedef struct solver_work {
    const dtp_problem *p;
    dtp_arena *arena; /* of the undo records */
    solver_node *nodes;
    int32_t n_nodes;
    solver_edge *edges;
    int32_t n_edges;
    int64_t cap_edges;
    solver_slot *slots; /* the edge of a pair */
    uint64_t n_slots, n_used;
    solver_undo *undo;
    int64_t n_undo, cap_undo;
    solver_queue dirty, check;
    int32_t n_rows;
    int64_t *time;      /* by row: a time of its clique */
    int64_t *base;      /* by row: usage that every solution has */
    double *multiplier; /* by row: what a unit of usage costs in the best bound so far */
    double unit;        /* cost scale of the dual ascent that found the multipliers, 0 = none yet */
    int64_t ascended;   /* its rounds so far, -1: in small steps only */
    int64_t limit;
    int64_t constant; /* cost that every solution has; negative where dual ascent moved costs */
    int64_t cutoff;   /* only cheaper solutions matter */
    bool infeasible;  /* there is none */
    double end_s;     /* of CLOCK_MONOTONIC: presolve stops there; 0 = no limit */
    dtp_presolve_options options;
    dtp_presolve_report report;
} solver_work;

/* Borrows the problem, which must have been checked. */
dtp_status solver_work_create(const dtp_problem *p, const dtp_presolve_options *options,
                              solver_work **out, dtp_err *err) DTP_MUST_CHECK;
void solver_work_destroy(solver_work *w);
/* A copy that can be reduced further; the original must outlive it. */
dtp_status solver_copy(const solver_work *w, solver_work **out, dtp_err *err) DTP_MUST_CHECK;
/* A copy in which a strategy is all that is left of a node, without the strategies of other nodes
 * that are out beside it: those that lift the sum of the smallest costs to the cutoff on their own,
 * all of which may leave the copy infeasible. Expects compact nodes. */
dtp_status solver_copy_with(const solver_work *w, int32_t node, int32_t strategy, solver_work **out,
                            dtp_err *err) DTP_MUST_CHECK;
/* Frees all but what copies of it still need; only solver_work_destroy may follow. */
void solver_retire(solver_work *w);

/* Runs the reductions to a fixed point; may be called again after lowering w->cutoff. */
dtp_status solver_presolve(solver_work *w, dtp_err *err) DTP_MUST_CHECK;
/* In: the variables of the nodes that are alive. Out: all of them, for the original problem. */
void solver_restore(const solver_work *w, int32_t *assignment);
/* The same for the nodes that were alive when there were n_undo records. */
void solver_restore_from(const solver_work *w, int64_t n_undo, int32_t *assignment);
/* The other way: variables of the original problem become those of the nodes that are alive; where
 * presolve removed the strategy, -1. */
void solver_project(const solver_work *w, int32_t *assignment);
/* The time limit has come; always false without one. */
bool solver_work_late(const solver_work *w);
dtp_presolve_size solver_size(solver_work *w);
/* Sum of the constant and of the smallest cost of every node and edge. */
int64_t solver_lower_bound(const solver_work *w);

/* 0 .. n - 1, by splitmix64. */
static inline int32_t solver_random(uint64_t *state, int32_t n)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return (int32_t)((z >> 33) % (uint64_t)n);
}

/* ---- for the reductions ---- */

static inline const int64_t *solver_matrix(const solver_edge *e)
{
    return e->m != NULL ? e->m : e->borrowed;
}

static inline bool solver_dead(const solver_node *x, int32_t s)
{
    return x->cost[s] >= DTP_FORBIDDEN;
}

/* The edge seen from one end: entry (i of `from`, j of the other) is m[i * row + j * col]. */
typedef struct solver_view {
    const int64_t *m;
    int64_t row, col;
    int32_t other;
} solver_view;

solver_view solver_view_from(const solver_work *w, int32_t edge, int32_t from);
dtp_status solver_own(solver_work *w, int32_t edge, dtp_err *err) DTP_MUST_CHECK;
/* Drops what is no longer an edge of the node; the number that is left is its degree. */
int32_t solver_purge(solver_work *w, int32_t node);
void solver_drop_edge(solver_work *w, int32_t edge);
/* Adds a matrix (rows by strategies of a; taken over, freed if need be) to the edge of the pair. */
dtp_status solver_add_matrix(solver_work *w, int32_t a, int32_t b, int64_t *m,
                             dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_touch(solver_work *w, int32_t edge, dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_kill(solver_work *w, int32_t node, int32_t strategy, int64_t *counter,
                       dtp_err *err) DTP_MUST_CHECK;
/* Adds to the cost of a live strategy, which may kill it. */
dtp_status solver_add_cost(solver_work *w, int32_t node, int32_t strategy, int64_t cost,
                           dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_add_piece(solver_work *w, int32_t node, int32_t first, int32_t last, int64_t *use,
                            dtp_err *err) DTP_MUST_CHECK;
/* `table` comes from the arena. */
dtp_status solver_add_undo(solver_work *w, solver_undo record, dtp_err *err) DTP_MUST_CHECK;
void solver_free_node(solver_node *x);
dtp_status solver_compact(solver_work *w, dtp_err *err) DTP_MUST_CHECK;

/* Of every interval: the rows first..last - 1 in which it is. */
typedef struct solver_row_range {
    int32_t first, last;
} solver_row_range;

/* Marks rows that are half way between two others, whatever is chosen, so that those that are not
 * marked have the same largest usage. */
dtp_status solver_drop_linear_rows(const dtp_problem *p, const solver_row_range *span,
                                   int32_t n_rows, bool *dropped, dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_memory_create(solver_work *w, dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_memory_refresh(solver_work *w, dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_propagate(solver_work *w, dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_filter_by_incumbent(solver_work *w, dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_merge_dependent(solver_work *w, dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_dominance(solver_work *w, dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_eliminate(solver_work *w, dtp_err *err) DTP_MUST_CHECK;

#endif
