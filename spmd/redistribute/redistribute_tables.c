/* Three levels, each made when it is first asked for:
 *
 *   graph_entry  even layouts and steps between them, by the number of even parts of every tensor
 *                dim
 *   size_tables  costs of these steps, by dtype and sizes of the tensor and the reduction
 *   tables       by target: costs from every layout, by Dijkstra's algorithm over reversed steps
 */
#include "spmd/redistribute/redistribute_tables.h"

#include <string.h>

#include "core/base/safe_int.h"
#include "spmd/redistribute/redistribute_even.h"

_Static_assert(DTP_REDUCE_SUM == 0, "keys of graphs have no reduction");

enum { MAX_LAYOUTS = 1 << 13, PACK_BITS = 2, UNKNOWN = 1 << PACK_BITS };

/* A graph, or the fact that it would be too large. */
typedef struct graph_entry {
    struct graph_entry *next;
    int32_t rank;
    int64_t parts[DTP_MAX_RANK];
    dtp_even_graph *graph; /* NULL: too many layouts */
} graph_entry;

/* The tables of tensors of one size. */
typedef struct size_tables {
    struct size_tables *next;
    const dtp_even_graph *graph;
    dtp_ttype type; /* names of dims do not matter */
    dtp_reduce_op op;
    /* Without strided collectives, else NULL: by step of the graph what it packs (dtp_step_packs),
     * UNKNOWN = not found yet. */
    uint8_t *packs;
    int64_t *step_cost; /* by kind, mesh dims, splits before and packing; -1 = not known yet */
    int64_t **tables;   /* by target: costs by source; NULL = not made yet */
} size_tables;

struct dtp_redistribute_tables {
    dtp_arena *arena;
    const dtp_mesh *mesh;
    const dtp_target *target;
    dtp_even_step_cost price;
    void *user;
    graph_entry *graphs;
    size_tables *sizes; /* those used last first */
    dtp_layout_queue queue;
};

/* ---- which table ---- */

static dtp_status find_graph(dtp_redistribute_tables *c, const dtp_ttype *type,
                             const dtp_even_graph **out, dtp_err *err)
{
    int64_t parts[DTP_MAX_RANK] = {0};
    for (int32_t i = 0; i < type->rank; i++) {
        parts[i] = dtp_even_part(dtp_mesh_ranks(c->mesh), type->dims[i].size);
    }
    const size_t bytes = (size_t)type->rank * sizeof *parts;
    graph_entry *e = c->graphs;
    while (e != NULL && !(e->rank == type->rank && memcmp(e->parts, parts, bytes) == 0)) {
        e = e->next;
    }
    if (e == NULL) {
        DTP_TRY(DTP_NEW(c->arena, e, 1, err));
        e->rank = type->rank;
        memcpy(e->parts, parts, bytes);
        DTP_TRY(dtp_even_graph_create(c->arena, c->mesh, type->rank, parts, MAX_LAYOUTS, &e->graph,
                                      err));
        e->next = c->graphs;
        c->graphs = e;
    }
    *out = e->graph;
    return DTP_OK;
}

static dtp_status make_room(const dtp_redistribute_tables *c, size_tables *s, dtp_err *err)
{
    const size_t n_costs = (size_t)(DTP_STEP_KEEP_FIRST + 1) << (2 * c->mesh->n_dims + PACK_BITS);
    if (!c->target->strided) {
        const int32_t n_steps = s->graph->first[s->graph->n_layouts];
        DTP_TRY(DTP_NEW(c->arena, s->packs, n_steps, err));
        memset(s->packs, UNKNOWN, (size_t)n_steps);
    }
    DTP_TRY(DTP_NEW(c->arena, s->step_cost, n_costs, err));
    memset(s->step_cost, 0xff, n_costs * sizeof *s->step_cost);
    return DTP_NEW(c->arena, s->tables, s->graph->n_layouts, err);
}

/* Brings the tables of the type to the head of the list. */
static dtp_status find_size(dtp_redistribute_tables *c, const dtp_ttype *type, dtp_reduce_op op,
                            dtp_err *err)
{
    size_tables **at = &c->sizes, *s;
    while ((s = *at) != NULL && !(s->op == op && dtp_ttype_same_sizes(&s->type, type))) {
        at = &s->next;
    }
    if (s != NULL) {
        *at = s->next;
    } else {
        DTP_TRY(DTP_NEW(c->arena, s, 1, err));
        *s = (size_tables){.type = *type, .op = op};
        DTP_TRY(find_graph(c, type, &s->graph, err));
        DTP_TRY(s->graph != NULL ? make_room(c, s, err) : DTP_OK);
    }
    s->next = c->sizes;
    c->sizes = s;
    return DTP_OK;
}

/* ---- a table ---- */

/* What one search works on. */
typedef struct table_search {
    dtp_redistribute_tables *c;
    const size_tables *s;
    uint64_t target;
    dtp_mesh_set split, partial; /* mesh dims of the target */
    int64_t *cost;
} table_search;

static dtp_layout layout_of(const size_tables *s, uint64_t key)
{
    dtp_layout layout = dtp_layout__of_key(key, s->type.rank, s->graph->n_mesh);
    for (int32_t m = 0; m < layout.n_mesh; m++) {
        dtp_placement *place = &layout.placement[m];
        place->op = place->kind == DTP_PARTIAL ? (int8_t)s->op : 0;
    }
    return layout;
}

/* Step i of the graph, which leads to a layout; *before is where it starts. */
static dtp_step step_of(const size_tables *s, int32_t i, int32_t to, dtp_layout *before)
{
    const dtp_even_step *e = &s->graph->steps[i];
    *before = layout_of(s, s->graph->keys[e->from]);
    dtp_step step = {
        .kind = (dtp_step_kind)e->kind, .set = e->set, .after = layout_of(s, s->graph->keys[to])};
    int32_t m = 0;
    while ((e->set >> m & 1U) == 0) {
        m++;
    }
    step.to_axis = step.kind == DTP_STEP_ALL_TO_ALL ? step.after.placement[m].axis : 0;
    step.axis = before->placement[m].kind == DTP_SHARD ? before->placement[m].axis
                                                       : step.after.placement[m].axis;
    if (before->placement[m].kind == DTP_PARTIAL || step.kind == DTP_STEP_KEEP_FIRST) {
        step.op = s->op;
    }
    return step;
}

/* Whether a step is one of dtp_redistribute_direct. */
static bool is_direct(const dtp_even_step *e, uint64_t after, uint64_t target)
{
    const bool single = (e->set & (e->set - 1U)) == 0 || e->kind == DTP_STEP_KEEP_FIRST;
    return single && dtp_layout__is_direct((dtp_step_kind)e->kind, e->set, after, target);
}

/* Offers the ways through a layout to those that lead to it. */
static dtp_status relax_into(const table_search *t, int32_t to, dtp_err *err)
{
    const size_tables *s = t->s;
    const dtp_even_graph *g = s->graph;
    const int32_t n = g->n_mesh;
    const dtp_mesh_set summed = dtp_layout__dims_of_kind(g->keys[to], n, DTP_PARTIAL);
    dtp_mesh_set forbidden[DTP_STEP_KEEP_FIRST + 1]; /* mesh dims, by kind of step */
    for (int32_t kind = 0; kind <= DTP_STEP_KEEP_FIRST; kind++) {
        forbidden[kind] = t->partial;
    }
    forbidden[DTP_STEP_SLICE] = ~t->split;
    forbidden[DTP_STEP_KEEP_FIRST] = (t->partial & ~summed) == 0 ? ~t->partial : ~0U;
    for (int32_t i = g->first[to]; i < g->first[to + 1]; i++) {
        const dtp_even_step *e = &g->steps[i];
        dtp_layout before;
        int64_t cost;
        if ((e->set & forbidden[e->kind]) != 0 ||
            (t->c->target->direct && !is_direct(e, g->keys[to], t->target))) {
            continue;
        }
        if (s->packs != NULL && s->packs[i] == UNKNOWN) {
            const dtp_step step = step_of(s, i, to, &before);
            s->packs[i] =
                (uint8_t)dtp_step_packs(t->c->mesh, &s->type, &before, &step, t->c->target);
        }
        const size_t kind = ((((size_t)e->kind << n) | e->set) << n) | e->splits;
        int64_t *step_cost =
            &s->step_cost[kind << PACK_BITS | (s->packs != NULL ? s->packs[i] : 0U)];
        if (*step_cost < 0) {
            const dtp_step step = step_of(s, i, to, &before);
            DTP_TRY(t->c->price(t->c->user, &s->type, &before, &step, step_cost, err));
            if (*step_cost < 0) {
                return DTP_FAIL(err, DTP_INTERNAL,
                                "a step of a redistribution has a negative cost");
            }
        }
        if (dtp_add_i64(t->cost[to], *step_cost, &cost) && cost < t->cost[e->from]) {
            t->cost[e->from] = cost;
            DTP_TRY(dtp_layout_queue__push(&t->c->queue, t->c->arena,
                                           (dtp_queue_entry){(double)cost, e->from}, err));
        }
    }
    return DTP_OK;
}

/* Costs from every layout to this one, of the type at the head of the list. The queue orders
 * layouts by rounded costs; one whose cost falls after it was left is left again, so that the costs
 * are exact. */
static dtp_status make_table(dtp_redistribute_tables *c, int32_t target, int64_t **out,
                             dtp_err *err)
{
    const dtp_even_graph *g = c->sizes->graph;
    int64_t *cost;
    DTP_TRY(DTP_NEW(c->arena, cost, g->n_layouts, err));
    const uint64_t key = g->keys[target];
    const table_search t = {.c = c,
                            .s = c->sizes,
                            .target = key,
                            .split = dtp_layout__dims_of_kind(key, g->n_mesh, DTP_SHARD),
                            .partial = dtp_layout__dims_of_kind(key, g->n_mesh, DTP_PARTIAL),
                            .cost = cost};
    for (int32_t i = 0; i < g->n_layouts; i++) {
        cost[i] = DTP_COST_IMPOSSIBLE;
    }
    cost[target] = 0;
    c->queue.n = 0;
    DTP_TRY(dtp_layout_queue__push(&c->queue, c->arena, (dtp_queue_entry){0, target}, err));
    while (c->queue.n > 0) {
        const dtp_queue_entry e = dtp_layout_queue__pop(&c->queue);
        if (e.cost <= (double)cost[e.layout]) {
            DTP_TRY(relax_into(&t, e.layout, err));
        }
    }
    *out = cost;
    return DTP_OK;
}

/* ---- entry ---- */

dtp_status dtp_redistribute_tables_create(const dtp_mesh *mesh, const dtp_target *target,
                                          dtp_even_step_cost price, void *user,
                                          dtp_redistribute_tables **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_redistribute_tables *c;
    *out = NULL;
    const dtp_status status = DTP_NEW(arena, c, 1, err);
    if (status != DTP_OK) {
        dtp_arena_destroy(arena);
        return status;
    }
    *c = (dtp_redistribute_tables){
        .arena = arena, .mesh = mesh, .target = target, .price = price, .user = user};
    *out = c;
    return DTP_OK;
}

void dtp_redistribute_tables_destroy(dtp_redistribute_tables *c)
{
    if (c != NULL) {
        dtp_arena_destroy(c->arena);
    }
}

/* The key of a layout in graphs, whose partial values are sums. *op is theirs, -1 when there are
 * none; false when they are of another one than it was. */
static bool key_of(const dtp_layout *layout, int32_t *op, uint64_t *key)
{
    *key = dtp_layout__key(layout);
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_PARTIAL) {
            if (*op >= 0 && *op != layout->placement[m].op) {
                return false;
            }
            *op = layout->placement[m].op;
            *key &= ~(UINT64_C(7) << (8 * m + 2));
        }
    }
    return true;
}

dtp_status dtp_redistribute_tables_find(dtp_redistribute_tables *c, const dtp_ttype *type,
                                        const dtp_layout *from, const dtp_layout *to, bool *known,
                                        int64_t *cost, dtp_err *err)
{
    uint64_t from_key, to_key;
    int32_t op = -1;
    *known = false;
    if (!key_of(from, &op, &from_key) || !key_of(to, &op, &to_key) || op == DTP_REDUCE_AVG ||
        op == DTP_REDUCE_PROD) {
        return DTP_OK;
    }
    DTP_TRY(find_size(c, type, op < 0 ? DTP_REDUCE_SUM : (dtp_reduce_op)op, err));
    const dtp_even_graph *g = c->sizes->graph;
    const int32_t source = g != NULL ? dtp_even_graph_find(g, from_key) : -1;
    const int32_t target = g != NULL ? dtp_even_graph_find(g, to_key) : -1;
    if (source < 0 || target < 0) {
        return DTP_OK;
    }
    int64_t **table = &c->sizes->tables[target];
    if (*table == NULL) {
        DTP_TRY(make_table(c, target, table, err));
    }
    *cost = (*table)[source];
    *known = true;
    return DTP_OK;
}
