/* One device: the model lowered with everything replicated on a mesh of one rank. */
#include <string.h>

#include "executor/verify/verify_internal.h"
#include "spmd/lower/lower.h"

/* The graph up to its update nodes, which are the last ones (core/graph/optimizer.c). Sums over
 * microbatches stay. */
static dtp_status without_updates(const dtp_graph *g, dtp_arena *arena, dtp_graph *out,
                                  dtp_err *err)
{
    *out = *g;
    while (out->n_nodes > 0 && g->nodes[out->n_nodes - 1].phase == DTP_UPDATE) {
        out->n_nodes--;
    }
    out->n_updates = 0;
    out->updates = dtp_arena_alloc(arena, (size_t)g->n_updates, sizeof *out->updates);
    if (out->updates == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for the reference graph");
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        if (g->tensors[g->updates[i].target].per_step) {
            out->updates[out->n_updates++] = g->updates[i];
        }
    }
    return DTP_OK;
}

static dtp_status replicate_all(const dtp_graph *g, dtp_arena *arena, dtp_sharding *s, dtp_err *err)
{
    s->mesh = (dtp_mesh){0};
    s->n_tensors = g->n_tensors;
    s->n_nodes = g->n_nodes;
    s->layouts = dtp_arena_alloc(arena, (size_t)g->n_tensors, sizeof *s->layouts);
    s->strategies = dtp_arena_alloc(arena, (size_t)g->n_nodes, sizeof *s->strategies);
    if (s->layouts == NULL || s->strategies == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for the reference plan");
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        s->layouts[t] = dtp_layout_replicated(g->tensors[t].type.rank, 0);
    }
    return DTP_OK;
}

dtp_status dtp_verify__reference_make(const dtp_graph *g, const dtp_verify_options *o,
                                      dtp_verify__reference *r, dtp_err *err)
{
    dtp_lower_options lower = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_session_options session = dtp_session_options_init();
    r->arena = dtp_arena_create();
    if (r->arena == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "no memory for the reference");
    }
    DTP_TRY(without_updates(g, r->arena, &r->graph, err));
    DTP_TRY(replicate_all(&r->graph, r->arena, &r->sharding, err));
    DTP_TRY(dtp_verify_fetches(&r->graph, r->arena, &lower.n_fetch, &lower.fetch, err));
    DTP_TRY(dtp_lower(&r->graph, &r->sharding, &lower, &r->program, err));
    DTP_TRY(dtp_comm_self_create(&r->comm, err));
    session.seed = o->seed;
    session.n_feeds = o->n_feeds;
    session.feeds = o->feeds;
    session.allow_nan = true; /* a mismatch, in the report */
    return dtp_session_create(r->program, o->reference, r->comm, &session, &r->session, err);
}

void dtp_verify__reference_free(dtp_verify__reference *r)
{
    dtp_session_destroy(r->session);
    dtp_comm_destroy(r->comm);
    dtp_program_destroy(r->program);
    dtp_arena_destroy(r->arena);
}

dtp_status dtp_verify__read(dtp_verify__reference *r, dtp_tensor_id t, void *host, dtp_err *err)
{
    return dtp_session_gather(r->session, t, host, err);
}

dtp_status dtp_verify__write(dtp_verify__reference *r, dtp_tensor_id t, const void *host,
                             dtp_err *err)
{
    dtp_session *s = r->session;
    const dtp_view *view = dtp_runner_view(s->runner, s->tensor_value[t]);
    return s->backend->ops->upload(s->backend, view->data, host,
                                   (size_t)dtp_ttype_bytes(&view->local), err);
}
