/* The decision a planner makes, in memory: a layout for every tensor and, for every node, which
 * sharding rule it uses on every mesh dim. Lowering needs nothing else. */
#ifndef DTP_CORE_PLAN_SHARDING_H
#define DTP_CORE_PLAN_SHARDING_H

#include "core/graph/graph_copy.h"
#include "core/layout/layout_rules.h"

/* Per node: index of the row of dtp_sharding_rules_of(call, linear = true) on each mesh dim; 0 =
 * replicated. */
typedef struct dtp_strategy {
    int16_t row[DTP_MAX_MESH_DIMS];
} dtp_strategy;

static inline bool dtp_strategy_is_replicated(const dtp_strategy *s, int32_t n_mesh)
{
    int32_t any = 0;
    for (int32_t m = 0; m < n_mesh; m++) {
        any |= s->row[m];
    }
    return any == 0;
}

typedef struct dtp_sharding {
    dtp_mesh mesh;
    int32_t n_tensors, n_nodes;
    dtp_layout *layouts;      /* by tensor id */
    dtp_strategy *strategies; /* by node id */
    /* By phase, by tensor id: the layout from which the nodes of the phase read the tensor. Where
     * it is not the tensor's own, one copy is made in the phase and dropped at its end. All NULL:
     * nodes read tensors as they are kept, and copies of values outlive the phase. Not NULL: rows
     * that split one dim over several mesh dims do so in mesh order. */
    dtp_layout *replicas[3];
    /* By tensor id: whether the backward pass makes copies in other layouts again; NULL: as the
     * graph says (dtp_copies). */
    const bool *regather;
} dtp_sharding;

/* How far the collectives of a program run beside compute (spmd/lower/overlap.h), and which of them
 * run as one. */
typedef struct dtp_overlap {
    int32_t depth; /* collectives that a START moves ahead of and a WAIT stays behind; 0: every
                             collective ends where it starts */
    int64_t memory_bytes; /* bytes that may be needed at a time; what is needed with depth 0 always
                             may. 0: no limit */
    int64_t bucket_bytes; /* a bucket of collectives has at most so many; 0: there are none */
    int64_t once_bytes;   /* casts and gathers of parameters run once for all microbatches as far as
                             so many bytes, or those without, are needed at a time; 0: they run for
                             each */
} dtp_overlap;

enum {
    DTP_OVERLAP_MAX_DEPTH = 64,
    DTP_OVERLAP_CHOOSE = -1, /* cost_models/predict.h */
    DTP_MIN_BUCKET_BYTES = 64 << 10,
    DTP_BUCKET_BYTES = 4 << 20, /* unless another size is chosen */
    DTP_MAX_BUCKET_BYTES = 32 << 20
};

/* True when readers take tensors from replicas. */
static inline bool dtp_sharding_has_replicas(const dtp_sharding *s)
{
    return s->replicas[0] != NULL;
}

/* Replicas that are the tensors themselves, in `arena`; s has its layouts. */
dtp_status dtp_sharding_add_replicas(dtp_sharding *s, dtp_arena *arena,
                                     dtp_err *err) DTP_MUST_CHECK;

/* Follows layout rules through a graph: every tensor's layout (rules_layout), and for every node on
 * every mesh dim the row of the dim that the rules split there. A node whose op needs a split dim
 * whole (DTP_ROLE_WHOLE) is an error that names node, dim and mesh dim, never a hidden gather.
 * In a graph of microbatches gradients and accumulators stay partial (dtp_microbatch_defer).
 * Storage comes from `arena`. DTP_INVALID as dtp_layout_rules_layout. */
dtp_status dtp_sharding_from_rules(const dtp_graph *g, const dtp_mesh *mesh,
                                   const dtp_layout_rules *rules, bool uneven, dtp_arena *arena,
                                   dtp_sharding *out, dtp_err *err) DTP_MUST_CHECK;

/* The row that rules give one node on one mesh dim (see above). */
dtp_status dtp_strategy_from_rules(const dtp_graph *g, dtp_node_id node, const dtp_mesh *mesh,
                                   const dtp_layout_rules *rules, dtp_strategy *out,
                                   dtp_err *err) DTP_MUST_CHECK;

/* The sharding of a copy of a graph (c->to) that leaves tensors and nodes out: what remains keeps
 * its layout, rows and replicas; of several tensors that became one the first decides. What is new
 * there is replicated. Storage comes from `arena`. */
dtp_status dtp_sharding_of_copy(const dtp_sharding *from, const dtp_graph_copy *c, dtp_arena *arena,
                                dtp_sharding *out, dtp_err *err) DTP_MUST_CHECK;

/* Independent check: layouts legal, rows in range and their placements consistent with the dims. */
dtp_status dtp_sharding_check(const dtp_graph *g, const dtp_sharding *s,
                              dtp_err *err) DTP_MUST_CHECK;

#endif
