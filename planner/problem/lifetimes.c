#include "planner/problem/lifetimes.h"

#include "core/plan/sharding_microbatch.h"

enum { TICKS = DTP_NODE_TICKS };

/* Its result lies in the buffer of operand 0. */
static bool stays_in_buffer(const dtp_graph *g, const dtp_node *node)
{
    return (node->op->flags & DTP_OP_RELABEL) != 0 || dtp_is_accumulate(g, node);
}

static bool is_kept(const dtp_graph *g, dtp_tensor_id t)
{
    return g->tensors[t].kind == DTP_TENSOR_PARAM || g->tensors[t].kind == DTP_TENSOR_STATE;
}

/* When the last of its readers is done with it at the earliest. */
static int64_t last_read(const dtp_lifetimes *l, dtp_tensor_id t)
{
    int64_t last = 0;
    if (l->survives[t] || is_kept(l->graph, t)) {
        return l->end;
    }
    for (int32_t k = l->readers.first[t]; k < l->readers.first[t + 1]; k++) {
        const dtp_node_id n = l->readers.node[k];
        const int64_t read = TICKS * (int64_t)l->places.earliest[n] + 1;
        last = read > last && !l->places.skipped[n] ? read : last;
    }
    return last;
}

/* Tensors come before those that lie in their buffers. */
static void find_lives(dtp_lifetimes *l)
{
    const dtp_graph *g = l->graph;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_node_id maker = g->tensors[t].producer;
        l->hold[t] = last_read(l, t);
        l->begin[t] = maker >= 0 ? TICKS * (int64_t)l->places.latest[maker] + 2 : 0;
        if (maker >= 0 && stays_in_buffer(g, &g->nodes[maker])) {
            const dtp_tensor_id in = g->nodes[maker].in[0];
            const int64_t shared = l->hold[in];
            l->aliased[t] = l->aliased[in] || shared > TICKS * (int64_t)maker + 1;
            l->begin[t] = shared > l->begin[t] ? shared : l->begin[t];
            l->hold[t] = shared > l->hold[t] ? shared : l->hold[t];
        }
    }
}

static uint32_t dying_operands(const dtp_lifetimes *l, dtp_node_id n)
{
    const dtp_node *node = &l->graph->nodes[n];
    uint32_t mask = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        const bool dies = l->hold[t] == TICKS * (int64_t)n + 1 && !l->aliased[t] &&
                          !is_kept(l->graph, t);
        mask |= dies ? 1U << i : 0U;
    }
    return mask;
}

dtp_status dtp_lifetimes_find(const dtp_graph *g, const dtp_target *target, dtp_arena *arena,
                              dtp_lifetimes *out, dtp_err *err)
{
    const size_t n = (size_t)g->n_tensors;
    *out = (dtp_lifetimes){.graph = g, .end = TICKS * (int64_t)g->n_nodes};
    DTP_TRY(dtp_readers_find(g, arena, &out->readers, err));
    DTP_TRY(dtp_kernel_places_find(g, target, arena, &out->places, err));
    DTP_TRY(DTP_NEW(arena, out->survives, n, err));
    DTP_TRY(DTP_NEW(arena, out->replaces, n, err));
    DTP_TRY(DTP_NEW(arena, out->aliased, n, err));
    DTP_TRY(DTP_NEW(arena, out->begin, n, err));
    DTP_TRY(DTP_NEW(arena, out->hold, n, err));
    DTP_TRY(DTP_NEW(arena, out->dying, g->n_nodes, err));
    for (int32_t i = 0; i < g->n_outputs; i++) {
        out->survives[g->outputs[i]] = true;
    }
    if (g->loss >= 0) {
        out->survives[g->loss] = true;
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        out->replaces[g->updates[i].value] = true;
    }
    find_lives(out);
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        out->dying[id] = dying_operands(out, id);
    }
    return DTP_OK;
}

dtp_copy_life dtp_lifetimes_of_copy(const dtp_lifetimes *l, dtp_tensor_id t, int phase)
{
    dtp_copy_life life = {.begin = l->end, .made = l->end};
    int64_t first = l->end;
    for (int32_t k = l->readers.first[t]; k < l->readers.first[t + 1]; k++) {
        const dtp_node_id n = l->readers.node[k];
        const int64_t place = TICKS * (int64_t)n + 1;
        const int64_t read = TICKS * (int64_t)l->places.earliest[n] + 1;
        if ((int)l->graph->nodes[n].phase != phase) {
            continue;
        }
        life.made = read < life.made ? read : life.made;
        if (!l->places.skipped[n]) {
            first = place < first ? place : first;
            life.end = read > life.end ? read : life.end;
        }
    }
    life.begin = first > l->begin[t] ? first : l->begin[t];
    return life;
}
