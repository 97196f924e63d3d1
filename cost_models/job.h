/* Jobs (dtp/session.h): a model with a layout for every tensor, lowered and predicted. */
#ifndef DTP_COST_MODELS_JOB_H
#define DTP_COST_MODELS_JOB_H

#include "cost_models/pipeline.h"
#include "cost_models/plan_lowering.h"
#include "dtp/session.h"

/* A job stays where it was created: the program refers to the lowering. */
struct dtp_job {
    dtp_graph *graph;          /* with variant and the plan's implementations */
    dtp_graph_variant variant; /* texts are the plan's, or the arena's */
    dtp_arena *arena;
    dtp_sharding sharding;
    dtp_plan_lowering lowering;
    dtp_mesh mesh;            /* of all ranks */
    dtp_program *program;     /* of a graph with stages that of the first one, the pipeline's */
    dtp_pipeline *pipeline;   /* NULL: there are no stages */
    dtp_prediction predicted; /* of the program; from the plan when there is no machine */
    bool has_prediction;
};

/* Says in a plan what it is for: name, rates, runtime and hash, from the plan's arena; machine
 * NULL: none. */
dtp_status dtp_plan_set_machine(dtp_plan *plan, const dtp_machine *machine,
                                dtp_err *err) DTP_MUST_CHECK;

#endif
