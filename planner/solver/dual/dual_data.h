/* The snapshot that dual ascent works on (planner/solver/dual/dual.h): what is alive, packed, in
 * single precision. Variables are numbered in the order of the reduced problem; an edge leads from
 * its lower variable (lo) to its higher one (hi). Usages are fractions of limit + 1, multipliers
 * cost units per limit + 1. */
#ifndef DTP_PLANNER_SOLVER_DUAL_DUAL_DATA_H
#define DTP_PLANNER_SOLVER_DUAL_DUAL_DATA_H

#include "planner/solver/dual/dual.h"

#define SOLVER_DUAL_FORBIDDEN 1e30F

typedef struct dual_edge {
    int32_t lo, hi;
    int64_t phi_lo, phi_hi; /* in phi */
    int64_t matrix;         /* in by_lo: rows by strategies of lo; in by_hi: the transpose */
} dual_edge;

typedef struct dual_piece {
    int32_t first, last; /* rows */
    int64_t use;         /* in use, by strategy */
} dual_piece;

struct solver_dual {
    dtp_arena *arena; /* of this and all below */
    const dtp_solver_parameters *parameters;
    int32_t n_variables, n_edges, n_rows;
    int32_t most;         /* strategies of one variable */
    int32_t most_origin;  /* variables of the reduced problem */
    int32_t *origin;      /* by variable: of the reduced problem */
    int64_t *first;       /* by variable, and one more: in cost */
    int64_t *piece_first; /* by variable, and one more: in pieces */
    int64_t *adj_first;   /* by variable, and one more: in adj */
    int64_t *adj_higher;  /* by variable: where its edges to higher variables begin in adj */
    int32_t *adj;         /* edges */
    float *cost;          /* by strategy */
    dual_edge *edges;
    float *by_lo, *by_hi;
    dual_piece *pieces;
    float *use;
    double *room;         /* by row */
    int64_t *reduced_phi; /* by edge of the reduced problem: phi of its u, then of its v */
    int64_t n_phi;
    float *phi, *best_phi;
    double *multiplier, *best_multiplier; /* by row */
    double *sums;                         /* by row and one more: of the multipliers before */
    double *excess, *direction;           /* by row: expected usage beyond the room; its average */
    double norm;                          /* decaying maximum of |excess| */
    float *theta, *least;                 /* scratch, by strategy of one variable */
    double constant,
        per_usage;  /* multiplier in the reduced problem = multiplier here * per_usage */
    double unit;    /* cost scale of the temperatures */
    int64_t rounds; /* so far; -1: cool */
    double best;
};

/* One pass over the variables, up or down; with `expect`, d->excess at that temperature. */
void solver_dual_sweep(solver_dual *d, bool down, bool expect, double temperature);
/* The bound of the current multipliers. */
double solver_dual_evaluate(solver_dual *d);

#endif
