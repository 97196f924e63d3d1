/* Redistribution of one tensor as a shortest path.
 *
 * The vertices are layouts, the edges are the steps of spmd/redistribute/redistribute_graph.h, and
 * the search is A* (Dijkstra's algorithm when no bound is known for the price): exact for any
 * non-negative price. Only mesh dims that the target splits are sliced (unless all may be), so
 * that a plain all-reduce stays one, and what stays partial is not reduced. For tensors of many
 * megabytes a detour over other mesh dims can receive fewer bytes, in more collectives; within
 * these rules the price of a pair is never above that of two pairs in a row. Tensor dims that
 * neither layout splits may serve as a stopover; at most two of them are considered.
 */
#include <math.h>
#include <string.h>

#include "core/base/hash.h"
#include "spmd/redistribute/redistribute_bound.h"

enum { MAX_VERTICES = 1 << 16 };

typedef struct search_vertex {
    uint64_t key; /* the layout, dtp_layout__key */
    double cost, rest;
    int32_t from; /* -1: the start */
    dtp_layout_hop via;
    bool mirrored; /* the vertex is the mirror image of where `via` leads (see find_axes) */
    bool done;
} search_vertex;

typedef struct pair_search {
    const dtp_redistribution *r;
    dtp_layout_graph graph;
    dtp_redistribute_bound bound;
    uint64_t target;
    double best;      /* cost of the cheapest way to the target so far */
    int32_t twins[2]; /* see find_axes; -1: none */
    int32_t at;       /* the vertex that is being left */
    int32_t n, capacity;
    search_vertex *v;
    dtp_hash_table index; /* of v by key */
    dtp_layout_queue queue;
    dtp_arena *arena;
    dtp_err *err;
} pair_search;

static double price_of(const pair_search *s, const dtp_layout_state *at, const dtp_layout_hop *hop)
{
    const dtp_redistribution *r = s->r;
    if (r->generic) {
        const dtp_step_kind kind = (dtp_step_kind)hop->kind;
        const bool cut = kind == DTP_STEP_REDUCE_SCATTER || kind == DTP_STEP_ALL_TO_ALL;
        const bool exchange = cut || kind == DTP_STEP_ALL_GATHER;
        return dtp_step__generic_seconds(kind, s->graph.set_size[hop->set],
                                         cut ? hop->cut_bytes : at->bytes, exchange && !hop->even);
    }
    const dtp_step step = dtp_layout_graph__step(&s->graph, hop, hop->key);
    return r->price(r->user, r->mesh, r->type, &at->layout, &step);
}

/* The layout with the two twins exchanged. */
static uint64_t mirror(const pair_search *s, uint64_t key)
{
    const uint64_t flip = (uint64_t)(s->twins[0] ^ s->twins[1]) << 2;
    for (int32_t m = 0; m < s->graph.n_mesh; m++) {
        const int32_t axis = (int32_t)dtp_layout__axis_or_op(key, m);
        if (dtp_layout__kind(key, m) == DTP_SHARD && (axis == s->twins[0] || axis == s->twins[1])) {
            key ^= flip << (8 * m);
        }
    }
    return key;
}

/* The vertex of a key; a new one has no known cost. */
static dtp_status find_vertex(pair_search *s, uint64_t key, search_vertex **out)
{
    const uint32_t hash = dtp_layout__hash(key);
    uint32_t at = hash;
    int32_t i = dtp_hash_table_next(&s->index, hash, &at);
    while (i >= 0 && s->v[i].key != key) {
        i = dtp_hash_table_next(&s->index, hash, &at);
    }
    if (i < 0) {
        i = s->n;
        DTP_TRY(
            dtp_arena_grow(s->arena, &s->v, s->n, s->n + 1, &s->capacity, sizeof *s->v, s->err));
        DTP_TRY(dtp_hash_table_add(&s->index, s->arena, hash, i, s->err));
        s->v[s->n++] =
            (search_vertex){.key = key,
                            .cost = (double)INFINITY,
                            .rest = s->r->generic ? dtp_redistribute__bound(&s->bound, key) : 0,
                            .from = -1};
    }
    *out = &s->v[i];
    return DTP_OK;
}

/* Offers a way; those that cannot be better than what is known are dropped before they are
 * priced. Of a layout and its mirror image the one of lesser key is the vertex. */
static dtp_status relax(void *user, const dtp_layout_state *at, const dtp_layout_hop *hop)
{
    pair_search *s = user;
    const uint64_t image = s->twins[0] >= 0 ? mirror(s, hop->key) : hop->key;
    const bool mirrored = image < hop->key;
    search_vertex *v;
    DTP_TRY(find_vertex(s, mirrored ? image : hop->key, &v));
    double cost = s->v[s->at].cost;
    if (v->done || v->cost <= cost || cost + v->rest >= s->best) {
        return DTP_OK;
    }
    cost += price_of(s, at, hop);
    if (v->cost <= cost || cost + v->rest >= s->best) {
        return DTP_OK;
    }
    v->cost = cost;
    v->from = s->at;
    v->via = *hop;
    v->mirrored = mirrored;
    s->best = v->key == s->target ? cost : s->best;
    return dtp_layout_queue__push(&s->queue, s->arena,
                                  (dtp_queue_entry){cost + v->rest, (int32_t)(v - s->v)}, s->err);
}

/* *found: the target's vertex, or -1 when there are more than MAX_VERTICES. */
static dtp_status run_search(pair_search *s, int32_t *found)
{
    search_vertex *start;
    *found = -1;
    DTP_TRY(find_vertex(s, dtp_layout__key(s->r->from), &start));
    start->cost = 0;
    DTP_TRY(dtp_layout_queue__push(&s->queue, s->arena, (dtp_queue_entry){0, 0}, s->err));
    while (s->queue.n > 0 && s->n < MAX_VERTICES) {
        s->at = dtp_layout_queue__pop(&s->queue).layout;
        if (s->v[s->at].done) {
            continue;
        }
        s->v[s->at].done = true;
        if (s->v[s->at].key == s->target) {
            *found = s->at;
            return DTP_OK;
        }
        DTP_TRY(dtp_layout_graph__expand(&s->graph, s->v[s->at].key, relax, s));
    }
    return DTP_OK;
}

static int8_t twin_of(const pair_search *s, int8_t axis)
{
    return (int8_t)(axis == s->twins[0] ? s->twins[1] : axis == s->twins[1] ? s->twins[0] : axis);
}

/* The path's steps, first to last. */
static dtp_status write_path(const pair_search *s, int32_t target, dtp_steps *out)
{
    int32_t n = 0;
    for (int32_t v = target; s->v[v].from >= 0; v = s->v[v].from) {
        n++;
    }
    if (n > DTP_MAX_STEPS) {
        return DTP_FAIL(s->err, DTP_INTERNAL, "a redistribution of %d steps", n);
    }
    out->n = n;
    /* Both ends are their own mirror images, so what is mirrored may be counted from the end. */
    bool mirrored = false;
    for (int32_t v = target; s->v[v].from >= 0; v = s->v[v].from) {
        dtp_layout_hop via = s->v[v].via;
        const uint64_t key = mirrored ? mirror(s, s->v[v].key) : s->v[v].key;
        mirrored = mirrored != s->v[v].mirrored;
        via.axis = mirrored ? twin_of(s, via.axis) : via.axis;
        via.to_axis = mirrored ? twin_of(s, via.to_axis) : via.to_axis;
        out->steps[--n] = dtp_layout_graph__step(&s->graph, &via, key);
    }
    return DTP_OK;
}

/* Tensor dims that either layout splits, and the first two others, the stopovers. Two stopovers
 * that every mesh dim divides evenly are alike on the generic machine: every way has a mirror image
 * of the same price with the two exchanged. A layout and its mirror image are one vertex. */
static void find_axes(pair_search *s)
{
    const dtp_redistribution *r = s->r;
    const int64_t ranks = s->graph.set_size[(1U << r->mesh->n_dims) - 1U];
    int32_t stopovers[2] = {-1, -1}, n = 0;
    for (int32_t m = 0; m < r->mesh->n_dims; m++) {
        const dtp_placement from = r->from->placement[m], to = r->to->placement[m];
        s->graph.axes |= from.kind == DTP_SHARD ? 1U << from.axis : 0U;
        s->graph.axes |= to.kind == DTP_SHARD ? 1U << to.axis : 0U;
    }
    for (int32_t i = 0; i < r->type->rank && n < 2; i++) {
        if ((s->graph.axes >> i & 1U) == 0) {
            stopovers[n++] = i;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        s->graph.axes |= 1U << stopovers[i];
    }
    const bool alike = r->generic && n == 2 && r->type->dims[stopovers[0]].size % ranks == 0 &&
                       r->type->dims[stopovers[1]].size % ranks == 0;
    s->twins[0] = alike ? stopovers[0] : -1;
    s->twins[1] = alike ? stopovers[1] : -1;
}

dtp_status dtp_redistribute__search(const dtp_redistribution *r, dtp_steps *out, bool *found,
                                    dtp_err *err)
{
    pair_search s = {.r = r,
                     .target = dtp_layout__key(r->to),
                     .best = (double)INFINITY,
                     .arena = dtp_arena_create(),
                     .err = err};
    DTP_TRY(DTP_MEMORY(err, s.arena));
    dtp_layout_graph__init(&s.graph, r->mesh, r->type);
    s.graph.single = r->single;
    for (int32_t m = 0; m < r->mesh->n_dims; m++) {
        const dtp_placement *to = &r->to->placement[m];
        const dtp_mesh_set one = 1U << m;
        s.graph.reduced |= to->kind != DTP_PARTIAL ? one : 0;
        s.graph.sliced |= to->kind == DTP_SHARD || r->free_splits ? one : 0;
        s.graph.kept[to->op] |= to->kind == DTP_PARTIAL ? one : 0;
    }
    find_axes(&s);
    if (r->generic) {
        dtp_redistribute__bound_init(&s.bound, r);
    }
    int32_t target;
    dtp_status status = run_search(&s, &target);
    *found = status == DTP_OK && target >= 0;
    if (*found) {
        status = write_path(&s, target, out);
    }
    dtp_arena_destroy(s.arena);
    return status;
}
