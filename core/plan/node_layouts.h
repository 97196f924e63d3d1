/* What a strategy (one rule row per mesh dim) means for one node: the layout of every operand and
 * output. The one place where rows of several mesh dims are put together; used by the lowering and
 * by the propagation of layouts. */
#ifndef DTP_CORE_PLAN_NODE_LAYOUTS_H
#define DTP_CORE_PLAN_NODE_LAYOUTS_H

#include "core/graph/op.h"
#include "core/plan/sharding.h"

typedef struct dtp_node_layouts {
    dtp_layout in[DTP_MAX_OP_IN], out[DTP_MAX_OP_OUT]; /* those of the call are set */
    dtp_dim_id dim[DTP_MAX_MESH_DIMS]; /* the dim that is split over each mesh dim, -1 = none */
    int8_t order[DTP_MAX_MESH_DIMS];   /* its depth among the splits of that dim */
    dtp_mesh_set internal; /* mesh dims with an INTERNAL row; not empty: it runs as decomposed */
    dtp_mesh_set windows;  /* mesh dims with a row by which operands are read by windows */
    bool linear;           /* some mesh dim passes partial sums through */
} dtp_node_layouts;

/* `rules`: all rows of the call (dtp_sharding_rules_of with linear = true); NULL: found here when
 * needed. `in`: the layouts in which the operands arrive, `out` (NULL: not known) in which the
 * outputs should leave: they decide the order of the splits when several mesh dims split one dim
 * (that of the first tensor which splits the dim over exactly these mesh dims, else mesh order).
 * A pass-through row is one of averages when its operands arrive as averages.
 * DTP_INVALID when a row does not exist or a renaming row does not divide both sides. */
dtp_status dtp_node_layouts_find(const dtp_mesh *mesh, const dtp_op_call *call,
                                 const dtp_sharding_rules *rules, const dtp_strategy *strategy,
                                 const dtp_layout *in, const dtp_layout *out,
                                 dtp_node_layouts *result, dtp_err *err) DTP_MUST_CHECK;

#endif
