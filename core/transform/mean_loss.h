/* A mean that divides by what the data says, as a sum and a count.
 *
 * cross_entropy with class weights or an ignored label averages over the weights of the labels:
 *
 *   loss = S / C,  S = sum of the losses of the rows (reduce "sum"),  C = sum of w_y over the rows
 *
 * and so is a loss that is a `div` of two numbers of which the second depends on no parameter, such
 * as a sum over a mask. S and C of a batch are the sums of those of its parts (of a `div` that is
 * the model's word; microbatches hold it to their rules), and C needs no forward pass. So the loss
 * of a batch that is never there as a whole is known once all its parts have been: in microbatches
 * (core/transform/microbatch.h), and over the batches of a file.
 *
 * In a training graph the division is of phase UPDATE, and the gradients are those of S / R, R the
 * number of rows: about as large as those of the loss, so that 16 bits hold them. They are not
 * divided: updates read R / C in their factor, the norm takes it in, and g->grad_factor names it.
 */
#ifndef DTP_CORE_TRANSFORM_MEAN_LOSS_H
#define DTP_CORE_TRANSFORM_MEAN_LOSS_H

#include "core/graph/graph.h"

/* Tensors of the new graph, one number each; the loss keeps its name. */
typedef struct dtp_mean_loss {
    dtp_tensor_id sum, count;
} dtp_mean_loss;

/* Whether the loss of g is such a mean itself, and not something made of one. */
bool dtp_has_mean_loss(const dtp_graph *g);

/* A graph like g, which dtp_has_mean_loss, in which the loss is the quotient; it borrows g->ops
 * alone. Of a forward graph all of it is of phase FORWARD. `parts` may be NULL. DTP_UNSUPPORTED
 * naming the node when a node of a training graph reads the loss. */
dtp_status dtp_graph_with_summed_loss(const dtp_graph *g, dtp_graph **out, dtp_mean_loss *parts,
                                      dtp_err *err) DTP_MUST_CHECK;

/* Adds the count of a loss node to a graph: `of` is the node's spec there, `name` that of the new
 * node, `dtype` the count's type. */
dtp_status dtp_graph_add_loss_count(dtp_graph *g, const dtp_node_spec *of, const char *name,
                                    dtp_dtype dtype, dtp_tensor_id *count,
                                    dtp_err *err) DTP_MUST_CHECK;

#endif
