/* What the nodes of an ascent cost. Memory enters by prices of times: usage(s) times price in the
 * cost of a node, the limit times price off the bound. */
#ifndef DTP_PLANNER_UNTIED_ASCENT_COSTS_H
#define DTP_PLANNER_UNTIED_ASCENT_COSTS_H

#include "planner/untied/ascent.h"

/* Prices as integers, of 2^-bits cost units per byte. */
typedef struct ascent_prices {
    int32_t n, bits;
    int64_t *time; /* in order */
    int64_t *sum;  /* prices before time i; one more */
} ascent_prices;

dtp_status dtp_ascent__read_prices(const dtp_problem *s, int32_t n,
                                   const dtp_memory_multiplier *prices, dtp_arena *arena,
                                   ascent_prices *x, dtp_err *err) DTP_MUST_CHECK;

/* a->cost becomes the nodes' costs with what their usage costs, in `arena`; *off: what the limit
 * takes off the bound. *fits = false: prices and bytes are too large for integers. */
dtp_status dtp_ascent__find_costs(ascent *a, const ascent_prices *x, dtp_arena *arena, int64_t *off,
                                  bool *fits, dtp_err *err) DTP_MUST_CHECK;

#endif
