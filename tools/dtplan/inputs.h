/* What commands begin with: plans, graphs and tensors of the command line. */
#ifndef DTP_TOOLS_DTPLAN_INPUTS_H
#define DTP_TOOLS_DTPLAN_INPUTS_H

#include "core/plan/plan.h"
#include "cost_models/job.h"
#include "cost_models/price.h"
#include "dtp/planner.h"
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

/* The model, its target on a machine (NULL: none; tool_target_find) and the graph that the
 * precision of the target, --remat and --microbatches make of it, which borrows from it. */
dtp_status tool_read_changed(const tool_source *source, dtp_machine *machine, tool_target *target,
                             dtp_graph **model, dtp_graph **out, dtp_err *err) DTP_MUST_CHECK;

/* What the command line says of the plans that are wanted, into *out, which borrows: all but mode,
 * objective, mesh and devices, and files beside the model. */
dtp_status tool_plan_request(const tool_source *source, const tool_target *target,
                             dtp_plan_options *out, dtp_err *err) DTP_MUST_CHECK;

/* Reads "8,6" (dims "0", "1", ...) or "batch=8,d_ff=6" into the rank and dims of `type`, whose
 * dtype is set; names go into `dims`. DTP_INVALID naming the text, DTP_RANGE on sizes. */
dtp_status tool_shape_parse(const char *text, dtp_dims *dims, dtp_ttype *type,
                            dtp_err *err) DTP_MUST_CHECK;

#endif
