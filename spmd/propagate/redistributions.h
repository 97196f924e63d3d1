/* The redistributions that a sharding means: of operands to where their node reads them, of outputs
 * to their planned layouts. What happens inside an op is not among them, and passes that merge
 * collectives come later. */
#ifndef DTP_SPMD_PROPAGATE_REDISTRIBUTIONS_H
#define DTP_SPMD_PROPAGATE_REDISTRIBUTIONS_H

#include "spmd/redistribute/redistribute.h"

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

/* `r`: who plans the steps. Free with dtp_redistributions_free, also after a
 * failure. A tensor that an earlier node brought to a layout is not moved there again. */
dtp_status dtp_redistributions_find(const dtp_graph *g, const dtp_sharding *s,
                                    const dtp_redistributor *r, dtp_redistributions *out,
                                    dtp_err *err) DTP_MUST_CHECK;
void dtp_redistributions_free(dtp_redistributions *redistributions);

#endif
