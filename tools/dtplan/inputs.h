/* What commands that print inner stages and ask about plans begin with. */
#ifndef DTP_TOOLS_DTPLAN_INPUTS_H
#define DTP_TOOLS_DTPLAN_INPUTS_H

#include "core/plan/plan.h"
#include "cost_models/job.h"
#include "cost_models/price.h"
#include "tools/job.h"

/* A plan with its model and machine, for commands that ask about plans. */
typedef struct tool_plan {
    dtp_graph *model;     /* as it was read */
    dtp_graph *graph;     /* the plan's (dtp_plan_graph) */
    dtp_machine *machine; /* never NULL */
    dtp_plan *plan;
    bool current; /* the plan was made for this model and this machine */
} tool_plan;

/* source->plan and source->machine must be there. Says in the log when model or machine changed.
 * *out needs tool_plan_free, also after a failure. */
dtp_status tool_plan_read(const tool_source *source, const dtp_ctx *ctx, tool_plan *out,
                          dtp_err *err) DTP_MUST_CHECK;
void tool_plan_free(tool_plan *plan);

/* The model and the graph that --remat and --microbatches make of it, which borrows from it. */
dtp_status tool_read_changed(const tool_source *source, dtp_graph **model, dtp_graph **out,
                             dtp_err *err) DTP_MUST_CHECK;

#endif
