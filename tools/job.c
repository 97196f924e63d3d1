#include "tools/job.h"
#include "tools/machines.h"
#include "tools/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/number.h"
#include "core/plan/plan.h"
#include "cost_models/machine/efficiency.h"
#include "cost_models/machine/machine_scale.h"

/* The reference backend computes what is f32 in f64. */
static bool is_wide(const tool_source *source)
{
    return source->backend != NULL && strcmp(source->backend, "ref") == 0;
}

dtp_status tool_read_graph(const tool_source *source, dtp_graph **out, dtp_err *err)
{
    char names[TOOL_LIST_MAX][64];
    dtp_dim_override overrides[TOOL_LIST_MAX];
    for (int32_t i = 0; i < source->dims.n; i++) {
        const char *text = source->dims.items[i], *value;
        DTP_TRY(tool_split_pair(text, names[i], sizeof names[i], &value, err));
        overrides[i] = (dtp_dim_override){.name = names[i]};
        if (!dtp_int_parse(value, &overrides[i].size) || overrides[i].size < 1) {
            return DTP_FAIL(err, DTP_INVALID, "--dim %s: '%s' is not a positive integer", text,
                            value);
        }
    }
    dtp_model_options options = dtp_model_options_init();
    options.n_overrides = source->dims.n;
    options.overrides = overrides;
    options.forward_only = source->forward;
    options.f64 = is_wide(source) && source->precision == NULL;
    return dtp_model_read(source->model, &options, out, err);
}

dtp_status tool_target_find(const tool_source *source, dtp_machine *machine, tool_target *out,
                            dtp_err *err)
{
    const bool cuda = machine != NULL && strcmp(machine->kind, "cuda") == 0;
    const dtp_target *of_backend =
        source->backend != NULL ? dtp_target_of_backend(source->backend) : NULL;
    *out = (tool_target){.target = of_backend != NULL ? of_backend
                                   : cuda             ? &dtp_target_cuda
                                                      : &dtp_target_cpu,
                         .precision = source->precision};
    if (source->target != NULL) {
        DTP_TRY(
            dtp_err_prefixed(dtp_target_find(source->target, &out->target, err), err, "--target"));
    }
    const bool bf16 = cuda && machine->flops[DTP_BF16] > 0.0;
    if (bf16 && source->backend == NULL && source->precision == NULL) {
        out->precision = out->target->precision;
    }
    return machine == NULL ? DTP_OK
                           : tool_machine_runtime(machine, source->runtime, out->target, err);
}

dtp_status tool_plan_runtime(const dtp_plan *plan, dtp_machine *machine, dtp_err *err)
{
    const char *runtime = dtp_plan_runtime(plan);
    if (machine == NULL || runtime[0] == '\0') {
        return DTP_OK;
    }
    DTP_TRY(tool_machine_borrow(machine, err));
    if (dtp_efficiency_find(machine, runtime) == NULL) {
        (void)fprintf(stderr, "%s: no efficiencies of runtime '%s', which the plan was made with\n",
                      machine->place, runtime);
        return DTP_OK;
    }
    return tool_machine_runtime(machine, runtime, NULL, err);
}

const char *tool_rates(const dtp_machine *machine, const dtp_plan *plan)
{
    const char *rates = machine != NULL ? machine->provenance_how : plan != NULL ? plan->rates : "";
    return rates[0] != '\0' ? rates : NULL;
}

/* An option that a plan has already decided; NULL = none is given. */
static const char *decided(const tool_source *s)
{
    return s->mesh != NULL           ? "mesh"
           : s->rules != NULL        ? "rules"
           : s->target != NULL       ? "target"
           : s->runtime != NULL      ? "runtime"
           : s->outputs != NULL      ? "outputs"
           : s->precision != NULL    ? "precision"
           : s->remat != NULL        ? "remat"
           : s->microbatches != NULL ? "microbatches"
                                     : NULL;
}

bool tool_plan_is_current(const tool_source *source, const dtp_plan *plan, const dtp_graph *model,
                          const dtp_machine *machine, const dtp_ctx *ctx)
{
    const bool same_model = dtp_plan_is_for_model(plan, model);
    const bool same_machine = machine == NULL || dtp_plan_is_for_machine(plan, machine);
    if (!same_model) {
        dtp_log(
            ctx, DTP_LOG_WARN, "plan", "model_changed",
            "plan=%s model=%s the plan was made for another version of the model; it is re-priced",
            source->plan, source->model);
    }
    if (!same_machine && dtp_plan_predicted(plan)->step_time_s > 0.0) {
        dtp_log(ctx, DTP_LOG_WARN, "plan", "machine_changed",
                "plan=%s machine=%s the plan was made for another machine; it is re-priced",
                source->plan, source->machine);
    }
    return same_model && same_machine;
}

/* A plan in f32 is run in f64, on the model in f64. */
static dtp_status read_wide(const tool_source *source, tool_job *job, dtp_err *err)
{
    dtp_plan_destroy(job->plan);
    dtp_graph_destroy(job->model);
    job->plan = NULL;
    job->model = NULL;
    DTP_TRY(tool_read_graph(source, &job->model, err));
    return dtp_plan_load(source->plan, job->model, &job->plan, err);
}

static dtp_status build(const tool_source *source, dtp_job_options options, const dtp_ctx *ctx,
                        tool_job *job, dtp_err *err)
{
    dtp_mesh mesh;
    tool_target target;
    tool_source from = *source;
    from.backend = source->plan == NULL ? source->backend : NULL;
    DTP_TRY(tool_read_graph(&from, &job->model, err));
    if (source->machine != NULL) {
        DTP_TRY(tool_machine_read(source->machine, source->yes_units, &job->machine, err));
    }
    if (source->plan != NULL) {
        if (decided(source) != NULL) {
            return DTP_FAIL(err, DTP_INVALID,
                            "--plan already says mesh and layouts; leave out --%s",
                            decided(source));
        }
        DTP_TRY(dtp_plan_load(source->plan, job->model, &job->plan, err));
        if (is_wide(source) && dtp_plan_compute_dtype(job->plan) == DTP_F32) {
            DTP_TRY(read_wide(source, job, err));
        }
        DTP_TRY(tool_plan_runtime(job->plan, job->machine, err));
        (void)tool_plan_is_current(source, job->plan, job->model, job->machine, ctx);
    }
    DTP_TRY(dtp_mesh_parse(source->mesh == NULL ? "" : source->mesh, &mesh, err));
    DTP_TRY(tool_target_find(source, source->plan == NULL ? job->machine : NULL, &target, err));
    options.plan = job->plan;
    options.mesh = &mesh;
    options.rules = source->rules;
    options.uneven = source->uneven;
    options.outputs = source->outputs;
    options.precision = target.precision;
    options.remat = source->remat;
    options.microbatches = source->microbatches;
    options.target = target.target->name;
    options.strict = source->strict;
    if (source->unrecorded && job->machine != NULL) {
        DTP_TRY(dtp_machine_unrecorded(job->machine, err));
    }
    options.machine = job->machine;
    tool_progress_begin("lowering");
    const dtp_status s = dtp_job_create(job->model, &options, &job->run, err);
    tool_progress_end();
    return s;
}

dtp_status tool_job_create(const tool_source *source, int32_t n_fetch, const char *const *fetch,
                           bool results, const dtp_ctx *ctx, tool_job *out, dtp_err *err)
{
    dtp_job_options options = dtp_job_options_init();
    options.n_fetch = n_fetch;
    options.fetch = fetch;
    options.results = results;
    memset(out, 0, sizeof *out);
    dtp_status s = build(source, options, ctx, out, err);
    if (s != DTP_OK) {
        tool_job_free(out);
    }
    return s;
}

void tool_job_free(tool_job *job)
{
    dtp_job_destroy(job->run);
    dtp_plan_destroy(job->plan);
    dtp_machine_destroy(job->machine);
    dtp_graph_destroy(job->model);
    memset(job, 0, sizeof *job);
}
