/* A plan from pins: layouts follow by propagation (spmd/propagate/propagate.h), nothing is
 * searched. */
#include "planner/plan_pins.h"

#include <inttypes.h>
#include <string.h>

#include "cost_models/pipeline.h"
#include "cost_models/plan_lowering.h"
#include "cost_models/candidate.h"
#include "cost_models/redistribution_price.h"
#include "planner/baselines/baselines.h"
#include "cost_models/job.h"
#include "cost_models/model_flops.h"
#include "core/graph/graph.h"
#include "spmd/redistribute/redistribute_cache.h"

/* ---- pins ---- */

/* A later pin of the same tensor and node replaces an earlier one. */
static dtp_status merge_pins(int32_t n, const dtp_pin *pins, dtp_arena *arena, int32_t *n_out,
                             dtp_pin **out, dtp_err *err)
{
    int32_t k = 0;
    dtp_pin *list;
    DTP_TRY(DTP_NEW(arena, list, n, err));
    for (int32_t i = 0; i < n; i++) {
        const dtp_pin *p = &pins[i];
        int32_t at = 0;
        while (at < k && (list[at].tensor != p->tensor ||
                          (list[at].node != p->node && (list[at].node >= 0 || p->node >= 0)))) {
            at++;
        }
        list[at] = *p;
        k += at == k ? 1 : 0;
    }
    *n_out = k;
    *out = list;
    return DTP_OK;
}

/* ---- the plan ---- */

static dtp_status fill_header(const dtp_graph *g, const dtp_machine *machine,
                              const dtp_plan_request *request, dtp_plan *plan, dtp_err *err)
{
    DTP_TRY(dtp_plan_set_model(plan, g, err));
    DTP_TRY(dtp_plan_set_machine(plan, machine, err));
    plan->mesh = *request->options.mesh;
    plan->objective = machine != NULL ? request->options.objective : DTP_OBJECTIVE_MEMORY;
    plan->redistribution =
        request->options.torch ? DTP_REDISTRIBUTION_TORCH : DTP_REDISTRIBUTION_GENERIC;
    plan->overlap.bucket_bytes = request->options.torch ? 0 : plan->overlap.bucket_bytes;
    plan->overlap.once_bytes = request->options.torch ? 0
                               : request->options.memory_limit_bytes > 0
                                   ? request->options.memory_limit_bytes
                                   : INT64_MAX;
    plan->memory_limit_bytes = request->options.memory_limit_bytes;
    const bool stages = request->variant != NULL && request->variant->stages.n > 1;
    plan->rules_mode = request->pins->n_texts == 0 && (stages || request->options.rules != NULL);
    DTP_TRY(DTP_NEW(plan->arena, plan->pins, request->pins->n_texts + 2, err));
    if (plan->rules_mode && request->options.rules != NULL && request->options.rules[0] != '\0') {
        plan->pins[plan->n_pins++] =
            dtp_arena_printf(plan->arena, "rules %s", request->options.rules);
    }
    for (int32_t i = 0; i < request->pins->n_texts; i++) {
        plan->pins[plan->n_pins++] = dtp_arena_strdup(plan->arena, request->pins->texts[i]);
    }
    if (request->options.memory_limit_bytes > 0) {
        plan->pins[plan->n_pins++] =
            dtp_arena_printf(plan->arena, "memory %" PRId64, request->options.memory_limit_bytes);
    }
    for (int32_t i = 0; i < plan->n_pins; i++) {
        DTP_TRY(DTP_MEMORY(err, plan->pins[i]));
    }
    return DTP_OK;
}

static dtp_status propagate(const dtp_graph *g, const dtp_plan_request *request,
                            dtp_plan_lowering *lowering, dtp_plan *plan, dtp_err *err)
{
    dtp_propagate_options options = {.price = dtp_step_generic_price,
                                     .strict = request->options.strict,
                                     .redistributor = lowering->redistributor};
    if (request->options.torch) {
        options.torch = true;
        options.price = dtp_torch_step_price;
        options.price_user = &lowering->cost;
    }
    dtp_pin *pins = NULL;
    if (plan->rules_mode) {
        DTP_TRY(dtp_layout_rules_parse(request->options.rules == NULL ? "" : request->options.rules,
                                       &plan->mesh, &g->dims, plan->arena, &plan->rules, err));
        return dtp_sharding_from_rules(g, &plan->mesh, &plan->rules, false, plan->arena,
                                       &plan->sharding, err);
    }
    DTP_TRY(merge_pins(request->pins->n_pins, request->pins->pins, plan->arena, &options.n_pins,
                       &pins, err));
    options.pins = pins;
    DTP_TRY(dtp_propagate(g, &plan->mesh, &options, plan->arena, &plan->sharding, err));
    for (int32_t t = 0; t < g->n_tensors && !plan->uneven; t++) {
        plan->uneven =
            !dtp_layout_is_even(&plan->sharding.layouts[t], &plan->mesh, &g->tensors[t].type);
    }
    return DTP_OK;
}

static dtp_status copy_implementations(const dtp_plan_request *request, dtp_plan *plan,
                                       dtp_err *err)
{
    const size_t n = (size_t)request->pins->n_implementations;
    DTP_TRY(DTP_NEW(plan->arena, plan->implementations, n, err));
    if (n > 0) {
        memcpy(plan->implementations, request->pins->implementations,
               n * sizeof *plan->implementations);
    }
    plan->n_implementations = request->pins->n_implementations;
    return DTP_OK;
}

/* Of stages. */
static dtp_status decide_stages(const dtp_graph *g, const dtp_pricer *pricer,
                                const dtp_baseline_options *by, dtp_plan_lowering *lowering,
                                dtp_plan *plan, int64_t *cost_ps, dtp_err *err)
{
    dtp_lower_options *options = &lowering->options;
    dtp_pipeline *pipeline = NULL;
    if (by->machine != NULL) {
        options->redistributor = by->machine;
        options->overlap.memory_bytes = plan->memory_limit_bytes;
        DTP_TRY(dtp_pipeline_choose(g, pricer, &plan->sharding, options, &plan->predicted, cost_ps,
                                    err));
        plan->overlap = options->overlap;
    } else {
        DTP_TRY(dtp_pipeline_create(g, &plan->sharding, options, &pipeline, err));
        const dtp_status s = dtp_pipeline_predict(pipeline, NULL, &plan->predicted, err);
        plan->overlap = pipeline->programs[0]->overlap;
        dtp_pipeline_destroy(pipeline);
        DTP_TRY(s);
    }
    return dtp_plan_list_redistributions(plan, g, options->redistributor, err);
}

/* What needs no prices. */
static dtp_status count(const dtp_graph *g, const dtp_plan_lowering *lowering, dtp_plan *plan,
                        dtp_err *err)
{
    dtp_program *program = NULL;
    DTP_TRY(dtp_lower(g, &plan->sharding, &lowering->options, &program, err));
    dtp_status s = dtp_program_check(program, err);
    s = s == DTP_OK ? dtp_predict_counts(program, &plan->predicted, err) : s;
    plan->overlap = program->overlap;
    dtp_program_destroy(program);
    return s;
}

/* `g` has the implementations of the request. Pins are propagated on the generic machine, so that
 * they mean the same layouts on every machine. The machine's prices decide on the steps, or those
 * of the generic machine where the program is faster then; by->machine NULL: nothing is priced. */
static dtp_status decide(const dtp_graph *g, const dtp_pricer *pricer,
                         const dtp_baseline_options *by, const dtp_plan_request *request,
                         dtp_plan *plan, int64_t *cost_ps, dtp_err *err)
{
    dtp_plan_lowering lowering;
    DTP_TRY(dtp_plan_lowering_init(&lowering, plan, err));
    if (!request->options.torch) {
        lowering.redistributor = lowering.options.redistributor = by->generic;
    }
    DTP_TRY(propagate(g, request, &lowering, plan, err));
    if (g->stages != NULL) {
        return decide_stages(g, pricer, by, &lowering, plan, cost_ps, err);
    }
    dtp_candidate c = {
        .sharding = plan->sharding, .redistributor = lowering.redistributor, .arena = plan->arena};
    if (by->machine == NULL) {
        DTP_TRY(count(g, &lowering, plan, err));
    } else if (request->options.torch) {
        lowering.options.overlap.depth = DTP_OVERLAP_CHOOSE;
        lowering.options.overlap.memory_bytes = request->options.memory_limit_bytes;
        DTP_TRY(dtp_sharding_predict(g, pricer, &plan->sharding, &lowering.options,
                                     &plan->predicted, cost_ps, err));
        plan->overlap = lowering.options.overlap;
    } else {
        dtp_lower_options chosen = dtp_lower_options_init(by->machine);
        chosen.target = pricer->target;
        chosen.overlap.depth = DTP_OVERLAP_CHOOSE;
        chosen.overlap.memory_bytes = request->options.memory_limit_bytes;
        DTP_TRY(dtp_candidate_faster(g, pricer, &chosen, by->generic, &c, err));
        plan->predicted = c.predicted;
        plan->overlap = c.overlap;
        *cost_ps = c.cost_ps;
        DTP_TRY(dtp_plan_set_regather(plan, g, c.sharding.regather, err));
    }
    if (!request->options.torch) {
        DTP_TRY(dtp_plan_list_redistributions(plan, g, c.redistributor, err));
    }
    if (by->machine == NULL || request->options.alone) {
        return DTP_OK;
    }
    dtp_candidate *baselines;
    int32_t n;
    DTP_TRY(dtp_baselines_create(g, pricer, by, plan->arena, &n, &baselines, err));
    return dtp_plan_add_baselines(plan, n, baselines, err);
}

static dtp_status plan_into(const dtp_graph *g, const dtp_machine *machine,
                            const dtp_plan_request *request, dtp_plan *plan, dtp_err *err)
{
    dtp_pricer pricer;
    dtp_redistribution_pricer *redistributions = NULL;
    dtp_redistribute_cache *generic = NULL;
    dtp_baseline_options by = {.rules_file = request->options.rules_file,
                               .limit = request->options.memory_limit_bytes};
    dtp_graph *set = NULL;
    int64_t cost_ps = 0;
    DTP_TRY(fill_header(g, machine, request, plan, err));
    DTP_TRY(copy_implementations(request, plan, err));
    const dtp_target *target = request->target;
    plan->target = target->name;
    if (machine != NULL) {
        DTP_TRY(dtp_pricer_init(machine, &plan->mesh, target, &pricer, err));
    }
    if (request->variant != NULL) {
        DTP_TRY(dtp_graph_variant_copy(request->variant, plan->arena, &plan->variant, err));
    }
    DTP_TRY(dtp_plan_graph(plan, g, &set, err));
    dtp_status s = dtp_target_takes_graph(target, set, err);
    if (s == DTP_OK && machine != NULL) {
        s = dtp_redistribution_pricer_create(&pricer, &redistributions, err);
    }
    s = s == DTP_OK ? dtp_redistribute_cache_create(dtp_redistributor_of(target), 0, &generic, err)
                    : s;
    if (s == DTP_OK) {
        by.generic = dtp_redistribute_cache_planner(generic);
        by.machine =
            machine != NULL ? dtp_redistribution_pricer_redistributor(redistributions) : NULL;
        s = decide(set, &pricer, &by, request, plan, &cost_ps, err);
    }
    dtp_redistribute_cache_destroy(generic);
    dtp_redistribution_pricer_destroy(redistributions);
    dtp_graph_destroy(set);
    DTP_TRY(s);
    if (machine != NULL) {
        const int32_t n_stages = plan->variant.stages.n > 1 ? plan->variant.stages.n : 1;
        dtp_predict_throughput(g, machine, &plan->variant.precision,
                               n_stages * dtp_mesh_ranks(&plan->mesh), &plan->predicted);
    }
    const bool time = plan->objective == DTP_OBJECTIVE_TIME;
    plan->certificate = (dtp_certificate){.status = DTP_CERT_FEASIBLE,
                                          .cost = time ? cost_ps : plan->predicted.peak_bytes,
                                          .solver = "propagation"};
    plan->certificate.least_cost = plan->certificate.cost;
    plan->certificate.gap = dtp_gap(plan->certificate.cost, 0);
    return DTP_OK;
}

dtp_status dtp_plan_pins(const dtp_graph *g, const dtp_machine *machine,
                         const dtp_plan_request *request, dtp_plan_result *out, dtp_err *err)
{
    dtp_plan *plan = NULL;
    memset(out, 0, sizeof *out);
    DTP_TRY(dtp_plan_create(&plan, err));
    dtp_status s = plan_into(g, machine, request, plan, err);
    const int64_t peak = plan->predicted.peak_bytes;
    out->infeasible = s == DTP_OK && request->options.memory_limit_bytes > 0 &&
                      peak > request->options.memory_limit_bytes;
    if (s != DTP_OK || out->infeasible) {
        out->smallest_peak_bytes = peak;
        out->smallest_stages = plan->variant.stages.n > 1 ? plan->variant.stages.n : 0;
        out->smallest_stage = plan->predicted.peak_stage;
        dtp_plan_destroy(plan);
        return s;
    }
    out->plan = plan;
    return DTP_OK;
}
