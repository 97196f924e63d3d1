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

dtp_collection dtp_session__collection(const dtp_session *s, dtp_tensor_id t)
{
    const dtp_value *value = dtp_session__kept(s, t);
    const dtp_stages *stages = s->pipeline.stages;
    const int32_t k = dtp_session__chunk_of(s, t);
    const dtp_value_id v = s->tensor_values[k][t];
    dtp_collection c = {.comm = s->comm,
                        .backend = s->backend,
                        .mesh = &s->program->mesh,
                        .type = &value->type,
                        .layout = value->layout,
                        .data = v >= 0 ? dtp_runner_view(s->runners[k], v)->data : NULL};
    if (stages != NULL) { /* replicated over the stages, of which some have nothing */
        const int32_t n_mesh = c.layout.n_mesh;
        c.mesh = &s->pipeline.mesh;
        c.stages = (uint64_t)1 << stages->home[t] % stages->n;
        c.layout = dtp_layout_replicated(value->layout.rank, n_mesh + 1);
        memcpy(&c.layout.placement[1], value->layout.placement,
               (size_t)n_mesh * sizeof c.layout.placement[0]);
    }
    return c;
}

dtp_status dtp_session__collect(dtp_session *s, dtp_tensor_id t, bool replicas, void *out,
                                dtp_collect_visit visit, void *user, dtp_err *err)
{
    const dtp_stages *stages = s->pipeline.stages;
    if (t < 0 || t >= s->program->graph->n_tensors || !dtp_session_can_fetch(s, t)) {
        return DTP_FAIL(
            err, DTP_NOT_FOUND, "tensor '%s' does not survive the step: name it as a fetch",
            t >= 0 && t < s->program->graph->n_tensors ? s->program->graph->tensors[t].name : "?");
    }
    dtp_collection c = dtp_session__collection(s, t);
    for (int32_t m = 0; m < c.layout.n_mesh; m++) {
        const bool split = c.layout.placement[m].kind == DTP_SHARD || (m == 0 && stages != NULL);
        c.set |= replicas || split ? (dtp_mesh_set)1 << m : 0;
    }
    if (stages != NULL && replicas && s->program->graph->tensors[t].kind == DTP_TENSOR_PARAM) {
        c.stages = dtp_stages_of_chunks(stages, stages->holds[t]); /* copies, too */
    }
    if (s->comm->rank == 0) {
        c.out = out;
        c.visit = visit;
        c.user = user;
    }
    dtp_status status = dtp_comm_agree_status(s->comm, dtp_collect_prepare(&c, err), err);
    status = status == DTP_OK ? dtp_collect_run(&c, err) : status;
    dtp_collect_free(&c);
    return status;
}

dtp_status dtp_session__gradient_factor(dtp_session *s, dtp_tensor_id t, double *out, dtp_err *err)
{
    const dtp_graph *g = s->program->graph;
    char raw[sizeof(double)];
    bool is = false;
    for (int32_t i = 0; i < g->n_grads && g->grad_factor >= 0; i++) {
        is = is || g->grads[i].grad == t;
    }
    *out = 1.0;
    if (is) {
        DTP_TRY(dtp_session__collect(s, g->grad_factor, false, raw, NULL, NULL, err));
        if (s->comm->rank == 0) {
            *out = dtp_element(g->tensors[g->grad_factor].type.dtype, raw, 0);
        }
    }
    return DTP_OK;
}

/* Multiplies n floats. */
static void multiply(dtp_dtype dtype, void *data, int64_t n, double factor)
{
    for (int64_t i = 0; i < n && factor != 1.0; i++) {
        dtp_element_set(dtype, data, i, factor * dtp_element(dtype, data, i));
    }
}

dtp_status dtp_session_gather(dtp_session *s, dtp_tensor_id t, void *out, dtp_err *err)
{
    double factor;
    DTP_TRY(DTP_NOT_NULL(err, s));
    DTP_TRY(dtp_session__collect(s, t, false, out, NULL, NULL, err));
    DTP_TRY(dtp_session__gradient_factor(s, t, &factor, err));
    if (s->comm->rank == 0) {
        const dtp_ttype *type = &s->program->graph->tensors[t].type;
        multiply(type->dtype, out, dtp_ttype_elems(type), factor);
    }
    return DTP_OK;
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

/* 16-bit floats are written as f32. */
static dtp_status write_npy(const char *path, const dtp_ttype *type, const void *data, dtp_err *err)
{
    if (!dtp_dtype_is_half(type->dtype)) {
        return dtp_npy_write(path, type, data, err);
    }
    const int64_t n = dtp_ttype_elems(type);
    dtp_ttype wide = *type;
    wide.dtype = DTP_F32;
    float *copy = malloc((size_t)n * sizeof *copy + 1);
    DTP_TRY(DTP_MEMORY(err, copy));
    dtp_status status = dtp_convert((dtp_store)type->dtype, data, DTP_F32, copy, n, err);
    status = status == DTP_OK ? dtp_npy_write(path, &wide, copy, err) : status;
    free(copy);
    return status;
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
            status = write_npy(path, &s->program->graph->tensors[t].type, whole, err);
        }
        status = dtp_comm_agree_status(s->comm, status, err);
    }
    free(whole);
    return status;
}
