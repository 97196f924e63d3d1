/* When the tensors of a graph are there in its programs at least, whatever the layouts are: what
 * both kinds of selection problems count as memory, so that no program needs less than they say.
 *
 * Node n has three times: 3n, its operands are there as their tensors are kept (redistributions
 * begin); 3n + 1, its kernel runs; 3n + 2, its results are there as they are kept.
 *
 * What may be written over something that dies does not count beside it, and neither do what only
 * renames a buffer (relabel) while that lives, sums over microbatches, which lie in accumulators,
 * and values that replace their targets. Where the target fuses kernels, a tensor counts from the
 * last place where its kernel may run to the first one where its last reader may, and what is
 * inside a fused kernel not at all.
 */
#ifndef DTP_PLANNER_PROBLEM_LIFETIMES_H
#define DTP_PLANNER_PROBLEM_LIFETIMES_H

#include "core/graph/uses.h"
#include "spmd/lower/passes/kernel_places.h"

/* Times of a node of the graph; a kernel runs at the second one. */
enum { DTP_NODE_TICKS = 3 };

typedef struct dtp_lifetimes {
    const dtp_graph *graph;
    dtp_readers readers;
    dtp_kernel_places places;
    int64_t end; /* of all times */
    dtp_uses uses;
    bool *aliased;   /* by tensor: renames a buffer that lives on */
    int64_t *begin;  /* by tensor: when it has bytes of its own, not in a buffer of others, and */
    int64_t *end_of; /* when it is last read; begin >= end_of: never for sure */
    uint32_t *dying; /* by node: bit i, operand i is dead after it */
} dtp_lifetimes;

/* Borrows g; storage from `arena`. */
dtp_status dtp_lifetimes_find(const dtp_graph *g, const dtp_target *target, dtp_arena *arena,
                              dtp_lifetimes *out, dtp_err *err) DTP_MUST_CHECK;

/* Of one stage of a graph that has stages: nodes of others read nothing. What it receives begins
 * when it is made, what it does not hold never does. Borrows from `all`, of the same graph. */
dtp_status dtp_lifetimes_in_chunk(const dtp_lifetimes *all, int32_t chunk, dtp_arena *arena,
                                  dtp_lifetimes *out, dtp_err *err) DTP_MUST_CHECK;

/* A copy that nodes of a phase read. */
typedef struct dtp_copy_life {
    int64_t begin, end; /* when it is there; begin >= end: never for sure */
    int64_t made;       /* before that it is read from the tensor itself */
} dtp_copy_life;
/* The last phase that reads a tensor which ends then, where a copy may take its place; -1: none. */
int dtp_lifetimes_last_phase(const dtp_lifetimes *l, dtp_tensor_id t);
dtp_copy_life dtp_lifetimes_of_copy(const dtp_lifetimes *l, dtp_tensor_id t, int phase);

#endif
