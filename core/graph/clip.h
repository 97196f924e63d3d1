/* Numbers of all gradients of a graph, and clipping by their norm, as nodes of phase UPDATE
 * (docs/decisions/0054-schedules-and-clipping.md):
 *
 *   norm   = sqrt(sum of g^2 over all gradients) * given
 *   factor = given * min(1, clip_norm / (norm + 1e-6))      Pascanu et al. 2013, PyTorch's constant
 *
 * where `given` is the factor that undoes the scale of the loss, 1 without one.
 */
#ifndef DTP_CORE_GRAPH_CLIP_H
#define DTP_CORE_GRAPH_CLIP_H

#include "core/graph/graph.h"

#define DTP_GRADIENT_NORM "grad_norm"

/* The sum over all gradients; over their squares when the graph clips them. It is finite only if
 * all gradients are. Nodes of a parameter stand in the block in which its gradient is made; those
 * that make a number of each gradient come first. -1 when there are no gradients. */
dtp_status dtp_gradient_sum(dtp_graph *g, dtp_tensor_id *out, dtp_err *err) DTP_MUST_CHECK;

/* Clips: `sum` is that of the squares, *factor `given` (-1: none) and then that of the updates.
 * Sets g->norm. When `given` is 0, so is the factor, whatever the gradients are. */
dtp_status dtp_gradient_clip(dtp_graph *g, dtp_tensor_id sum, dtp_tensor_id *factor,
                             dtp_err *err) DTP_MUST_CHECK;

/* *factor becomes given * *factor, 0 where `given` is 0 whatever *factor is. Nodes are named
 * "<prefix>.update" and the like. */
dtp_status dtp_gradient_factor(dtp_graph *g, const char *prefix, dtp_tensor_id given,
                               dtp_tensor_id *factor, dtp_err *err) DTP_MUST_CHECK;

#endif
