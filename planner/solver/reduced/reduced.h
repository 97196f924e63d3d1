/* The selection problem while it shrinks: presolve works on it, the solvers solve what is left.
 *
 * Variables keep the indices of the original problem. A strategy whose cost is DTP_FORBIDDEN is
 * dead until solver_compact removes it. Two variables are joined by at most one edge. Time is cut
 * into rows (one per clique of intervals that matters); a variable's usage is a list of pieces,
 * each a range of rows with one usage per strategy, and pieces may overlap until
 * solver_memory_refresh. What every strategy of a variable uses is moved into `base`.
 */
#ifndef DTP_PLANNER_SOLVER_REDUCED_REDUCED_H
#define DTP_PLANNER_SOLVER_REDUCED_REDUCED_H

#include "core/base/arena.h"
#include "core/base/stop.h"
#include "planner/solver/parameters/parameters.h"
#include "planner/solver/reduced/presolve.h"

typedef struct solver_piece {
    int32_t first, last; /* rows first..last - 1 */
    int64_t *use;        /* by strategy; owned */
} solver_piece;

typedef struct solver_variable {
    int32_t k, n_live;
    int64_t *cost; /* by strategy; owned */
    solver_piece *pieces;
    int32_t n_pieces;
    int64_t cap_pieces;
    int32_t *adj; /* edges; those that died or moved away are dropped by solver_purge */
    int32_t n_adj;
    int64_t cap_adj;
    bool alive;
    bool memory_changed, changed; /* for solver_memory_refresh; for dominance */
} solver_variable;

typedef struct solver_edge {
    int32_t u, v;
    int64_t *m; /* rows by strategies of u */
    const int64_t
        *borrowed; /* while m is NULL: a matrix of the problem or of what w is a copy of */
    bool alive, dirty, check; /* dirty: consistency to be restored; check: may have become a map */
} solver_edge;

/* assignment[variable] = table[assignment[a] * kb + assignment[b]], absent ones (-1) counting 0. */
typedef struct solver_undo {
    int32_t variable, a, b, kb;
    const int32_t *table;
    int32_t
        kept; /* a == variable: the strategies that were left, whose old indices the table holds */
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

typedef struct solver_reduced {
    const dtp_problem *p;
    dtp_arena *arena; /* of the undo records */
    solver_variable *variables;
    int32_t n_variables;
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
    int64_t constant;     /* cost that every solution has; negative where dual ascent moved costs */
    int64_t cutoff;       /* only cheaper solutions matter */
    bool infeasible;      /* there is none */
    const dtp_stop *stop; /* presolve ends when it fires; borrowed */
    dtp_presolve_options options;
    const dtp_solver_parameters *parameters;
    dtp_presolve_report report;
} solver_reduced;

void solver_reduced_destroy(solver_reduced *w);
/* Frees all but the undo records that copies of it need, which must own their matrices; only
 * solver_reduced_destroy may follow. */
void solver_retire(solver_reduced *w);

/* In: the strategies of the variables that are alive. Out: all of them, for the original
 * problem. */
void solver_restore(const solver_reduced *w, int32_t *assignment);
/* The same for the variables that were alive when there were n_undo records. */
void solver_restore_from(const solver_reduced *w, int64_t n_undo, int32_t *assignment);
/* The other way: an assignment of the original problem becomes that of the variables that are
 * alive; where presolve removed the strategy, -1. */
void solver_project(const solver_reduced *w, int32_t *assignment);
dtp_presolve_size solver_size(solver_reduced *w);
/* The smallest cost of a variable's strategies. */
int64_t solver_least_cost(const solver_variable *x);
/* Sum of the constant and of the smallest cost of every variable and edge. */
int64_t solver_lower_bound(const solver_reduced *w);

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

static inline bool solver_dead(const solver_variable *x, int32_t s)
{
    return x->cost[s] >= DTP_FORBIDDEN;
}

/* The edge seen from one end: entry (i of `from`, j of the other) is m[i * row + j * col]. */
typedef struct solver_view {
    const int64_t *m;
    int64_t row, col;
    int32_t other;
} solver_view;

solver_view solver_view_from(const solver_reduced *w, int32_t edge, int32_t from);
/* The matrix of an edge (of all edges) becomes one of w's own, which may be written to. */
dtp_status solver_own(solver_reduced *w, int32_t edge, dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_own_all(solver_reduced *w, dtp_err *err) DTP_MUST_CHECK;
/* Drops what is no longer an edge of the variable; the number that is left is its degree. */
int32_t solver_purge(solver_reduced *w, int32_t variable);
void solver_drop_edge(solver_reduced *w, int32_t edge);
/* Adds a matrix (rows by strategies of a; taken over, freed if need be) to the edge of the pair. */
dtp_status solver_add_matrix(solver_reduced *w, int32_t a, int32_t b, int64_t *m,
                             dtp_err *err) DTP_MUST_CHECK;
/* The same for a matrix that outlives w and is only read. */
dtp_status solver_add_borrowed(solver_reduced *w, int32_t a, int32_t b, const int64_t *m,
                               dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_touch(solver_reduced *w, int32_t edge, dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_kill(solver_reduced *w, int32_t variable, int32_t strategy, int64_t *counter,
                       dtp_err *err) DTP_MUST_CHECK;
/* Kills all other strategies of a variable. */
dtp_status solver_fix(solver_reduced *w, int32_t variable, int32_t strategy,
                      dtp_err *err) DTP_MUST_CHECK;
/* Adds to the cost of a live strategy, which may kill it. */
dtp_status solver_add_cost(solver_reduced *w, int32_t variable, int32_t strategy, int64_t cost,
                           dtp_err *err) DTP_MUST_CHECK;
dtp_status solver_add_piece(solver_reduced *w, int32_t variable, int32_t first, int32_t last,
                            int64_t *use, dtp_err *err) DTP_MUST_CHECK;
/* `table` comes from the arena. */
dtp_status solver_add_undo(solver_reduced *w, solver_undo record, dtp_err *err) DTP_MUST_CHECK;
void solver_free_variable(solver_variable *x);
dtp_status solver_compact(solver_reduced *w, dtp_err *err) DTP_MUST_CHECK;

#endif
