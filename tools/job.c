/* What dtplan and dtrun share: from files and flags to a graph, a sharding and a priced program. */
#include "tools/job.h"
#include "tools/machines.h"
#include "tools/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/base/strbuf.h"
#include "core/plan/plan.h"
#include "cost_models/machine/efficiency.h"
#include "cost_models/machine/machine_scale.h"

const char *tool_beside(const tool_source *source, const char *given, const char *kind,
                        tool_path *path)
{
    static const char END[] = ".json";
    const size_t n = strlen(source->model), end = sizeof END - 1;
    if (given != NULL) {
        return given;
    }
    if (n <= end || strcmp(source->model + n - end, END) != 0) {
        return NULL;
    }
    const int length = snprintf(path->text, sizeof path->text, "%.*s.%s%s", (int)(n - end),
                                source->model, kind, END);
    if (length < 0 || (size_t)length >= sizeof path->text) {
        return NULL;
    }
    return access(path->text, R_OK) == 0 ? path->text : NULL;
}

bool tool_accelerated(const dtp_machine *machine)
{
    return machine != NULL && strcmp(machine->kind, "cpu") != 0;
}

dtp_status tool_target_find(const tool_source *source, const char *framework, dtp_machine *machine,
                            tool_target *out, dtp_err *err)
{
    const bool accelerated = tool_accelerated(machine);
    const bool cuda = accelerated && strcmp(machine->kind, "cuda") == 0 && framework == NULL;
    const dtp_target *of_backend =
        source->backend != NULL ? dtp_target_of_backend(source->backend) : NULL;
    *out = (tool_target){.target = of_backend != NULL ? of_backend
                                   : cuda             ? &dtp_target_cuda
                                   : accelerated      ? &dtp_target_torch
                                                      : &dtp_target_cpu,
                         .precision = source->precision};
    if (source->target != NULL) {
        DTP_TRY(
            dtp_err_prefixed(dtp_target_find(source->target, &out->target, err), err, "--target"));
    }
    const bool bf16 = accelerated && machine->flops[DTP_BF16] > 0.0;
    if (bf16 && source->backend == NULL && source->precision == NULL) {
        out->precision = out->target->precision;
    }
    for (int32_t l = 0; machine != NULL && l < machine->n_levels && tool_speaks(); l++) {
        if (machine->levels[l].from != NULL) {
            (void)fprintf(stderr, "%s: collectives on level '%s' are priced as on %s\n",
                          machine->place, machine->levels[l].name, machine->levels[l].from);
        }
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
    if (dtp_efficiency_find(machine, runtime) == NULL && strcmp(machine->runtime, runtime) != 0) {
        if (tool_speaks()) {
            (void)fprintf(stderr,
                          "%s: no efficiencies of runtime '%s', which the plan was made with\n",
                          machine->place, runtime);
        }
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
           : s->regather != NULL     ? "regather"
           : s->freeze.n > 0         ? "freeze"
           : s->microbatches != NULL ? "microbatches"
           : s->stages != NULL       ? "stages"
           : s->slots != NULL        ? "slots"
                                     : NULL;
}

/* ---- plans and their model ---- */

bool tool_plan_is_current(const dtp_plan *plan, const dtp_graph *model, const dtp_machine *machine)
{
    return dtp_plan_is_for_model(plan, model) &&
           (machine == NULL || dtp_plan_is_for_machine(plan, machine));
}

void tool_plan_say_changes(const tool_source *source, const dtp_plan *plan, const dtp_graph *model,
                           const dtp_machine *machine, const dtp_prediction *now,
                           const dtp_ctx *ctx)
{
    dtp_strbuf was = {0}, is = {0}, price = {0};
    const bool same_model = dtp_plan_is_for_model(plan, model);
    const double before_s = plan->predicted.step_time_s;
    if (!tool_speaks()) {
        return;
    }
    tool_print_other_dims(plan, model, true, &was);
    tool_print_other_dims(plan, model, false, &is);
    if (machine == NULL) {
        dtp_strbuf_addf(&price, plan->machine != NULL ? "its prices are left out" : "it runs");
    } else if (now != NULL && before_s > 0.0) {
        dtp_strbuf_addf(&price, "its step takes %s now, %s before",
                        dtp_seconds(now->step_time_s).text, dtp_seconds(before_s).text);
    } else {
        dtp_strbuf_addf(&price, "it is priced again");
    }
    if (was.len > 0) {
        dtp_log(ctx, DTP_LOG_WARN, "plan", "other_dims",
                "plan=%s the plan was made for %s, not %s; %s", source->plan, was.text, is.text,
                price.text);
    } else if (!same_model) {
        dtp_log(ctx, DTP_LOG_WARN, "plan", "model_changed",
                "plan=%s model=%s the plan was made for another version of the model; %s",
                source->plan, source->model, price.text);
    } else if (machine != NULL && !dtp_plan_is_for_machine(plan, machine) && before_s > 0.0) {
        dtp_log(ctx, DTP_LOG_WARN, "plan", "machine_changed",
                "plan=%s machine=%s the plan was made for another machine; %s", source->plan,
                source->machine, price.text);
    }
    dtp_strbuf_free(&was);
    dtp_strbuf_free(&is);
    dtp_strbuf_free(&price);
}

/* Of a plan on a smaller mesh the report says it. */
static void say_changes(const tool_source *source, const tool_job *job, const dtp_prediction *now,
                        const dtp_ctx *ctx)
{
    if (job->planned_model == NULL) {
        tool_plan_say_changes(source, job->plan, job->model, job->machine, now, ctx);
    }
}

/* A plan for a target whose programs the backend does not run becomes one for that of the backend:
 * layouts, strategies and redistributions are what they were. */
static dtp_status retarget(const tool_source *source, tool_job *job, dtp_err *err)
{
    const dtp_target *planned, *here = dtp_target_of_backend(source->backend);
    DTP_TRY(dtp_err_prefixed(dtp_target_find(job->plan->target, &planned, err), err, "%s: 'target'",
                             source->plan));
    if (here == NULL || dtp_target_runs_on(planned, source->backend, NULL) == DTP_OK) {
        return DTP_OK;
    }
    job->planned_for = planned;
    job->plan->target = here->name;
    if (job->plan->variant.precision.tf32 && !here->tf32) {
        job->plan->variant.precision.tf32 = false;
        job->without_tf32 = true;
    }
    return DTP_OK;
}

static dtp_status build(const tool_source *source, dtp_job_options options, const dtp_ctx *ctx,
                        tool_job *job, dtp_err *err)
{
    dtp_mesh mesh;
    tool_target target;
    if (source->plan == NULL) {
        DTP_TRY(tool_read_graph(source, &job->model, err));
    }
    DTP_TRY(tool_machine_of(source, &job->machine, err));
    if (source->plan != NULL) {
        if (decided(source) != NULL) {
            return DTP_FAIL(err, DTP_INVALID,
                            "--plan already says mesh and layouts; leave out --%s",
                            decided(source));
        }
        DTP_TRY(tool_read_planned(source, &job->model, &job->plan, err));
        DTP_TRY(tool_plan_runtime(job->plan, job->machine, err));
        if (source->ranks_at_most > 0) {
            DTP_TRY(tool_job_make_smaller(source, job, err));
        }
    } else if (source->ranks_at_most > 0) {
        return DTP_FAIL(err, DTP_INVALID, "--ranks-at-most is for a plan; give --plan");
    }
    DTP_TRY(dtp_mesh_parse(source->mesh == NULL ? "" : source->mesh, &mesh, err));
    DTP_TRY(tool_target_find(source, job->model->framework,
                             source->plan == NULL ? job->machine : NULL, &target, err));
    const bool wide =
        job->plan != NULL && tool_is_wide(source) && dtp_plan_compute_dtype(job->plan) == DTP_F32;
    if (wide) {
        say_changes(source, job, NULL, ctx);
        DTP_TRY(tool_read_wide(source, job, err));
    }
    if (source->any_target && job->plan != NULL) {
        DTP_TRY(retarget(source, job, err));
    }
    options.plan = job->plan;
    options.mesh = &mesh;
    options.rules = source->rules;
    options.uneven = source->uneven;
    options.outputs = source->outputs;
    options.precision = target.precision;
    options.remat = source->remat;
    options.microbatches = source->microbatches;
    options.regather = source->regather;
    options.stages = source->stages;
    options.slots = source->slots;
    options.target = target.target->name;
    options.strict = source->strict;
    options.evaluation = source->evaluation;
    if (source->unrecorded && job->machine != NULL) {
        DTP_TRY(dtp_machine_unrecorded(job->machine, err));
    }
    options.machine = job->machine;
    tool_progress_begin("lowering");
    const dtp_status s = dtp_job_create(job->model, &options, &job->run, err);
    tool_progress_end();
    DTP_TRY(s);
    if (job->plan != NULL && !wide) {
        say_changes(source, job, dtp_job_predicted(job->run), ctx);
    }
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
    dtp_graph_destroy(job->planned_model);
    dtp_machine_destroy(job->machine);
    dtp_graph_destroy(job->model);
    memset(job, 0, sizeof *job);
}
