/* A bound on the step of all plans of a mesh, where communication overlaps.
 *
 * K and C are the times of the kernels and of the collectives of a program, a and b the factors by
 * which each of them is slower while both run, which they do for o seconds of the step. The queues
 * are busy for K + o (1 - 1/a) and C + o (1 - 1/b), and the step is as long as each of them, and as
 * their sum less o. Whatever o is, therefore
 *
 *   step >= K + min(1, b (1 - 1/a)) C    and    step >= C + min(1, a (1 - 1/b)) K
 *
 * so for each w in [0, 1] the step is at least w times the first sum and 1 - w times the second.
 * Where collectives have two lanes (cost_models/timeline.h), one of them has half of C, and this
 * half stands for C.
 * The least of this weighted sum over all assignments is a bound, and a concave function of w.
 *
 * It bounds programs, not additive costs: collectives cost what their bytes take at the rate of the
 * link (buckets save the rest), copies nothing; nor do kernels that the target may fuse into
 * others, launches of updates that it joins, casts that may run once for all microbatches, and
 * copies that the backward pass may have from the forward pass.
 */
#ifndef DTP_PLANNER_TENSORS_STEP_BOUND_H
#define DTP_PLANNER_TENSORS_STEP_BOUND_H

#include "planner/problem/tensors/tensor_problem.h"
#include "planner/solver/solve.h"

/* No plan that is an assignment of `p` has a step of less than *bound_ps picoseconds; 0 when none
 * is found. A limited number of solves with `options`, `brief`: of fewer, each from the solution of
 * the one before. Deterministic. */
dtp_status dtp_step_bound_find(const dtp_tensor_problem *p, const dtp_solve_options *options,
                               bool brief, int64_t *bound_ps, dtp_err *err) DTP_MUST_CHECK;

#endif
