/* A lower bound of what is left to pay between a layout and the target on the generic machine
 * (dtp_step_generic_price).
 *
 * A price is a sum of launches, hops, received bytes and copied bytes, and each is bounded apart:
 *
 * Launches. Every mesh dim that is partial or misplaced takes part in at least one collective; one
 *   collective takes splits off one tensor dim only, and one that reduces takes none off; partial
 *   values that become replicated need two launches. A mesh dim is misplaced when its split must be
 *   taken off: the splits of a tensor dim are a stack, of which a common prefix with the target's
 *   stack stays.
 * Hops. log2 of the sizes of these mesh dims.
 * Received bytes. A rank that holds shard A and wants shard T lacks T \ A, and a step that receives
 *   b bytes shortens this by at most b. With partial values over p ranks T \ A counts as T and
 *   (p - 2) L is added: L = the least size that a shard can have on the way, because every mesh dim
 *   that may be split is; a reduction over n of the p ranks that leaves L' >= L (p / n) receives at
 *   least (n - 1) L'. When no tensor dim divides evenly over any mesh dim, all steps but
 *   all-reduces pack what they send, which is added to the time of a byte once nothing is partial.
 * Copied bytes. A mesh dim that is still to be sliced costs a copy of L or more, read and written;
 *   so does one that becomes partial; averages over q ranks are scaled in a shard of at least q L.
 *
 * Each part falls by no more than a step pays for it (the bound is consistent), so that the first
 * path that A* finds is a cheapest one.
 */
#ifndef DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_BOUND_H
#define DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_BOUND_H

#include "spmd/redistribute/redistribute_graph.h"
#include "spmd/redistribute/redistribute_internal.h"

typedef struct dtp_redistribute_bound {
    const dtp_redistribution *r;
    dtp_mesh_set real; /* mesh dims of more than one rank */
    dtp_mesh_set far;  /* mesh dims on which the rank whose shards are compared is the second */
    double log_size[DTP_MAX_MESH_DIMS];
    dtp_stacks wanted;
    double byte_s;      /* least time of a received byte when nothing is left to reduce */
    double whole_bytes; /* of the tensor */
    double elem_bytes, want_bytes;
    int64_t want_start[DTP_MAX_RANK], want_stop[DTP_MAX_RANK]; /* T */
} dtp_redistribute_bound;

/* Borrows r. */
void dtp_redistribute__bound_init(dtp_redistribute_bound *b, const dtp_redistribution *r);

/* In seconds, from the layout of this key (dtp_layout__key). */
double dtp_redistribute__bound(const dtp_redistribute_bound *b, uint64_t key);

#endif
