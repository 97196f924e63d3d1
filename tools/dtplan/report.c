/* dtplan report: a plan as a page to look at. */
#include <string.h>

#include "core/base/units.h"
#include "planner/plan_rules.h"
#include "planner/tensors/plan_tensor.h"
#include "tools/dtplan/page/page.h"
#include "tools/job.h"
#include "tools/machines.h"
#include "tools/progress.h"
#include "tools/shipped.h"

typedef struct report_command {
    tool_source source;
    dtp_ctx ctx;
    tool_job job, against;
    dtp_pareto pareto;
    page_run run;
    dtp_plan_diff diff;
    page_input page;
    dtp_arena *arena;
} report_command;

/* The shipped machine with the name that the plan says; from the arena. */
static dtp_status find_machine(report_command *c, dtp_err *err)
{
    char **names = NULL;
    dtp_graph *model = NULL;
    dtp_plan *plan = NULL;
    DTP_TRY(tool_read_planned(&c->source, &model, &plan, err));
    dtp_status s = tool_shipped_names(SHIPPED_MACHINES, &names, err);
    for (int32_t i = 0; s == DTP_OK && plan->machine != NULL && names[i] != NULL; i++) {
        dtp_machine *machine = NULL;
        s = tool_machine_read(names[i], false, &machine, err);
        if (s == DTP_OK && strcmp(machine->name, plan->machine) == 0) {
            c->source.machine = dtp_arena_strdup(c->arena, names[i]);
            s = DTP_MEMORY(err, c->source.machine);
        }
        dtp_machine_destroy(machine);
    }
    if (s == DTP_OK && c->source.machine == NULL) {
        s = DTP_FAIL(err, DTP_INVALID, "--machine FILE is missing: the plan is for %s%.80s%s",
                     plan->machine != NULL ? "machine '" : "no machine",
                     plan->machine != NULL ? plan->machine : "",
                     plan->machine != NULL ? "', which is no machine with a name" : "");
    }
    tool_shipped_free(names);
    dtp_plan_destroy(plan);
    dtp_graph_destroy(model);
    return s;
}

/* What the options add to the page: a measured step, another plan, plans for falling limits. */
static dtp_status add_asked(report_command *c, dtp_err *err)
{
    const dtp_plan *plan = c->job.plan;
    dtp_plan_request request = dtp_plan_request_init();
    tool_source other = c->source;
    other.any_stages = false; /* what differs is told of one program */
    if (c->source.run_report != NULL) {
        DTP_TRY(page_run_read(c->source.run_report, plan, c->arena, &c->run, err));
        c->page.run = &c->run;
    }
    if (c->source.against != NULL) {
        other.plan = c->source.against;
        DTP_TRY(tool_job_create(&other, 0, NULL, false, &c->ctx, &c->against, err));
        const dtp_job *jobs[2] = {c->job.run, c->against.run};
        const dtp_diff_input inputs[2] = {
            {jobs[0]->graph, &jobs[0]->sharding, &jobs[0]->lowering.options},
            {jobs[1]->graph, &jobs[1]->sharding, &jobs[1]->lowering.options}};
        DTP_TRY(dtp_plan_diff_make(inputs, c->job.machine, c->arena, &c->diff, err));
        c->page.against = c->against.plan;
        c->page.against_file = c->source.against;
        c->page.diff = &c->diff;
    }
    if (c->source.points > 0) {
        DTP_TRY(dtp_target_find(plan->target, &request.target, err));
        request.options.mesh = &plan->mesh;
        request.options.uneven = plan->uneven;
        request.variant = &plan->variant;
        request.tying_bound = false;
        tool_progress_begin("planning for the Pareto front");
        const dtp_status s = dtp_pareto_find(c->job.model, c->job.machine, &request,
                                             plan->rules_mode ? dtp_plan_rules : dtp_plan_tensor,
                                             c->source.points, &c->pareto, err);
        tool_progress_end();
        DTP_TRY(s);
        c->page.pareto = &c->pareto;
    }
    return DTP_OK;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    report_command *c = command;
    dtp_strbuf text = {0};
    c->source.model = operands[0];
    c->source.plan = operands[1];
    c->source.any_stages = true;
    c->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, c->arena));
    if (c->source.machine == NULL) {
        DTP_TRY(find_machine(c, err));
    }
    DTP_TRY(tool_job_create(&c->source, 0, NULL, false, &c->ctx, &c->job, err));
    const int32_t n_stages = dtp_graph_stages(c->job.run->graph);
    if (n_stages > 1 && (c->source.against != NULL || c->source.points > 0)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%s is of plans without stages: the plan has %d",
                        c->source.against != NULL ? "--against" : "--points", n_stages);
    }
    c->page.plan = c->job.plan;
    c->page.job = c->job.run;
    c->page.machine = c->job.machine;
    c->page.current = tool_plan_is_current(c->job.plan, c->job.model, c->job.machine);
    DTP_TRY(add_asked(c, err));
    const dtp_status s = c->source.svg != NULL ? page_drawing(&c->page, c->source.svg, &text, err)
                                               : page_write(&c->page, &text, err);
    if (s != DTP_OK) {
        dtp_strbuf_free(&text);
        return s;
    }
    return tool_put_in(c->source.output, &text, err);
}

int dtplan_report(int argc, char **argv)
{
    report_command c = {.ctx = dtp_ctx_default()};
    const tool_call call = {TOOL_REPORT, execute, &c, &c.source, NULL};
    const int code = tool_run(&call, argc, argv);
    if (c.page.pareto != NULL) {
        dtp_pareto_free(&c.pareto);
    }
    tool_job_free(&c.job);
    tool_job_free(&c.against);
    dtp_arena_destroy(c.arena);
    return code;
}
