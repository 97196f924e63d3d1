#include "tools/job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file_in.h"
#include "core/transform/microbatch.h"
#include "core/graph/model/model.h"
#include "cost_models/predict.h"
#include "executor/verify/verify.h"
#include "tools/styles.h"
#include "core/graph/graph_hash.h"

enum { MAX_PLAN_BYTES = 1 << 28 };

static dtp_status parse_override(const char *text, char name[64], dtp_dim_override *out,
                                 dtp_err *err)
{
    const char *value;
    char *end;
    DTP_TRY(tool_split_pair(text, name, 64, &value, err));
    errno = 0;
    long long size = strtoll(value, &end, 10);
    if (*end != '\0' || errno != 0 || size < 1) {
        return DTP_FAIL(err, DTP_INVALID, "--dim %s: '%s' is not a positive integer", text, value);
    }
    *out = (dtp_dim_override){.name = name, .size = size};
    return DTP_OK;
}

dtp_status tool_read_graph(const tool_source *source, dtp_graph **out, dtp_err *err)
{
    char names[TOOL_LIST_MAX][64];
    dtp_dim_override overrides[TOOL_LIST_MAX];
    for (int32_t i = 0; i < source->dims.n; i++) {
        DTP_TRY(parse_override(source->dims.items[i], names[i], &overrides[i], err));
    }
    dtp_model_options options = {.n_overrides = source->dims.n,
                                 .overrides = overrides,
                                 .forward_only = source->forward,
                                 .f64 = source->f64};
    return dtp_model_read(source->model, &options, out, err);
}

static dtp_status read_plan(const char *path, const dtp_graph *g, dtp_plan **out, dtp_err *err)
{
    char *text = NULL;
    size_t len = 0;
    DTP_TRY(dtp_file_read(path, MAX_PLAN_BYTES, &text, &len, err));
    dtp_status s = dtp_plan_read(path, text, len, g, out, err);
    free(text);
    return s;
}

dtp_status tool_read_choices(const tool_source *source, const dtp_graph *model, dtp_arena *arena,
                             dtp_graph_variant *out, dtp_err *err)
{
    *out = (dtp_graph_variant){.micro_dim = -1};
    if (source->remat != NULL) {
        DTP_TRY(dtp_remat_parse(source->remat, model, arena, &out->remat, err));
    }
    return source->microbatches == NULL
               ? DTP_OK
               : dtp_microbatches_parse(source->microbatches, model, &out->micro_dim,
                                        &out->microbatches, err);
}

dtp_status tool_read_changed(const tool_source *source, dtp_graph **model, dtp_graph **out,
                             dtp_err *err)
{
    dtp_graph_variant choices;
    DTP_TRY(tool_read_graph(source, model, err));
    dtp_arena *arena = dtp_arena_create();
    dtp_status s = arena == NULL ? DTP_FAIL(err, DTP_NOMEM, "out of memory")
                                 : tool_read_choices(source, *model, arena, &choices, err);
    if (s == DTP_OK) {
        s = dtp_graph_with_variant(*model, &choices, 0, NULL, out, err);
    }
    dtp_arena_destroy(arena);
    if (s != DTP_OK) {
        dtp_graph_destroy(*model);
        *model = NULL;
    }
    return s;
}

/* An option that a plan has already decided; NULL = none is given. */
static const char *decided(const tool_source *s)
{
    return s->mesh != NULL           ? "mesh"
           : s->rules != NULL        ? "rules"
           : s->remat != NULL        ? "remat"
           : s->microbatches != NULL ? "microbatches"
                                     : NULL;
}

/* Graph and sharding. */
static dtp_status shard(const tool_source *source, tool_job *job, dtp_err *err)
{
    if (source->plan == NULL) {
        dtp_graph_variant choices;
        DTP_TRY(tool_read_choices(source, job->model, job->arena, &choices, err));
        job->changed = dtp_graph_variant_any(&choices);
        DTP_TRY(dtp_graph_with_variant(job->model, &choices, 0, NULL, &job->graph, err));
        dtp_mesh mesh;
        dtp_layout_rules rules;
        DTP_TRY(dtp_mesh_parse(source->mesh == NULL ? "" : source->mesh, &mesh, err));
        DTP_TRY(dtp_layout_rules_parse(source->rules == NULL ? "" : source->rules, &mesh,
                                       &job->graph->dims, job->arena, &rules, err));
        return dtp_sharding_from_rules(job->graph, &mesh, &rules, source->uneven, job->arena,
                                       &job->sharding, err);
    }
    if (decided(source) != NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--plan already says mesh and layouts; leave out --%s",
                        decided(source));
    }
    DTP_TRY(read_plan(source->plan, job->model, &job->plan, err));
    job->sharding = job->plan->sharding;
    job->changed = dtp_graph_variant_any(&job->plan->choices);
    DTP_TRY(dtp_plan_graph(job->plan, job->model, &job->graph, err));
    return dtp_sharding_check(job->graph, &job->sharding, err);
}

/* Whether the plan was made for this model and machine (NULL: any); says so when not. */
static bool is_current(const tool_source *source, const dtp_plan *plan, const dtp_graph *model,
                       const dtp_machine *machine, const dtp_ctx *ctx)
{
    const bool same_model = plan->model_hash == dtp_graph_hash(model);
    const bool same_machine = machine == NULL || (plan->machine != NULL &&
                                                  plan->machine_hash == dtp_machine_hash(machine));
    if (!same_model) {
        dtp_log(
            ctx, DTP_LOG_WARN, "plan", "model_changed",
            "plan=%s model=%s the plan was made for another version of the model; it is re-priced",
            source->plan, source->model);
    }
    if (!same_machine && plan->machine != NULL) {
        dtp_log(ctx, DTP_LOG_WARN, "plan", "machine_changed",
                "plan=%s machine=%s the plan was made for another machine; it is re-priced",
                source->plan, source->machine);
    }
    return same_model && same_machine;
}

static dtp_status build(const tool_source *source, int32_t n_fetch, const char *const *fetch,
                        bool fetch_for_verify, const dtp_ctx *ctx, tool_job *job, dtp_err *err)
{
    dtp_tensor_id ids[TOOL_LIST_MAX];
    dtp_lower_options options;
    job->arena = dtp_arena_create();
    if (job->arena == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory");
    }
    DTP_TRY(tool_read_graph(source, &job->model, err));
    if (source->machine != NULL) {
        DTP_TRY(dtp_machine_read(source->machine, &job->machine, err));
    }
    DTP_TRY(shard(source, job, err));
    DTP_TRY(dtp_plan_lowering_init(&job->lowering, job->plan, err));
    if (source->strict) {
        /* Pins are those that the plan was made from; rules have none. */
        dtp_pin_set pins = {0};
        if (job->plan != NULL) {
            DTP_TRY(tool_styles_of_plan(job->plan, job->graph, job->arena, &pins, err));
        }
        DTP_TRY(
            tool_strict_check(job->graph, &job->sharding, job->lowering.redistributor, &pins, err));
    }
    if (job->plan != NULL) {
        (void)is_current(source, job->plan, job->model, job->machine, ctx);
    }
    for (int32_t i = 0; i < n_fetch; i++) {
        ids[i] = dtp_graph_find(job->graph, fetch[i]);
        if (ids[i] < 0) {
            return DTP_FAIL(err, DTP_NOT_FOUND, "--fetch: the model '%s' has no tensor '%s'",
                            job->graph->name, fetch[i]);
        }
    }
    options = job->lowering.options;
    options.n_fetch = n_fetch;
    options.fetch = ids;
    if (fetch_for_verify) {
        DTP_TRY(dtp_verify_fetches(job->graph, job->arena, &options.n_fetch, &options.fetch, err));
    }
    DTP_TRY(dtp_lower(job->graph, &job->sharding, &options, &job->program, err));
    DTP_TRY(dtp_program_check(job->program, err));
    if (job->machine != NULL) {
        dtp_pricer pricer;
        DTP_TRY(dtp_pricer_init(job->machine, &job->sharding.mesh, &pricer, err));
        DTP_TRY(dtp_predict(&pricer, job->program, &job->predicted, err));
        job->has_prediction = true;
    } else if (job->plan != NULL && job->plan->machine != NULL) {
        job->predicted = job->plan->predicted;
        job->has_prediction = true;
    }
    return DTP_OK;
}

dtp_status tool_job_create(const tool_source *source, int32_t n_fetch, const char *const *fetch,
                           bool fetch_for_verify, const dtp_ctx *ctx, tool_job *out, dtp_err *err)
{
    memset(out, 0, sizeof *out);
    dtp_status s = build(source, n_fetch, fetch, fetch_for_verify, ctx, out, err);
    if (s != DTP_OK) {
        tool_job_free(out);
    }
    return s;
}

void tool_job_free(tool_job *job)
{
    dtp_program_destroy(job->program);
    dtp_plan_destroy(job->plan);
    dtp_machine_destroy(job->machine);
    dtp_graph_destroy(job->graph);
    dtp_graph_destroy(job->model);
    dtp_arena_destroy(job->arena);
    memset(job, 0, sizeof *job);
}

/* ---- plans --------------------------------------------------------------------------------------
 */

static dtp_status read_all(const tool_source *source, const dtp_ctx *ctx, tool_plan *out,
                           dtp_err *err)
{
    DTP_TRY(tool_read_graph(source, &out->model, err));
    DTP_TRY(dtp_machine_read(source->machine, &out->machine, err));
    DTP_TRY(read_plan(source->plan, out->model, &out->plan, err));
    DTP_TRY(dtp_plan_graph(out->plan, out->model, &out->graph, err));
    out->current = is_current(source, out->plan, out->model, out->machine, ctx);
    return DTP_OK;
}

dtp_status tool_plan_read(const tool_source *source, const dtp_ctx *ctx, tool_plan *out,
                          dtp_err *err)
{
    memset(out, 0, sizeof *out);
    if (source->machine == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "--machine FILE is missing");
    }
    dtp_status s = read_all(source, ctx, out, err);
    if (s != DTP_OK) {
        tool_plan_free(out);
    }
    return s;
}

void tool_plan_free(tool_plan *plan)
{
    dtp_plan_destroy(plan->plan);
    dtp_machine_destroy(plan->machine);
    dtp_graph_destroy(plan->graph);
    dtp_graph_destroy(plan->model);
    memset(plan, 0, sizeof *plan);
}
