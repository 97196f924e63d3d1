/* Rebuilding a graph with changes: a copy under way, node by node. Types and operator attributes go
 * through the same inference and checks as in a graph that is read from a file. */
#ifndef DTP_CORE_GRAPH_GRAPH_COPY_H
#define DTP_CORE_GRAPH_GRAPH_COPY_H

#include "core/graph/graph.h"

typedef struct dtp_graph_copy {
    const dtp_graph *from;
    dtp_graph *to;
    dtp_tensor_id *tensor; /* by id in `from`: its id in `to`, -1 = not there yet. The caller may
                              redirect later readers */
    dtp_node_id *node;     /* the same of nodes; the last copy */
} dtp_graph_copy;

/* An empty graph with the dims, blocks and optimizer of `from`, and tables in its arena. On failure
 * nothing is left. */
dtp_status dtp_graph_copy_begin(const dtp_graph *from, dtp_graph_copy *out,
                                dtp_err *err) DTP_MUST_CHECK;

/* An INPUT, PARAM or STATE. `type` NULL: as it is. */
dtp_status dtp_graph_copy_source(dtp_graph_copy *c, dtp_tensor_id t, const dtp_ttype *type,
                                 dtp_err *err) DTP_MUST_CHECK;

/* The spec of a node's copy: operands (into `in`, by c->tensor), attributes, declared dims, phase,
 * origin and block. Valid until `in` ends. */
dtp_node_spec dtp_graph_copy_spec(const dtp_graph_copy *c, dtp_node_id n,
                                  dtp_tensor_id in[DTP_MAX_OP_IN]);
/* Adds the node and maps its outputs. */
dtp_status dtp_graph_copy_node(dtp_graph_copy *c, dtp_node_id n, const dtp_node_spec *spec,
                               dtp_err *err) DTP_MUST_CHECK;

/* Marks what the tensors that are marked are made of, in evaluation or as it is; whether a node is
 * needed says its first output. */
void dtp_graph_mark_needed(const dtp_graph *g, bool evaluation, bool *needed);

/* Sources, and the nodes whose outputs are needed (by id of the first output; NULL: all), as they
 * are and in the order of ids. */
dtp_status dtp_graph_copy_nodes(dtp_graph_copy *c, const bool *needed, dtp_err *err) DTP_MUST_CHECK;

/* Adds an op of one operand, *t, and one attribute beside the node of a spec: in its phase, block
 * and instance. *t is what it gives. */
dtp_status dtp_graph_add_beside(dtp_graph *g, const dtp_node_spec *beside, const char *name,
                                const char *op, dtp_attr attr, dtp_tensor_id *t,
                                dtp_err *err) DTP_MUST_CHECK;

/* Outputs, updates, gradients and loss, by c->tensor; an output that maps to -1 is left out. */
dtp_status dtp_graph_copy_results(dtp_graph_copy *c, dtp_err *err) DTP_MUST_CHECK;

#endif
