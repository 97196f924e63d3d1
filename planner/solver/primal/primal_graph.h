/* What presolve left, laid out for search: costs as doubles (whole numbers stay exact up to 2^53),
 * every matrix once from either end so that the line of a fixed neighbour is contiguous. A
 * snapshot: the reduced problem may change afterwards. Read only, so that several threads may share
 * it. */
#ifndef DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_GRAPH_H
#define DTP_PLANNER_SOLVER_PRIMAL_PRIMAL_GRAPH_H

#include "planner/solver/reduced/reduced.h"

typedef struct solver_arc {
    int32_t other;   /* variable of the graph */
    int32_t twin;    /* the same edge among the arcs of the other */
    const double *m; /* m[t * k + s]: the other's strategy t, the own strategy s */
} solver_arc;

typedef struct solver_span {
    int32_t first, last; /* rows first..last - 1 */
    const int64_t *use;  /* by strategy */
} solver_span;

typedef struct solver_vertex {
    int32_t k, origin; /* strategies; variable of the reduced problem */
    int64_t at;        /* its strategies in arrays by strategy */
    const double *cost;
    const solver_arc *arcs;
    const solver_span *spans;
    int32_t n_arcs, n_spans;
} solver_vertex;

typedef struct solver_graph {
    const dtp_solver_parameters *parameters;
    int32_t n, n_rows;
    int64_t n_strategies, n_arcs, n_entries;
    int32_t max_k;
    solver_vertex *vertices;
    const int64_t *base;      /* by row */
    const double *multiplier; /* by row: of the reduced problem, all 0 before a first ascent */
    int64_t limit;
    double constant;
    double forbidden; /* what stands for DTP_FORBIDDEN in costs and matrices */
    dtp_arena *arena;
} solver_graph;

/* Expects compact variables that are not infeasible. */
dtp_status solver_graph_create(const solver_reduced *w, solver_graph **out,
                               dtp_err *err) DTP_MUST_CHECK;
void solver_graph_destroy(solver_graph *g);

#endif
