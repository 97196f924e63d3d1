/* What programs need beyond what the problem of tensor mode says. The problem counts at most what
 * any program needs (planner/problem/tensors/memory.c), so the program of a solution may be too
 * large. What is missing at a node of the graph is then counted from then on with the option that
 * its op has in that solution, at the time of the node alone, and the problem is solved again:
 * other options, and all other times, keep what they are known to need.
 *
 * Reserves are further intervals at the end of the selection problem. With them the problem is no
 * relaxation any more: bounds must come from before. */
#ifndef DTP_PLANNER_TENSORS_MEMORY_CORRECTIONS_H
#define DTP_PLANNER_TENSORS_MEMORY_CORRECTIONS_H

#include "planner/problem/tensors/tensor_problem.h"
#include "spmd/lower/lower.h"

/* The problem's intervals before any reserve. */
typedef struct dtp_memory_correction_mark {
    int32_t n_extra;
    int64_t n_extra_usage;
} dtp_memory_correction_mark;

dtp_memory_correction_mark dtp_memory_correction_begin(const dtp_tensor_problem *p);
/* Takes all corrections back. */
void dtp_memory_correction_end(dtp_tensor_problem *p, dtp_memory_correction_mark mark);

/* Counts what the program of a selection (by assignment; `sharding` is what it means) needs beyond
 * the problem wherever it needs more than `limit` bytes. *n: at how many nodes; 0 when the program
 * is too large only because its buffers could not be packed tightly. */
dtp_status dtp_memory_correction_add(dtp_tensor_problem *p, const int32_t *selection,
                                     const dtp_sharding *sharding, const dtp_lower_options *options,
                                     int64_t limit, int32_t *n, dtp_err *err) DTP_MUST_CHECK;

#endif
