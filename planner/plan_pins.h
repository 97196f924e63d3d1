/* A plan from pins: layouts follow by propagation (spmd/propagate/propagate.h), nothing is
 * searched. */
#ifndef DTP_PLANNER_PLAN_PINS_H
#define DTP_PLANNER_PLAN_PINS_H

#include "core/plan/plan.h"
#include "cost_models/machine/machine.h"
#include "planner/plan_search.h"

/* A plan in tensor mode, on the mesh of the request, from its pins. Its certificate is feasible,
 * with bound 0: nothing is proved. A plan that does not fit the memory limit is infeasible, a
 * result and no error. machine NULL: nothing is priced; the plan has no times and no baselines, and
 * its objective is memory. */
dtp_status dtp_plan_pins(const dtp_graph *g, const dtp_machine *machine,
                         const dtp_plan_request *request, dtp_plan_result *out,
                         dtp_err *err) DTP_MUST_CHECK;

#endif
