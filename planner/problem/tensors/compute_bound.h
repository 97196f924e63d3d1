/* How long the kernels of a graph take at least, whatever the layouts are. */
#ifndef DTP_PLANNER_PROBLEM_TENSORS_COMPUTE_BOUND_H
#define DTP_PLANNER_PROBLEM_TENSORS_COMPUTE_BOUND_H

#include "cost_models/price.h"

/* Seconds of a step in kernels when every node takes its fastest strategy on the pricer's mesh,
 * even splits alone, without kernels that the target may fuse into others. No timeline is
 * shorter. *update_s (may be NULL): of it at most this is that of the update. */
dtp_status dtp_compute_bound(const dtp_graph *g, const dtp_pricer *pricer, double *seconds,
                             double *update_s, dtp_err *err) DTP_MUST_CHECK;

/* What a step with stages takes at least, whatever the borders are; compute_s: the compute bound
 * without the update. K = compute_s / M, of one microbatch, is shared by S stages, of which stage s
 * works M t_s and waits for the stages before it, sum over i < s of t_i: at least
 * K / (1 - (1 - 1/M)^S). */
double dtp_stages_bound(double compute_s, int32_t microbatches, int32_t n_stages);

/* Whether the lowering may put the kernel of a node into another one: a function of an expression,
 * which a product that sums over nothing is too, a cast, a bias, or a sum, which a product may do.
 */
bool dtp_kernel_may_vanish(const dtp_graph *g, const dtp_target *target, const dtp_node *node);

#endif
