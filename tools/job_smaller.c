/* A plan on a smaller mesh (--ranks-at-most). Meshes are tried one after the other, those with most
 * ranks first. On each the sizes of the model are reduced one by one, each where the model can be
 * read with it and no more splits change between even and uneven than without. The first mesh on
 * which none does is taken. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/plan/plan_smaller.h"
#include "tools/job.h"

typedef struct shrink {
    const tool_source *source;
    dtp_arena *arena;
    dtp_plan_splits planned;
    tool_smaller now; /* what is tried; `dims` are writable here: */
    dtp_dim_override *dims;
    dtp_graph *model; /* what was read with it */
    dtp_plan *plan;
    char why[DTP_PLAN_SPLIT_TEXT_BYTES]; /* the last mesh does not fit */
} shrink;

static void forget(shrink *s)
{
    dtp_plan_destroy(s->plan);
    dtp_graph_destroy(s->model);
    s->plan = NULL;
    s->model = NULL;
}

static dtp_status find_splits(const dtp_plan *plan, const dtp_graph *model, dtp_arena *arena,
                              dtp_graph **g, dtp_plan_splits *out, dtp_err *err)
{
    DTP_TRY(dtp_plan_graph(plan, model, g, err));
    return dtp_plan_splits_find(plan, *g, arena, out, err);
}

/* Reads model and plan with what is tried. *fits: they can be, and the splits are kept; else `why`.
 * Memory alone is an error. */
static dtp_status try_read(shrink *s, bool *fits, dtp_err *err)
{
    dtp_err bad = {0};
    dtp_graph *g = NULL;
    dtp_plan_splits splits;
    tool_source from = *s->source;
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    forget(s);
    from.smaller = &s->now;
    dtp_status status = tool_read_planned(&from, &s->model, &s->plan, &bad);
    status = status == DTP_OK ? find_splits(s->plan, s->model, arena, &g, &splits, &bad) : status;
    *fits = status == DTP_OK && dtp_plan_splits_kept(&s->planned, &splits, s->why);
    if (status != DTP_OK) {
        (void)snprintf(s->why, sizeof s->why, "%.300s", bad.msg);
    }
    dtp_graph_destroy(g);
    dtp_arena_destroy(arena);
    return status == DTP_NOMEM ? DTP_FAIL(err, DTP_NOMEM, "%s", bad.msg) : DTP_OK;
}

/* One mesh: all sizes reduced, else each by itself. */
static dtp_status try_mesh(shrink *s, const dtp_graph *model, bool *fits, dtp_err *err)
{
    const int32_t n = s->now.n;
    for (int32_t i = 0; i < n; i++) {
        const dtp_dim_override *was = &model->given[i];
        const size_t len = strlen(was->name);
        bool stays = false; /* given on the command line */
        for (int32_t k = 0; k < s->source->dims.n; k++) {
            const char *text = s->source->dims.items[k];
            stays = stays || (strncmp(text, was->name, len) == 0 && text[len] == '=');
        }
        s->dims[i] = *was;
        s->dims[i].size =
            stays ? was->size
                  : dtp_plan_smaller_size(&s->planned, &s->now.mesh, was->name, was->size);
    }
    DTP_TRY(try_read(s, fits, err));
    if (*fits) {
        return DTP_OK;
    }
    int64_t *smaller;
    DTP_TRY(DTP_NEW(s->arena, smaller, n + 1, err));
    for (int32_t i = 0; i < n; i++) {
        smaller[i] = s->dims[i].size;
        s->dims[i].size = model->given[i].size;
    }
    DTP_TRY(try_read(s, fits, err));
    for (int32_t i = 0; i < n; i++) {
        bool better = false;
        if (smaller[i] != model->given[i].size) {
            s->dims[i].size = smaller[i];
            DTP_TRY(try_read(s, &better, err));
            s->dims[i].size = better ? smaller[i] : model->given[i].size;
            *fits = *fits || better;
        }
    }
    return *fits ? try_read(s, fits, err) : DTP_OK;
}

static dtp_status find(shrink *s, const dtp_graph *model, const dtp_mesh *mesh, dtp_err *err)
{
    const int32_t ranks = s->source->ranks_at_most;
    char text[DTP_MESH_TEXT_BYTES];
    bool fits = false;
    dtp_mesh *meshes;
    DTP_TRY(DTP_NEW(s->arena, meshes, DTP_SMALLER_MESHES, err));
    DTP_TRY(DTP_NEW(s->arena, s->dims, model->n_given + 1, err));
    s->now.n = model->n_given;
    s->now.dims = s->dims;
    const int32_t n = dtp_smaller_meshes(mesh, ranks, meshes);
    dtp_mesh_print(mesh, text);
    for (int32_t i = 0; i < n && !fits; i++) {
        s->now.mesh = meshes[i];
        DTP_TRY(try_mesh(s, model, &fits, err));
    }
    if (n == 0) {
        return DTP_FAIL(err, DTP_INVALID,
                        "--ranks-at-most %d: a mesh like %s, 2 ranks where it has more than 1, "
                        "needs %" PRId64 " ranks",
                        ranks, text, dtp_smallest_ranks(mesh));
    }
    return fits ? DTP_OK
                : DTP_FAIL(err, DTP_INVALID,
                           "--ranks-at-most %d: no mesh smaller than %s keeps the plan's splits; "
                           "of the last one: %s",
                           ranks, text, s->why);
}

dtp_status tool_job_make_smaller(const tool_source *source, tool_job *job, dtp_err *err)
{
    dtp_graph *g = NULL;
    shrink s = {.source = source};
    if (dtp_mesh_ranks(&job->plan->mesh) <= source->ranks_at_most) {
        return DTP_OK;
    }
    s.arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, s.arena));
    dtp_status status = find_splits(job->plan, job->model, s.arena, &g, &s.planned, err);
    status = status == DTP_OK ? find(&s, job->model, &job->plan->mesh, err) : status;
    dtp_graph_destroy(g);
    if (status == DTP_OK) {
        job->planned_model = job->model;
        job->planned_mesh = job->plan->mesh;
        dtp_plan_destroy(job->plan);
        job->model = s.model;
        job->plan = s.plan;
        /* The listed ones are of other sizes, and may be other steps on another mesh. */
        if (job->plan->redistribution == DTP_REDISTRIBUTION_LISTED) {
            job->plan->redistribution = DTP_REDISTRIBUTION_GENERIC;
        }
    } else {
        forget(&s);
    }
    dtp_arena_destroy(s.arena);
    return status;
}
