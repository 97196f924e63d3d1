/* Memory corrections: what programs need beyond what the problem of tensor mode counts. The problem
 * counts at most what any program needs (planner/problem/tensors/memory.c), so the program of a
 * solution may be too large. What is missing at a node of the graph is then added to the overlay
 * with the strategy that its op has in that solution, at the time of the node alone, and the
 * problem is solved again: other strategies, and all other times, keep what they are known to need.
 *
 * Corrections are further intervals. With them the problem is no relaxation any more: bounds must
 * come from before. */
#ifndef DTP_PLANNER_TENSORS_MEMORY_CORRECTIONS_H
#define DTP_PLANNER_TENSORS_MEMORY_CORRECTIONS_H

#include "planner/problem/overlay.h"
#include "planner/problem/tensors/tensor_problem.h"
#include "spmd/program/program.h"

/* Adds to the overlay what the program of an assignment needs beyond the problem wherever it needs
 * more than `limit` bytes. *n: at how many nodes; 0 when the program is too large only because its
 * buffers could not be packed tightly. */
dtp_status dtp_memory_correction_add(const dtp_tensor_problem *p, const int32_t *assignment,
                                     const dtp_program *program, int64_t limit,
                                     dtp_overlay *overlay, int32_t *n, dtp_err *err) DTP_MUST_CHECK;

#endif
