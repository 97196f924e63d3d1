/* dtplan show: the printable form of every stage. */
#include <stdio.h>
#include <string.h>

#include "cost_models/redistribution_price.h"
#include "planner/problem/rules/rules_problem.h"
#include "planner/problem/tensors/tensor_names.h"
#include "tools/dtplan/inputs.h"
#include "tools/job.h"
#include "tools/dtplan/print.h"
#include "tools/machines.h"
#include "tools/progress.h"
#include "tools/trace.h"
#include "spmd/program/program.h"

typedef struct show_command {
    tool_source source;
    dtp_ctx ctx;
} show_command;

static void print_graph(const show_command *c, const dtp_graph *g, dtp_strbuf *out)
{
    if (strcmp(c->source.stage, "graph") == 0) {
        tool_print_graph(g, out);
    } else {
        tool_print_strategies(g, out);
    }
}

static dtp_status show_graph(const show_command *c, dtp_strbuf *out, dtp_err *err)
{
    dtp_graph *model = NULL, *g = NULL;
    tool_target target;
    if (c->source.plan != NULL) { /* the graph that the plan runs */
        tool_job job;
        DTP_TRY(tool_job_create(&c->source, 0, NULL, false, &c->ctx, &job, err));
        print_graph(c, job.run->graph, out);
        tool_job_free(&job);
        return DTP_OK;
    }
    DTP_TRY(tool_read_changed(&c->source, NULL, &target, &model, &g, err));
    print_graph(c, g, out);
    dtp_graph_destroy(g);
    dtp_graph_destroy(model);
    return DTP_OK;
}

/* What is shown of one program: the plan's, or that of a chunk. */
static dtp_status print_program(const show_command *c, const dtp_program *p, dtp_strbuf *out,
                                dtp_err *err)
{
    if (c->source.counters) {
        return tool_print_counters(p, c->source.json, out, err);
    }
    if (strcmp(c->source.stage, "program") == 0) {
        dtp_program_print(p, out);
    } else {
        tool_print_memory(p, out);
    }
    return DTP_OK;
}

/* The same of every chunk of every stage, one after the other. */
static dtp_status print_programs(const show_command *c, const dtp_pipeline *p, dtp_strbuf *out,
                                 dtp_err *err)
{
    if (c->source.json) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "--counters --json is of one program: the plan has %d stages",
                        p->table.n_stages);
    }
    for (int32_t k = 0; k < p->n; k++) {
        tool_print_chunk(p, k, out);
        DTP_TRY(print_program(c, p->programs[k], out, err));
    }
    return DTP_OK;
}

static dtp_status print_schedule(const tool_job *job, dtp_strbuf *out, dtp_err *err)
{
    if (job->machine == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--stage schedule needs --machine");
    }
    return tool_trace_job(job->run, job->machine, out, err);
}

static dtp_status show_program(const show_command *c, dtp_strbuf *out, dtp_err *err)
{
    tool_job job;
    DTP_TRY(tool_job_create(&c->source, 0, NULL, false, &c->ctx, &job, err));
    dtp_status s = DTP_OK;
    const bool report = c->source.comm_report || c->source.counters;
    if (c->source.show_trace) {
        s = job.run->pipeline == NULL
                ? tool_print_trace(job.run->graph, &job.run->sharding, job.run->program, out, err)
                : DTP_FAIL(err, DTP_UNSUPPORTED, "--trace is of plans without stages");
    } else if (c->source.comm_report) {
        s = tool_print_comm(job.run, c->source.json, out, err);
    } else if (!report && strcmp(c->source.stage, "schedule") == 0) {
        s = print_schedule(&job, out, err);
    } else if (!report && strcmp(c->source.stage, "plan") == 0) {
        if (job.plan != NULL) {
            dtp_plan_print(job.plan, job.run->graph, NULL, out);
            dtp_strbuf_add(out, "\n");
        }
        tool_print_layouts(job.run->graph, &job.run->sharding, out);
    } else {
        s = job.run->pipeline != NULL ? print_programs(c, job.run->pipeline, out, err)
                                      : print_program(c, job.run->program, out, err);
    }
    tool_job_free(&job);
    return s;
}

/* Of stages alone: their table. */
static dtp_status show_pipeline(const show_command *c, dtp_strbuf *out, dtp_err *err)
{
    tool_job job;
    DTP_TRY(tool_job_create(&c->source, 0, NULL, false, &c->ctx, &job, err));
    const dtp_pipeline *pipeline = job.run->pipeline;
    dtp_status s = DTP_OK;
    if (pipeline == NULL) {
        s = DTP_FAIL(err, DTP_INVALID, "--stage pipeline: the plan has no stages");
    } else {
        dtp_pipeline_print(pipeline, &job.run->predicted, out);
        s = dtp_pipeline_print_table(pipeline, out, err);
    }
    tool_job_free(&job);
    return s;
}

static dtp_status print_rules(const dtp_graph *g, const dtp_pricer *pricer, bool uneven,
                              dtp_strbuf *out, dtp_err *err)
{
    dtp_redistribution_pricer *redistributions = NULL;
    dtp_rules_problem *problem = NULL;
    DTP_TRY(dtp_redistribution_pricer_create(pricer, &redistributions, err));
    dtp_status s = dtp_rules_problem_create(
        g, pricer, dtp_redistribution_pricer_redistributor(redistributions), NULL, uneven, &problem,
        err);
    if (s == DTP_OK) {
        const dtp_problem_names names = dtp_rules_names(problem);
        s = dtp_problem_print(problem->select, &names, out, err);
    }
    dtp_rules_problem_destroy(problem);
    dtp_redistribution_pricer_destroy(redistributions);
    return s;
}

static dtp_status print_tensors(const dtp_graph *g, const dtp_pricer *pricer, bool uneven,
                                dtp_strbuf *out, dtp_err *err)
{
    dtp_tensor_options options = dtp_tensor_options_init();
    dtp_tensor_problem *problem = NULL;
    options.uneven = uneven;
    DTP_TRY(dtp_tensor_problem_create(g, pricer, &options, &problem, err));
    const dtp_problem_names names = dtp_tensor_names(problem);
    const dtp_status s = dtp_problem_print(problem->select, &names, out, err);
    dtp_tensor_problem_destroy(problem);
    return s;
}

static dtp_status print_problem(const show_command *c, const dtp_graph *g, const dtp_mesh *mesh,
                                const dtp_machine *machine, const dtp_target *target, bool uneven,
                                dtp_strbuf *out, dtp_err *err)
{
    dtp_pricer pricer;
    const bool tensors = strcmp(c->source.mode, "tensor") == 0;
    DTP_TRY(dtp_target_takes_precision(target, g, err));
    DTP_TRY(dtp_pricer_init(machine, mesh, target, &pricer, err));
    tool_progress_begin("pricing");
    return (tensors ? print_tensors : print_rules)(g, &pricer, uneven, out, err);
}

/* That of the graph and mesh of a plan. */
static dtp_status show_problem_of_plan(const show_command *c, dtp_strbuf *out, dtp_err *err)
{
    tool_job job;
    if (c->source.machine == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--stage problem needs --machine");
    }
    DTP_TRY(tool_job_create(&c->source, 0, NULL, false, &c->ctx, &job, err));
    const dtp_status s = print_problem(c, job.run->graph, dtp_job_mesh(job.run), job.machine,
                                       job.run->program->target, job.plan->uneven, out, err);
    tool_job_free(&job);
    return s;
}

/* The selection problem of a mode, without a memory limit. */
static dtp_status show_problem(const show_command *c, dtp_strbuf *out, dtp_err *err)
{
    dtp_graph *model = NULL, *g = NULL;
    dtp_machine *machine = NULL;
    dtp_mesh mesh;
    tool_target target;
    if (c->source.plan != NULL) {
        return show_problem_of_plan(c, out, err);
    }
    if (c->source.mesh == NULL || c->source.machine == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--stage problem needs --mesh and --machine");
    }
    DTP_TRY(dtp_mesh_parse(c->source.mesh, &mesh, err));
    DTP_TRY(tool_machine_of(&c->source, &machine, err));
    dtp_status s = tool_read_changed(&c->source, machine, &target, &model, &g, err);
    s = s == DTP_OK ? print_problem(c, g, &mesh, machine, target.target, c->source.uneven, out, err)
                    : s;
    dtp_machine_destroy(machine);
    dtp_graph_destroy(g);
    dtp_graph_destroy(model);
    return s;
}

static dtp_status run_stage(const show_command *c, dtp_strbuf *out, dtp_err *err)
{
    if (c->source.comm_report || c->source.counters || c->source.show_trace) {
        /* One of the reports on a program takes the place of the stage. */
        if (c->source.comm_report + c->source.counters + c->source.show_trace > 1 ||
            (c->source.json && c->source.show_trace)) {
            return DTP_FAIL(
                err, DTP_INVALID,
                "give one of --comm-report, --counters and --trace, the last without --json");
        }
        return show_program(c, out, err);
    }
    if (c->source.json) {
        return DTP_FAIL(err, DTP_INVALID, "--json is for --comm-report and --counters");
    }
    static const struct {
        const char *name;
        dtp_status (*show)(const show_command *, dtp_strbuf *, dtp_err *);
    } stages[] = {{"graph", show_graph},      {"strategies", show_graph}, {"problem", show_problem},
                  {"plan", show_program},     {"program", show_program},  {"memory", show_program},
                  {"schedule", show_program}, {"pipeline", show_pipeline}};
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        if (strcmp(c->source.stage, stages[i].name) == 0) {
            return stages[i].show(c, out, err);
        }
    }
    return DTP_FAIL(err, DTP_INVALID,
                    "--stage: '%s' is not graph, strategies, problem, plan, program, memory, "
                    "schedule or pipeline",
                    c->source.stage);
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    show_command *c = command;
    dtp_strbuf out = {0};
    c->source.model = operands[0];
    dtp_status s = run_stage(c, &out, err);
    const bool json = c->source.json || strcmp(c->source.stage, "schedule") == 0;
    s = s == DTP_OK ? (json ? tool_put : tool_put_text)(&out, err) : s;
    dtp_strbuf_free(&out);
    return s;
}

int dtplan_show(int argc, char **argv)
{
    show_command c = {0};
    const tool_call call = {TOOL_SHOW, execute, &c, &c.source, NULL};
    c.ctx = dtp_ctx_default();
    return tool_run(&call, argc, argv);
}
