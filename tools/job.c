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

/* The reference backend computes what is f32 in f64. */
static bool is_wide(const tool_source *source)
{
    return source->backend != NULL && strcmp(source->backend, "ref") == 0;
}

/* Sizes of dims: those of a plan, and of the command line, which come first. */
typedef struct sizes {
    int32_t n, n_given;
    char names[TOOL_LIST_MAX][64];
    dtp_dim_override *list; /* n, of them n_given from the command line */
    dtp_arena *arena;
} sizes;

static dtp_status read_given(const tool_source *source, sizes *out, dtp_err *err)
{
    for (int32_t i = 0; i < source->dims.n; i++) {
        const char *text = source->dims.items[i], *value;
        DTP_TRY(tool_split_pair(text, out->names[i], sizeof out->names[i], &value, err));
        out->list[i] = (dtp_dim_override){.name = out->names[i]};
        if (!dtp_int_parse(value, &out->list[i].size) || out->list[i].size < 1) {
            return DTP_FAIL(err, DTP_INVALID, "--dim %s: '%s' is not a positive integer", text,
                            value);
        }
    }
    out->n = out->n_given = source->dims.n;
    return DTP_OK;
}

static const dtp_dim_override *find_size(int32_t n, const dtp_dim_override *list, const char *name)
{
    for (int32_t i = 0; i < n; i++) {
        if (strcmp(list[i].name, name) == 0) {
            return &list[i];
        }
    }
    return NULL;
}

/* The sizes of the command line, and those of a plan for other dims. */
static dtp_status make_sizes(const tool_source *source, int32_t n, const dtp_dim_override *planned,
                             sizes *out, dtp_err *err)
{
    const size_t room = (size_t)source->dims.n + (size_t)n;
    out->list = dtp_arena_alloc(out->arena, room, sizeof *out->list);
    DTP_TRY(DTP_MEMORY(err, out->list));
    DTP_TRY(read_given(source, out, err));
    for (int32_t i = 0; i < n; i++) {
        if (find_size(out->n_given, out->list, planned[i].name) == NULL) {
            out->list[out->n++] = planned[i];
        }
    }
    return DTP_OK;
}

/* As a plan says (NULL: none), and the command line. */
static dtp_status read_model(const tool_source *source, const dtp_model_options *planned,
                             dtp_graph **out, dtp_err *err)
{
    sizes dims;
    dtp_model_options options = planned != NULL ? *planned : dtp_model_options_init();
    if (source->freeze.n > 0 && source->forward) {
        return DTP_FAIL(err, DTP_INVALID, "--freeze is about training, which --forward leaves out");
    }
    dims.arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, dims.arena));
    dtp_status s = make_sizes(source, options.n_overrides, options.overrides, &dims, err);
    if (s == DTP_OK) {
        options.n_overrides = dims.n;
        options.overrides = dims.list;
        options.forward_only = source->forward || options.forward_only;
        options.f64 = is_wide(source) && source->precision == NULL;
        if (source->freeze.n > 0) {
            options.n_freeze = source->freeze.n;
            options.freeze = source->freeze.items;
        }
        s = dtp_model_read(source->model, &options, out, err);
    }
    dtp_arena_destroy(dims.arena);
    return s;
}

dtp_status tool_read_graph(const tool_source *source, dtp_graph **out, dtp_err *err)
{
    return read_model(source, NULL, out, err);
}

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
           : s->freeze.n > 0         ? "freeze"
           : s->microbatches != NULL ? "microbatches"
                                     : NULL;
}

/* ---- plans and their model ---- */

/* "batch=96, layers=2": the sizes of the plan that the model does not have, with the plan's sizes
 * or the model's. */
static void print_other_dims(const dtp_plan *plan, const dtp_graph *model, bool of_plan,
                             dtp_strbuf *out)
{
    for (int32_t d = 0; d < plan->n_dims; d++) {
        const dtp_dim_override *was = &plan->dims[d];
        const dtp_dim_override *is = find_size(model->n_given, model->given, was->name);
        if (is != NULL && is->size != was->size) {
            dtp_strbuf_addf(out, "%s%s=%" PRId64, out->len > 0 ? ", " : "", was->name,
                            of_plan ? was->size : is->size);
        }
    }
}

static dtp_status read_plan(const tool_source *source, const char *text, size_t len,
                            const dtp_graph *model, dtp_plan **out, dtp_err *err)
{
    return source->uneven ? dtp_plan_read_resized(source->plan, text, len, model, out, err)
                          : dtp_plan_read(source->plan, text, len, model, out, err);
}

static dtp_status read_texts(const tool_source *source, const char *text, size_t len,
                             dtp_arena *arena, dtp_graph **model, dtp_plan **plan, dtp_err *err)
{
    dtp_model_options planned;
    dtp_strbuf others = {0};
    tool_source from = *source;
    from.backend = NULL; /* in f32 */
    DTP_TRY(dtp_plan_read_model(source->plan, text, len, arena, &planned, err));
    if (read_model(&from, &planned, model, err) != DTP_OK) {
        /* A model without these dims, or none: what is wrong is said without them. */
        *model = NULL;
        planned.n_overrides = 0;
        DTP_TRY(read_model(&from, &planned, model, err));
    }
    DTP_TRY(read_plan(source, text, len, *model, plan, err));
    print_other_dims(*plan, *model, true, &others);
    const bool priced = (*plan)->machine == NULL || source->machine != NULL || source->any_dims;
    const dtp_status s =
        others.len == 0 || priced
            ? DTP_OK
            : DTP_FAIL(err, DTP_INVALID,
                       "%s: the plan was made for %s, and its prices are for these sizes: leave "
                       "out --dim, or give --machine to price it again",
                       source->plan, others.text);
    dtp_strbuf_free(&others);
    return s;
}

dtp_status tool_read_planned(const tool_source *source, dtp_graph **model, dtp_plan **plan,
                             dtp_err *err)
{
    char *text = NULL;
    size_t len = 0;
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    dtp_status s = dtp_plan_file_read(source->plan, &text, &len, err);
    s = s == DTP_OK ? read_texts(source, text, len, arena, model, plan, err) : s;
    free(text);
    dtp_arena_destroy(arena);
    return s;
}

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
    print_other_dims(plan, model, true, &was);
    print_other_dims(plan, model, false, &is);
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

/* A plan in f32 is run in f64, on the model in f64. */
static dtp_status read_wide(const tool_source *source, tool_job *job, dtp_err *err)
{
    dtp_graph *narrow = job->model;
    dtp_plan *read = job->plan;
    job->model = NULL;
    job->plan = NULL;
    char *text = NULL;
    size_t len = 0;
    dtp_model_options same = dtp_model_options_init();
    same.n_overrides = narrow->n_given;
    same.overrides = narrow->given;
    same.forward_only = narrow->forward_only;
    same.n_freeze = narrow->n_freeze;
    same.freeze = narrow->freeze;
    dtp_status s = read_model(source, &same, &job->model, err);
    s = s == DTP_OK ? dtp_plan_file_read(source->plan, &text, &len, err) : s;
    s = s == DTP_OK ? read_plan(source, text, len, job->model, &job->plan, err) : s;
    free(text);
    dtp_plan_destroy(read);
    dtp_graph_destroy(narrow);
    return s;
}

static dtp_status build(const tool_source *source, dtp_job_options options, const dtp_ctx *ctx,
                        tool_job *job, dtp_err *err)
{
    dtp_mesh mesh;
    tool_target target;
    const dtp_prediction *now = NULL;
    if (source->plan == NULL) {
        DTP_TRY(tool_read_graph(source, &job->model, err));
    }
    if (source->machine != NULL) {
        DTP_TRY(tool_machine_read(source->machine, source->yes_units, &job->machine, err));
    }
    if (source->plan != NULL) {
        if (decided(source) != NULL) {
            return DTP_FAIL(err, DTP_INVALID,
                            "--plan already says mesh and layouts; leave out --%s",
                            decided(source));
        }
        DTP_TRY(tool_read_planned(source, &job->model, &job->plan, err));
        DTP_TRY(tool_plan_runtime(job->plan, job->machine, err));
    }
    DTP_TRY(dtp_mesh_parse(source->mesh == NULL ? "" : source->mesh, &mesh, err));
    DTP_TRY(tool_target_find(source, source->plan == NULL ? job->machine : NULL, &target, err));
    const bool wide =
        job->plan != NULL && is_wide(source) && dtp_plan_compute_dtype(job->plan) == DTP_F32;
    if (wide) {
        tool_plan_say_changes(source, job->plan, job->model, job->machine, NULL, ctx);
        DTP_TRY(read_wide(source, job, err));
    }
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
        now = dtp_job_predicted(job->run);
        tool_plan_say_changes(source, job->plan, job->model, job->machine, now, ctx);
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
    dtp_machine_destroy(job->machine);
    dtp_graph_destroy(job->model);
    memset(job, 0, sizeof *job);
}
