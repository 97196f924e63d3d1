/* dtplan plan: chooses layout rules and writes a plan. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/json.h"
#include "core/json_writer.h"
#include "cost_models/plan_lowering.h"
#include "planner/compat/mtf_layout.h"
#include "planner/plan_pins.h"
#include "planner/plan_rules.h"
#include "tools/dtplan_options.h"
#include "tools/print.h"
#include "tools/print_comm.h"
#include "tools/styles.h"

typedef struct plan_command {
    tool_source source;
    const char *objective, *memory, *rules_file, *compat, *output;
    int64_t devices, candidates;
    int64_t limit_bytes; /* 0 = none */
    bool torch;          /* --compat torch */
    bool json, timings, verbose, comm_report;
    tool_style_source styles;
    dtp_ctx ctx;
    int exit_code;
} plan_command;

/* ---- --compat auto_mtf --------------------------------------------------------------------------
 */

static void write_compat(const dtp_mtf_problem *p, const dtp_mtf_solution *s, dtp_json_writer *w)
{
    char mesh[DTP_MESH_TEXT_BYTES];
    dtp_mesh_print(&p->mesh, mesh);
    dtp_json_begin_object(w, NULL);
    dtp_json_write_string(w, "compat", "auto_mtf");
    dtp_json_write_string(w, "mesh", mesh);
    dtp_json_write_string(w, "rules", s->layout);
    dtp_json_write_int(w, "peak_bytes", s->peak);
    dtp_json_write_int(w, "objective", s->objective);
    dtp_json_write_int(w, "variables", p->n_variables);
    dtp_json_end_object(w);
}

static dtp_status solve_compat(const plan_command *c, const dtp_mtf_graph *graph, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_mtf_problem *problem = NULL;
    dtp_mtf_solution solution;
    DTP_TRY(dtp_mesh_parse(c->source.mesh, &mesh, err));
    DTP_TRY(dtp_mtf_problem_create(graph, &mesh, DTP_MTF_LIST, &problem, err));
    dtp_status s = dtp_mtf_solve(problem, &solution, err);
    if (s == DTP_OK && c->json) {
        dtp_json_writer w = {0};
        write_compat(problem, &solution, &w);
        (void)printf("%s\n", dtp_strbuf_text(&w.buf));
        dtp_strbuf_free(&w.buf);
    } else if (s == DTP_OK) {
        (void)printf("rules: %s\npeak bytes in auto_mtf's model: %" PRId64 "\nobjective: %" PRId64
                     ", variables: %d\n",
                     solution.layout, solution.peak, solution.objective, problem->n_variables);
    }
    dtp_mtf_problem_destroy(problem);
    return s;
}

static dtp_status plan_compat(const plan_command *c, dtp_err *err)
{
    dtp_graph *g = NULL;
    dtp_mtf_graph *graph = NULL;
    if (strcmp(c->compat, "auto_mtf") != 0) {
        return DTP_FAIL(err, DTP_INVALID, "--compat: '%s' is not auto_mtf or torch", c->compat);
    }
    if (c->source.mesh == NULL || c->output != NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--compat auto_mtf needs --mesh and prints rules, it writes no plan file");
    }
    DTP_TRY(tool_read_graph(&c->source, &g, err));
    dtp_status s = dtp_mtf_from_graph(g, &graph, err);
    if (s == DTP_OK) {
        s = solve_compat(c, graph, err);
    }
    dtp_mtf_graph_destroy(graph);
    dtp_graph_destroy(g);
    return s;
}

/* ---- planning -----------------------------------------------------------------------------------
 */

static dtp_status make_request(const plan_command *c, const dtp_mesh *mesh, const char *rules_file,
                               dtp_plan_request *out, dtp_err *err)
{
    *out = dtp_plan_request_init();
    if (strcmp(c->objective, "time") != 0 && strcmp(c->objective, "memory") != 0) {
        return DTP_FAIL(err, DTP_INVALID, "--objective: '%s' is not time or memory", c->objective);
    }
    out->objective = strcmp(c->objective, "time") == 0 ? DTP_OBJECTIVE_TIME : DTP_OBJECTIVE_MEMORY;
    out->mesh = mesh;
    out->devices = (int32_t)c->devices;
    out->memory_limit_bytes = c->limit_bytes;
    out->pins = c->source.rules;
    out->rules_file = rules_file;
    out->candidates = (int32_t)c->candidates;
    out->ctx = &c->ctx;
    return DTP_OK;
}

/* MODEL.rules.json beside MODEL.json when it exists. */
static const char *find_rules_file(const plan_command *c, char *buffer, size_t size)
{
    const size_t n = strlen(c->source.model);
    if (c->rules_file != NULL) {
        return c->rules_file;
    }
    if (n <= 5 || n + 7 > size || strcmp(c->source.model + n - 5, ".json") != 0) {
        return NULL;
    }
    (void)snprintf(buffer, size, "%.*s.rules.json", (int)(n - 5), c->source.model);
    return access(buffer, R_OK) == 0 ? buffer : NULL;
}

static dtp_status put_comm_report(const plan_command *c, const dtp_plan *plan, const dtp_graph *g,
                                  dtp_err *err)
{
    dtp_plan_lowering lowering;
    dtp_program *program = NULL;
    dtp_strbuf text = {0};
    dtp_plan_lowering_init(&lowering, plan->redistribution);
    dtp_status s = dtp_lower(g, &plan->sharding, &lowering.options, &program, err);
    s = s != DTP_OK ? s : tool_print_comm(program, c->json, &text, err);
    if (s == DTP_OK) {
        (void)fputs(dtp_strbuf_text(&text), stdout);
    }
    dtp_strbuf_free(&text);
    dtp_program_destroy(program);
    return s;
}

/* The communication report takes the place of the plan on standard output. g: the plan's graph. */
static dtp_status put_plan(const plan_command *c, const dtp_plan *plan, const dtp_graph *g,
                           dtp_err *err)
{
    char *text = NULL;
    dtp_strbuf readable = {0};
    DTP_TRY(dtp_plan_write(plan, g, c->timings, &text, err));
    dtp_status s = DTP_OK;
    if (c->output != NULL) {
        s = dtp_file_write(c->output, text, strlen(text), err);
    }
    if (s == DTP_OK && c->comm_report) {
        s = put_comm_report(c, plan, g, err);
    } else if (s == DTP_OK && c->json) {
        (void)fputs(text, stdout);
    } else if (s == DTP_OK) {
        tool_print_plan(plan, g, &readable);
        (void)fputs(dtp_strbuf_text(&readable), stdout);
    }
    dtp_strbuf_free(&readable);
    free(text);
    return s;
}

static void say_infeasible(plan_command *c, const dtp_plan_result *result)
{
    c->exit_code = TOOL_INFEASIBLE;
    (void)fprintf(stderr,
                  "dtplan: infeasible: no layout%s%s%s%s fit into %" PRId64
                  " bytes per rank; the smallest memory limit that works is about %" PRId64 "\n",
                  tool_styles_given(&c->styles) ? "s that follow from the pins" : " rules",
                  c->source.rules != NULL ? " with '" : "",
                  c->source.rules != NULL ? c->source.rules : "",
                  c->source.rules != NULL ? "'" : "", c->limit_bytes, result->smallest_peak_bytes);
}

static dtp_status read_limit(plan_command *c, const dtp_machine *machine, dtp_err *err)
{
    c->limit_bytes = machine->memory_bytes;
    if (c->memory == NULL) {
        return DTP_OK;
    }
    c->limit_bytes = 0;
    return strcmp(c->memory, "none") == 0
               ? DTP_OK
               : tool_bytes_parse("--memory", c->memory, &c->limit_bytes, err);
}

/* What --style and --pin say on the mesh of the request; they name nodes of the changed graph. */
static dtp_status plan_by_pins(const plan_command *c, const dtp_graph *g,
                               const dtp_machine *machine, const dtp_plan_request *request,
                               dtp_plan_result *out, dtp_err *err)
{
    tool_pins pins;
    dtp_arena *arena = dtp_arena_create();
    if (arena == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for pins");
    }
    dtp_graph *changed = NULL;
    dtp_status s = dtp_graph_with_choices(g, request->choices, 0, NULL, &changed, err);
    s = s == DTP_OK ? tool_styles_read(&c->styles, changed, request->mesh, arena, &pins, err) : s;
    if (s == DTP_OK) {
        const dtp_pins_request by_pins = {.mesh = request->mesh,
                                          .n_pins = pins.n_pins,
                                          .pins = pins.pins,
                                          .n_settings = pins.n_settings,
                                          .settings = pins.settings,
                                          .n_texts = pins.n_texts,
                                          .texts = pins.texts,
                                          .strict = c->styles.strict,
                                          .redistribution = c->torch ? DTP_REDISTRIBUTION_TORCH
                                                                     : DTP_REDISTRIBUTION_OWN,
                                          .objective = request->objective,
                                          .memory_limit_bytes = request->memory_limit_bytes,
                                          .choices = request->choices,
                                          .rules_file = request->rules_file};
        s = dtp_plan_pins(g, machine, &by_pins, out, err);
    }
    dtp_graph_destroy(changed);
    dtp_arena_destroy(arena);
    return s;
}

/* g: the model's. */
static dtp_status plan_graph(plan_command *c, const dtp_graph *g, const dtp_machine *machine,
                             const dtp_graph_choices *choices, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_plan_request request;
    dtp_plan_result result;
    char buffer[4096];
    if (c->source.mesh != NULL) {
        DTP_TRY(dtp_mesh_parse(c->source.mesh, &mesh, err));
    }
    DTP_TRY(read_limit(c, machine, err));
    DTP_TRY(make_request(c, c->source.mesh != NULL ? &mesh : NULL,
                         find_rules_file(c, buffer, sizeof buffer), &request, err));
    request.choices = choices;
    DTP_TRY(tool_styles_given(&c->styles) ? plan_by_pins(c, g, machine, &request, &result, err)
                                          : dtp_plan_rules(g, machine, &request, &result, err));
    if (result.infeasible) {
        say_infeasible(c, &result);
        return DTP_OK;
    }
    dtp_graph *planned = NULL;
    dtp_status s = dtp_plan_graph(result.plan, g, &planned, err);
    s = s == DTP_OK ? put_plan(c, result.plan, planned, err) : s;
    dtp_graph_destroy(planned);
    dtp_plan_destroy(result.plan);
    return s;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    plan_command *c = command;
    dtp_graph *g = NULL;
    dtp_graph_choices choices;
    dtp_machine *machine = NULL;
    c->source.model = operands[0];
    c->ctx.level = c->verbose ? DTP_LOG_INFO : DTP_LOG_WARN;
    c->torch = c->compat != NULL && strcmp(c->compat, "torch") == 0;
    if (c->compat != NULL && !c->torch) {
        return plan_compat(c, err);
    }
    if (c->torch && !tool_styles_given(&c->styles)) {
        return DTP_FAIL(err, DTP_INVALID, "--compat torch is for plans from --style and --pin");
    }
    if (tool_styles_given(&c->styles) && (c->source.mesh == NULL || c->source.rules != NULL)) {
        return DTP_FAIL(err, DTP_INVALID, "--style and --pin need --mesh and no --rules");
    }
    if (c->styles.strict && !tool_styles_given(&c->styles)) {
        return DTP_FAIL(err, DTP_INVALID, "--strict is for plans from --style and --pin");
    }
    if ((c->source.mesh != NULL) == (c->devices > 0)) {
        return DTP_FAIL(err, DTP_INVALID, "give either --mesh MESH or --devices N");
    }
    if (c->source.machine == NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--machine FILE is missing ('dtrun bench -o FILE' measures this machine)");
    }
    DTP_TRY(tool_read_graph(&c->source, &g, err));
    dtp_status s = dtp_machine_read(c->source.machine, &machine, err);
    dtp_arena *arena = dtp_arena_create();
    if (s == DTP_OK) {
        s = arena == NULL ? DTP_FAIL(err, DTP_NOMEM, "out of memory")
                          : tool_read_choices(&c->source, g, arena, &choices, err);
    }
    if (s == DTP_OK) {
        s = plan_graph(c, g, machine, &choices, err);
    }
    dtp_arena_destroy(arena);
    dtp_machine_destroy(machine);
    dtp_graph_destroy(g);
    return s;
}

int dtplan_plan(int argc, char **argv)
{
    plan_command c = {.objective = "time", .candidates = 6};
    const tool_option options[] = {
        {"--mesh", TOOL_STRING, "MESH", &c.source.mesh, 0, 0, "mesh such as 'x:2;y:2'"},
        {"--devices", TOOL_INT, "N", &c.devices, 1, 1 << 20, "search the mesh shape for N devices"},
        {"--machine", TOOL_STRING, "FILE", &c.source.machine, 0, 0, "machine file"},
        {"--objective", TOOL_STRING, "WHAT", &c.objective, 0, 0, "time (default) or memory"},
        {"--memory", TOOL_STRING, "BYTES", &c.memory, 0, 0,
         "memory limit per rank, such as 80G, or none (default: the device's memory)"},
        {"--rules", TOOL_STRING, "RULES", &c.source.rules, 0, 0, "pins: splits that must hold"},
        TOOL_STYLE_OPTIONS(c.styles),
        {"--strict", TOOL_FLAG, NULL, &c.styles.strict, 0, 0,
         "operands may be sent only where a style or pin asked for it"},
        TOOL_CHOICE_OPTIONS(c.source),
        {"--comm-report", TOOL_FLAG, NULL, &c.comm_report, 0, 0,
         "print what the plan communicates, and why, in place of the plan"},
        {"--rules-file", TOOL_STRING, "FILE", &c.rules_file, 0, 0,
         "hand-written baselines (default: MODEL.rules.json when there is one)"},
        {"--candidates", TOOL_INT, "N", &c.candidates, 1, 8,
         "near-optimal plans compared by their timeline (default 6)"},
        {"--compat", TOOL_STRING, "WHAT", &c.compat, 0, 0,
         "torch: --style and --pin as PyTorch DTensor decides; auto_mtf: Mesh TensorFlow's layout "
         "optimizer, reproduced"},
        {"--dim", TOOL_LIST, "NAME=N", &c.source.dims, 0, 0, "override a dim of the model"},
        {"--forward", TOOL_FLAG, NULL, &c.source.forward, 0, 0, "leave training out"},
        {"--output", TOOL_STRING, "FILE", &c.output, 0, 0, "plan file (-o)"},
        {"--json", TOOL_FLAG, NULL, &c.json, 0, 0, "print the plan as JSON"},
        {"--timings", TOOL_FLAG, NULL, &c.timings, 0, 0, "write solve times into the plan"},
        {"--verbose", TOOL_FLAG, NULL, &c.verbose, 0, 0, "log each mesh of the search"},
        {NULL, TOOL_FLAG, NULL, NULL, 0, 0, NULL},
    };
    const tool_parse parse = {"dtplan plan MODEL [options]", options, 1, 1};
    c.ctx = dtp_ctx_default();
    const int code = tool_run("dtplan", &parse, argc, argv, execute, &c);
    return code == TOOL_OK ? c.exit_code : code;
}
