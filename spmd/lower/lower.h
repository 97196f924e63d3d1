/* Lowering: graph + sharding -> program. */
#ifndef DTP_SPMD_LOWER_LOWER_H
#define DTP_SPMD_LOWER_LOWER_H

#include "core/graph/uses.h"
#include "spmd/redistribute/redistribute.h"

typedef struct dtp_lower_options {
    bool merge_collectives; /* consecutive collectives of one kind over several mesh dims become
                               one, and so do the all-reduces of the terms of a sum */
    bool in_place;          /* in-place reuse of dying operands */
    bool plain;             /* the plain program, with no other option on: every node by itself
                               with the redistributions that it needs, nothing fused or joined.
                               What is priced node by node (additive cost) */
    bool external;          /* INPUT values and what survives the step lie outside the program's
                               memory, in buffers that the caller binds; inputs are not written. A
                               result that only renames an input stays in its buffer. The graph has
                               neither parameters nor state then */
    dtp_overlap overlap;    /* buckets, and how far collectives run beside compute
                               (spmd/lower/overlap.h); DTP_OVERLAP_CHOOSE: not at all, until a
                               prediction chooses */
    int64_t fit_bytes;      /* when overlap is to be chosen: a program that needs more before is
                               only simulated with it, and keeps the peak without; 0: none */
    double below_s;         /* ... and so may one whose step is not shorter; 0: none */
    bool unplaced;          /* no memory plan: for prices and timelines */
    bool kept;         /* the program keeps the plain one, and what dtp_program_arrange needs */
    int32_t chunk;     /* of a graph with stages: whose program is made; 0 without */
    bool keep_partial; /* what survives the step may stay partial; else it is reduced */
    const dtp_redistributor *redistributor; /* who plans redistributions; not NULL */
    const dtp_target *target;               /* what the program is for; not NULL */
    int32_t n_fetch;                        /* extra tensors that must survive the step */
    const dtp_tensor_id *fetch;
} dtp_lower_options;

/* Everything on but overlap, without a limit for what runs once, buckets of DTP_BUCKET_BYTES, no
 * fetch, for target `cpu`. */
dtp_lower_options dtp_lower_options_init(const dtp_redistributor *redistributor);

/* Lowers, runs the passes, liveness and, unless `unplaced`, the memory plan. The program borrows g
 * and the redistributor. DTP_INVALID without one, or without a target. */
dtp_status dtp_lower(const dtp_graph *g, const dtp_sharding *s, const dtp_lower_options *options,
                     dtp_program **out, dtp_err *err) DTP_MUST_CHECK;

/* Gives a program that was lowered with options->kept other buckets, another order and the memory
 * plan for it, and lets other instructions run once for all microbatches: as if it had been lowered
 * with these options, which differ in `overlap` alone. A shallow copy that was made before stays
 * the program that it was. */
dtp_status dtp_program_arrange(dtp_program *p, const dtp_lower_options *options,
                               dtp_err *err) DTP_MUST_CHECK;

/* By tensor, in `arena`: whether every phase makes its copies again (core/transform/regather.h).
 * s NULL: of any sharding with replicas. */
dtp_status dtp_forgotten_find(const dtp_graph *g, const dtp_sharding *s, const dtp_target *target,
                              dtp_arena *arena, bool **out, dtp_err *err) DTP_MUST_CHECK;

/* One redistribution of a lowering: of an operand to where its node reads it, or of an output to
 * its planned layout. */
typedef struct dtp_copy_info {
    dtp_node_id node;
    int32_t operand; /* -1: an output */
    dtp_tensor_id tensor;
    dtp_layout from, to;
    bool sends; /* some step is a collective over more than one rank */
    dtp_steps steps;
} dtp_copy_info;

typedef struct dtp_redistributions {
    dtp_arena *arena;
    int32_t n, capacity;
    dtp_copy_info *items; /* in the order of the nodes */
} dtp_redistributions;

/* The redistributions that lowering the nodes makes, before passes merge any; `r` plans their
 * steps. What happens inside an op is not among them. Free with dtp_redistributions_free, also
 * after a failure. */
dtp_status dtp_redistributions_find(const dtp_graph *g, const dtp_sharding *s,
                                    const dtp_redistributor *r, dtp_redistributions *out,
                                    dtp_err *err) DTP_MUST_CHECK;
void dtp_redistributions_free(dtp_redistributions *redistributions);

/* Appends the instructions of one node alone to an empty program of the same graph: operands
 * arrive as INPUT or RESIDENT values in in_layouts. Results that something needs leave in
 * out_layouts, the others, and all where that is NULL, as the op leaves them; `uses` NULL: all are
 * needed, nothing survives (survives NULL). What the planner prices. No passes. */
dtp_status dtp_lower_node(dtp_program *p, dtp_node_id node, const dtp_strategy *strategy,
                          const dtp_layout *in_layouts, const dtp_layout *out_layouts,
                          const dtp_uses *uses, dtp_err *err) DTP_MUST_CHECK;

/* The program of one redistribution: `g` has one tensor, an INPUT, which arrives in `from` and is
 * kept in `to` (p->tensor_value[0]; in p->values[0] it arrives). Passes and memory plan as
 * dtp_lower. The program borrows g. DTP_UNSUPPORTED as dtp_redistribute_plan. */
dtp_status dtp_lower_redistribution(const dtp_graph *g, const dtp_mesh *mesh,
                                    const dtp_layout *from, const dtp_layout *to,
                                    const dtp_lower_options *options, dtp_program **out,
                                    dtp_err *err) DTP_MUST_CHECK;

#endif
