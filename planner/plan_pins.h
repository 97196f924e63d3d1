/* A plan from pins: layouts follow by propagation (spmd/propagate/propagate.h), nothing is
 * searched. */
#ifndef DTP_PLANNER_PLAN_PINS_H
#define DTP_PLANNER_PLAN_PINS_H

#include "core/plan/plan.h"
#include "cost_models/machine/machine.h"
#include "planner/plan_search.h"
#include "spmd/propagate/propagate.h"

typedef struct dtp_pins_request {
    const dtp_mesh *mesh;
    const dtp_target *target; /* what the program is for; NULL: `cpu` */
    int32_t n_pins;
    const dtp_pin *pins;
    int32_t n_implementations; /* in the order of the nodes */
    const dtp_implementation *implementations;
    int32_t n_texts;
    const char *const *texts; /* what the pins came from, for the plan's list */
    bool strict;              /* see dtp_propagate_options */
    bool alone;               /* no baselines */
    bool torch;               /* decisions and redistributions as PyTorch DTensor's */
    dtp_plan_objective objective;
    int64_t memory_limit_bytes; /* per rank; 0 = none */
    const char *rules_file;     /* baselines; NULL = none */
    const dtp_graph_variant
        *variant; /* precision, recomputation, microbatches; NULL = none. Pins and implementations
                                         refer to the changed graph */
} dtp_pins_request;

/* A plan in tensor mode. Its certificate is feasible with bound 0: nothing is proved. A plan that
 * does not fit the memory limit is infeasible, a result and not an error. machine NULL: nothing is
 * priced; the plan has no times and no baselines, and its objective is memory. */
dtp_status dtp_plan_pins(const dtp_graph *g, const dtp_machine *machine,
                         const dtp_pins_request *request, dtp_plan_result *out,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
