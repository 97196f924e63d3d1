/* The multipliers of an ascent (ascent.h) as whole numbers, and sums of them that hold in exact
 * arithmetic: what is in double precision here is a whole number of at most 2^53. */
#ifndef DTP_PLANNER_UNTIED_ASCENT_EXACT_H
#define DTP_PLANNER_UNTIED_ASCENT_EXACT_H

#include "planner/untied/ascent.h"

typedef struct ascent_exact {
    const ascent *a;
    int64_t **theta;      /* by node, by strategy: cost and multipliers */
    int64_t *least_node;  /* by node: the least of these */
    double *least_edge;   /* by edge: of cost(s, t) - phi(s) - phi(t) */
    int64_t bound;        /* the sum of all these minima */
    bool ok;              /* false: numbers are out of range, nothing is proven */
    double *matrix;       /* of the edge of the selection problem that was last asked for */
    int32_t of;           /* that edge; -1: none */
    double *row, *column; /* scratch, by strategy */
} ascent_exact;

/* Rounds the multipliers, sums up. Borrows a; storage from the arena. */
dtp_status dtp_ascent__exact(const ascent *a, dtp_arena *arena, ascent_exact *x,
                             dtp_err *err) DTP_MUST_CHECK;

/* out[s] = min_t (cost(s, t) - phi(s) - phi(t) + extra[t]), s being strategies at end a of edge e
 * (or end b), t those at the other one. extra: whole numbers from 0 to 2^50, or NULL. At least
 * DTP_ASCENT_NONE where nothing goes with s. */
void dtp_ascent__exact_minima(ascent_exact *x, int32_t e, bool end_a, const double *extra,
                              double *out);
#define DTP_ASCENT_NONE 1e29

#endif
