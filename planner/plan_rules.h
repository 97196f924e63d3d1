/* Planning in rules mode: from a graph and a machine to a plan with certificate and baselines. */
#ifndef DTP_PLANNER_PLAN_RULES_H
#define DTP_PLANNER_PLAN_RULES_H

#include "core/ctx.h"
#include "core/plan.h"
#include "cost_models/machine.h"

typedef struct dtp_plan_request {
    const dtp_mesh *mesh; /* NULL: search over all factorisations of `devices` into up to 3 dims */
    int32_t devices;
    dtp_plan_objective objective;
    int64_t memory_limit_bytes;       /* per rank; 0 = none */
    const char *pins;                 /* rules that must hold, "batch:x"; NULL = none */
    const dtp_graph_choices *choices; /* recomputation, microbatches; NULL = none */
    const char *rules_file;           /* dtp.rules/1 with hand-written baselines; NULL = none */
    int32_t candidates; /* distinct solutions lowered and compared by their timeline */
    double margin;      /* ... within this fraction of the optimum */
    const dtp_ctx *ctx;
} dtp_plan_request;

/* No mesh, objective time, no limit, 6 candidates within 5 %. */
dtp_plan_request dtp_plan_request_init(void);

typedef struct dtp_plan_result {
    dtp_plan *plan; /* NULL when infeasible */
    bool infeasible;
    int64_t smallest_peak_bytes; /* infeasible: what the pins allow at best */
} dtp_plan_result;

/* g is the model's graph; layouts are planned for dtp_graph_with_choices of it, baselines with the
 * same choices. The plan is never predicted worse than a baseline that is legal, within the memory
 * limit and in keeping with the pins. An impossible memory limit is a result, not an error;
 * impossible pins are DTP_INVALID. */
dtp_status dtp_plan_rules(const dtp_graph *g, const dtp_machine *machine,
                          const dtp_plan_request *request, dtp_plan_result *out,
                          dtp_err *err) DTP_MUST_CHECK;

#endif
