/* The decision on one node, and the prices it rests on: what the files propagate*.c share. */
#ifndef DTP_SPMD_PROPAGATE_PROPAGATE_INTERNAL_H
#define DTP_SPMD_PROPAGATE_PROPAGATE_INTERNAL_H

#include "core/graph/graph.h"
#include "core/plan/node_layouts.h"
#include "spmd/propagate/propagate.h"

/* What bringing a tensor from one layout to another takes. */
typedef struct dtp_redistribution_price {
    bool possible;
    double cost;
    int32_t collectives, locals; /* steps that communicate, steps that do not */
} dtp_redistribution_price;

/* What the redistributor refuses as input is not possible; other failures, such as DTP_NOMEM, are
 * failures. */
dtp_status dtp_propagate__price(const dtp_propagate_options *o, const dtp_mesh *mesh,
                                const dtp_ttype *type, const dtp_layout *from, const dtp_layout *to,
                                dtp_redistribution_price *out, dtp_err *err) DTP_MUST_CHECK;

/* Prices what is inside an op that runs as its decomposition, by lowering that node alone. */
typedef struct dtp_inner_pricer {
    const dtp_graph *graph;
    dtp_node_id node;
    dtp_program *program; /* NULL: not made yet; the caller destroys it */
} dtp_inner_pricer;

dtp_status dtp_propagate__inner(dtp_inner_pricer *pricer, const dtp_propagate_options *o,
                                const dtp_mesh *mesh, const dtp_strategy *strategy,
                                const dtp_node_layouts *layouts, double *cost,
                                dtp_err *err) DTP_MUST_CHECK;

/* Where an operand is. */
typedef struct dtp_operand {
    const dtp_layout *at; /* its own layout */
    int32_t n_versions;   /* copies of it in other layouts, made earlier */
    const dtp_layout *versions;
    const dtp_layout *pinned; /* the layout in which it must be read; NULL: free */
    dtp_mesh_set pinned_dims; /* ... on these mesh dims; 0: on all */
    int32_t first;            /* index of the first operand that is the same tensor */
} dtp_operand;

/* One node to be decided. */
typedef struct dtp_decision {
    const dtp_mesh *mesh;
    const dtp_op_call *call;
    const dtp_propagate_options *options;
    const dtp_operand *operands;
    const dtp_layout *const *wanted; /* by output: pinned layout or NULL */
    const dtp_mesh_set *wanted_dims; /* by output: mesh dims that its pin speaks of, 0: all */
    dtp_inner_pricer *pricer;
} dtp_decision;

/* `free` with the mesh dims of `dims` (0: all) as `pin` has them; where both split one tensor dim,
 * those of the pin are inside. */
dtp_layout dtp_propagate__complete(const dtp_layout *pin, dtp_mesh_set dims,
                                   const dtp_layout *free);

/* DTP_INVALID when no strategy leads to what is pinned, and in strict mode. */
dtp_status dtp_propagate__choose(const dtp_decision *d, dtp_strategy *strategy,
                                 dtp_node_layouts *layouts, dtp_err *err) DTP_MUST_CHECK;

/* Decisions that were made, of one propagation. */
typedef struct dtp_known_decisions dtp_known_decisions;

/* From `arena`, with all that is known later. */
dtp_status dtp_propagate__known_create(dtp_arena *arena, dtp_known_decisions **out,
                                       dtp_err *err) DTP_MUST_CHECK;
/* As dtp_propagate__choose, once for all nodes of which the same is to be decided. */
dtp_status dtp_propagate__decide(dtp_known_decisions *known, const dtp_decision *d,
                                 dtp_strategy *strategy, dtp_node_layouts *layouts,
                                 dtp_err *err) DTP_MUST_CHECK;

/* The rows worth trying on each mesh dim, in the order in which ties go. */
typedef struct dtp_row_lists {
    int32_t n[DTP_MAX_MESH_DIMS];
    int16_t rows[DTP_MAX_MESH_DIMS][DTP_MAX_RULES];
} dtp_row_lists;

void dtp_propagate__rows(const dtp_decision *d, const dtp_sharding_rules *rules,
                         dtp_row_lists *out);
/* PyTorch's (options->torch). */
void dtp_propagate__torch_rows(const dtp_decision *d, const dtp_sharding_rules *rules,
                               dtp_row_lists *out);
/* Whether PyTorch accepts the candidate: no operand is split into more parts than it has elements
 * along the dim. */
bool dtp_propagate__torch_fits(const dtp_decision *d, const dtp_node_layouts *layouts);

#endif
