/* Planning as the options of dtplan plan ask for. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "planner/plan_pins.h"
#include "planner/plan_rules.h"
#include "planner/tensors/plan_tensor.h"
#include "tools/dtplan/plan.h"

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
    out->seed = (uint64_t)c->seed;
    out->threads = (int32_t)c->threads;
    out->gap = c->gap;
    out->prices = c->prices;
    out->unfold = c->unfold;
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

static dtp_status read_limit(plan_command *c, const dtp_machine *machine, dtp_err *err)
{
    c->limit_bytes = machine != NULL ? machine->memory_bytes : 0;
    if (c->memory == NULL) {
        return DTP_OK;
    }
    c->limit_bytes = 0;
    return strcmp(c->memory, "none") == 0
               ? DTP_OK
               : tool_bytes_parse("--memory", c->memory, &c->limit_bytes, err);
}

/* What --style and --pin say, which name nodes of the graph with the choices of the request. */
static dtp_status read_pins(const dtp_graph *model, const dtp_plan_request *request,
                            dtp_arena *arena, dtp_pin_set *pins, dtp_err *err)
{
    dtp_graph *changed = NULL;
    DTP_TRY(dtp_graph_with_variant(model, request->choices, 0, NULL, &changed, err));
    dtp_status s = dtp_pin_set_read(request->n_texts, request->texts, changed, request->mesh, arena,
                                    pins, err);
    dtp_graph_destroy(changed);
    return s;
}

/* The plan that follows from --style and --pin on the mesh of the request, by propagation. */
static dtp_status plan_by_pins(const plan_command *c, const dtp_graph *g,
                               const dtp_machine *machine, const dtp_plan_request *request,
                               dtp_arena *arena, dtp_plan_result *out, dtp_err *err)
{
    dtp_pin_set pins;
    DTP_TRY(read_pins(g, request, arena, &pins, err));
    const dtp_pins_request by_pins = {.mesh = request->mesh,
                                      .n_pins = pins.n_pins,
                                      .pins = pins.pins,
                                      .n_implementations = pins.n_implementations,
                                      .implementations = pins.implementations,
                                      .n_texts = pins.n_texts,
                                      .texts = pins.texts,
                                      .strict = c->styles.strict,
                                      .redistribution = c->torch ? DTP_REDISTRIBUTION_TORCH
                                                                 : DTP_REDISTRIBUTION_OWN,
                                      .objective = request->objective,
                                      .memory_limit_bytes = request->memory_limit_bytes,
                                      .choices = request->choices,
                                      .rules_file = request->rules_file};
    return dtp_plan_pins(g, machine, &by_pins, out, err);
}

static dtp_plan_mode mode_of(const plan_command *c)
{
    return plan_is_tensor_mode(c) ? dtp_plan_tensor : dtp_plan_rules;
}

/* Chooses the plan in the mode that was asked for; `arena` has texts while it runs. */
static dtp_status choose(plan_command *c, const dtp_graph *g, const dtp_machine *machine,
                         dtp_plan_request *request, dtp_arena *arena, dtp_plan_result *out,
                         dtp_err *err)
{
    const char **texts = NULL;
    DTP_TRY(tool_styles_texts(&c->styles, arena, &request->n_texts, &texts, err));
    request->texts = texts;
    dtp_status s;
    if (plan_is_by_pins(c)) {
        s = plan_by_pins(c, g, machine, request, arena, out, err);
    } else {
        s = c->search.remat || c->search.microbatches
                ? dtp_plan_variants(mode_of(c), g, machine, request, &c->search, out, err)
                : mode_of(c)(g, machine, request, out, err);
    }
    return tool_styles_say_place(&c->styles, s, err);
}

/* Says which choice that was not asked for makes a plan fit, if one does. */
static dtp_status say_what_helps(const plan_command *c, const dtp_graph *g,
                                 const dtp_machine *machine, const dtp_plan_request *request,
                                 dtp_strbuf *out, dtp_err *err)
{
    const dtp_variant_search probe = {
        .remat = c->remat == NULL, .microbatches = c->microbatches == NULL, .first = true};
    dtp_plan_result result;
    if (c->limit_bytes == 0 || plan_is_by_pins(c) || (!probe.remat && !probe.microbatches)) {
        return DTP_OK;
    }
    const dtp_status s = dtp_plan_variants(mode_of(c), g, machine, request, &probe, &result, err);
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

static dtp_status say_result(plan_command *c, const dtp_graph *g, const dtp_machine *machine,
                             const dtp_plan_request *request, const dtp_plan_result *result,
                             dtp_err *err)
{
    if (!result->infeasible) {
        return plan_put(c, result, g, err);
    }
    dtp_strbuf hint = {0};
    DTP_TRY(say_what_helps(c, g, machine, request, &hint, err));
    c->exit_code = TOOL_INFEASIBLE;
    return plan_say_infeasible(c, result, &hint, err);
}

/* g: the model's. */
dtp_status plan_run(plan_command *c, const dtp_graph *g, const dtp_machine *machine,
                    const dtp_graph_variant *choices, dtp_err *err)
{
    dtp_mesh mesh;
    dtp_plan_request request;
    dtp_plan_result result = {0};
    char buffer[4096];
    if (c->source.mesh != NULL) {
        DTP_TRY(dtp_mesh_parse(c->source.mesh, &mesh, err));
    }
    DTP_TRY(read_limit(c, machine, err));
    DTP_TRY(make_request(c, c->source.mesh != NULL ? &mesh : NULL,
                         find_rules_file(c, buffer, sizeof buffer), &request, err));
    request.choices = choices;
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = arena == NULL ? DTP_FAIL(err, DTP_NOMEM, "out of memory for pins")
                                 : choose(c, g, machine, &request, arena, &result, err);
    if (s == DTP_OK) {
        s = say_result(c, g, machine, &request, &result, err);
        dtp_plan_result_free(&result);
    }
    dtp_arena_destroy(arena);
    return s;
}
