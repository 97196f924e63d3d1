/* The graph of layouts of one tensor, in which a redistribution is a shortest path: layouts as
 * words, the steps that leave a layout, and the queue of Dijkstra's algorithm. */
#include "spmd/redistribute/redistribute_graph.h"

#include <string.h>

#include "core/base/safe_int.h"

/* ---- layouts as words ---- */

dtp_layout dtp_layout__of_key(uint64_t key, int32_t rank, int32_t n_mesh)
{
    dtp_layout layout = {.rank = (int8_t)rank, .n_mesh = (int8_t)n_mesh};
    for (int32_t m = 0; m < n_mesh; m++) {
        dtp_placement *p = &layout.placement[m];
        const int8_t what = (int8_t)dtp_layout__axis_or_op(key, m);
        p->kind = (int8_t)dtp_layout__kind(key, m);
        p->axis = p->kind == DTP_SHARD ? what : 0;
        p->op = p->kind == DTP_PARTIAL ? what : 0;
        p->order = (int8_t)(key >> (8 * m + 5) & 7U);
    }
    return layout;
}

void dtp_stacks__read(uint64_t key, int32_t n_mesh, dtp_stacks *out)
{
    memset(out->depth, 0, sizeof out->depth);
    for (int32_t m = 0; m < n_mesh; m++) {
        if (dtp_layout__kind(key, m) == DTP_SHARD) {
            const uint32_t axis = dtp_layout__axis_or_op(key, m);
            out->of[axis][key >> (8 * m + 5) & 7U] = (int8_t)m;
            out->depth[axis]++;
        }
    }
}

/* The key with the placement of all mesh dims of a set replaced. */
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

/* ---- steps ---- */

void dtp_layout_graph__init(dtp_layout_graph *g, const dtp_mesh *mesh, const dtp_ttype *type)
{
    memset(g, 0, sizeof *g);
    g->n_mesh = mesh->n_dims;
    g->rank = type->rank;
    for (int32_t i = 0; i < type->rank; i++) {
        g->sizes[i] = type->dims[i].size;
    }
    g->set_size[0] = 1;
    for (dtp_mesh_set set = 1; set < 1U << mesh->n_dims; set++) {
        int32_t m = 0;
        while ((set >> m & 1U) == 0) {
            m++;
        }
        g->set_size[set] = g->set_size[set & (set - 1U)] * mesh->sizes[m];
    }
}

/* The steps from one layout. */
typedef struct expansion {
    const dtp_layout_graph *g;
    uint64_t key;
    dtp_layout at;
    dtp_stacks splits;
    int64_t sizes[DTP_MAX_RANK]; /* of the largest shard */
    bool even[DTP_MAX_RANK];     /* the tensor dim is split evenly */
    dtp_layout_visit visit;
    void *user;
} expansion;

static bool is_single(dtp_mesh_set set)
{
    return (set & (set - 1U)) == 0;
}

/* Splits hop->set, which is replicated in hop->key, onto every axis but `except` that allows it. */
static dtp_status visit_splits(const expansion *x, const dtp_layout_hop *hop, int32_t except)
{
    const int64_t n = x->g->set_size[hop->set];
    for (int32_t axis = 0; axis < x->g->rank; axis++) {
        if (axis == except) {
            continue;
        }
        dtp_layout_hop next = *hop;
        const bool even = x->even[axis] && x->sizes[axis] % n == 0;
        if (!even && (x->g->even || !is_single(hop->set))) {
            continue;
        }
        *(hop->kind == DTP_STEP_ALL_TO_ALL ? &next.to_axis : &next.axis) = (int8_t)axis;
        /* The key with the mesh dims of a set, replicated in it, as the innermost splits of the
         * axis. */
        uint64_t key = hop->key;
        dtp_mesh_set set = hop->set;
        int32_t depth = x->splits.depth[axis];
        const uint64_t what = (uint64_t)DTP_SHARD | (uint64_t)axis << 2;
        for (int32_t shift = 0; set != 0; set >>= 1, shift += 8) {
            if ((set & 1U) != 0) {
                key |= (what | (uint64_t)depth++ << 5) << shift;
            }
        }
        next.key = key;
        DTP_TRY(x->visit(x->user, &x->at, &next));
    }
    return DTP_OK;
}

static dtp_status expand_partials(const expansion *x)
{
    static const dtp_reduce_op ops[] = {DTP_REDUCE_SUM, DTP_REDUCE_PROD, DTP_REDUCE_MIN,
                                        DTP_REDUCE_MAX};
    dtp_mesh_set of_op[DTP_N_REDUCE_OPS] = {0};
    for (int32_t m = 0; m < x->g->n_mesh; m++) {
        if (x->at.placement[m].kind == DTP_PARTIAL) {
            of_op[x->at.placement[m].op] |= x->g->reduced & 1U << m;
        }
    }
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        const dtp_mesh_set all = of_op[ops[i]];
        for (dtp_mesh_set set = all; set != 0; set = (set - 1U) & all) {
            if (x->g->single && !is_single(set)) {
                continue;
            }
            dtp_layout_hop hop = {.kind = DTP_STEP_ALL_REDUCE,
                                  .set = set,
                                  .op = (int8_t)ops[i],
                                  .key = set_all(x->key, set, (dtp_placement){0})};
            DTP_TRY(x->visit(x->user, &x->at, &hop));
            hop.kind = DTP_STEP_REDUCE_SCATTER;
            DTP_TRY(visit_splits(x, &hop, -1));
        }
    }
    if (of_op[DTP_REDUCE_AVG] == 0) {
        return DTP_OK;
    }
    const dtp_placement sum = {.kind = DTP_PARTIAL, .op = DTP_REDUCE_SUM};
    const dtp_layout_hop hop = {.kind = DTP_STEP_SCALE,
                                .set = of_op[DTP_REDUCE_AVG],
                                .key = set_all(x->key, of_op[DTP_REDUCE_AVG], sum)};
    return x->visit(x->user, &x->at, &hop);
}

/* Gathers the innermost splits of every axis, or moves them to another axis. */
static dtp_status expand_shards(const expansion *x)
{
    for (int32_t axis = 0; axis < x->g->rank; axis++) {
        const int8_t *splits = x->splits.of[axis];
        const int32_t n = x->splits.depth[axis];
        dtp_mesh_set set = 0;
        for (int32_t i = n - 1; i >= 0; i--) {
            const bool ascending = i == n - 1 || splits[i] < splits[i + 1];
            if (i < n - 1 && (!x->even[axis] || !ascending || x->g->single)) {
                break;
            }
            set |= 1U << splits[i];
            dtp_layout_hop hop = {.kind = DTP_STEP_ALL_GATHER,
                                  .axis = (int8_t)axis,
                                  .set = set,
                                  .key = set_all(x->key, set, (dtp_placement){0})};
            DTP_TRY(x->visit(x->user, &x->at, &hop));
            hop.kind = DTP_STEP_ALL_TO_ALL;
            DTP_TRY(visit_splits(x, &hop, axis));
        }
    }
    return DTP_OK;
}

dtp_status dtp_layout_graph__expand(const dtp_layout_graph *g, uint64_t key, dtp_layout_visit visit,
                                    void *user)
{
    expansion x = {.g = g, .key = key, .visit = visit, .user = user};
    x.at = dtp_layout__of_key(key, g->rank, g->n_mesh);
    dtp_stacks__read(key, g->n_mesh, &x.splits);
    for (int32_t i = 0; i < g->rank; i++) {
        dtp_mesh_set set = 0;
        for (int32_t k = 0; k < x.splits.depth[i]; k++) {
            set |= 1U << x.splits.of[i][k];
        }
        const int64_t n = g->set_size[set];
        x.sizes[i] = n > 1 ? dtp_ceil_div(g->sizes[i], n) : g->sizes[i];
        x.even[i] = x.sizes[i] * n == g->sizes[i];
    }
    DTP_TRY(expand_partials(&x));
    DTP_TRY(expand_shards(&x));
    const dtp_mesh_set whole = dtp_layout__dims_of_kind(x.key, x.g->n_mesh, DTP_REPLICATE);
    const dtp_mesh_set sliced = whole & x.g->sliced;
    for (dtp_mesh_set set = sliced; set != 0; set = (set - 1U) & sliced) {
        const dtp_layout_hop hop = {.kind = DTP_STEP_SLICE, .set = set, .key = x.key};
        if (!x.g->single || is_single(set)) {
            DTP_TRY(visit_splits(&x, &hop, -1));
        }
    }
    for (int op = 0; op < DTP_N_REDUCE_OPS; op++) {
        const dtp_placement place = {.kind = DTP_PARTIAL, .op = (int8_t)op};
        const dtp_mesh_set kept = whole & x.g->kept[op];
        for (dtp_mesh_set set = kept; set != 0; set = x.g->keeps_some ? (set - 1U) & kept : 0) {
            const dtp_layout_hop hop = {.kind = DTP_STEP_KEEP_FIRST,
                                        .set = set,
                                        .op = (int8_t)op,
                                        .key = set_all(x.key, set, place)};
            DTP_TRY(x.visit(x.user, &x.at, &hop));
        }
    }
    return DTP_OK;
}

dtp_step dtp_layout_graph__step(const dtp_layout_graph *g, const dtp_layout_hop *hop, uint64_t key)
{
    const bool scales = hop->kind == DTP_STEP_SCALE;
    return (dtp_step){.kind = (dtp_step_kind)hop->kind,
                      .set = hop->set,
                      .axis = hop->axis,
                      .to_axis = hop->to_axis,
                      .op = (dtp_reduce_op)hop->op,
                      .factor = scales ? 1.0 / (double)g->set_size[hop->set] : 0,
                      .after = dtp_layout__of_key(key, g->rank, g->n_mesh)};
}

/* ---- queue ---- */

static bool entry_before(const dtp_queue_entry *a, const dtp_queue_entry *b)
{
    return a->cost < b->cost || (a->cost <= b->cost && a->layout < b->layout);
}

dtp_status dtp_layout_queue__push(dtp_layout_queue *q, dtp_arena *arena, dtp_queue_entry entry,
                                  dtp_err *err)
{
    DTP_TRY(
        dtp_arena_grow(arena, &q->entries, q->n, q->n + 1, &q->capacity, sizeof *q->entries, err));
    int32_t i = q->n++;
    while (i > 0 && entry_before(&entry, &q->entries[(i - 1) / 2])) {
        q->entries[i] = q->entries[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    q->entries[i] = entry;
    return DTP_OK;
}

dtp_queue_entry dtp_layout_queue__pop(dtp_layout_queue *q)
{
    const dtp_queue_entry top = q->entries[0], last = q->entries[--q->n];
    int32_t i = 0;
    for (int32_t child = 1; child < q->n; child = 2 * i + 1) {
        if (child + 1 < q->n && entry_before(&q->entries[child + 1], &q->entries[child])) {
            child++;
        }
        if (!entry_before(&q->entries[child], &last)) {
            break;
        }
        q->entries[i] = q->entries[child];
        i = child;
    }
    q->entries[i] = last;
    return top;
}
