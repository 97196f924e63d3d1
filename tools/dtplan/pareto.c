/* dtplan pareto: memory against time. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "core/base/units.h"
#include "interop/styles/pin_texts.h"
#include "planner/reports/pareto.h"
#include "planner/plan_rules.h"
#include "planner/tensors/plan_tensor.h"
#include "tools/dtplan/inputs.h"
#include "tools/job.h"
#include "tools/machines.h"
#include "tools/progress.h"

static const char *mode_name(dtp_plan_mode plan)
{
    return plan == dtp_plan_tensor ? "tensor" : "rules";
}

typedef struct pareto_command {
    tool_source source;
    int exit_code;
    dtp_graph *graph;
    dtp_machine *machine;
    dtp_arena *arena;
} pareto_command;

static void top_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_pareto_point *p = user;
    tool_row(rows, TOOL_FIELDS(FIELD_TEXT("tensor", p->top[i].name),
                               FIELD_INT("bytes", p->top[i].bytes)));
}

static void point_row(tool_rows *rows, const void *user, int32_t i)
{
    const dtp_pareto_point *x = &((const dtp_pareto *)user)->points[i];
    const dtp_plan *plan = x->plan;
    tool_row(rows, TOOL_FIELDS(FIELD_MESH(&plan->mesh), FIELD_INT("limit_bytes", x->limit_bytes),
                               FIELD_INT("peak_bytes", plan->predicted.peak_bytes),
                               FIELD_REAL("step_time_s", plan->predicted.step_time_s),
                               FIELD_REAL("exposed_comm_s", plan->predicted.exposed_comm_s),
                               TOKEN_FIELDS(&plan->predicted, dtp_mesh_ranks(&plan->mesh)),
                               FIELD_INT("cost", plan->certificate.cost),
                               FIELD_INT("bound", plan->certificate.bound),
                               FIELD_INT("needed_bytes", x->needed_bytes),
                               FIELD_LIST("at_peak", x->n_top, top_row, x)));
}

/* Tokens per second of a device and MFU; nothing where the model has no tokens. */
static void print_tokens(const dtp_plan *plan, dtp_strbuf *out)
{
    const dtp_prediction *p = &plan->predicted;
    if (p->tokens_per_s > 0.0) {
        dtp_strbuf_addf(out, "    %.0f tokens/s, %.0f per device", p->tokens_per_s,
                        p->tokens_per_s / dtp_mesh_ranks(&plan->mesh));
        if (p->mfu > 0.0) {
            dtp_strbuf_addf(out, ", MFU %.1f %%", 100.0 * p->mfu);
        }
        if (p->vain > 0.0) {
            dtp_strbuf_addf(out, ", in vain %.1f %%", 100.0 * p->vain);
        }
        dtp_strbuf_add(out, "\n");
    }
}

static void print_points(const dtp_graph *g, const dtp_plan_request *request, dtp_plan_mode mode,
                         const char *rates, const dtp_pareto *pareto, dtp_strbuf *out)
{
    dtp_strbuf_addf(out,
                    "%s, %s mode, target %s: memory against time%s, each point the fastest plan "
                    "found within its memory\n\n%10s %10s %10s %8s  %s\n",
                    g->name, mode_name(mode), request->target->name, tool_rates_note(rates), "peak",
                    "step", "exposed", "slower", "mesh; largest at the peak");
    for (int32_t i = 0; i < pareto->n; i++) {
        const dtp_pareto_point *x = &pareto->points[i];
        const dtp_prediction *p = &x->plan->predicted;
        const double fastest = pareto->points[0].plan->predicted.step_time_s;
        char mesh[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(&x->plan->mesh, mesh);
        dtp_strbuf_addf(out, "%10s %10s %10s %+7.2f%%  %s\n",
                        dtp_byte_count((double)p->peak_bytes).text,
                        dtp_seconds(p->step_time_s).text, dtp_seconds(p->exposed_comm_s).text,
                        100.0 * (p->step_time_s / fastest - 1.0), mesh);
        for (int32_t k = 0; k < x->n_top && k < 3; k++) {
            dtp_strbuf_addf(out, "%s %s %.1f%%", k > 0 ? "," : "   ", x->top[k].name,
                            100.0 * (double)x->top[k].bytes / (double)x->needed_bytes);
        }
        dtp_strbuf_add(out, x->n_top > 0 ? "\n" : "");
        print_tokens(x->plan, out);
    }
}

static dtp_status run_pareto(pareto_command *c, dtp_plan_request *request, dtp_err *err)
{
    const dtp_graph *g = c->graph;
    const char *rates = tool_rates(c->machine, NULL);
    const dtp_plan_mode plan =
        strcmp(c->source.mode, "tensor") == 0 ? dtp_plan_tensor : dtp_plan_rules;
    dtp_pareto pareto;
    dtp_json_writer w = {0};
    tool_progress_begin("planning");
    const dtp_status found =
        dtp_pareto_find(g, c->machine, request, plan, c->source.points, &pareto, err);
    tool_progress_end();
    DTP_TRY(found);
    if (pareto.n == 0 && pareto.least_bytes == 0) {
        (void)fprintf(stderr,
                      "dtplan: infeasible: nothing fits into %s per rank; any plan needs at least "
                      "%s\n",
                      dtp_byte_count((double)request->options.memory_limit_bytes).text,
                      dtp_byte_count((double)pareto.least_bound).text);
        c->exit_code = TOOL_INFEASIBLE;
    } else if (pareto.n == 0) {
        (void)fprintf(stderr,
                      "dtplan: infeasible: nothing fits into %s per rank; the smallest memory "
                      "limit that works is about %s (--memory %s)\n",
                      dtp_byte_count((double)request->options.memory_limit_bytes).text,
                      dtp_byte_count((double)pareto.least_bytes).text,
                      tool_bytes_print(pareto.least_bytes, true, c->source.json).text);
        c->exit_code = TOOL_INFEASIBLE;
    } else if (c->source.json) {
        tool_report(&w, "dtp.pareto/1",
                    TOOL_FIELDS(FIELD_TEXT("model", g->name), FIELD_TEXT("mode", mode_name(plan)),
                                FIELD_TEXT("target", request->target->name),
                                FIELD_TEXT_IF(rates != NULL, "rates", rates),
                                FIELD_INT("least_bytes", pareto.least_bytes),
                                FIELD_INT("least_bound", pareto.least_bound),
                                FIELD_LIST("points", pareto.n, point_row, &pareto)));
    } else {
        print_points(g, request, plan, rates, &pareto, &w.buf);
    }
    dtp_pareto_free(&pareto);
    return (c->source.json ? tool_put : tool_put_text)(&w.buf, err);
}

static dtp_status execute(void *command, const char *const *operands, dtp_err *err)
{
    pareto_command *c = command;
    const bool tensor = strcmp(c->source.mode, "tensor") == 0;
    c->source.model = operands[0];
    const tool_call call = {TOOL_PARETO, NULL, c, &c->source, NULL};
    DTP_TRY(tool_check_mode(&call, tensor ? DTP_PLAN_TENSOR : DTP_PLAN_RULES, err));
    if ((c->source.mesh != NULL) == (c->source.devices > 0)) {
        return DTP_FAIL(err, DTP_INVALID, "give either --mesh MESH or --devices N");
    }
    if (c->source.machine == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--machine FILE is missing");
    }
    DTP_TRY(tool_read_graph(&c->source, &c->graph, err));
    DTP_TRY(tool_machine_of(&c->source, &c->machine, err));
    c->arena = dtp_arena_create();
    dtp_mesh mesh;
    dtp_plan_request request = dtp_plan_request_init();
    dtp_graph_variant variant;
    tool_target target;
    const char **texts = NULL;
    tool_path names;
    dtp_styles styles;
    const dtp_pin_source source = {.n_styles = c->source.styles.n,
                                   .n_files = c->source.style_files.n,
                                   .n_names = c->source.style_names.n,
                                   .n_pins = c->source.pins.n,
                                   .styles = c->source.styles.items,
                                   .files = c->source.style_files.items,
                                   .names = c->source.style_names.items,
                                   .names_file =
                                       tool_beside(&c->source, c->source.names, "names", &names),
                                   .pins = c->source.pins.items};
    if (c->source.mesh != NULL) {
        DTP_TRY(dtp_mesh_parse(c->source.mesh, &mesh, err));
        request.options.mesh = &mesh;
    }
    if (c->source.memory != NULL && strcmp(c->source.memory, "none") != 0) {
        DTP_TRY(tool_bytes_parse("--memory", c->source.memory, &request.options.memory_limit_bytes,
                                 err));
    }
    DTP_TRY(dtp_pin_texts(&source, c->arena, &styles, &request.n_texts, &texts, err));
    request.texts = texts;
    request.tying_bound = false;
    request.options.devices = c->source.devices;
    request.options.rules = c->source.rules;
    DTP_TRY(tool_target_find(&c->source, c->graph->framework, c->machine, &target, err));
    request.target = target.target;
    const dtp_variant_texts choice = {c->source.outputs,
                                      target.precision,
                                      c->source.remat,
                                      c->source.microbatches,
                                      c->source.regather,
                                      NULL,
                                      NULL};
    DTP_TRY(dtp_graph_variant_parse(&choice, c->graph, c->arena, &variant, err));
    request.variant = &variant;
    return dtp_pin_place(&styles, run_pareto(c, &request, err), err);
}

int dtplan_pareto(int argc, char **argv)
{
    pareto_command c = {0};
    const tool_call call = {TOOL_PARETO, execute, &c, &c.source, NULL};
    const int code = tool_run(&call, argc, argv);
    dtp_arena_destroy(c.arena);
    dtp_machine_destroy(c.machine);
    dtp_graph_destroy(c.graph);
    return code == TOOL_OK ? c.exit_code : code;
}
