/* Evaluation: the forward pass to the loss, without what only training has. */
#ifndef DTP_CORE_TRANSFORM_EVALUATION_H
#define DTP_CORE_TRANSFORM_EVALUATION_H

#include "core/graph/graph_copy.h"

/* The nodes of the forward pass of g that the loss and the metrics need, on one microbatch, which
 * is the batch of the new graph (out->to, the caller's). Metrics are the outputs of numbers without
 * the batch dim (dtp_microbatch_dim). Dropout passes its operand on. There are no gradients,
 * updates and states of optimizers; all inputs stay. Tensors and nodes keep their names in the
 * model. Where the loss is a mean over labels (core/transform/mean_loss.h), out->to->weight is its
 * count. out->tensor and out->node live as long as the graph: which tensor or node of it is one of
 * g. The value that adds up parts of microbatches is the part. With `outputs_of` (else NULL), the
 * model that g was made from, its outputs are computed instead. DTP_INVALID when g has no loss. */
dtp_status dtp_graph_evaluation(const dtp_graph *g, const dtp_graph *outputs_of,
                                dtp_graph_copy *out, dtp_err *err) DTP_MUST_CHECK;

#endif
