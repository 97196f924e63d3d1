/* Evaluation: the forward pass to the loss, without what only training has. */
#ifndef DTP_CORE_TRANSFORM_EVALUATION_H
#define DTP_CORE_TRANSFORM_EVALUATION_H

#include "core/graph/graph_copy.h"

/* The nodes of the forward pass of g that the loss and the metrics need, on one microbatch, which
 * is the batch of the new graph (out->to, the caller's). Metrics are the outputs of numbers without
 * the batch dim (dtp_microbatch_dim). Dropout passes its operand on. There are no gradients,
 * updates and states of optimizers; all inputs stay. Tensors and nodes keep their names in the
 * model. out->tensor and out->node live as long as the graph: which tensor or node of it is one of
 * g. The value that adds up parts of microbatches is the part.
 *
 * How loss and metrics of all rows follow from batches: out->to->results has the loss first, then
 * the metrics. out->to->folds are the values that are folded over the batches as dtp_row_part says:
 * the results themselves, or what they are computed from once all rows have been
 * (dtp_graph_evaluation_end): the sums of a quotient, the mean under a square root. The outputs of
 * the graph are those and their weights. Where a result is none of that, such as a maximum of what
 * was divided by a sum over the batch, whole_batch says so and names the node; there are folds for
 * one batch then.
 *
 * With `outputs_of` (else NULL), the model that g was made from, its outputs are computed instead,
 * and there are no folds. DTP_INVALID when g has no loss. */
dtp_status dtp_graph_evaluation(const dtp_graph *g, const dtp_graph *outputs_of,
                                dtp_graph_copy *out, dtp_err *err) DTP_MUST_CHECK;

/* The graph that computes the results that are no folds of an evaluation: its parameters are folds,
 * in their types and by their names, its outputs those results. *out is NULL when there is none. */
dtp_status dtp_graph_evaluation_end(const dtp_graph *evaluation, dtp_graph **out,
                                    dtp_err *err) DTP_MUST_CHECK;

/* The fold of a tensor of an evaluation, -1: it is none. */
int32_t dtp_evaluation_fold(const dtp_graph *evaluation, dtp_tensor_id t);

#endif
