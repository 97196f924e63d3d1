/* Settings: attributes that say how a node runs when it is split, not what it computes
 * (`implementation` in its spec). A plan may choose them: attention's "context" is one. */
#ifndef DTP_CORE_GRAPH_IMPLEMENTATION_H
#define DTP_CORE_GRAPH_IMPLEMENTATION_H

#include "core/graph/graph.h"

typedef struct dtp_implementation {
    dtp_node_id node;
    const char *key; /* the spec's key, static storage */
    int64_t value;   /* index of a choice */
} dtp_implementation;

/* The op's attribute of this name that a plan may set, NULL when it has none. */
const dtp_attr_spec *dtp_implementation_spec(const dtp_op_def *op, const char *key);

/* A graph like g except for the implementations, with nodes and tensors of its own; it borrows all
 * else from g, which must outlive it.
 * DTP_INVALID when a node has no such implementation or choice, or its op does not take it. */
dtp_status dtp_graph_with_implementations(const dtp_graph *g, int32_t n,
                                          const dtp_implementation *implementations,
                                          dtp_graph **out, dtp_err *err) DTP_MUST_CHECK;

/* The same in place, in a graph that owns its nodes. */
dtp_status dtp_implementations_apply(dtp_graph *g, int32_t n,
                                     const dtp_implementation *implementations,
                                     dtp_err *err) DTP_MUST_CHECK;

#endif
