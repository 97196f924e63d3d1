/* One device: everything replicated on a mesh of one rank. */
#include <stdlib.h>
#include <string.h>

#include "core/transform/microbatch.h"
#include "executor/verify/verify_internal.h"
#include "spmd/lower/lower.h"

/* The graph up to its update nodes, which are the last ones (core/graph/optimizer.c), or to those
 * that it reports: the norm, the factor of the gradients and a loss. What microbatches add to or
 * follow stays. */
static dtp_status cut_updates(const dtp_graph *g, dtp_verify_reference *r, dtp_err *err)
{
    dtp_graph *out = &r->graph;
    *out = *g;
    const dtp_tensor_id reported[] = {g->norm, g->grad_factor, g->loss};
    dtp_node_id last = -1;
    for (size_t i = 0; i < sizeof reported / sizeof *reported; i++) {
        const dtp_node_id n = reported[i] >= 0 ? g->tensors[reported[i]].producer : -1;
        last = n > last ? n : last;
    }
    while (out->n_nodes > last + 1 && g->nodes[out->n_nodes - 1].phase == DTP_UPDATE) {
        out->n_nodes--;
    }
    out->n_updates = 0;
    DTP_TRY(DTP_NEW(r->arena, out->updates, g->n_updates, err));
    for (int32_t i = 0; i < g->n_updates; i++) {
        if (dtp_microbatch_changes(g, g->updates[i].value)) {
            out->updates[out->n_updates++] = g->updates[i];
        }
    }
    return DTP_OK;
}

static dtp_status replicate(dtp_verify_reference *r, dtp_err *err)
{
    r->sharding.mesh = (dtp_mesh){0};
    r->sharding.n_tensors = r->graph.n_tensors;
    r->sharding.n_nodes = r->graph.n_nodes;
    DTP_TRY(DTP_NEW(r->arena, r->sharding.layouts, r->graph.n_tensors, err));
    DTP_TRY(DTP_NEW(r->arena, r->sharding.strategies, r->graph.n_nodes, err));
    for (dtp_tensor_id t = 0; t < r->graph.n_tensors; t++) {
        r->sharding.layouts[t] = dtp_layout_replicated(r->graph.tensors[t].type.rank, 0);
    }
    return DTP_OK;
}

static dtp_status build(const dtp_verify_options *o, dtp_verify_reference *r, dtp_err *err)
{
    dtp_lower_options lower = dtp_lower_options_init(dtp_redistributor_generic());
    dtp_session_options session = dtp_session_options_init();
    r->arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, r->arena));
    DTP_TRY(cut_updates(r->model, r, err));
    DTP_TRY(replicate(r, err));
    DTP_TRY(dtp_graph_results(&r->graph, r->arena, &lower.n_fetch, &lower.fetch, err));
    lower.target = dtp_target_of_backend(o->reference->ops->name);
    DTP_TRY(dtp_lower(&r->graph, &r->sharding, &lower, &r->program, err));
    DTP_TRY(dtp_comm_self_create(&r->comm, err));
    session.seed = o->seed;
    session.n_feeds = o->n_feeds;
    session.feeds = o->feeds;
    session.allow_nan = true; /* a mismatch, in the report */
    return dtp_session_create(r->program, o->reference, r->comm, &session, &r->session, err);
}

dtp_status dtp_verify_reference_create(const dtp_graph *g, const dtp_verify_options *options,
                                       dtp_verify_reference **out, dtp_err *err)
{
    dtp_verify_reference *r = calloc(1, sizeof *r);
    DTP_TRY(DTP_MEMORY(err, r));
    r->model = g;
    r->options = *options;
    const dtp_status status = build(options, r, err);
    if (status != DTP_OK) {
        dtp_verify_reference_destroy(r);
        return dtp_err_prefixed(status, err, "verify: reference");
    }
    *out = r;
    return DTP_OK;
}

void dtp_verify_reference_destroy(dtp_verify_reference *r)
{
    if (r != NULL) {
        dtp_session_destroy(r->session);
        dtp_comm_destroy(r->comm);
        dtp_program_destroy(r->program);
        dtp_arena_destroy(r->arena);
        free(r);
    }
}

dtp_status dtp_verify__reference_start(dtp_verify_reference *r, const dtp_graph *g,
                                       const dtp_verify_options *o, dtp_err *err)
{
    bool same = r->model == g && r->options.seed == o->seed && r->options.n_feeds == o->n_feeds;
    for (int32_t i = 0; same && i < o->n_feeds; i++) {
        const dtp_feed_spec *a = &r->options.feeds[i], *b = &o->feeds[i];
        same = strcmp(a->input, b->input) == 0 && strcmp(a->file, b->file) == 0 &&
               a->shift == b->shift &&
               strcmp(a->dtype != NULL ? a->dtype : "", b->dtype != NULL ? b->dtype : "") == 0;
    }
    if (!same) {
        return DTP_FAIL(err, DTP_INVALID,
                        "verify: the reference is for another graph, another seed or other feeds");
    }
    return dtp_session__restart(r->session, err);
}
