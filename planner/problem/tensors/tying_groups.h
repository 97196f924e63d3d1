/* Where nodes stand in repeated blocks, and which instances decide together: groups (`runs`) of
 * neighbours, the first with half of the instances, the next with half of the rest, the last with
 * all that is left. What n runs can decide, n + 1 can too. */
#ifndef DTP_PLANNER_PROBLEM_TENSORS_TYING_GROUPS_H
#define DTP_PLANNER_PROBLEM_TENSORS_TYING_GROUPS_H

#include "core/plan/sharding.h"

typedef struct dtp_block_places {
    int32_t *position; /* by node: among those of its block, instance and phase, in graph order */
    int32_t *n_instances; /* by block */
} dtp_block_places;

/* Storage from `arena`. */
dtp_status dtp_block_places_find(const dtp_graph *g, dtp_arena *arena, dtp_block_places *out,
                                 dtp_err *err) DTP_MUST_CHECK;

/* The run of an instance, 0 to runs - 1. */
int32_t dtp_run_of(int32_t instance, int32_t n_instances, int32_t runs);

/* The fewest runs, up to `most`, that treat their instances alike: rows, layouts of what nodes make
 * and of the parameters and states that they read. 0: more are needed. */
dtp_status dtp_runs_needed(const dtp_graph *g, const dtp_sharding *s, int32_t most, int32_t *runs,
                           dtp_err *err) DTP_MUST_CHECK;

#endif
