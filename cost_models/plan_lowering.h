/* How a plan is lowered: by the steps of redistributions that it lists and with all passes, or as
 * PyTorch DTensor would run it, with its rules for redistributions and every collective where it is
 * decided on. */
#ifndef DTP_COST_MODELS_PLAN_LOWERING_H
#define DTP_COST_MODELS_PLAN_LOWERING_H

#include "core/plan/plan.h"
#include "interop/torch_cost.h"
#include "spmd/lower/lower.h"
#include "spmd/redistribute/redistribute_listed.h"

/* What the options of a lowering point to; it must stay in place and outlive the program. */
typedef struct dtp_plan_lowering {
    dtp_target target; /* that of a form whose framework reduces terms apart */
    dtp_torch_cost cost;
    dtp_torch_planner planner;
    dtp_listed_redistributions listed;
    dtp_redistributor decides;
    const dtp_redistributor *redistributor; /* that of options */
    dtp_lower_options options;              /* for dtp_lower; the caller may add fetches */
} dtp_plan_lowering;

/* Borrows the plan (NULL: none, redistributions of the generic machine), of which it reads mesh,
 * target, redistribution and redistributions. DTP_INVALID for a target or listed steps that are
 * none. */
dtp_status dtp_plan_lowering_init(dtp_plan_lowering *lowering, const dtp_plan *plan,
                                  dtp_err *err) DTP_MUST_CHECK;

/* Lists the steps, as the redistributor decides on them, of all redistributions in programs of the
 * plan's sharding, plain or not, whatever they fetch. `g` is the plan's graph (dtp_plan_graph). */
dtp_status dtp_plan_list_redistributions(dtp_plan *plan, const dtp_graph *g,
                                         const dtp_redistributor *redistributor,
                                         dtp_err *err) DTP_MUST_CHECK;

#endif
