/* Model files and plans as the command line says they are to be read. */
#include "tools/job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/strbuf.h"
#include "core/plan/plan.h"

bool tool_is_wide(const tool_source *source)
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
        options.f64 = tool_is_wide(source) && source->precision == NULL;
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

void tool_print_other_dims(const dtp_plan *plan, const dtp_graph *model, bool of_plan,
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
    const dtp_mesh *mesh = source->smaller != NULL ? &source->smaller->mesh : NULL;
    return source->uneven || mesh != NULL
               ? dtp_plan_read_resized(source->plan, text, len, model, mesh, out, err)
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
    if (source->smaller != NULL) {
        planned.n_overrides = source->smaller->n;
        planned.overrides = source->smaller->dims;
        DTP_TRY(read_model(&from, &planned, model, err));
        return read_plan(source, text, len, *model, plan, err);
    }
    if (read_model(&from, &planned, model, err) != DTP_OK) {
        /* A model without these dims, or none: what is wrong is said without them. */
        *model = NULL;
        planned.n_overrides = 0;
        DTP_TRY(read_model(&from, &planned, model, err));
    }
    DTP_TRY(read_plan(source, text, len, *model, plan, err));
    if ((*plan)->variant.stages.n > 1 && source->stage == NULL && !source->any_stages) {
        return DTP_FAIL(
            err, DTP_UNSUPPORTED,
            "%s: the plan has %d stages; dtplan show, export, report and viz, dtrun run "
            "and verify take such plans, no other command does yet",
            source->plan, (*plan)->variant.stages.n);
    }
    tool_print_other_dims(*plan, *model, true, &others);
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

dtp_status tool_read_wide(const tool_source *source, tool_job *job, dtp_err *err)
{
    dtp_graph *narrow = job->model;
    dtp_plan *read = job->plan;
    job->model = NULL;
    job->plan = NULL;
    char *text = NULL;
    size_t len = 0;
    const tool_smaller smaller = {.mesh = read->mesh};
    tool_source from = *source;
    from.smaller = job->planned_model != NULL ? &smaller : NULL;
    dtp_model_options same = dtp_model_options_init();
    same.n_overrides = narrow->n_given;
    same.overrides = narrow->given;
    same.forward_only = narrow->forward_only;
    same.n_freeze = narrow->n_freeze;
    same.freeze = narrow->freeze;
    dtp_status s = read_model(source, &same, &job->model, err);
    s = s == DTP_OK ? dtp_plan_file_read(source->plan, &text, &len, err) : s;
    s = s == DTP_OK ? read_plan(&from, text, len, job->model, &job->plan, err) : s;
    free(text);
    dtp_plan_destroy(read);
    dtp_graph_destroy(narrow);
    return s;
}
