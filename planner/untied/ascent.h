/* Dual ascent on a pairwise problem whose matrices many edges share.
 *
 * For any numbers phi, one per edge, end and strategy there,
 *
 *     sum over nodes of min_s (cost(s) + sum of phi(e, s) over its edges e)
 *   + sum over edges of min_{s,t} (cost(s, t) - phi(e, s) - phi(e, t))
 *
 * is at most the cost of every assignment. Good phi are found by walking over the nodes in an order
 * and back: a node takes the minima of its edges over, and hands what is above its own minimum on
 * to the edges that lie ahead (V. Kolmogorov, A new look at reweighted message passing, 2015). This
 * is done in single precision; the sum at the end is made of integers (ascent_exact.h).
 */
#ifndef DTP_PLANNER_UNTIED_ASCENT_H
#define DTP_PLANNER_UNTIED_ASCENT_H

#include "planner/problem/tensors/tensor_problem.h"

typedef struct ascent_arc {
    int32_t edge; /* of the ascent */
    bool ahead;   /* the other end comes later */
} ascent_arc;

/* A graph of nodes with costs and edges with matrices. The caller fills the fields up to `tied`;
 * storage of the rest from an arena. */
typedef struct ascent {
    const dtp_tensor_problem *p;
    int32_t n, n_edges;
    const int32_t *assignment;      /* by node; -1: no such node */
    const dtp_unfolded_edge *edges; /* ends are nodes; .edge: of the selection problem */
    const int64_t *const *cost;     /* by node: of its strategies */
    bool tied;                      /* matrices as they are; else divided by their counts */
    int32_t *order, *rank;          /* nodes in the order of the walk; the inverse */
    int32_t *first_arc;             /* by node, and one more */
    ascent_arc *arcs;
    int64_t *first_phi; /* by edge, and one more: those of end a, then those of b */
    float *phi;
    float *matrix;        /* by entry of the selection problem, of one instance or of all */
    float *theta, *least; /* scratch, by strategy */
} ascent;

/* When a node is decided, for the order of the walk. */
typedef struct ascent_place {
    int64_t at;
    int32_t node;
} ascent_place;

/* Sorts `places` (one per node), links the nodes, makes the matrices; phi = 0. */
dtp_status dtp_ascent__prepare(ascent *a, ascent_place *places, dtp_arena *arena,
                               dtp_err *err) DTP_MUST_CHECK;
/* Walks there and back; ends early when a round lifts the bound by less than this share. */
void dtp_ascent__run(const ascent *a, int32_t rounds, double least_gain);
/* Strategies of a node that there is. */
int32_t dtp_ascent__strategies(const ascent *a, int32_t node);

#endif
