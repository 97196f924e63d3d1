/* Reading sharded tensors: shards travel to rank 0 in chunks, so that no rank but rank 0 needs more
 * than its own shard and a few chunks. */
#include "executor/session/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/device/convert.h"
#include "executor/files/npy.h"
#include "executor/session/session_internal.h"

enum { CHUNK_ELEMS = 1 << 18 };

void dtp_session__runs(const dtp_shard *shard, int64_t first, int64_t n, const void *data,
                       int64_t elem_bytes, dtp_run_visit visit, void *user)
{
    dtp_shard_runs it = dtp_shard_runs_of(shard, shard);
    while (dtp_shard_next(&it) && it.in_whole < first + n) {
        int64_t start = it.in_whole > first ? it.in_whole : first;
        int64_t run_end = it.in_whole + it.run, end = run_end < first + n ? run_end : first + n;
        if (end > start) {
            visit(user, it.in_tensor + (start - it.in_whole),
                  (const char *)data + (start - first) * elem_bytes, end - start);
        }
    }
}

dtp_status dtp_session__reduce(dtp_session *s, const dtp_layout *layout, dtp_dtype dtype, int64_t n,
                               void *data, dtp_err *err)
{
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *place = &layout->placement[m];
        if (place->kind != DTP_PARTIAL) {
            continue;
        }
        bool avg = place->op == DTP_REDUCE_AVG;
        dtp_coll coll = {.kind = DTP_ALL_REDUCE,
                         .set = (dtp_mesh_set)1 << m,
                         .op = avg ? DTP_REDUCE_SUM : (dtp_reduce_op)place->op,
                         .dtype = dtype,
                         .count = n};
        DTP_TRY(s->comm->ops->run(s->comm, &coll, data, data, err));
        for (int64_t i = 0; avg && i < n; i++) {
            dtp_element_set(dtype, data, i,
                            dtp_element(dtype, data, i) / (double)s->program->mesh.sizes[m]);
        }
    }
    return DTP_OK;
}

/* One collection under way. */
typedef struct collection {
    dtp_session *s;
    const dtp_value *value;
    const dtp_view *view;
    dtp_mesh_set set; /* gathered over */
    char *mine, *all; /* a chunk of this rank, of all members */
    dtp_collect_visit visit;
    void *user;
    dtp_status
        visited; /* the first failure of visit; the collectives go on to keep the ranks together */
    dtp_err visit_err;
} collection;

static int64_t clamp(int64_t n, int64_t high)
{
    return n < 0 ? 0 : n > high ? high : n;
}

static dtp_status collect_all(collection *c, int64_t elems, dtp_err *err)
{
    for (int64_t first = 0; first < elems; first += CHUNK_ELEMS) {
        const int64_t n = clamp(elems - first, CHUNK_ELEMS);
        dtp_session *s = c->s;
        int64_t width = dtp_dtype_bytes(c->value->type.dtype);
        int64_t have = clamp(dtp_ttype_elems(&c->view->local) - first, n);
        memset(c->mine, 0, (size_t)(n * width));
        if (have > 0) {
            const char *from = (const char *)c->view->data + first * width;
            DTP_TRY(
                s->backend->ops->download(s->backend, c->mine, from, (size_t)(have * width), err));
        }
        DTP_TRY(dtp_session__reduce(s, &c->value->layout, c->value->type.dtype, n, c->mine, err));
        dtp_coll coll = {
            .kind = DTP_ALL_GATHER, .set = c->set, .dtype = c->value->type.dtype, .count = n};
        DTP_TRY(s->comm->ops->run(s->comm, &coll, c->mine, c->all, err));
        if (s->comm->rank == 0 && c->visit != NULL) {
            const dtp_mesh *mesh = &c->s->program->mesh;
            int64_t bytes = n * dtp_dtype_bytes(c->value->type.dtype);
            int32_t members = dtp_mesh_set_size(mesh, c->set);
            for (int32_t j = 0; j < members && c->visited == DTP_OK; j++) {
                int32_t rank = dtp_mesh_set_member(mesh, c->set, 0, j);
                dtp_shard shard = dtp_shard_of(&c->value->type, &c->value->layout, mesh, rank);
                int64_t part = clamp(dtp_shard_elems(&shard) - first, n);
                if (part > 0) {
                    c->visited = c->visit(c->user, rank, &shard, first, part, c->all + j * bytes,
                                          &c->visit_err);
                }
            }
        }
    }
    if (c->visited != DTP_OK) {
        *err = c->visit_err;
    }
    return dtp_comm_agree_status(c->s->comm, c->visited, err);
}

dtp_status dtp_session_collect(dtp_session *s, dtp_tensor_id t, bool replicas,
                               dtp_collect_visit visit, void *user, dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    if (t < 0 || t >= s->program->graph->n_tensors || s->tensor_value[t] < 0) {
        return DTP_FAIL(
            err, DTP_NOT_FOUND, "tensor '%s' does not survive the step: name it as a fetch",
            t >= 0 && t < s->program->graph->n_tensors ? s->program->graph->tensors[t].name : "?");
    }
    const dtp_value *value = &s->program->values[s->tensor_value[t]];
    collection c = {.s = s,
                    .value = value,
                    .view = dtp_runner_view(s->runner, s->tensor_value[t]),
                    .visit = visit,
                    .user = user};
    for (int32_t m = 0; m < value->layout.n_mesh; m++) {
        bool split = value->layout.placement[m].kind == DTP_SHARD;
        c.set |= replicas || split ? (dtp_mesh_set)1 << m : 0;
    }
    dtp_ttype largest;
    dtp_layout_local_max(&value->layout, &s->program->mesh, &value->type, &largest);
    int64_t elems = dtp_ttype_elems(&largest), width = dtp_dtype_bytes(value->type.dtype);
    int64_t chunk = clamp(elems, CHUNK_ELEMS) * width + 1;
    c.mine = malloc((size_t)chunk);
    c.all = malloc((size_t)(chunk * dtp_mesh_set_size(&s->program->mesh, c.set)));
    dtp_status status = DTP_MEMORY(err, c.mine, c.all);
    status = dtp_comm_agree_status(s->comm, status, err);
    if (status == DTP_OK && c.mine != NULL && c.all != NULL) {
        status = collect_all(&c, elems, err);
    }
    free(c.mine);
    free(c.all);
    return status;
}

typedef struct gathering {
    char *out;
    int64_t elem_bytes;
} gathering;

static void place_run(void *user, int64_t in_tensor, const void *data, int64_t n)
{
    gathering *g = user;
    memcpy(g->out + in_tensor * g->elem_bytes, data, (size_t)(n * g->elem_bytes));
}

static dtp_status place_chunk(void *user, int32_t rank, const dtp_shard *shard, int64_t first,
                              int64_t n, const void *data, dtp_err *err)
{
    (void)rank;
    (void)err;
    gathering *g = user;
    dtp_session__runs(shard, first, n, data, g->elem_bytes, place_run, g);
    return DTP_OK;
}

dtp_status dtp_session_gather(dtp_session *s, dtp_tensor_id t, void *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, s));
    gathering g = {.out = out,
                   .elem_bytes = dtp_dtype_bytes(s->program->graph->tensors[t].type.dtype)};
    return dtp_session_collect(s, t, false, place_chunk, &g, err);
}

dtp_status dtp_session__gather_new(dtp_session *s, dtp_tensor_id t, void **out, dtp_err *err)
{
    const int64_t bytes = dtp_ttype_bytes(&s->program->graph->tensors[t].type);
    dtp_status status = DTP_OK;
    *out = NULL;
    if (s->comm->rank == 0) {
        *out = malloc(bytes > 0 ? (size_t)bytes : 1);
        status = DTP_MEMORY(err, *out);
    }
    DTP_TRY(dtp_comm_agree_status(s->comm, status, err));
    return dtp_session_gather(s, t, *out, err);
}

dtp_status dtp_session_fetch_npy(dtp_session *s, dtp_tensor_id t, const char *path, dtp_err *err)
{
    dtp_err local = {0};
    err = err != NULL ? err : &local;
    void *whole = NULL;
    DTP_TRY(DTP_NOT_NULL(err, s, path));
    dtp_status status = dtp_session__gather_new(s, t, &whole, err);
    if (status == DTP_OK) {
        if (s->comm->rank == 0) {
            status = dtp_npy_write(path, &s->program->graph->tensors[t].type, whole, err);
        }
        status = dtp_comm_agree_status(s->comm, status, err);
    }
    free(whole);
    return status;
}
