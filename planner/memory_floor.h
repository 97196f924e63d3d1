/* What every program of a graph needs, on whatever mesh of so many ranks and in whatever layouts:
 * "does it fit?" without planning.
 *
 * A tensor takes at least its bytes / ranks on some rank, and programs hold it at least while its
 * lifetime says (planner/problem/lifetimes.h). The floor is the largest sum at one time: of a
 * training step often the end of the backward pass, with all parameters, states and gradients. */
#ifndef DTP_PLANNER_MEMORY_FLOOR_H
#define DTP_PLANNER_MEMORY_FLOOR_H

#include "core/graph/uses.h"
#include "spmd/target/target.h"

typedef struct dtp_memory_floor {
    int64_t bytes; /* per rank, and by use */
    int64_t of[DTP_N_MEMORY_USES];
} dtp_memory_floor;

dtp_status dtp_memory_floor_find(const dtp_graph *g, const dtp_target *target, int32_t ranks,
                                 dtp_memory_floor *out, dtp_err *err) DTP_MUST_CHECK;

/* "21.20 GiB of parameters, 42.39 GiB of optimizer states"; from `arena`, NULL when out of
 * memory. */
const char *dtp_memory_floor_text(const dtp_memory_floor *floor, dtp_arena *arena);

#endif
