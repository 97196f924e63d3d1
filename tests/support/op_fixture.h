/* Graphs from short texts, for tests of ops.
 *   type   "f32 a=4 b=5"          dtype, then dims with sizes
 *   attrs  "dim:dim=a int:start=1 float:factor=2 dims:over=a,b"   kind:key=value
 *   out    "a=4 b=5"              declared dims; "" is a scalar, NULL is none
 */
#ifndef DTP_TESTS_SUPPORT_OP_FIXTURE_H
#define DTP_TESTS_SUPPORT_OP_FIXTURE_H

#include "core/graph/graph.h"

/* Reads a type; new dim names are interned with the size given. */
dtp_ttype fx_type(dtp_graph *g, const char *text);
/* Adds a tensor. */
dtp_tensor_id fx_tensor(dtp_graph *g, const char *name, dtp_tensor_kind kind, const char *type);

typedef struct fx_node {
    const char *op;
    const char *attrs; /* NULL: none */
    const char *out;
} fx_node;

/* Adds node `name` on operands; returns the status, outs as in dtp_graph_add_node. */
dtp_status fx_try(dtp_graph *g, const char *name, fx_node node, int32_t n_in,
                  const dtp_tensor_id *in, dtp_tensor_id *outs, dtp_err *err);
/* The same, and the node must fit; returns its first output. */
dtp_tensor_id fx_add(dtp_graph *g, const char *name, fx_node node, int32_t n_in,
                     const dtp_tensor_id *in);

#endif
