/* Shadow prices of the constraints of a plan: by how much the least additive cost falls when the
 * memory limit is 1 GiB higher, or when one pin is left out. Each is another solve. */
#ifndef DTP_PLANNER_SHADOW_PRICES_H
#define DTP_PLANNER_SHADOW_PRICES_H

#include "core/plan/plan.h"
#include "cost_models/price.h"

#define DTP_PRICED_BYTES (INT64_C(1) << 30)

typedef struct dtp_shadow_prices {
    const dtp_graph *model;
    const dtp_pricer *pricer;
    int32_t n_texts; /* pins (interop/styles/pin_texts.h) */
    const char *const *texts;
    int64_t memory_bytes; /* 0 = none */
    uint64_t seed;
    bool uneven; /* as in dtp_plan_request */
} dtp_shadow_prices;

/* The memory limit first, then the pins in order; everything from `arena`. The constraints can hold
 * together. */
dtp_status dtp_shadow_prices_find(const dtp_shadow_prices *c, dtp_arena *arena, int32_t *n,
                                  dtp_shadow_price **out, dtp_err *err) DTP_MUST_CHECK;

#endif
