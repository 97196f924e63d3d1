/* Reverse-mode differentiation, graph to graph: appends backward nodes and optimizer updates.
 *
 * Names: backward nodes are "grad.<node>.<k>"; g->grads gives the gradient tensor of each
 * parameter. An optimizer state of parameter p is "<optimizer>.<state>.<p>" ("adamw.m.w1"), its
 * update node "update.<p>". Model files may not use names that start with "grad." or "update.".
 * What vjp hooks see and call is public: dtp_vjp in dtp/op.h.
 */
#ifndef DTP_CORE_GRAPH_AUTODIFF_H
#define DTP_CORE_GRAPH_AUTODIFF_H

#include "core/graph/graph.h"

/* Appends to g the gradient of the scalar `loss` for every PARAM it depends on that is not frozen,
 * recorded in g->grads; gradients of the tensors in `also` (may be NULL) are wanted too and written
 * to also_grads (-1 when the loss does not depend on them). DTP_UNSUPPORTED naming the op when a
 * gradient path crosses an op that is not differentiable. */
dtp_status dtp_autodiff(dtp_graph *g, dtp_tensor_id loss, int32_t n_also, const dtp_tensor_id *also,
                        dtp_tensor_id *also_grads, dtp_err *err) DTP_MUST_CHECK;

/* The gradients and the updates (core/graph/optimizer.h), as g->loss and g->optimizer say; no
 * effect on a forward graph. DTP_INVALID when the loss depends on no parameter that is trained. */
dtp_status dtp_training_graph(dtp_graph *g, dtp_err *err) DTP_MUST_CHECK;

#endif
