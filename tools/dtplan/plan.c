/* dtplan plan: chooses layouts and writes a plan. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/json.h"
#include "planner/mtf/mtf_layout.h"
#include "planner/plan_pins.h"
#include "planner/plan_rules.h"
#include "planner/tensors/plan_tensor.h"
#include "planner/variant_search.h"
#include "tools/dtplan/options.h"
#include "tools/dtplan/print.h"
#include "tools/dtplan/print_comm.h"
#include "tools/interrupt.h"
#include "tools/job.h"
#include "tools/styles.h"

typedef struct plan_command {
    tool_source source;
    const char *mode;                 /* NULL: what --style and --pin say, else rules */
    const char *remat, *microbatches; /* as given */
    const char *objective, *memory, *rules_file, *compat, *output, *solver;
    int64_t devices, candidates, seed, threads;
    double gap, limit_s;
    dtp_stop stop;       /* --limit-s, SIGINT, SIGTERM */
    int64_t limit_bytes; /* 0 = none */
    bool torch;          /* --compat torch */
    bool json, timings, verbose, comm_report, prices, unfold;
    tool_style_source styles;
    dtp_variant_search search; /* --remat auto, --microbatches auto */
    dtp_ctx ctx;
    int exit_code;
    dtp_graph *model; /* as it was read */
    dtp_machine *machine;
    dtp_arena *arena;
} plan_command;

/* --mode tensor. */
static bool is_tensor_mode(const plan_command *c)
{
    return c->mode != NULL && strcmp(c->mode, "tensor") == 0;
}

/* Follows --style and --pin and searches nothing. */
static bool is_by_pins(const plan_command *c)
{
    return tool_styles_given(&c->styles) && !is_tensor_mode(c);
}

/* ---- what is printed and written ---- */

static dtp_status print_comm_report(const plan_command *c, const dtp_plan *plan, const dtp_graph *g,
                                    dtp_strbuf *out, dtp_err *err)
{
    dtp_plan_lowering lowering;
    dtp_program *program = NULL;
    DTP_TRY(dtp_plan_lowering_init(&lowering, plan, err));
    dtp_status s = dtp_lower(g, &plan->sharding, &lowering.options, &program, err);
    s = s != DTP_OK ? s : tool_print_comm(program, c->json, out, err);
    dtp_program_destroy(program);
    return s;
}

/* The communication report takes the place of the plan on standard output. g: the plan's graph. */
static dtp_status put_planned(const plan_command *c, const dtp_plan_result *result,
                              const dtp_graph *g, dtp_err *err)
{
    const dtp_plan *plan = result->plan;
    dtp_strbuf text = {0}, report = {0};
    DTP_TRY(dtp_plan_write(plan, g, c->timings, &text.text, err));
    text.len = strlen(text.text);
    dtp_status s = DTP_OK;
    if (c->comm_report) {
        s = print_comm_report(c, plan, g, &report, err);
    } else if (c->json) {
        dtp_strbuf_add(&report, text.text);
    } else {
        tool_print_plan(plan, g, &report);
        /* What became of every mesh of the search. */
        if (result->n_meshes > 0) {
            dtp_strbuf_addf(&report, "\nmeshes (the last dim lies innermost in the network):\n");
        }
        for (int32_t i = 0; i < result->n_meshes; i++) {
            const dtp_mesh_report *r = &result->meshes[i];
            char mesh[DTP_MESH_TEXT_BYTES];
            dtp_mesh_print(&r->mesh, mesh);
            dtp_strbuf_addf(&report, "%-22s %-10s", mesh, dtp_mesh_outcome_name(r->outcome));
            if (r->outcome == DTP_MESH_PLANNED) {
                dtp_strbuf_addf(&report, " %12.6f s, cost %" PRId64 ", bound %" PRId64,
                                r->step_time_s, r->cost, r->bound);
            } else if (r->outcome == DTP_MESH_CUT) {
                dtp_strbuf_addf(&report, " nothing costs less than %" PRId64 " there", r->bound);
            }
            dtp_strbuf_add(&report, "\n");
        }
    }
    s = s == DTP_OK ? tool_put_both(c->output, &text, &report, err) : s;
    dtp_strbuf_free(&text);
    dtp_strbuf_free(&report);
    return s;
}

/* ---- no plan ------------------------------------------------------------------------------------
 */

static void print_infeasible(const plan_command *c, const dtp_plan_result *result, dtp_strbuf *out)
{
    dtp_strbuf_add(out, "dtplan: infeasible: no layout");
    dtp_strbuf_add(out, is_tensor_mode(c)               ? "s"
                        : tool_styles_given(&c->styles) ? "s that follow from the pins"
                                                        : " rules");
    if (c->source.rules != NULL) {
        dtp_strbuf_addf(out, " with '%s'", c->source.rules);
    }
    if (c->limit_bytes > 0) {
        dtp_strbuf_addf(out, " fit into %" PRId64 " bytes per rank", c->limit_bytes);
    }
    if (result->smallest_peak_bytes > 0) {
        dtp_strbuf_addf(out, "; the smallest memory limit that works is %s%" PRId64,
                        result->smallest_bound == result->smallest_peak_bytes ? "" : "about ",
                        result->smallest_peak_bytes);
        if (result->smallest_bound > 0 && result->smallest_bound < result->smallest_peak_bytes) {
            dtp_strbuf_addf(out, " (none below %" PRId64 " does)", result->smallest_bound);
        }
    }
    dtp_strbuf_add(out, "\n");
    for (int32_t i = 0; i < result->n_tried; i++) {
        dtp_strbuf_addf(out, "%s%s\n", i == 0 ? "tried:\n  " : "  ", result->tried[i]);
    }
    for (int32_t i = 0; i < result->n_conflict; i++) {
        dtp_strbuf_addf(out, "%s%s\n", i == 0 ? "these cannot hold together:\n  " : "  ",
                        result->conflict[i]);
    }
}

static dtp_status say_infeasible(const plan_command *c, const dtp_plan_result *result,
                                 dtp_strbuf *hint, dtp_err *err)
{
    dtp_strbuf text = {0};
    print_infeasible(c, result, &text);
    dtp_strbuf_join(&text, hint);
    const dtp_status s =
        text.failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a report") : DTP_OK;
    if (s == DTP_OK) {
        (void)fputs(dtp_strbuf_text(&text), stderr);
    }
    dtp_strbuf_free(&text);
    return s;
}

/* ---- planning ---- */

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
    DTP_TRY(dtp_solver_parse(c->solver, &out->solver, err));
    out->seed = (uint64_t)c->seed;
    out->threads = (int32_t)c->threads;
    out->gap = c->gap;
    out->prices = c->prices;
    out->unfold = c->unfold;
    out->stop = &c->stop;
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

/* The plan that follows from --style and --pin on the mesh of the request, by propagation. */
static dtp_status plan_by_pins(const plan_command *c, const dtp_plan_request *request,
                               dtp_plan_result *out, dtp_err *err)
{
    dtp_pin_set pins;
    /* What --style and --pin say, which name nodes of the graph with the choices of the request. */
    dtp_graph *changed = NULL;
    DTP_TRY(dtp_graph_with_variant(c->model, request->choices, 0, NULL, &changed, err));
    dtp_status s = dtp_pin_set_read(request->n_texts, request->texts, changed, request->mesh,
                                    c->arena, &pins, err);
    dtp_graph_destroy(changed);
    DTP_TRY(s);
    const dtp_pins_request by_pins = {.mesh = request->mesh,
                                      .n_pins = pins.n_pins,
                                      .pins = pins.pins,
                                      .n_implementations = pins.n_implementations,
                                      .implementations = pins.implementations,
                                      .n_texts = pins.n_texts,
                                      .texts = pins.texts,
                                      .strict = c->styles.strict,
                                      .torch = c->torch,
                                      .objective = request->objective,
                                      .memory_limit_bytes = request->memory_limit_bytes,
                                      .choices = request->choices,
                                      .rules_file = request->rules_file};
    return dtp_plan_pins(c->model, c->machine, &by_pins, out, err);
}

static dtp_plan_mode mode_of(const plan_command *c)
{
    return is_tensor_mode(c) ? dtp_plan_tensor : dtp_plan_rules;
}

/* Chooses the plan in the mode that was asked for. */
static dtp_status choose(plan_command *c, dtp_plan_request *request, dtp_plan_result *out,
                         dtp_err *err)
{
    const char **texts = NULL;
    DTP_TRY(tool_styles_texts(&c->styles, c->arena, &request->n_texts, &texts, err));
    request->texts = texts;
    dtp_status s;
    if (is_by_pins(c)) {
        s = plan_by_pins(c, request, out, err);
    } else {
        s = c->search.remat || c->search.microbatches
                ? dtp_plan_variants(mode_of(c), c->model, c->machine, request, &c->search, out, err)
                : mode_of(c)(c->model, c->machine, request, out, err);
    }
    return tool_styles_say_place(&c->styles, s, err);
}

/* Says which choice that was not asked for makes a plan fit, if one does. */
static dtp_status say_what_helps(const plan_command *c, const dtp_plan_request *request,
                                 dtp_strbuf *out, dtp_err *err)
{
    const dtp_variant_search probe = {
        .remat = c->remat == NULL, .microbatches = c->microbatches == NULL, .first = true};
    dtp_plan_result result;
    if (c->limit_bytes == 0 || is_by_pins(c) || (!probe.remat && !probe.microbatches)) {
        return DTP_OK;
    }
    const dtp_status s =
        dtp_plan_variants(mode_of(c), c->model, c->machine, request, &probe, &result, err);
    if (s != DTP_OK) {
        return s == DTP_NOMEM ? s : DTP_OK; /* what cannot be done does not help */
    }
    if (result.plan != NULL) {
        const char *text = dtp_variant_text(&result.plan->choices, result.arena);
        out->failed = out->failed || text == NULL;
        dtp_strbuf_addf(out, "it fits with %s; 'auto' for both looks for the fastest\n",
                        text != NULL ? text : "");
    }
    dtp_plan_result_free(&result);
    return DTP_OK;
}

static dtp_status say_result(plan_command *c, const dtp_plan_request *request,
                             const dtp_plan_result *result, dtp_err *err)
{
    if (!result->infeasible) {
        dtp_graph *planned = NULL;
        DTP_TRY(dtp_plan_graph(result->plan, c->model, &planned, err));
        dtp_status s = put_planned(c, result, planned, err);
        dtp_graph_destroy(planned);
        return s;
    }
    dtp_strbuf hint = {0};
    DTP_TRY(say_what_helps(c, request, &hint, err));
    c->exit_code = TOOL_INFEASIBLE;
    return say_infeasible(c, result, &hint, err);
}

static dtp_status run_planner(plan_command *c, const dtp_graph_variant *choices, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_plan_request request;
    dtp_plan_result result = {0};
    char buffer[4096];
    if (c->source.mesh != NULL) {
        DTP_TRY(dtp_mesh_parse(c->source.mesh, &mesh, err));
    }
    /* the limit: that of the device unless --memory says another, or none */
    c->limit_bytes = c->memory == NULL && c->machine != NULL ? c->machine->memory_bytes : 0;
    if (c->memory != NULL && strcmp(c->memory, "none") != 0) {
        DTP_TRY(tool_bytes_parse("--memory", c->memory, &c->limit_bytes, err));
    }
    DTP_TRY(make_request(c, c->source.mesh != NULL ? &mesh : NULL,
                         find_rules_file(c, buffer, sizeof buffer), &request, err));
    request.choices = choices;
    if (!is_by_pins(c)) {
        tool_interrupt_catch();
        c->stop.interrupt = tool_interrupt_signal();
    }
    DTP_TRY(choose(c, &request, &result, err));
    dtp_status s = say_result(c, &request, &result, err);
    dtp_plan_result_free(&result);
    return s;
}

/* ---- --compat auto_mtf: rules as Mesh TensorFlow's layout optimizer chooses them ---- */

static dtp_status solve_mtf(const plan_command *c, const dtp_mtf_graph *graph, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_mtf_problem *problem = NULL;
    dtp_mtf_solution solution;
    char text[DTP_MESH_TEXT_BYTES];
    DTP_TRY(dtp_mesh_parse(c->source.mesh, &mesh, err));
    DTP_TRY(dtp_mtf_problem_create(graph, &mesh, &problem, err));
    dtp_status s = dtp_mtf_solve(problem, &solution, err);
    dtp_json_writer w = {0};
    dtp_mesh_print(&mesh, text);
    if (s == DTP_OK && c->json) {
        tool_write_object(&w, NULL,
                          TOOL_FIELDS(FIELD_TEXT("compat", "auto_mtf"), FIELD_TEXT("mesh", text),
                                      FIELD_TEXT("rules", solution.layout),
                                      FIELD_INT("peak_bytes", solution.peak),
                                      FIELD_INT("objective", solution.objective),
                                      FIELD_INT("variables", problem->n_variables)));
        dtp_strbuf_add(&w.buf, "\n");
    } else if (s == DTP_OK) {
        dtp_strbuf_addf(&w.buf,
                        "rules: %s\npeak bytes in auto_mtf's model: %" PRId64
                        "\nobjective: %" PRId64 ", variables: %d\n",
                        solution.layout, solution.peak, solution.objective, problem->n_variables);
    }
    s = s == DTP_OK ? tool_put(&w.buf, err) : s;
    dtp_mtf_problem_destroy(problem);
    return s;
}

static dtp_status run_mtf(plan_command *c, dtp_err *err)
{
    dtp_mtf_graph *graph = NULL;
    if (strcmp(c->compat, "auto_mtf") != 0) {
        return DTP_FAIL(err, DTP_INVALID, "--compat: '%s' is not auto_mtf or torch", c->compat);
    }
    if (c->source.mesh == NULL || c->output != NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--compat auto_mtf needs --mesh and prints rules, it writes no plan file");
    }
    DTP_TRY(tool_read_graph(&c->source, &c->model, err));
    DTP_TRY(dtp_mtf_from_graph(c->model, &graph, err));
    dtp_status s = solve_mtf(c, graph, err);
    dtp_mtf_graph_destroy(graph);
    return s;
}

/* ---- the command ---- */

/* Which options go together. */
static dtp_status check_mode(const plan_command *c, dtp_err *err)
{
    const bool by_pins = is_by_pins(c);
    if (c->mode != NULL && strcmp(c->mode, "rules") != 0 && !is_tensor_mode(c)) {
        return DTP_FAIL(err, DTP_INVALID, "--mode: '%s' is not rules or tensor", c->mode);
    }
    if (is_tensor_mode(c) && (c->source.rules != NULL || c->torch || c->styles.strict)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--mode tensor takes pins by --pin and --style, and no --rules, --strict "
                        "or --compat");
    }
    if ((c->prices || c->unfold) && !is_tensor_mode(c)) {
        return DTP_FAIL(err, DTP_INVALID, "%s is for --mode tensor",
                        c->prices ? "--prices" : "--unfold");
    }
    if (by_pins && c->mode != NULL) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--mode rules takes pins by --rules, not --style or --pin");
    }
    if (c->torch && !by_pins) {
        return DTP_FAIL(err, DTP_INVALID, "--compat torch is for plans from --style and --pin");
    }
    if (by_pins && (c->source.mesh == NULL || c->source.rules != NULL)) {
        return DTP_FAIL(err, DTP_INVALID, "--style and --pin need --mesh and no --rules");
    }
    if (by_pins && (c->search.remat || c->search.microbatches)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--remat auto and --microbatches auto are for --mode rules and tensor");
    }
    if (c->styles.strict && !by_pins) {
        return DTP_FAIL(err, DTP_INVALID, "--strict is for plans from --style and --pin");
    }
    return DTP_OK;
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    plan_command *c = command;
    dtp_graph_variant choices;
    c->source.model = operands[0];
    c->stop.end_s = c->limit_s > 0.0 ? dtp_now_s() + c->limit_s : 0.0;
    c->ctx.level = c->verbose ? DTP_LOG_INFO : DTP_LOG_WARN;
    c->torch = c->compat != NULL && strcmp(c->compat, "torch") == 0;
    if (c->compat != NULL && !c->torch) {
        return run_mtf(c, err);
    }
    /* Takes what is searched for out of the options that name choices. */
    c->search.remat = c->remat != NULL && strcmp(c->remat, "auto") == 0;
    c->search.microbatches = c->microbatches != NULL && strcmp(c->microbatches, "auto") == 0;
    c->source.remat = c->search.remat ? NULL : c->remat;
    c->source.microbatches = c->search.microbatches ? NULL : c->microbatches;
    DTP_TRY(check_mode(c, err));
    if ((c->source.mesh != NULL) == (c->devices > 0)) {
        return DTP_FAIL(err, DTP_INVALID, "give either --mesh MESH or --devices N");
    }
    if (c->source.machine == NULL && !is_by_pins(c)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--machine FILE is missing ('dtrun bench -o FILE' measures this machine)");
    }
    DTP_TRY(tool_read_graph(&c->source, &c->model, err));
    if (c->source.machine != NULL) {
        DTP_TRY(dtp_machine_read(c->source.machine, &c->machine, err));
    }
    c->arena = dtp_arena_create();
    DTP_TRY(tool_read_choices(&c->source, c->model, c->arena, &choices, err));
    return run_planner(c, &choices, err);
}

int dtplan_plan(int argc, char **argv)
{
    plan_command c = {.objective = "time",
                      .solver = "auto",
                      .candidates = 6,
                      .seed = 1,
                      .threads = 2,
                      .gap = 0.001};
    const tool_option options[] = {
        {"--mesh", TOOL_STRING, "MESH", &c.source.mesh, 0, 0, "mesh such as 'x:2;y:2'"},
        {"--devices", TOOL_INT, "N", &c.devices, 1, 1 << 20, "search the mesh shape for N devices"},
        {"--machine", TOOL_STRING, "FILE", &c.source.machine, 0, 0,
         "machine file; plans that follow --style and --pin need none and then say no times"},
        {"--mode", TOOL_STRING, "MODE", &c.mode, 0, 0,
         "rules (default): layout rules; tensor: a layout per tensor. Without it --style and --pin "
         "are followed, nothing is searched"},
        {"--objective", TOOL_STRING, "WHAT", &c.objective, 0, 0, "time (default) or memory"},
        {"--memory", TOOL_STRING, "BYTES", &c.memory, 0, 0,
         "memory limit per rank, such as 80G, or none (default: the device's memory)"},
        {"--rules", TOOL_STRING, "RULES", &c.source.rules, 0, 0, "pins: splits that must hold"},
        TOOL_STYLE_OPTIONS(c.styles),
        {"--strict", TOOL_FLAG, NULL, &c.styles.strict, 0, 0,
         "operands may be sent only where a style or pin asked for it"},
        {"--remat", TOOL_STRING, "BLOCKS", &c.remat, 0, 0,
         "recompute blocks in the backward pass: none, all, names such as 'layer' or 'layer:0-3', "
         "or auto"},
        {"--microbatches", TOOL_STRING, "N", &c.microbatches, 0, 0,
         "run a step as N parts of the batch, such as 4 or 'batch=4', or auto"},
        {"--comm-report", TOOL_FLAG, NULL, &c.comm_report, 0, 0,
         "print what the plan communicates, and why, in place of the plan"},
        {"--rules-file", TOOL_STRING, "FILE", &c.rules_file, 0, 0,
         "hand-written baselines (default: MODEL.rules.json when there is one)"},
        {"--candidates", TOOL_INT, "N", &c.candidates, 1, 8,
         "near-optimal plans compared by their timeline (default 6)"},
        {"--prices", TOOL_FLAG, NULL, &c.prices, 0, 0,
         "say what the memory limit and every pin cost (tensor mode; solves again for each)"},
        {"--unfold", TOOL_FLAG, NULL, &c.unfold, 0, 0,
         "every instance of a repeated block decides for itself (tensor mode; slow)"},
        {"--solver", TOOL_STRING, "NAME", &c.solver, 0, 0,
         "tensor mode: auto (default), exact, large or glpk (small problems); rules mode: always "
         "glpk"},
        {"--seed", TOOL_INT, "N", &c.seed, 0, 9e15, "of the solver of tensor mode (default 1)"},
        {"--gap", TOOL_REAL, "G", &c.gap, 0, 1,
         "of large problems in tensor mode: cost and bound may differ by this share (default "
         "0.001)"},
        {"--limit-s", TOOL_REAL, "S", &c.limit_s, 0.01, 1e7,
         "ends planning after so many seconds with the best plan so far, as SIGINT does (default: "
         "none)"},
        {"--threads", TOOL_INT, "N", &c.threads, 1, 256,
         "of the solver of tensor mode (default 2); the plan does not depend on them"},
        {"--compat", TOOL_STRING, "WHAT", &c.compat, 0, 0,
         "torch: --style and --pin as PyTorch DTensor decides; auto_mtf: Mesh TensorFlow's layout "
         "optimizer, reproduced"},
        TOOL_MODEL_OPTIONS(c.source),
        {"--output", TOOL_OUT, "FILE", &c.output, 0, 0, "plan file (-o)"},
        {"--json", TOOL_FLAG, NULL, &c.json, 0, 0, "print the plan as JSON"},
        {"--timings", TOOL_FLAG, NULL, &c.timings, 0, 0, "write solve times into the plan"},
        {"--verbose", TOOL_FLAG, NULL, &c.verbose, 0, 0, "log each mesh of the search"},
        TOOL_END_OPTIONS,
    };
    const tool_parse parse = {"dtplan plan MODEL [options]", options, 1, 1};
    c.ctx = dtp_ctx_default();
    const int code = tool_run("dtplan", &parse, argc, argv, execute, &c);
    dtp_arena_destroy(c.arena);
    dtp_machine_destroy(c.machine);
    dtp_graph_destroy(c.model);
    return code == TOOL_OK ? c.exit_code : code;
}
