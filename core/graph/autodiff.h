/* Reverse-mode differentiation, graph to graph: appends backward nodes and optimizer updates.
 *
 * Names: backward nodes are "grad.<node>.<k>"; which tensor is the gradient of a parameter is told
 * by g->grads. An optimizer state of parameter p is "<optimizer>.<state>.<p>" ("adamw.m.w1"), its
 * update node "update.<p>". Model files may not use names that start with "grad." or "update.".
 */
#ifndef DTP_CORE_GRAPH_AUTODIFF_H
#define DTP_CORE_GRAPH_AUTODIFF_H

#include "core/graph/graph.h"

/* Handed to an op's vjp hook. The hook fills d_in[i] for every i with need[i] (leaving -1 means the
 * gradient is zero) by emitting nodes. */
struct dtp_vjp {
    dtp_graph *g;
    dtp_node_id node; /* the forward node; do not keep pointers into g->nodes while emitting */
    const dtp_tensor_id *in;    /* its operands */
    const dtp_tensor_id *out;   /* its outputs */
    const dtp_tensor_id *d_out; /* gradient of each output, -1 = none flows */
    bool need[DTP_MAX_OP_IN];
    dtp_tensor_id d_in[DTP_MAX_OP_IN];
    int32_t emitted; /* counts helper nodes for their names */
};

/* A backward node to emit: an op on operands, with attributes. Borrowed. */
typedef struct dtp_vjp_op {
    const char *name;
    int32_t n_in;
    const dtp_tensor_id *in;
    int32_t n_attrs;
    const dtp_attr *attrs;
} dtp_vjp_op;

/* Emits a one-output backward node; the output takes the dims of tensor `like` (-1: inferred). */
dtp_status dtp_vjp_emit(dtp_vjp *v, const dtp_vjp_op *op, dtp_tensor_id like, dtp_tensor_id *out,
                        dtp_err *err) DTP_MUST_CHECK;
/* The same for an op without attributes, with the dims of `shape` as the output's. */
dtp_status dtp_vjp_emit_shaped(dtp_vjp *v, const char *op, int32_t n_in, const dtp_tensor_id *in,
                               const dtp_ttype *shape, dtp_tensor_id *out,
                               dtp_err *err) DTP_MUST_CHECK;
/* The same as the first for an op with several outputs; outs has room for all of them. */
dtp_status dtp_vjp_emit_multi(dtp_vjp *v, const dtp_vjp_op *op, dtp_tensor_id *outs,
                              dtp_err *err) DTP_MUST_CHECK;
/* Attribute of the forward node by key; the op must have it. */
const dtp_attr *dtp_vjp_attr(const dtp_vjp *v, const char *key);
/* Sums dy over the dims that tensor `like` lacks: the adjoint of broadcasting by name. dy itself
 * when it has the dims of `like` in the same order. */
dtp_status dtp_vjp_unbroadcast(dtp_vjp *v, dtp_tensor_id dy, dtp_tensor_id like, dtp_tensor_id *out,
                               dtp_err *err) DTP_MUST_CHECK;

/* Appends to g the gradient of the scalar `loss` for every PARAM it depends on, recorded in
 * g->grads; gradients of the tensors in `also` (may be NULL) are wanted too and written to
 * also_grads (-1 when the loss does not depend on them). DTP_UNSUPPORTED naming the op when a
 * gradient path crosses an op that is not differentiable. */
dtp_status dtp_autodiff(dtp_graph *g, dtp_tensor_id loss, int32_t n_also, const dtp_tensor_id *also,
                        dtp_tensor_id *also_grads, dtp_err *err) DTP_MUST_CHECK;

/* The gradients and the updates (core/graph/optimizer.h), as g->loss and g->optimizer say; no
 * effect on a forward graph. */
dtp_status dtp_training_graph(dtp_graph *g, dtp_err *err) DTP_MUST_CHECK;

#endif
