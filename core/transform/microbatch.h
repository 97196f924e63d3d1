/* Gradient accumulation: a step runs forward and backward passes on k equal parts of the batch, one
 * after the other, adds up the gradients, and then updates the parameters once.
 *
 * It is data parallelism in time: microbatch j is what rank j of a mesh dim of k ranks would hold
 * if the batch dim were split over it. The sharding rules of the ops (core/graph/op.h) say for
 * every tensor whether it is cut (an activation), the same every time (a parameter) or a part of a
 * sum (the loss, a gradient), and refuse a model in which a part of the batch depends on another
 * part. A result that is a part of a sum and is needed whole is added up in a STATE tensor
 * "accum.<name>" by an `accumulate` node, whose output takes the name; the part itself is
 * "micro.<name>". For a gradient <name> is the parameter's.
 *
 * In the new graph tensors have the sizes of one microbatch; g->microbatches and g->micro_dims say
 * what was cut. Kernels see sizes and places in the whole batch (executor/run/runner.h), so that
 * means are over the whole batch and random ops draw what they would draw without microbatches.
 * Microbatch j is rows j*b/k .. (j+1)*b/k - 1 of the batch of b rows, whatever the layouts are.
 * A loss that divides by the weights of the labels is a sum and a count first
 * (core/transform/mean_loss.h).
 */
#ifndef DTP_CORE_TRANSFORM_MICROBATCH_H
#define DTP_CORE_TRANSFORM_MICROBATCH_H

#include "core/graph/graph.h"

enum { DTP_MAX_MICROBATCHES = 4096 };

/* The first dim of the first input that has one; -1 = none. */
dtp_dim_id dtp_microbatch_dim(const dtp_graph *g);

/* Reads "4" or "batch=4"; *dim is -1 for the first form. DTP_INVALID. */
dtp_status dtp_microbatches_parse(const char *text, const dtp_graph *g, dtp_dim_id *dim,
                                  int32_t *count, dtp_err *err) DTP_MUST_CHECK;

/* The graph of `count` > 1 microbatches along `dim` (-1: dtp_microbatch_dim); it borrows g->ops
 * alone. g is a training graph with the sizes of the whole batch. Outputs of the model that have
 * one row per row of the batch are left out, others are added up. DTP_INVALID when count does not
 * divide a size or is above DTP_MAX_MICROBATCHES, DTP_UNSUPPORTED naming the node that needs the
 * whole batch. */
dtp_status dtp_graph_microbatched(const dtp_graph *g, dtp_dim_id dim, int32_t count,
                                  dtp_graph **out, dtp_err *err) DTP_MUST_CHECK;

/* Counts that dtp_graph_microbatched may accept: divisors of the default dim's size up to `max`,
 * ascending, from 1; only 1 for a graph without a loss. From `arena`. */
dtp_status dtp_microbatch_variants(const dtp_graph *g, int32_t max, dtp_arena *arena, int32_t *n,
                                   int32_t **out, dtp_err *err) DTP_MUST_CHECK;

/* The name that a node has in the model: that of "micro.loss" is "loss". A node that adds up keeps
 * its own. Borrowed from the graph. */
const char *dtp_microbatch_name(const dtp_graph *g, dtp_node_id n);
/* The node that has this name in the model ("loss": the one that makes the parts of the loss), else
 * the one that has it in g; -1 = none. */
dtp_node_id dtp_microbatch_node(const dtp_graph *g, const char *name);

/* What one microbatch has of a tensor that adds up parts; of others the tensor itself. */
dtp_tensor_id dtp_microbatch_part(const dtp_graph *g, dtp_tensor_id t);

/* Whether every microbatch changes the state or the buffer that the tensor replaces. */
bool dtp_microbatch_changes(const dtp_graph *g, dtp_tensor_id t);
/* Whether microbatches have statistics of their own, which a buffer follows: the whole batch
 * computes something else. */
bool dtp_microbatch_has_statistics(const dtp_graph *g);

/* Whether a dim is cut. */
bool dtp_is_micro_dim(const dtp_graph *g, dtp_dim_id d);
/* A type of the graph with the sizes of the whole batch. */
dtp_ttype dtp_microbatch_whole(const dtp_graph *g, const dtp_ttype *type);

#endif
