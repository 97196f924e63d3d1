/* Ascent on the problem as it is tied: the first multipliers of the ascent over all instances
 * (untied.c). */
#ifndef DTP_PLANNER_UNTIED_ASCENT_TIED_H
#define DTP_PLANNER_UNTIED_ASCENT_TIED_H

#include "planner/untied/ascent_costs.h"

/* Nodes and edges are those of the selection problem. *off, *fits: as dtp_ascent__find_costs.
 * Without `run` the multipliers are 0. Storage from the arena. */
dtp_status dtp_ascent__tied(const dtp_tensor_problem *p, bool run, const ascent_prices *prices,
                            dtp_arena *arena, ascent *a, int64_t *off, bool *fits,
                            dtp_err *err) DTP_MUST_CHECK;

/* When a node of the problem without tying (dtp_unfolded_edge) is decided: ops at their place,
 * tensors behind their makers. */
int64_t dtp_ascent__time_of(const dtp_tensor_problem *p, int32_t node);

/* The gain of a round, as a share of the bound, below which an ascent ends. */
#define DTP_ASCENT_LEAST_GAIN 1e-5

#endif
