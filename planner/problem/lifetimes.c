/* When the tensors of a graph are there in its programs at least. */
#include "planner/problem/lifetimes.h"

#include "core/plan/sharding_microbatch.h"
#include "core/transform/stages.h"

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

/* A view that nothing looks at reads nothing. */
static void skip_views(dtp_lifetimes *l)
{
    for (dtp_node_id n = l->graph->n_nodes - 1; n >= 0; n--) {
        const dtp_node *node = &l->graph->nodes[n];
        const dtp_tensor_id t = node->out[0];
        bool idle =
            (node->op->flags & DTP_OP_RELABEL) != 0 && !l->uses.survives[t] && !l->uses.replaces[t];
        for (int32_t k = l->readers.first[t]; k < l->readers.first[t + 1] && idle; k++) {
            idle = l->places.skipped[l->readers.node[k]];
        }
        l->places.skipped[n] = l->places.skipped[n] || idle;
    }
}

/* When the last of its readers is done with it at the earliest. Of readers that may want a smaller
 * shard than the tensor's, views under other dims, the later ones may read what the first one got.
 */
static int64_t last_read(const dtp_lifetimes *l, dtp_tensor_id t)
{
    int64_t last = 0;
    bool viewed = false;
    if (l->uses.survives[t] || is_kept(l->graph, t)) {
        return l->end;
    }
    for (int32_t k = l->readers.first[t]; k < l->readers.first[t + 1]; k++) {
        const dtp_node_id n = l->readers.node[k];
        const int64_t read = TICKS * (int64_t)l->places.earliest[n] + 1;
        const bool view = (l->graph->nodes[n].op->flags & DTP_OP_RELABEL) != 0;
        if (!l->places.skipped[n] && !(view && viewed)) {
            last = read > last ? read : last;
            viewed = viewed || view;
        }
    }
    return last;
}

/* Of tensors in one buffer one counts at a time; covered, scratch: by the first of them, until when
 * the buffer is counted for those so far. */
static void find_lives(dtp_lifetimes *l, dtp_tensor_id *root, int64_t *covered)
{
    const dtp_graph *g = l->graph;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const dtp_node_id maker = g->tensors[t].producer;
        l->end_of[t] = last_read(l, t);
        l->begin[t] = maker >= 0 ? TICKS * (int64_t)l->places.latest[maker] + 2 : 0;
        root[t] = t;
        if (maker >= 0 && stays_in_buffer(g, &g->nodes[maker])) {
            root[t] = root[g->nodes[maker].in[0]];
            const int64_t until = covered[root[t]];
            l->aliased[t] = until > TICKS * (int64_t)maker + 1;
            l->begin[t] = until > l->begin[t] ? until : l->begin[t];
        }
        covered[root[t]] = l->end_of[t] > covered[root[t]] ? l->end_of[t] : covered[root[t]];
    }
}

/* Bit i: operand i, and all else in its buffer, is dead after the node; of several in one buffer
 * the first. */
static uint32_t dying_operands(const dtp_lifetimes *l, dtp_node_id n, const dtp_tensor_id *root,
                               const int64_t *covered)
{
    const dtp_node *node = &l->graph->nodes[n];
    uint32_t mask = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        bool dies = covered[root[t]] == TICKS * (int64_t)n + 1 && !is_kept(l->graph, t);
        for (int32_t j = 0; j < i; j++) {
            dies = dies && (node->in[j] == t || root[node->in[j]] != root[t]);
        }
        mask |= dies ? 1U << i : 0U;
    }
    return mask;
}

/* From readers, places and uses on. */
static dtp_status find_times(dtp_lifetimes *l, dtp_arena *arena, dtp_err *err)
{
    const dtp_graph *g = l->graph;
    const size_t n = (size_t)g->n_tensors;
    dtp_tensor_id *root;
    int64_t *covered;
    DTP_TRY(DTP_NEW(arena, l->aliased, n, err));
    DTP_TRY(DTP_NEW(arena, l->begin, n, err));
    DTP_TRY(DTP_NEW(arena, l->end_of, n, err));
    DTP_TRY(DTP_NEW(arena, root, n, err));
    DTP_TRY(DTP_NEW(arena, covered, n, err));
    DTP_TRY(DTP_NEW(arena, l->dying, g->n_nodes, err));
    find_lives(l, root, covered);
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        l->dying[id] = dying_operands(l, id, root, covered);
    }
    return DTP_OK;
}

dtp_status dtp_lifetimes_find(const dtp_graph *g, const dtp_target *target, dtp_arena *arena,
                              dtp_lifetimes *out, dtp_err *err)
{
    *out = (dtp_lifetimes){.graph = g, .end = TICKS * (int64_t)g->n_nodes};
    DTP_TRY(dtp_readers_find(g, arena, &out->readers, err));
    DTP_TRY(dtp_kernel_places_find(g, target, arena, &out->places, err));
    DTP_TRY(dtp_uses_find(g, arena, &out->uses, err));
    skip_views(out);
    return find_times(out, arena, err);
}

dtp_status dtp_lifetimes_in_chunk(const dtp_lifetimes *all, int32_t chunk, dtp_arena *arena,
                                  dtp_lifetimes *out, dtp_err *err)
{
    const dtp_graph *g = all->graph;
    const dtp_stages *stages = g->stages;
    *out = *all;
    DTP_TRY(DTP_NEW(arena, out->places.skipped, g->n_nodes, err));
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        out->places.skipped[n] = all->places.skipped[n] || !dtp_in_chunk(stages->on[n], chunk);
    }
    DTP_TRY(find_times(out, arena, err));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        const bool lasts = all->uses.survives[t] || is_kept(g, t);
        if (lasts && !dtp_in_chunk(stages->holds[t], chunk)) {
            out->end_of[t] = out->begin[t];
        }
    }
    return DTP_OK;
}

int dtp_lifetimes_last_phase(const dtp_lifetimes *l, dtp_tensor_id t)
{
    const dtp_readers *r = &l->readers;
    const bool stays = l->uses.survives[t] || l->graph->tensors[t].kind == DTP_TENSOR_PARAM;
    return stays || r->first[t] == r->first[t + 1]
               ? -1
               : (int)l->graph->nodes[r->node[r->first[t + 1] - 1]].phase;
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
