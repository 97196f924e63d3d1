/* The layouts that split a tensor evenly and the steps between them, as a table of edges.
 *
 * Which even layouts there are depends on the mesh and on what the sizes of tensor dims have in
 * common with the number of ranks, and which step leads where on nothing else; so one graph serves
 * tensors of many sizes. Partial values have one op, which is not part of the graph: its layouts
 * are written as partial sums.
 */
#ifndef DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_EVEN_H
#define DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_EVEN_H

#include "core/base/hash.h"
#include "spmd/redistribute/redistribute_graph.h"

typedef struct dtp_even_step {
    int32_t from;   /* the layout that it leaves */
    uint8_t kind;   /* dtp_step_kind */
    uint8_t set;    /* mesh dims that it runs over */
    uint8_t splits; /* mesh dims that split the tensor before it */
} dtp_even_step;

/* Read only. Everything is the arena's. */
typedef struct dtp_even_graph {
    int32_t n_mesh;
    int32_t n_layouts, cap_layouts;
    uint64_t *keys;       /* of the layouts, dtp_layout__key; the first one is replicated */
    dtp_hash_table index; /* of keys */
    int32_t *first;       /* n_layouts + 1: where the steps that lead to a layout begin */
    dtp_even_step *steps;
} dtp_even_graph;

/* What decides which splits of a tensor dim of this size are even: its greatest common divisor with
 * the number of ranks. */
int64_t dtp_even_part(int64_t ranks, int64_t size);

/* Tensor dims 0 to n_axes - 1 may be split; parts are theirs (dtp_even_part). *out is NULL when
 * there are more than max_layouts. DTP_NOMEM. */
dtp_status dtp_even_graph_create(dtp_arena *arena, const dtp_mesh *mesh, int32_t n_axes,
                                 const int64_t *parts, int32_t max_layouts, dtp_even_graph **out,
                                 dtp_err *err) DTP_MUST_CHECK;

/* Number of the layout with this key, or -1. */
int32_t dtp_even_graph_find(const dtp_even_graph *g, uint64_t key);

#endif
