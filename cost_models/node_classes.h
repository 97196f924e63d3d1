/* Classes of nodes that cost the same: op, attributes and operand types are equal, and so is which
 * operands are one tensor, how often they run in a step, what their outputs are there for, and
 * whether their reductions wait for the last microbatch. Random streams do not matter. */
#ifndef DTP_COST_MODELS_NODE_CLASSES_H
#define DTP_COST_MODELS_NODE_CLASSES_H

#include "core/graph/uses.h"
#include "core/plan/sharding_microbatch.h"

typedef struct dtp_node_classes {
    int32_t n;
    dtp_node_id *example; /* by class: the first of its nodes */
    int64_t *count;       /* by class: how many nodes */
    int32_t *of_node;     /* by node id */
} dtp_node_classes;

/* Storage from `arena`; classes in the order of their examples. */
dtp_status dtp_node_classes_find(const dtp_graph *g, dtp_arena *arena, dtp_node_classes *out,
                                 dtp_err *err) DTP_MUST_CHECK;

/* Bit i: output i of a node replaces another tensor, but cannot be written over it: a number that
 * is no result of an optimizer. It is copied at the end of the step. */
uint32_t dtp_node_copies(const dtp_graph *g, const dtp_uses *uses, dtp_node_id node);

/* Output i of a node, whose reductions may wait for the last microbatch. */
dtp_deferral dtp_node_defers(const dtp_graph *g, dtp_node_id node, int32_t i);

#endif
