/* The public planner (dtp/planner.h): options as texts become a request of the mode asked for. */
#include <string.h>

#include "core/base/clock.h"
#include "interop/styles/pin_texts.h"
#include "cost_models/predict.h"
#include "planner/plan_pins.h"
#include "planner/plan_rules.h"
#include "planner/planning.h"
#include "planner/stage_search.h"
#include "planner/tensors/plan_tensor.h"
#include "planner/variant_search.h"

typedef struct plan_maker {
    const dtp_graph *model;
    const dtp_machine *machine;
    dtp_arena *arena;
    dtp_styles styles; /* as they were read */
    dtp_graph_variant variant;
    dtp_names names;
    dtp_target target; /* of a form */
    dtp_plan_request request;
    dtp_variant_search search; /* what "auto" stands for */
    dtp_stage_search stages;   /* the same of plans with stages */
    dtp_stop stop;
    dtp_plan_watch watch;
} plan_maker;

static bool is_auto(const char *text)
{
    return text != NULL && strcmp(text, "auto") == 0;
}

/* The form of which a plan is to lose nothing. */
static dtp_status make_form(plan_maker *m, dtp_err *err)
{
    const dtp_plan_options *o = &m->request.options;
    if (o->expressible == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_err_prefixed(dtp_export_form_find(o->expressible, &m->request.form, err), err,
                             "expressible"));
    m->target = *m->request.target;
    m->target.terms_apart = m->request.form->terms_apart;
    m->request.target = &m->target;
    if (o->names_file != NULL) {
        DTP_TRY(dtp_names_read(o->names_file, m->arena, &m->names, err));
        m->request.names = &m->names;
    }
    return DTP_OK;
}

static dtp_status make_request(plan_maker *m, dtp_err *err)
{
    dtp_plan_request *r = &m->request;
    dtp_plan_options *o = &r->options;
    const dtp_plan_request usual = dtp_plan_request_init();
    const dtp_pin_source source = {.n_styles = o->n_styles,
                                   .n_files = o->n_style_files,
                                   .n_names = o->n_style_names,
                                   .n_pins = o->n_pins,
                                   .styles = o->styles,
                                   .files = o->style_files,
                                   .names = o->style_names,
                                   .names_file = o->names_file,
                                   .pins = o->pins};
    const char **texts = NULL;
    const bool asked = is_auto(o->remat) || is_auto(o->microbatches);
    const bool any = is_auto(o->stages);
    const bool fit =
        o->make_fit && o->mode != DTP_PLAN_PINS && !asked && (any || o->stages == NULL);
    m->search = (dtp_variant_search){.precision = is_auto(o->precision),
                                     .remat = is_auto(o->remat) || (fit && o->remat == NULL),
                                     .microbatches = is_auto(o->microbatches) ||
                                                     (fit && o->microbatches == NULL)};
    m->search.usual = o->mode == DTP_PLAN_TENSOR && o->objective == DTP_OBJECTIVE_TIME;
    m->search.when_needed = fit && (m->search.remat || m->search.microbatches);
    const dtp_variant_texts variant = {o->outputs,
                                       m->search.precision ? NULL : o->precision,
                                       m->search.remat ? NULL : o->remat,
                                       m->search.microbatches ? NULL : o->microbatches,
                                       o->regather,
                                       any ? NULL : o->stages,
                                       any ? NULL : o->slots};
    m->stages = (dtp_stage_search){.stages = any,
                                   .slots = any && o->slots == NULL,
                                   .remat = is_auto(o->remat),
                                   .microbatches = is_auto(o->microbatches),
                                   .without = m->search};
    DTP_TRY(dtp_graph_variant_parse(&variant, m->model, m->arena, &m->variant, err));
    if (any && m->model->loss < 0) {
        return DTP_FAIL(err, DTP_INVALID, "stages: '%s' is not trained", m->model->name);
    }
    if (any) { /* reads the slots */
        dtp_stage_choice one;
        DTP_TRY(dtp_stages_parse("1", o->slots, m->model, m->arena, &one, err));
        m->variant.stages.slots = one.slots;
    }
    DTP_TRY(dtp_target_find(o->target != NULL ? o->target : "cpu", &r->target, err));
    o->candidates = o->candidates > 0 ? o->candidates : usual.options.candidates;
    o->threads = o->threads > 0 ? o->threads : usual.options.threads;
    const int64_t of_device = m->machine != NULL ? dtp_memory_limit(m->machine, r->target) : 0;
    const int64_t limit = o->memory_limit_bytes == 0 ? of_device : o->memory_limit_bytes;
    o->memory_limit_bytes = limit < 0 ? 0 : limit;
    r->variant = &m->variant;
    r->stop = &m->stop;
    m->watch = (dtp_plan_watch){.progress = o->progress, .user = o->user};
    r->watch = o->progress != NULL ? &m->watch : NULL;
    DTP_TRY(dtp_solver_parse(o->solver != NULL ? o->solver : "auto", &r->solver, err));
    DTP_TRY(dtp_pin_texts(&source, m->arena, &m->styles, &r->n_texts, &texts, err));
    r->texts = texts;
    return make_form(m, err);
}

/* Which options go together. */
static dtp_status check(const plan_maker *m, dtp_err *err)
{
    const dtp_plan_options *o = &m->request.options;
    const bool by_pins = o->mode == DTP_PLAN_PINS;
    if (m->machine == NULL && !by_pins) {
        return DTP_FAIL(err, DTP_INVALID, "dtp_plan_make: only pins mode needs no machine");
    }
    if (by_pins && o->uneven) {
        return DTP_FAIL(err, DTP_INVALID,
                        "dtp_plan_make: pins mode splits as its pins say, evenly or not; `uneven` "
                        "is for what is searched");
    }
    if (by_pins ? o->mesh == NULL : (o->mesh != NULL) == (o->devices > 0)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "dtp_plan_make: give either a mesh or devices (pins "
                        "mode: a mesh)");
    }
    if (o->expressible != NULL && (by_pins || o->uneven)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "dtp_plan_make: expressible is for what is searched, with even splits");
    }
    if (o->stages != NULL && by_pins &&
        (is_auto(o->stages) || o->torch || o->strict || (o->rules != NULL && o->n_styles > 0))) {
        return DTP_FAIL(err, DTP_INVALID,
                        "stages in pins mode are given, where layouts follow from styles or from "
                        "rules, without torch and strict");
    }
    if (o->stages != NULL && !by_pins &&
        (o->mode != DTP_PLAN_TENSOR || o->objective != DTP_OBJECTIVE_TIME ||
         o->expressible != NULL || is_auto(o->precision) || o->uneven)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "stages are searched in tensor mode for the shortest step, with a given "
                        "precision, even splits and without expressible");
    }
    if (is_auto(o->stages) && (o->mesh != NULL || o->n_pins > 0 || o->n_styles > 0)) {
        return DTP_FAIL(err, DTP_INVALID,
                        "stages auto: the search divides devices among stages and meshes, so it "
                        "takes no mesh, styles and pins");
    }
    if ((o->strict || o->torch || o->alone) && !by_pins) {
        return DTP_FAIL(err, DTP_INVALID,
                        "dtp_plan_make: strict, torch and alone are for pins mode");
    }
    if (by_pins && (is_auto(o->precision) || is_auto(o->remat) || is_auto(o->microbatches))) {
        return DTP_FAIL(err, DTP_INVALID, "dtp_plan_make: pins mode searches nothing: no 'auto'");
    }
    return DTP_OK;
}

/* The plan that follows from styles and pins on the mesh of the request, by propagation. */
static dtp_status plan_by_pins(const plan_maker *m, dtp_plan_result *out, dtp_err *err)
{
    dtp_plan_request by_pins = m->request;
    const dtp_plan_request *r = &by_pins;
    dtp_pin_set pins;
    /* What they say, which name nodes of the graph with the variant of the request. */
    dtp_graph *changed = NULL;
    DTP_TRY(dtp_graph_with_variant(m->model, r->variant, 0, NULL, &changed, err));
    dtp_status s =
        dtp_pin_set_read(r->n_texts, r->texts, changed, r->options.mesh, m->arena, &pins, err);
    dtp_graph_destroy(changed);
    DTP_TRY(s);
    by_pins.pins = &pins;
    return dtp_plan_pins(m->model, m->machine, r, out, err);
}

/* With stages whose number is given, or searched as well. */
static dtp_status plan_stages(const plan_maker *m, dtp_plan_result *out, dtp_err *err)
{
    const int32_t n = m->stages.stages ? 1 : m->variant.stages.n;
    dtp_plan_request r = m->request;
    if (r.options.mesh == NULL && r.options.devices % n != 0) {
        return DTP_FAIL(err, DTP_INVALID, "stages: %d do not divide %d devices", n,
                        r.options.devices);
    }
    if (m->stages.stages || m->stages.remat || m->stages.microbatches) {
        return dtp_plan_stages(dtp_plan_tensor, m->model, m->machine, &r, &m->stages, out, err);
    }
    r.options.devices /= n;
    r.max_mesh_dims--;
    r.find_limit = true;
    return dtp_plan_tensor(m->model, m->machine, &r, out, err);
}

static dtp_status plan(const plan_maker *m, dtp_plan_result *out, dtp_err *err)
{
    if (m->request.options.mode == DTP_PLAN_PINS) {
        return plan_by_pins(m, out, err);
    }
    if (m->stages.stages || m->variant.stages.n > 1) {
        return plan_stages(m, out, err);
    }
    const dtp_plan_mode mode =
        m->request.options.mode == DTP_PLAN_TENSOR ? dtp_plan_tensor : dtp_plan_rules;
    return m->search.precision || m->search.remat || m->search.microbatches
               ? dtp_plan_variants(mode, m->model, m->machine, &m->request, &m->search, out, err)
               : mode(m->model, m->machine, &m->request, out, err);
}

/* Whether the form of the request loses nothing of a plan, which then says how. */
static dtp_status is_said(const plan_maker *m, dtp_plan *plan, bool *is, dtp_err *err)
{
    dtp_said how;
    dtp_graph *graph = NULL;
    dtp_plan same = *plan; /* borrows from it */
    same.expressible.form = m->request.form->name;
    DTP_TRY(dtp_plan_graph(plan, m->model, &graph, err));
    const dtp_status s =
        dtp_export_says_all(m->request.form, &same, graph, m->request.names, &how, err);
    dtp_graph_destroy(graph);
    const bool placements = s == DTP_OK && how == DTP_SAID_PLACEMENTS;
    const char *failing = dtp_export_placements_fail(m->model, m->machine->kind);
    *is = s == DTP_OK && how != DTP_SAID_NOT && !(placements && failing != NULL);
    if (*is && m->request.form->has_modules) {
        plan->expressible.by = placements ? "placements" : "modules";
        plan->expressible.failing = failing;
    }
    return s;
}

/* The best plan of any form beside the best one that the form says, in time that is left. Where the
 * form says it and it is better, it is the plan. */
static dtp_status compare_all(plan_maker *m, dtp_plan_result *out, dtp_err *err)
{
    const dtp_export_form *form = m->request.form;
    const dtp_target *target = m->request.target;
    dtp_plan_result all = {0};
    dtp_err why = {0};
    bool said = false;
    m->request.form = NULL;
    DTP_TRY(dtp_target_find(target->name, &m->request.target, err));
    dtp_status s = plan(m, &all, &why);
    m->request.form = form;
    m->request.target = target;
    dtp_prediction best = out->plan->predicted;
    if (s == DTP_OK && all.plan != NULL) {
        const dtp_prediction *of = &all.plan->predicted;
        const bool memory = m->request.options.objective == DTP_OBJECTIVE_MEMORY;
        const bool better =
            memory ? of->peak_bytes < best.peak_bytes : of->step_time_s < best.step_time_s;
        best = better ? *of : best;
        s = (better || dtp_plan_by_placements(out->plan)) && !form->terms_apart
                ? is_said(m, all.plan, &said, &why)
                : DTP_OK;
    }
    if (said) { /* judged as plans of the form are */
        dtp_plan_result_keep(out, &all, dtp_plan_result_better(&m->request, &all, out),
                             m->request.options.slack);
    } else {
        dtp_plan_result_free(&all);
    }
    s = s == DTP_STOPPED ? DTP_OK : s;
    dtp_plan_expressible *e = &out->plan->expressible;
    e->form = form->name; /* where the plan is that of all: its bound is theirs */
    e->all_step_time_s = best.step_time_s;
    e->all_peak_bytes = best.peak_bytes;
    return s == DTP_OK ? DTP_OK : DTP_FAIL(err, s, "%s", why.msg);
}

/* Needs `finish`, also after a failure. */
static dtp_status start(const dtp_graph *model, const dtp_machine *machine,
                        const dtp_plan_options *options, plan_maker *m, dtp_err *err)
{
    *m = (plan_maker){.model = model, .machine = machine, .request = dtp_plan_request_init()};
    dtp_plan_options *o = &m->request.options;
    DTP_TRY(dtp_options_read("dtp_plan_make", options, sizeof *o, o, err));
    DTP_TRY(check(m, err));
    m->stop = (dtp_stop){.end_s = o->limit_s > 0.0 ? dtp_now_s() + o->limit_s : 0.0,
                         .interrupted = o->interrupted,
                         .user = o->user};
    m->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, m->arena));
    return make_request(m, err);
}

static void finish(plan_maker *m)
{
    dtp_arena_destroy(m->arena);
}

dtp_status dtp_plan_make(const dtp_graph *model, const dtp_machine *machine,
                         const dtp_plan_options *options, dtp_plan_result *out, dtp_err *err)
{
    plan_maker m;
    DTP_TRY(DTP_NOT_NULL(err, model, options, out));
    dtp_status s = start(model, machine, options, &m, err);
    s = s == DTP_OK ? plan(&m, out, err) : s;
    if (s == DTP_OK && m.request.form != NULL && out->plan != NULL) {
        s = compare_all(&m, out, err);
    }
    s = m.arena != NULL ? dtp_pin_place(&m.styles, s, err) : s;
    out->memory_limit_bytes = m.request.options.memory_limit_bytes;
    finish(&m);
    return s;
}

dtp_status dtp_plan_fits(const dtp_graph *model, const dtp_machine *machine,
                         const dtp_plan_options *options, dtp_plan_result *out, dtp_err *err)
{
    plan_maker m;
    DTP_TRY(DTP_NOT_NULL(err, model, machine, options, out));
    *out = (dtp_plan_result){0};
    dtp_status s = start(model, machine, options, &m, err);
    const dtp_plan_request *r = &m.request;
    const bool usual = r->options.mode == DTP_PLAN_TENSOR && r->n_texts == 0 && r->form == NULL &&
                       r->options.stages == NULL && r->options.objective == DTP_OBJECTIVE_TIME;
    if (s == DTP_OK && usual) {
        m.request.usual = true;
        m.request.max_mesh_dims = 2;
        m.search.usual = false;
        s = plan(&m, out, err);
        out->memory_limit_bytes = m.request.options.memory_limit_bytes;
    }
    finish(&m);
    if (s == DTP_OK && out->plan == NULL) {
        dtp_plan_result_free(out);
        s = dtp_plan_make(model, machine, options, out, err);
    }
    return s;
}

dtp_status dtp_plan_what_helps(const dtp_graph *model, const dtp_machine *machine,
                               const dtp_plan_options *options, char **text, dtp_err *err)
{
    plan_maker m;
    dtp_plan_result result = {0};
    DTP_TRY(DTP_NOT_NULL(err, model, options, text));
    *text = NULL;
    dtp_status s = start(model, machine, options, &m, err);
    m.search = (dtp_variant_search){.remat = m.request.options.remat == NULL,
                                    .microbatches = m.request.options.microbatches == NULL,
                                    .helps = true};
    if (s == DTP_OK && m.request.options.memory_limit_bytes > 0 &&
        m.request.options.mode != DTP_PLAN_PINS && (m.search.remat || m.search.microbatches)) {
        s = plan(&m, &result, err);
        s = s == DTP_NOMEM ? s : DTP_OK; /* what cannot be done does not help */
    }
    if (s == DTP_OK && result.plan != NULL) {
        const char *found = dtp_variant_text(&m.search, &result.plan->variant, result.arena);
        *text = found != NULL ? strdup(found) : NULL;
        s = *text != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for a report");
    }
    dtp_plan_result_free(&result);
    finish(&m);
    return s;
}
