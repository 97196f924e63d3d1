/* Redistribution of one tensor as a shortest path.
 *
 * States are layouts, edges are the steps below, and the search is A* (Dijkstra's when nothing is
 * known of the price): exact for any non-negative price. A step runs over one mesh dim or over a
 * set of them at once ("flattened"). A set of several mesh dims is one group of ranks ordered
 * row-major, so it can take off (or put on) the innermost splits of a tensor dim only when these
 * are nested in ascending mesh order, and only when everything divides evenly: nested chunks of an
 * uneven length are not the chunks of the flattened group. Uneven sizes go one mesh dim at a time.
 *
 *   all_reduce     partial dims of one op               -> replicated
 *   reduce_scatter partial dims of one op               -> innermost splits of an axis
 *   all_gather     innermost splits of an axis          -> replicated
 *   all_to_all     innermost splits of an axis          -> innermost splits of another
 *   slice          replicated dims                      -> innermost splits of an axis
 *   scale          partial(avg) dims                    -> partial(sum)
 *   keep_first     replicated dims                      -> partial (the target's op)
 *
 * Changing the order of shards needs no step of its own: the search finds the gathers and
 * all-to-alls that do it. Only mesh dims that the target splits are sliced (unless all may be), so
 * that a plain all-reduce stays one, and what stays partial is not reduced. For tensors of many
 * megabytes a detour over other mesh dims can receive fewer bytes, in more collectives; within
 * these rules the price of a pair is never above that of two pairs in a row. Tensor dims that
 * neither layout splits may serve as a stopover; at most two of them are considered.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/safe_int.h"
#include "spmd/redistribute/redistribute_bound.h"

/* ---- search ------------------------------------------------------------------------------------
 */

enum { MAX_VERTICES = 1 << 16, FIRST_CAPACITY = 256 };

/* How a vertex was reached: dtp_step without the layout, which is the vertex itself. */
typedef struct edge {
    int8_t kind, axis, to_axis, op;
    uint16_t set;
    bool mirrored; /* the vertex is the mirror image of where the step leads (see find_twins) */
} edge;

typedef struct vertex {
    uint64_t key; /* the layout, dtp_layout__key */
    double cost, rest;
    int32_t from; /* -1: the start */
    edge via;
    bool done;
} vertex;

typedef struct heap_entry {
    double cost;
    int32_t vertex;
} heap_entry;

typedef struct search {
    const dtp_redistribution *r;
    uint64_t target_key;
    double best;      /* cost of the cheapest way to the target so far */
    uint32_t axes;    /* tensor dims that may be split on the way */
    int32_t twins[2]; /* see find_twins; -1: none */
    int32_t n, cap;
    vertex *v;
    int32_t *hash; /* 2 * cap slots */
    int32_t n_heap, cap_heap;
    heap_entry *heap;
    bool out_of_memory;
    int64_t set_size[1 << DTP_MAX_MESH_DIMS]; /* ranks of a set of mesh dims */
    dtp_redistribute_bound bound;
    vertex first_v[FIRST_CAPACITY]; /* storage of a small search */
    int32_t first_hash[2 * FIRST_CAPACITY];
    heap_entry first_heap[FIRST_CAPACITY];
} search;

static void search_free(search *s)
{
    if (s->v != s->first_v) {
        free(s->v);
        free(s->hash);
    }
    if (s->heap != s->first_heap) {
        free(s->heap);
    }
}

static int32_t slot_of(const search *s, uint64_t key)
{
    int32_t mask = 2 * s->cap - 1;
    uint64_t h = key * UINT64_C(0x9e3779b97f4a7c15);
    int32_t slot = (int32_t)((h >> 32) & (uint64_t)mask);
    while (s->hash[slot] >= 0 && s->v[s->hash[slot]].key != key) {
        slot = (slot + 1) & mask;
    }
    return slot;
}

static bool grow_vertices(search *s)
{
    bool first = s->v == s->first_v;
    size_t cap = 2 * (size_t)s->cap;
    vertex *v = realloc(first ? NULL : s->v, cap * sizeof *v);
    if (v == NULL) {
        return false;
    }
    if (first) {
        memcpy(v, s->first_v, sizeof s->first_v);
    }
    int32_t *hash = realloc(first ? NULL : s->hash, 2 * cap * sizeof *hash);
    if (hash == NULL) {
        if (first) {
            free(v);
        } else {
            s->v = v;
        }
        return false;
    }
    s->v = v;
    s->hash = hash;
    s->cap = (int32_t)cap;
    memset(hash, 0xff, 2 * cap * sizeof *hash);
    for (int32_t i = 0; i < s->n; i++) {
        hash[slot_of(s, s->v[i].key)] = i;
    }
    return true;
}

static bool entry_before(const heap_entry *a, const heap_entry *b)
{
    return a->cost < b->cost || (a->cost <= b->cost && a->vertex < b->vertex);
}

static bool grow_heap(search *s)
{
    bool first = s->heap == s->first_heap;
    size_t cap = 2 * (size_t)s->cap_heap;
    heap_entry *h = realloc(first ? NULL : s->heap, cap * sizeof *h);
    if (h == NULL) {
        return false;
    }
    if (first) {
        memcpy(h, s->first_heap, sizeof s->first_heap);
    }
    s->heap = h;
    s->cap_heap = (int32_t)cap;
    return true;
}

static bool heap_push(search *s, heap_entry e)
{
    if (s->n_heap == s->cap_heap && !grow_heap(s)) {
        return false;
    }
    int32_t i = s->n_heap++;
    while (i > 0 && entry_before(&e, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = e;
    return true;
}

static heap_entry heap_pop(search *s)
{
    heap_entry top = s->heap[0];
    heap_entry e = s->heap[--s->n_heap];
    int32_t i = 0;
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= s->n_heap) {
            break;
        }
        if (child + 1 < s->n_heap && entry_before(&s->heap[child + 1], &s->heap[child])) {
            child++;
        }
        if (!entry_before(&s->heap[child], &e)) {
            break;
        }
        s->heap[i] = s->heap[child];
        i = child;
    }
    if (s->n_heap > 0) {
        s->heap[i] = e;
    }
    return top;
}

/* ---- steps from a state ------------------------------------------------------------------------
 */

/* The layout that is being left. */
typedef struct state {
    int32_t vertex;
    uint64_t key;
    dtp_layout layout;
    dtp_stacks stacks;
    int64_t sizes[DTP_MAX_RANK]; /* of the largest piece */
    double bytes;                /* of the largest piece */
    bool even_axis[DTP_MAX_RANK], even;
} state;

/* A step and the layout that it leads to. */
typedef struct hop {
    edge via;
    uint64_t key;
    double cut_bytes; /* of a part of the piece that is cut along another tensor dim */
    bool even;        /* the layout it leads to, when the one that is left is */
} hop;

static dtp_step step_of(const search *s, edge via, uint64_t key)
{
    const dtp_redistribution *r = s->r;
    dtp_step step = {.kind = (dtp_step_kind)via.kind,
                     .set = via.set,
                     .axis = via.axis,
                     .to_axis = via.to_axis,
                     .op = (dtp_reduce_op)via.op};
    step.after = dtp_layout__of_key(key, r->type->rank, r->mesh->n_dims);
    if (step.kind == DTP_STEP_SCALE) {
        step.factor = 1.0 / (double)s->set_size[step.set];
    }
    return step;
}

static double price_of(const search *s, const state *at, const hop *h)
{
    const dtp_redistribution *r = s->r;
    if (r->rates != NULL) {
        const dtp_step_kind kind = (dtp_step_kind)h->via.kind;
        const bool cut = kind == DTP_STEP_REDUCE_SCATTER || kind == DTP_STEP_ALL_TO_ALL;
        const bool exchange = cut || kind == DTP_STEP_ALL_GATHER;
        return dtp_redistribute__step_price(r->rates, kind, s->set_size[h->via.set],
                                            cut ? h->cut_bytes : at->bytes,
                                            exchange && !(at->even && h->even));
    }
    const dtp_step step = step_of(s, h->via, h->key);
    return r->price(r->user, r->mesh, r->type, &at->layout, &step);
}

/* The vertex that gets this key: at no cost yet known. */
static int32_t add_vertex(search *s, int32_t slot, uint64_t key)
{
    int32_t id = s->n++;
    s->hash[slot] = id;
    s->v[id] = (vertex){.key = key,
                        .cost = (double)INFINITY,
                        .rest = dtp_redistribute__bound(&s->bound, key),
                        .from = -1};
    return id;
}

/* The layout with the two twins exchanged. */
static uint64_t mirror(const search *s, uint64_t key)
{
    const uint64_t flip = (uint64_t)(s->twins[0] ^ s->twins[1]) << 2;
    for (int32_t shift = 0; shift < 8 * s->r->mesh->n_dims; shift += 8) {
        const int32_t axis = (int32_t)(key >> (shift + 2) & 7U);
        if ((key >> shift & 3U) == DTP_SHARD && (axis == s->twins[0] || axis == s->twins[1])) {
            key ^= flip << shift;
        }
    }
    return key;
}

/* Of a layout and its mirror image the lesser key; *mirrored says whether it is the image. */
static uint64_t canonical(const search *s, uint64_t key, bool *mirrored)
{
    const uint64_t image = s->twins[0] >= 0 ? mirror(s, key) : key;
    *mirrored = image < key;
    return *mirrored ? image : key;
}

/* Offers a way; those that cannot be better than what is known are dropped before they are
 * priced. */
static void relax(search *s, const state *at, const hop *h)
{
    if (s->n == s->cap && !grow_vertices(s)) {
        s->out_of_memory = true;
        return;
    }
    edge via = h->via;
    const uint64_t key = canonical(s, h->key, &via.mirrored);
    const int32_t slot = slot_of(s, key);
    const int32_t known = s->hash[slot];
    const int32_t id = known >= 0 ? known : add_vertex(s, slot, key);
    vertex *v = &s->v[id];
    double cost = s->v[at->vertex].cost;
    if (v->done || v->cost <= cost || cost + v->rest >= s->best) {
        return;
    }
    cost += price_of(s, at, h);
    if (v->cost <= cost || cost + v->rest >= s->best) {
        return;
    }
    v->cost = cost;
    v->from = at->vertex;
    v->via = via;
    if (key == s->target_key) {
        s->best = cost;
    }
    if (!heap_push(s, (heap_entry){cost + v->rest, id})) {
        s->out_of_memory = true;
    }
}

static bool is_single(dtp_mesh_set set)
{
    return (set & (set - 1U)) == 0;
}

/* The key with the place of all mesh dims of a set replaced. */
static uint64_t set_all(uint64_t key, dtp_mesh_set set, dtp_placement place)
{
    const uint64_t what = (uint64_t)place.kind | (uint64_t)(uint8_t)(place.axis | place.op) << 2;
    for (int32_t shift = 0; set != 0; set >>= 1, shift += 8) {
        if ((set & 1U) != 0) {
            key = (key & ~(UINT64_C(0xff) << shift)) | what << shift;
        }
    }
    return key;
}

/* The key with the mesh dims of a set, replicated in it, as the innermost splits of the axis. */
static uint64_t split_all(uint64_t key, dtp_mesh_set set, int32_t axis, int32_t depth)
{
    const uint64_t what = (uint64_t)DTP_SHARD | (uint64_t)axis << 2;
    for (int32_t shift = 0; set != 0; set >>= 1, shift += 8) {
        if ((set & 1U) != 0) {
            key |= (what | (uint64_t)depth++ << 5) << shift;
        }
    }
    return key;
}

/* The mesh dims that hold partials of `op` which the target does not keep. */
static dtp_mesh_set reducible(const search *s, const dtp_layout *layout, dtp_reduce_op op)
{
    dtp_mesh_set set = 0;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_PARTIAL && layout->placement[m].op == (int8_t)op &&
            s->r->to->placement[m].kind != DTP_PARTIAL) {
            set |= 1U << m;
        }
    }
    return set;
}

/* Splits h->via.set, which is replicated in h->key, onto every axis but `except` that allows it. */
static void relax_splits(search *s, const state *at, const hop *h, int32_t except)
{
    const dtp_mesh_set set = h->via.set;
    const int64_t n = s->set_size[set];
    const bool exchange = h->via.kind == DTP_STEP_ALL_TO_ALL;
    for (int32_t axis = 0; axis < s->r->type->rank; axis++) {
        if ((s->axes >> axis & 1U) == 0 || axis == except) {
            continue;
        }
        hop next = *h;
        const int64_t size = at->sizes[axis], part = size / n, left = size % n;
        next.even = left == 0 && at->even_axis[axis];
        if (!next.even && !is_single(set)) {
            continue;
        }
        next.cut_bytes = size > 0 ? at->bytes / (double)size * (double)(part + (left != 0)) : 0;
        *(exchange ? &next.via.to_axis : &next.via.axis) = (int8_t)axis;
        next.key = split_all(h->key, set, axis, at->stacks.depth[axis]);
        relax(s, at, &next);
    }
}

static void expand_partials(search *s, const state *at)
{
    static const dtp_reduce_op ops[] = {DTP_REDUCE_SUM, DTP_REDUCE_PROD, DTP_REDUCE_MIN,
                                        DTP_REDUCE_MAX};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        dtp_mesh_set all = reducible(s, &at->layout, ops[i]);
        for (dtp_mesh_set set = all; set != 0; set = (set - 1U) & all) {
            if (s->r->single && !is_single(set)) {
                continue;
            }
            hop h = {
                .via = {.kind = DTP_STEP_ALL_REDUCE, .set = (uint16_t)set, .op = (int8_t)ops[i]},
                .key = set_all(at->key, set, (dtp_placement){0}),
                .even = at->even};
            relax(s, at, &h);
            h.via.kind = DTP_STEP_REDUCE_SCATTER;
            relax_splits(s, at, &h, -1);
        }
    }
    dtp_mesh_set avg = reducible(s, &at->layout, DTP_REDUCE_AVG);
    if (avg != 0) {
        const dtp_placement sum = {.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
        const hop h = {.via = {.kind = DTP_STEP_SCALE, .set = (uint16_t)avg},
                       .key = set_all(at->key, avg, sum),
                       .even = at->even};
        relax(s, at, &h);
    }
}

static void expand_replicated(search *s, const state *at)
{
    dtp_mesh_set all = 0;
    dtp_mesh_set partial[DTP_N_REDUCE_OPS] = {0};
    for (int32_t m = 0; m < at->layout.n_mesh; m++) {
        const dtp_placement *to = &s->r->to->placement[m];
        if (at->layout.placement[m].kind != DTP_REPLICATE) {
            continue;
        }
        if (to->kind == DTP_SHARD || s->r->free_splits) {
            all |= 1U << m;
        }
        if (to->kind == DTP_PARTIAL) {
            partial[to->op] |= 1U << m;
        }
    }
    for (dtp_mesh_set set = all; set != 0; set = (set - 1U) & all) {
        const hop h = {.via = {.kind = DTP_STEP_SLICE, .set = (uint16_t)set}, .key = at->key};
        if (!s->r->single || is_single(set)) {
            relax_splits(s, at, &h, -1);
        }
    }
    for (int op = 0; op < DTP_N_REDUCE_OPS; op++) {
        if (partial[op] != 0) {
            const dtp_placement place = {.kind = DTP_PARTIAL, .op = (int8_t)op};
            const hop h = {.via = {.kind = DTP_STEP_KEEP_FIRST,
                                   .set = (uint16_t)partial[op],
                                   .op = (int8_t)op},
                           .key = set_all(at->key, partial[op], place),
                           .even = at->even};
            relax(s, at, &h);
        }
    }
}

/* Gathers the innermost splits of every axis, or redistributions them to another axis. */
static void expand_shards(search *s, const state *at)
{
    for (int32_t axis = 0; axis < s->r->type->rank; axis++) {
        const int8_t *splits = at->stacks.of[axis];
        const int32_t n = at->stacks.depth[axis];
        const bool even = at->even_axis[axis];
        dtp_mesh_set set = 0;
        for (int32_t i = n - 1; i >= 0; i--) {
            bool ascending = i == n - 1 || splits[i] < splits[i + 1];
            if (i < n - 1 && (!even || !ascending || s->r->single)) {
                break;
            }
            set |= 1U << splits[i];
            hop h = {
                .via = {.kind = DTP_STEP_ALL_GATHER, .axis = (int8_t)axis, .set = (uint16_t)set},
                .key = set_all(at->key, set, (dtp_placement){0}),
                .even = at->even};
            relax(s, at, &h);
            h.via.kind = DTP_STEP_ALL_TO_ALL;
            relax_splits(s, at, &h, axis);
        }
    }
}

static void read_state(const search *s, int32_t from, state *at)
{
    const dtp_redistribution *r = s->r;
    at->vertex = from;
    at->key = s->v[from].key;
    at->layout = dtp_layout__of_key(at->key, r->type->rank, r->mesh->n_dims);
    dtp_stacks__read(at->key, r->mesh->n_dims, &at->stacks);
    at->bytes = (double)dtp_dtype_bytes(r->type->dtype);
    at->even = true;
    for (int32_t i = 0; i < r->type->rank; i++) {
        const int64_t size = r->type->dims[i].size;
        dtp_mesh_set set = 0;
        for (int32_t k = 0; k < at->stacks.depth[i]; k++) {
            set |= 1U << at->stacks.of[i][k];
        }
        const int64_t n = s->set_size[set];
        at->sizes[i] = n > 1 ? dtp_ceil_div(size, n) : size;
        at->bytes *= (double)at->sizes[i];
        at->even_axis[i] = at->sizes[i] * n == size;
        at->even = at->even && at->even_axis[i];
    }
}

/* Runs the search; returns the target's vertex, or -1 when memory or MAX_VERTICES ran out. */
static int32_t run_search(search *s)
{
    const dtp_redistribution *r = s->r;
    const uint64_t start = dtp_layout__key(r->from);
    const int32_t first = add_vertex(s, slot_of(s, start), start);
    s->v[first].cost = 0;
    s->heap[s->n_heap++] = (heap_entry){0, first};
    while (s->n_heap > 0 && !s->out_of_memory && s->n < MAX_VERTICES) {
        int32_t at = heap_pop(s).vertex;
        if (s->v[at].done) {
            continue;
        }
        s->v[at].done = true;
        if (s->v[at].key == s->target_key) {
            return at;
        }
        state from;
        read_state(s, at, &from);
        expand_partials(s, &from);
        expand_shards(s, &from);
        expand_replicated(s, &from);
    }
    return -1;
}

static int8_t twin_of(const search *s, int8_t axis)
{
    return (int8_t)(axis == s->twins[0] ? s->twins[1] : axis == s->twins[1] ? s->twins[0] : axis);
}

/* The path's steps, first to last. */
static dtp_status write_path(const search *s, int32_t at, dtp_steps *out, dtp_err *err)
{
    int32_t n = 0;
    for (int32_t v = at; s->v[v].from >= 0; v = s->v[v].from) {
        n++;
    }
    if (n > DTP_MAX_STEPS) {
        return DTP_FAIL(err, DTP_INTERNAL, "a redistribution of %d steps", n);
    }
    out->n = n;
    /* Both ends are their own mirror images, so what is mirrored may be counted from the end. */
    bool mirrored = false;
    for (int32_t v = at; s->v[v].from >= 0; v = s->v[v].from) {
        edge via = s->v[v].via;
        const uint64_t key = mirrored ? mirror(s, s->v[v].key) : s->v[v].key;
        mirrored = mirrored != via.mirrored;
        via.axis = mirrored ? twin_of(s, via.axis) : via.axis;
        via.to_axis = mirrored ? twin_of(s, via.to_axis) : via.to_axis;
        out->steps[--n] = step_of(s, via, key);
    }
    return DTP_OK;
}

static uint32_t split_axes(const dtp_layout *layout)
{
    uint32_t axes = 0;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        axes |= layout->placement[m].kind == DTP_SHARD ? 1U << layout->placement[m].axis : 0U;
    }
    return axes;
}

/* Two stopovers that every mesh dim divides evenly are alike to the default price: every way has
 * a mirror image of the same price with the two exchanged. A layout and its mirror image are one
 * vertex. */
static void find_twins(search *s, const int32_t stopovers[2])
{
    const dtp_redistribution *r = s->r;
    const int64_t ranks = s->set_size[(1U << r->mesh->n_dims) - 1U];
    if (r->rates != NULL && stopovers[1] >= 0 && r->type->dims[stopovers[0]].size % ranks == 0 &&
        r->type->dims[stopovers[1]].size % ranks == 0) {
        memcpy(s->twins, stopovers, sizeof s->twins);
    }
}

/* Tensor dims that either layout splits, and the first two others. */
static void find_axes(search *s)
{
    int32_t stopovers[2] = {-1, -1}, n = 0;
    s->axes = split_axes(s->r->from) | split_axes(s->r->to);
    s->twins[0] = s->twins[1] = -1;
    for (int32_t i = 0; i < s->r->type->rank && n < 2; i++) {
        if ((s->axes >> i & 1U) == 0) {
            stopovers[n++] = i;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        s->axes |= 1U << stopovers[i];
    }
    find_twins(s, stopovers);
}

static void search_init(search *s, const dtp_redistribution *r)
{
    memset(s, 0, offsetof(search, set_size));
    s->r = r;
    s->target_key = dtp_layout__key(r->to);
    s->best = (double)INFINITY;
    s->cap = s->cap_heap = FIRST_CAPACITY;
    s->v = s->first_v;
    s->hash = s->first_hash;
    s->heap = s->first_heap;
    memset(s->first_hash, 0xff, sizeof s->first_hash);
    s->set_size[0] = 1;
    for (dtp_mesh_set set = 1; set < 1U << r->mesh->n_dims; set++) {
        int32_t m = 0;
        while ((set >> m & 1U) == 0) {
            m++;
        }
        s->set_size[set] = s->set_size[set & (set - 1U)] * r->mesh->sizes[m];
    }
    find_axes(s);
    dtp_redistribute__bound_init(&s->bound, r);
}

dtp_status dtp_redistribute__search(const dtp_redistribution *r, dtp_steps *out, bool *found,
                                    dtp_err *err)
{
    search s;
    dtp_status status = DTP_OK;
    search_init(&s, r);
    int32_t at = run_search(&s);
    *found = at >= 0;
    if (s.out_of_memory) {
        status = DTP_FAIL(err, DTP_NOMEM, "out of memory for %d layouts of a tensor", s.n);
    } else if (at >= 0) {
        status = write_path(&s, at, out, err);
    }
    search_free(&s);
    return status;
}
