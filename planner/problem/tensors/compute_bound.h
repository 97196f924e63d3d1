/* How long the kernels of a graph take at least, whatever the layouts are. */
#ifndef DTP_PLANNER_PROBLEM_TENSORS_COMPUTE_BOUND_H
#define DTP_PLANNER_PROBLEM_TENSORS_COMPUTE_BOUND_H

#include "cost_models/price.h"

/* Seconds of a step in kernels when every node takes its fastest strategy on the pricer's mesh,
 * even splits alone, without kernels that the target may fuse into others. No timeline is
 * shorter. */
dtp_status dtp_compute_bound(const dtp_graph *g, const dtp_pricer *pricer, double *seconds,
                             dtp_err *err) DTP_MUST_CHECK;

/* Whether the lowering may put the kernel of a node into another one: a function of an expression,
 * which a product that sums over nothing is too, a cast, a bias, or a sum, which a product may do.
 */
bool dtp_kernel_may_vanish(const dtp_graph *g, const dtp_target *target, const dtp_node *node);

#endif
