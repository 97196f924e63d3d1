/* Redistribution of one tensor as a shortest path.
 *
 * The vertices are layouts, the edges are the steps of spmd/redistribute/redistribute_graph.h, and
 * the search is A* (Dijkstra's algorithm when no bound is known for the price): exact for any
 * non-negative price. Only mesh dims that the target splits are sliced (unless all may be), so
 * that a plain all-reduce stays one, and what stays partial is not reduced. For tensors of many
 * megabytes a detour over other mesh dims can receive fewer bytes, in more collectives; within
 * these rules the price of a pair is never above that of two pairs in a row.
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
    bool done;
} search_vertex;

typedef struct pair_search {
    const dtp_redistribution *r;
    dtp_layout_graph graph;
    dtp_redistribute_bound bound;
    uint64_t target;
    double best; /* cost of the cheapest way to the target so far */
    int32_t at;  /* the vertex that is being left */
    int32_t n, capacity;
    search_vertex *v;
    dtp_hash_table index; /* of v by key */
    dtp_layout_queue queue;
    dtp_arena *arena;
    dtp_err *err;
} pair_search;

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
 * priced. */
static dtp_status relax(void *user, const dtp_layout *at, const dtp_layout_hop *hop)
{
    pair_search *s = user;
    const dtp_redistribution *r = s->r;
    search_vertex *v;
    DTP_TRY(find_vertex(s, hop->key, &v));
    double cost = s->v[s->at].cost;
    if (r->direct &&
        !dtp_layout__is_direct((dtp_step_kind)hop->kind, hop->set, hop->key, s->target)) {
        return DTP_OK;
    }
    if (v->done || v->cost <= cost || cost + v->rest >= s->best) {
        return DTP_OK;
    }
    const dtp_step step = dtp_layout_graph__step(&s->graph, hop, hop->key);
    cost += r->price(r->user, r->mesh, r->type, at, &step);
    if (v->cost <= cost || cost + v->rest >= s->best) {
        return DTP_OK;
    }
    v->cost = cost;
    v->from = s->at;
    v->via = *hop;
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
    for (int32_t v = target; s->v[v].from >= 0; v = s->v[v].from) {
        out->steps[--n] = dtp_layout_graph__step(&s->graph, &s->v[v].via, s->v[v].key);
    }
    return DTP_OK;
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
    s.graph.single = r->single || r->direct;
    for (int32_t m = 0; m < r->mesh->n_dims; m++) {
        const dtp_placement *to = &r->to->placement[m];
        const dtp_mesh_set one = 1U << m;
        s.graph.reduced |= to->kind != DTP_PARTIAL ? one : 0;
        s.graph.sliced |= to->kind == DTP_SHARD || r->free_splits ? one : 0;
        s.graph.kept[to->op] |= to->kind == DTP_PARTIAL ? one : 0;
    }
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
