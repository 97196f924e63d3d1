/* Planning on one mesh: what rules mode and tensor mode share (docs/how-a-plan-is-found.md). */
#include "planner/planning.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/units.h"
#include "cost_models/plan_lowering.h"
#include "cost_models/node_price.h"
#include "cost_models/job.h"
#include "cost_models/model_flops.h"
#include "core/graph/graph.h"

dtp_plan_request dtp_plan_request_init(void)
{
    dtp_plan_request r = {.options = dtp_plan_options_init(),
                          .max_mesh_dims = 3,
                          .target = &dtp_target_cpu,
                          .margin = 0.05,
                          .tying_bound = true};
    r.options.slack = 0.0; /* the fastest plan */
    r.options.devices = 1;
    r.options.candidates = 6;
    r.options.threads = 2;
    return r;
}

const char *dtp_mesh_outcome_name(dtp_mesh_outcome outcome)
{
    static const char *const names[] = {"planned", "pruned", "infeasible",
                                        "skipped", "ended",  "left out"};
    return names[outcome];
}

void dtp_plan_result_free(dtp_plan_result *result)
{
    dtp_plan_destroy(result->plan);
    dtp_arena_destroy(result->arena);
    memset(result, 0, sizeof *result);
}

const dtp_redistributor *dtp_planning_redistributor(const dtp_planning *p)
{
    return dtp_redistribution_pricer_redistributor(p->redistributions);
}

/* ---- candidates ---- */

int64_t dtp_planning_excess(const dtp_planning *p, const dtp_candidate *c)
{
    const int64_t limit = p->request->options.memory_limit_bytes;
    return limit > 0 ? c->predicted.peak_bytes - limit : 0;
}

dtp_lower_options dtp_planning_lowering(const dtp_planning *p,
                                        const dtp_redistributor *redistributor)
{
    const bool least = p->request->options.objective == DTP_OBJECTIVE_MEMORY;
    dtp_lower_options options = dtp_lower_options_init(redistributor);
    options.target = p->pricer.target;
    options.overlap.depth = DTP_OVERLAP_CHOOSE;
    /* The least memory: no more than is needed without overlap. */
    options.overlap.memory_bytes = least ? 1 : p->request->options.memory_limit_bytes;
    return options;
}

/* The makespan first for objective time, the peak first for objective memory; the other breaks
 * ties. */
static bool better(const dtp_planning *p, const dtp_prediction *a, const dtp_prediction *b)
{
    if (p->request->options.objective == DTP_OBJECTIVE_MEMORY && a->peak_bytes != b->peak_bytes) {
        return a->peak_bytes < b->peak_bytes;
    }
    return a->step_time_s != b->step_time_s ? a->step_time_s < b->step_time_s
                                            : a->peak_bytes < b->peak_bytes;
}

/* Of the best of a mesh, other meshes and other variants. */
void dtp_planning_tell(const dtp_planning *p)
{
    const dtp_plan_watch *watch = p->request->watch;
    char mesh[DTP_MESH_TEXT_BYTES];
    if (watch == NULL) {
        return;
    }
    const dtp_plan *const others[] = {p->others, watch->best};
    dtp_prediction fastest[2];
    const dtp_prediction *best = p->has_best ? &p->best.predicted : NULL;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        fastest[i] = others[i] != NULL ? dtp_plan_fastest_found(others[i]) : (dtp_prediction){0};
        best = others[i] != NULL && (best == NULL || better(p, &fastest[i], best)) ? &fastest[i]
                                                                                   : best;
    }
    const bool here = p->has_best && best == &p->best.predicted && p->certificate.bound > 0 &&
                      p->request->options.objective == DTP_OBJECTIVE_TIME;
    dtp_mesh_print(&p->pricer.mesh, mesh);
    const dtp_plan_progress now = {.mesh = mesh,
                                   .variant = watch->variant,
                                   .best_s = best != NULL ? best->step_time_s : 0.0,
                                   .best_bytes = best != NULL ? best->peak_bytes : 0,
                                   .gap =
                                       here ? dtp_gap(p->best.cost_ps, p->certificate.bound) : -1};
    watch->progress(watch->user, &now);
}

static dtp_status said_by(const dtp_export_form *form, const dtp_planning *p,
                          const dtp_candidate *c, dtp_said *how, dtp_err *err)
{
    const dtp_plan_request *r = p->request;
    dtp_plan plan = {.mesh = p->pricer.mesh,
                     .target = r->target->name,
                     .rules_mode = p->planner->rules_only,
                     .rules = c->rules,
                     .uneven = r->options.uneven,
                     .sharding = c->sharding,
                     .expressible = {.form = form->name}};
    if (r->variant != NULL) {
        plan.variant = *r->variant;
    }
    return dtp_export_says_all(form, &plan, p->graph, r->names, how, err);
}

dtp_status dtp_planning_is_said(const dtp_planning *p, const dtp_candidate *c, dtp_said *how,
                                dtp_err *err)
{
    *how = DTP_SAID;
    if (p->request->form == NULL) {
        return DTP_OK;
    }
    DTP_TRY(said_by(p->request->form, p, c, how, err));
    if (*how == DTP_SAID_PLACEMENTS &&
        dtp_export_placements_fail(p->model, p->machine->kind) != NULL) {
        *how = DTP_SAID_NOT;
    }
    return DTP_OK;
}

dtp_status dtp_planning_offer(dtp_planning *p, const dtp_candidate *c, dtp_err *err)
{
    dtp_said how;
    if (!c->legal || dtp_planning_excess(p, c) > 0 || !p->planner->keeps_pins(p, c)) {
        return DTP_OK;
    }
    DTP_TRY(dtp_planning_is_said(p, c, &how, err));
    if (how == DTP_SAID_NOT) {
        return DTP_OK;
    }
    const int k = how == DTP_SAID_PLACEMENTS ? 1 : 0;
    if (!p->has_form[k] || better(p, &c->predicted, &p->by_form[k])) {
        p->by_form[k] = c->predicted;
        p->has_form[k] = true;
    }
    dtp_candidate next = *c;
    next.by_placements = k == 1;
    const dtp_prediction now = dtp_judged(&c->predicted, next.by_placements),
                         was = dtp_judged(&p->best.predicted, p->best.by_placements);
    p->cheapest = !p->has_best || c->cost_ps < p->cheapest.cost_ps ? *c : p->cheapest;
    const double slack = p->request->options.slack;
    if (p->request->options.objective == DTP_OBJECTIVE_TIME && slack > 0.0 &&
        (!p->has_best || now.step_time_s <= (1.0 + slack) * was.step_time_s)) {
        DTP_TRY(dtp_ties_add(&p->ties, &next, p->arena, err));
    }
    if (!p->has_best || better(p, &now, &was)) {
        p->best = next;
        p->has_best = true;
        dtp_planning_tell(p);
    }
    return DTP_OK;
}

/* Of what takes about as long as the incumbent the one that is best else becomes the incumbent. */
static dtp_status break_ties(dtp_planning *p, dtp_plan *plan, dtp_err *err)
{
    const dtp_export_form *torch = NULL;
    const dtp_graph_variant *v = p->request->variant;
    const bool staged = v != NULL && v->stages.n > 1; /* of which no module says anything */
    const double slack = p->request->options.slack;
    const dtp_candidate fastest = p->best;
    const double step_s = dtp_judged(&fastest.predicted, fastest.by_placements).step_time_s;
    if (slack <= 0.0 || p->ties.n == 0) {
        return DTP_OK;
    }
    dtp_ties_keep_least(&p->ties, (1.0 + slack) * step_s);
    DTP_TRY(dtp_export_form_find("torch", &torch, err));
    for (int32_t i = 0; i < p->ties.n && p->ties.n > 1 && !staged; i++) {
        dtp_tie *t = &p->ties.items[i];
        dtp_said how = t->candidate.by_placements ? DTP_SAID_PLACEMENTS : DTP_SAID;
        DTP_TRY(p->request->form == torch ? DTP_OK : said_by(torch, p, &t->candidate, &how, err));
        t->by_modules = how == DTP_SAID;
    }
    p->best = *dtp_ties_simplest(&p->ties);
    if (p->best.predicted.step_time_s > fastest.predicted.step_time_s) {
        plan->fastest = (dtp_plan_fastest){slack, fastest.predicted.step_time_s,
                                           fastest.predicted.peak_bytes, fastest.by_placements};
    }
    return DTP_OK;
}

dtp_status dtp_planning_price_baselines(dtp_planning *p, dtp_err *err)
{
    if (p->baselines != NULL || p->request->trial) {
        return DTP_OK;
    }
    const dtp_baseline_options options = {
        .machine = dtp_planning_redistributor(p),
        .generic = dtp_redistribute_cache_planner(p->generic),
        .rules_file = p->request->options.rules_file,
        .for_form = p->request->form != NULL && !p->planner->rules_only,
        .rules_only = p->planner->rules_only,
        .usual = !p->request->usual && !p->request->of_finer ? DTP_USUAL_ALL
                 : p->request->n_meshes > 0                  ? DTP_USUAL_APART
                                                             : DTP_USUAL_ALONE,
        .fastest = p->request->form == NULL && p->request->n_texts == 0,
        .limit = dtp_planning_lowering(p, NULL).overlap.memory_bytes,
        .stop = p->request->stop};
    return dtp_baselines_create(p->graph, &p->pricer, &options, p->arena, &p->n_baselines,
                                &p->baselines, err);
}

dtp_status dtp_planning_offer_baselines(dtp_planning *p, dtp_err *err)
{
    for (int32_t i = 0; i < p->n_baselines && p->baselines != NULL; i++) {
        DTP_TRY(dtp_planning_offer(p, &p->baselines[i], err));
    }
    return DTP_OK;
}

/* ---- the plan ---- */

/* The cost is that of the plan chosen by its makespan; OPTIMAL when it also has the least additive
 * cost. */
static dtp_status certify(const dtp_planning *p, dtp_certificate *out, dtp_err *err)
{
    dtp_certificate c = p->certificate;
    const bool time = p->request->options.objective == DTP_OBJECTIVE_TIME;
    c.cost = time ? p->best.cost_ps : p->best.predicted.peak_bytes;
    c.least_cost = time ? p->cheapest.cost_ps : c.cost;
    bool reached = c.cost == c.bound;
    if (c.status == DTP_CERT_OPTIMAL && reached) {
        DTP_TRY(p->planner->in_space(p, &p->best, &reached, err));
    }
    c.status = c.status == DTP_CERT_OPTIMAL && !reached ? DTP_CERT_FEASIBLE : c.status;
    c.gap = dtp_gap(c.cost, c.bound);
    *out = c;
    return DTP_OK;
}

/* A bound is one of the plans of a selection problem. Baselines may be no such plans: the problem
 * has splits in mesh order alone, and ZeRO beside tensor parallelism splits what that leaves on a
 * rank, as FSDP does. The bound of all plans is at most what these cost. */
static dtp_status admit_others(const dtp_planning *p, dtp_certificate *c, dtp_err *err)
{
    const int64_t least = p->cheapest.cost_ps;
    bool is = true;
    if (!p->has_best || p->request->options.objective != DTP_OBJECTIVE_TIME || least >= c->bound) {
        return DTP_OK;
    }
    DTP_TRY(p->planner->in_space(p, &p->cheapest, &is, err));
    if (!is) {
        c->bound = least;
        c->untied_bound = c->untied_bound < least ? c->untied_bound : least;
        c->gap = dtp_gap(c->cost, c->bound);
        c->untied_gap = c->has_untied ? dtp_gap(c->least_cost, c->untied_bound) : c->untied_gap;
    }
    return DTP_OK;
}

dtp_status dtp_planning_add_pin(dtp_plan *plan, const char *text, dtp_err *err)
{
    plan->pins[plan->n_pins] = text != NULL ? dtp_arena_strdup(plan->arena, text) : NULL;
    DTP_TRY(DTP_MEMORY(err, plan->pins[plan->n_pins]));
    plan->n_pins++;
    return DTP_OK;
}

/* By modules or by placements alone, and what the other would take. */
static void fill_forms(const dtp_planning *p, dtp_plan_expressible *e)
{
    const int other = p->best.by_placements ? 0 : 1;
    if (p->request->form->has_modules) {
        e->by = p->best.by_placements ? "placements" : "modules";
        e->failing = dtp_export_placements_fail(p->model, p->machine->kind);
        e->other_step_time_s = p->has_form[other] ? p->by_form[other].step_time_s : 0.0;
        e->other_peak_bytes = p->has_form[other] ? p->by_form[other].peak_bytes : 0;
    }
}

static dtp_status fill_plan(dtp_planning *p, dtp_plan *plan, dtp_err *err)
{
    DTP_TRY(dtp_plan_set_model(plan, p->model, err));
    DTP_TRY(dtp_plan_set_machine(plan, p->machine, err));
    plan->pins = dtp_arena_alloc(p->arena, (size_t)p->request->n_texts + 3, sizeof *plan->pins);
    DTP_TRY(DTP_MEMORY(err, plan->pins));
    plan->mesh = p->pricer.mesh;
    plan->target = p->request->target->name;
    plan->objective = p->request->options.objective;
    plan->memory_limit_bytes = p->request->options.memory_limit_bytes;
    plan->uneven = p->request->options.uneven;
    if (p->request->form != NULL) {
        plan->expressible = (dtp_plan_expressible){.form = p->request->form->name,
                                                   .bounded = !p->planner->rules_only &&
                                                              p->request->form->loses != 0};
        fill_forms(p, &plan->expressible);
    }
    plan->predicted = p->best.predicted;
    plan->overlap = p->best.overlap;
    DTP_TRY(certify(p, &plan->certificate, err));
    if (p->request->variant != NULL) {
        DTP_TRY(dtp_graph_variant_copy(p->request->variant, p->arena, &plan->variant, err));
    }
    dtp_predict_throughput(p->model, p->machine, &plan->variant.precision,
                           dtp_graph_stages(p->graph) * dtp_mesh_ranks(&plan->mesh),
                           &plan->predicted);
    DTP_TRY(p->planner->decide(p, plan, err));
    DTP_TRY(dtp_plan_set_regather(plan, p->graph, p->best.sharding.regather, err));
    DTP_TRY(admit_others(p, &plan->certificate, err));
    DTP_TRY(dtp_plan_list_redistributions(plan, p->graph, p->best.redistributor, err));
    if (plan->memory_limit_bytes > 0) {
        DTP_TRY(dtp_planning_add_pin(
            plan, dtp_arena_printf(p->arena, "memory %" PRId64, plan->memory_limit_bytes), err));
    }
    if (!plan->uneven) {
        DTP_TRY(dtp_planning_add_pin(plan, "even splits", err));
    }
    return dtp_plan_add_baselines(plan, p->n_baselines, p->baselines, err);
}

/* ---- one mesh ---- */

static dtp_status plan_into(dtp_planning *p, dtp_plan *plan, dtp_err *err)
{
    dtp_planning_tell(p);
    dtp_status s = p->planner->begin(p, err);
    s = s == DTP_OK ? p->planner->solve(p, err) : s;
    if ((s != DTP_OK && s != DTP_STOPPED) || p->pruned) {
        return s == DTP_OK ? admit_others(p, &p->certificate, err) : s;
    }
    DTP_TRY(dtp_planning_offer_baselines(p, err));
    const bool proven = p->certificate.status == DTP_CERT_INFEASIBLE;
    if (s == DTP_STOPPED && !p->has_best && !proven) {
        return s;
    }
    p->out->infeasible = !p->has_best;
    if (!p->has_best) {
        return DTP_OK;
    }
    DTP_TRY(break_ties(p, plan, err));
    return fill_plan(p, plan, err);
}

dtp_status dtp_planning_on_mesh(dtp_planning *p, const dtp_mesh *mesh, dtp_plan_result *out,
                                dtp_err *err)
{
    dtp_plan *plan = NULL;
    memset(out, 0, sizeof *out);
    DTP_TRY(dtp_pricer_init(p->machine, mesh, p->request->target, &p->pricer, err));
    p->pricer.stop = p->request->stop;
    DTP_TRY(dtp_plan_create(&plan, err));
    p->out = out;
    p->arena = plan->arena;
    p->certificate = (dtp_certificate){.status = DTP_CERT_TIME_LIMIT, .solver = "none"};
    out->arena = dtp_arena_create();
    dtp_status s = out->arena != NULL
                       ? dtp_redistribution_pricer_create(&p->pricer, &p->redistributions, err)
                       : DTP_FAIL(err, DTP_NOMEM, "out of memory for a plan");
    s = s == DTP_OK ? dtp_redistribute_cache_create(dtp_redistributor_of(p->request->target), 0,
                                                    &p->generic, err)
                    : s;
    s = s == DTP_OK ? plan_into(p, plan, err) : s;
    p->planner->finish(p);
    dtp_redistribution_pricer_destroy(p->redistributions);
    dtp_redistribute_cache_destroy(p->generic);
    if (s == DTP_OK && !out->infeasible && !p->pruned) {
        out->plan = plan;
        return DTP_OK;
    }
    dtp_plan_destroy(plan);
    out->cut_bound = p->pruned ? p->certificate.bound : 0;
    if (s != DTP_OK) {
        dtp_plan_result_free(out);
    }
    return s;
}

/* ---- results ---- */

static bool plan_better(const dtp_plan_request *request, const dtp_plan *a, const dtp_plan *b)
{
    return request->options.objective == DTP_OBJECTIVE_MEMORY
               ? dtp_judged(&a->predicted, dtp_plan_by_placements(a)).peak_bytes <
                     dtp_judged(&b->predicted, dtp_plan_by_placements(b)).peak_bytes
               : dtp_tied_plan_better(a, b, request->options.slack);
}

void dtp_plan_result_keep(dtp_plan_result *best, dtp_plan_result *next, bool taken, double slack)
{
    const dtp_plan *dropped = taken ? best->plan : next->plan;
    dtp_plan *kept = taken ? next->plan : best->plan;
    if (dropped != NULL && kept != NULL && kept->expressible.by != NULL) {
        const bool same = dtp_plan_by_placements(dropped) == dtp_plan_by_placements(kept);
        const dtp_plan_expressible *of = &dropped->expressible;
        const double step_s = same ? of->other_step_time_s : dropped->predicted.step_time_s;
        const int64_t peak = same ? of->other_peak_bytes : dropped->predicted.peak_bytes;
        dtp_plan_expressible *e = &kept->expressible;
        if (step_s > 0.0 && (e->other_step_time_s <= 0.0 || step_s < e->other_step_time_s)) {
            e->other_step_time_s = step_s;
            e->other_peak_bytes = peak;
        }
    }
    const bool none = best->infeasible && next->infeasible;
    const int64_t bound =
        best->smallest_bound < next->smallest_bound ? best->smallest_bound : next->smallest_bound;
    if (dropped != NULL && kept != NULL && kept->objective == DTP_OBJECTIVE_TIME) {
        dtp_tied_plan_note(kept, dropped, slack);
    }
    dtp_plan_result_free(taken ? best : next);
    if (taken) {
        *best = *next;
    }
    best->smallest_bound = none ? bound : best->smallest_bound; /* of both */
}

bool dtp_plan_result_better(const dtp_plan_request *request, const dtp_plan_result *a,
                            const dtp_plan_result *b)
{
    if (a->plan != NULL && b->plan != NULL) {
        return plan_better(request, a->plan, b->plan);
    }
    if (a->plan != NULL || b->plan != NULL) {
        return a->plan != NULL;
    }
    const int64_t x = a->smallest_peak_bytes, y = b->smallest_peak_bytes;
    const bool unknown = x == 0 && y == 0;
    const bool less = unknown ? a->smallest_bound < b->smallest_bound : x > 0 && (y == 0 || x < y);
    return a->infeasible && (!b->infeasible || less);
}
