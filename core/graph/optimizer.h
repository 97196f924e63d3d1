/* Optimizers. Each is one op of the table with DTP_OP_UPDATE and attributes: these are its
 * hyperparameters, with defaults and ranges; its operands are the parameter, the gradient, the
 * states and perhaps a factor of the gradient; its outputs the new parameter and the new states,
 * which are named by op->out_names. There is no other list of optimizers. */
#ifndef DTP_CORE_GRAPH_OPTIMIZER_H
#define DTP_CORE_GRAPH_OPTIMIZER_H

#include "core/graph/graph.h"

/* Optimizer i of a set of ops, those of its base behind its own; NULL: there are no more. */
const dtp_op_def *dtp_optimizer_at(const dtp_op_set *ops, int32_t i);
/* NULL when there is none. */
const dtp_op_def *dtp_optimizer_find(const dtp_op_set *ops, const char *name);
int32_t dtp_optimizer_hypers(const dtp_op_def *op);
/* Name of state i, "m"; NULL: there are no more. */
const char *dtp_optimizer_state_name(const dtp_op_def *op, int32_t i);

/* The optimizer with its default hyperparameters; those that are required are 0. */
dtp_optimizer_spec dtp_optimizer_spec_of(const dtp_op_def *op);
/* DTP_NOT_FOUND when the optimizer has no such hyperparameter, DTP_RANGE "1 is not in [0, 1)". */
dtp_status dtp_optimizer_spec_set(dtp_optimizer_spec *spec, const char *key, double value,
                                  dtp_err *err) DTP_MUST_CHECK;

/* DTP_INVALID for a parameter in 16 bits, most of whose updates are less than a rounding of it. */
dtp_status dtp_optimizer_check_type(dtp_dtype dtype, dtp_err *err) DTP_MUST_CHECK;

/* Appends states, update nodes and g->updates for every entry of g->grads, as g->training says;
 * clipping before them. `factor`: of all gradients, one number; -1 = none. `sum`: what
 * dtp_gradient_sum made, -1 = nothing yet. */
dtp_status dtp_optimizer_append(dtp_graph *g, dtp_tensor_id sum, dtp_tensor_id factor,
                                dtp_err *err) DTP_MUST_CHECK;

/* Whether `name` is that of a state that some optimizer keeps for a parameter of g: "adamw.m.w1".
 */
bool dtp_optimizer_is_state(const dtp_graph *g, const char *name);

#endif
