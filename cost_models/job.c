/* Jobs (dtp/session.h): a model with a layout for every tensor, lowered and predicted. */
#include "cost_models/job.h"

#include "cost_models/model_flops.h"

#include <stdlib.h>
#include <string.h>

#include "core/transform/evaluation.h"
#include "cost_models/predict.h"
#include "interop/names.h"
#include "interop/styles/pin_texts.h"

/* Graph and sharding. */
static dtp_status shard(const dtp_graph *model, const dtp_job_options *o, dtp_job *job,
                        dtp_err *err)
{
    if (o->plan != NULL) {
        job->sharding = o->plan->sharding;
        job->variant = o->plan->variant;
        DTP_TRY(dtp_plan_graph(o->plan, model, &job->graph, err));
        return dtp_sharding_check(job->graph, &job->sharding, err);
    }
    const dtp_mesh one = {0};
    const dtp_mesh *mesh = o->mesh != NULL ? o->mesh : &one;
    const dtp_variant_texts texts = {o->outputs,  o->precision, o->remat, o->microbatches,
                                     o->regather, o->stages,    o->slots};
    dtp_layout_rules rules;
    DTP_TRY(dtp_graph_variant_parse(&texts, model, job->arena, &job->variant, err));
    DTP_TRY(dtp_graph_with_variant(model, &job->variant, 0, NULL, &job->graph, err));
    DTP_TRY(dtp_layout_rules_parse(o->rules == NULL ? "" : o->rules, mesh, &job->graph->dims,
                                   job->arena, &rules, err));
    return dtp_sharding_from_rules(job->graph, mesh, &rules, o->uneven, job->arena, &job->sharding,
                                   err);
}

/* Graph and sharding of the forward pass alone, from those of training. */
static dtp_status keep_evaluation(const dtp_graph *model, dtp_evaluation_kind kind, dtp_job *job,
                                  dtp_err *err)
{
    dtp_graph_copy copy;
    const dtp_sharding all = job->sharding;
    const bool outputs = kind == DTP_EVALUATE_OUTPUTS;
    if (kind == DTP_NO_EVALUATION || (outputs && job->graph->loss < 0)) {
        return DTP_OK;
    }
    DTP_TRY(dtp_graph_evaluation(job->graph, outputs ? model : NULL, &copy, err));
    dtp_graph_destroy(job->graph);
    job->graph = copy.to;
    return dtp_sharding_of_copy(&all, &copy, job->arena, &job->sharding, err);
}

/* A tensor to be read after a step. Outputs that the graph does not keep are refused: the program
 * would be another one than was planned. */
static dtp_status find_fetch(const dtp_graph *model, const dtp_job *job, const char *name,
                             dtp_tensor_id *out, dtp_err *err)
{
    if (dtp_graph_output(model, name) < 0 || dtp_graph_output(job->graph, name) >= 0) {
        return dtp_job_tensor(job, name, out, NULL, err);
    }
    return job->variant.outputs.chosen
               ? DTP_FAIL(err, DTP_INVALID,
                          "the output '%s' is not kept; plan with '--outputs %s' or all outputs",
                          name, name)
               : DTP_FAIL(err, DTP_INVALID,
                          "the output '%s' is not kept in microbatches; plan without "
                          "--microbatches",
                          name);
}

/* The ids of the tensors to be read after a step. */
static dtp_status find_fetches(const dtp_graph *model, const dtp_job *job, const dtp_job_options *o,
                               int32_t *n, const dtp_tensor_id **out, dtp_err *err)
{
    const dtp_tensor_id *results = NULL;
    *n = 0;
    if (o->results) {
        DTP_TRY(dtp_graph_results(job->graph, job->arena, n, &results, err));
    }
    dtp_tensor_id *ids =
        dtp_arena_alloc(job->arena, (size_t)*n + (size_t)o->n_fetch + 1, sizeof *ids);
    DTP_TRY(DTP_MEMORY(err, ids));
    for (int32_t i = 0; i < *n; i++) {
        ids[i] = results[i];
    }
    for (int32_t i = 0; i < o->n_fetch; i++) {
        DTP_TRY(dtp_err_prefixed(find_fetch(model, job, o->fetch[i], &ids[(*n)++], err), err,
                                 "--fetch"));
    }
    *out = ids;
    return DTP_OK;
}

static dtp_status build(const dtp_graph *model, const dtp_job_options *o, dtp_job *job,
                        dtp_err *err)
{
    job->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, job->arena));
    const bool listed = o->plan != NULL && dtp_plan_is_for_model(o->plan, model) &&
                        o->evaluation == DTP_NO_EVALUATION;
    DTP_TRY(shard(model, o, job, err));
    DTP_TRY(keep_evaluation(model, o->evaluation, job, err));
    job->graph->model_hash = dtp_graph_forward_hash(model);
    DTP_TRY(dtp_plan_lowering_init(&job->lowering, o->plan, err));
    if (o->plan != NULL && !listed) { /* there may be tensors of other sizes */
        job->lowering.listed.unlisted = dtp_redistributor_of(job->lowering.options.target);
    }
    if (o->plan == NULL && o->target != NULL) {
        DTP_TRY(dtp_target_find(o->target, &job->lowering.options.target, err));
    }
    DTP_TRY(dtp_target_takes_precision(job->lowering.options.target, job->graph, err));
    if (o->strict) {
        /* Pins are those that the plan was made from; rules have none. */
        const dtp_plan *plan = o->plan;
        dtp_pin_set pins = {0};
        if (plan != NULL) {
            DTP_TRY(dtp_pin_set_read(plan->n_pins, plan->pins, job->graph, &plan->mesh, job->arena,
                                     &pins, err));
        }
        DTP_TRY(
            dtp_pins_strict(job->graph, &job->sharding, job->lowering.redistributor, &pins, err));
    }
    DTP_TRY(dtp_stages_mesh(&job->sharding.mesh, dtp_graph_stages(job->graph), &job->mesh, err));
    dtp_lower_options options = job->lowering.options;
    DTP_TRY(find_fetches(model, job, o, &options.n_fetch, &options.fetch, err));
    if (job->graph->stages != NULL) {
        DTP_TRY(dtp_pipeline_create(job->graph, &job->sharding, &options, &job->pipeline, err));
        job->program = job->pipeline->programs[0];
    } else {
        DTP_TRY(dtp_lower(job->graph, &job->sharding, &options, &job->program, err));
        DTP_TRY(dtp_program_check(job->program, err));
    }
    if (o->machine == NULL && job->pipeline != NULL) {
        dtp_prediction counts;
        DTP_TRY(dtp_pipeline_predict(job->pipeline, NULL, &counts, err));
    }
    if (o->machine != NULL) {
        dtp_pricer pricer;
        DTP_TRY(dtp_pricer_init(o->machine, &job->sharding.mesh, options.target, &pricer, err));
        DTP_TRY(job->pipeline != NULL
                    ? dtp_pipeline_predict(job->pipeline, &pricer, &job->predicted, err)
                    : dtp_predict(&pricer, job->program, &job->predicted, err));
        dtp_predict_throughput(model, o->machine, &job->variant.precision,
                               dtp_graph_stages(job->graph) * dtp_mesh_ranks(&job->sharding.mesh),
                               &job->predicted);
        job->has_prediction = true;
    } else if (listed && o->plan->machine != NULL) { /* else the price is of another program */
        job->predicted = o->plan->predicted;
        job->has_prediction = true;
    }
    return DTP_OK;
}

dtp_status dtp_job_create(const dtp_graph *model, const dtp_job_options *options, dtp_job **out,
                          dtp_err *err)
{
    dtp_job_options known;
    DTP_TRY(DTP_NOT_NULL(err, model, options, out));
    DTP_TRY(dtp_options_read(__func__, options, sizeof known, &known, err));
    dtp_job *job = calloc(1, sizeof *job);
    DTP_TRY(DTP_MEMORY(err, job));
    const dtp_status s = build(model, &known, job, err);
    if (s != DTP_OK) {
        dtp_job_destroy(job);
        return s;
    }
    *out = job;
    return DTP_OK;
}

void dtp_job_destroy(dtp_job *job)
{
    if (job != NULL) {
        if (job->pipeline == NULL) {
            dtp_program_destroy(job->program);
        }
        dtp_pipeline_destroy(job->pipeline);
        dtp_graph_destroy(job->graph);
        dtp_arena_destroy(job->arena);
        free(job);
    }
}

const dtp_program *dtp_job_program(const dtp_job *job)
{
    return job->program;
}

const dtp_mesh *dtp_job_mesh(const dtp_job *job)
{
    return &job->mesh;
}

const dtp_prediction *dtp_job_predicted(const dtp_job *job)
{
    return job->has_prediction ? &job->predicted : NULL;
}

dtp_status dtp_job_tensor(const dtp_job *job, const char *name, dtp_tensor_id *out, dtp_ttype *type,
                          dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, job, name, out));
    *out = dtp_graph_gradient(job->graph, name);
    *out = *out < 0 ? dtp_graph_find(job->graph, name) : *out;
    if (*out < 0) {
        const bool gradient = strncmp(name, "grad.", 5) == 0;
        const dtp_tensor_id param = gradient ? dtp_graph_find(job->graph, name + 5) : -1;
        return DTP_FAIL(
            err, DTP_NOT_FOUND, "the model '%s' has no tensor '%s'%s", job->graph->name, name,
            param >= 0 && job->graph->tensors[param].frozen ? ": this parameter is frozen" : "");
    }
    if (type != NULL) {
        *type = job->graph->tensors[*out].type;
    }
    return DTP_OK;
}

dtp_status dtp_job_stored(dtp_job *job, const char *names_file, const dtp_stored_params **out,
                          dtp_err *err)
{
    dtp_names names;
    dtp_stored_params *stored;
    DTP_TRY(DTP_NOT_NULL(err, job, names_file, out));
    DTP_TRY(dtp_names_read(names_file, job->arena, &names, err));
    DTP_TRY(DTP_NEW(job->arena, stored, 1, err));
    DTP_TRY(dtp_names_stored(&names, job->graph, job->arena, stored, err));
    *out = stored;
    return DTP_OK;
}

dtp_status dtp_plan_set_machine(dtp_plan *plan, const dtp_machine *machine, dtp_err *err)
{
    if (machine == NULL) {
        plan->machine = NULL;
        plan->machine_hash = 0;
        return DTP_OK;
    }
    plan->machine = dtp_arena_strdup(plan->arena, machine->name);
    plan->rates = dtp_arena_strdup(plan->arena, machine->provenance_how);
    plan->runtime = dtp_arena_strdup(plan->arena, machine->runtime);
    plan->machine_hash = dtp_machine_hash(machine);
    return DTP_MEMORY(err, plan->machine, plan->rates, plan->runtime);
}

bool dtp_plan_is_for_machine(const dtp_plan *plan, const dtp_machine *machine)
{
    return plan->machine != NULL && plan->machine_hash == dtp_machine_hash(machine);
}
