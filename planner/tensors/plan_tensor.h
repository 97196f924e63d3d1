/* Planning in tensor mode: a layout for every tensor and a row of its sharding rules for every
 * node, by the selection problem of planner/problem/tensors/tensor_problem.h.
 *
 * The problem is solved with a bound; every solution is lowered and its simulated makespan
 * predicted. The problem counts less memory than a program needs. When a program exceeds the limit,
 * the limit is lowered or memory corrections are added (memory_corrections.h), and the problem is
 * solved again. Status and bound are those of the first solve, which hold for every plan within the
 * limit. Where the machine overlaps communication with compute, it is solved again under weights of
 * both, and solutions are changed by simulation (step_search.c). Solutions of rules mode
 * and baselines are candidates too, and the search starts from the best of them.
 *
 * The certificate speaks of the additive cost in picoseconds. Its bound holds for plans in
 * which the instances of a repeated block are tied (solver "selection, tied"); beside it
 * stands a bound without tying (planner/tensors/tying_bound.h). Where the two are more than 1 %
 * apart, the problem is solved again from the best plan on with each half of the instances deciding
 * for itself ("selection, tied in 2 groups"), with request.untie instead with every instance doing
 * so ("selection"); the certificate is that of the last.
 */
#ifndef DTP_PLANNER_TENSORS_PLAN_TENSOR_H
#define DTP_PLANNER_TENSORS_PLAN_TENSOR_H

#include "planner/plan_search.h"

/* The plan is never predicted worse than a baseline or a plan in rules mode that is legal, within
 * the memory limit and in keeping with the pins. Limits and pins that cannot hold together are a
 * result that names the smallest set of them; a text that is no pin, or one that cannot be kept
 * even alone, is DTP_INVALID. Free with dtp_plan_result_free, unless it failed. */
dtp_status dtp_plan_tensor(const dtp_graph *g, const dtp_machine *machine,
                           const dtp_plan_request *request, dtp_plan_result *out,
                           dtp_err *err) DTP_MUST_CHECK;

/* The solver of a certificate: in its problem instances of a block decide for themselves, together,
 * in two groups. */
extern const char DTP_SOLVER_UNTIED[], DTP_SOLVER_TIED[], DTP_SOLVER_TWO_GROUPS[];

#endif
