#include "spmd/redistribute/redistribute_all.h"

#include <string.h>

#include "core/base/arena.h"
#include "core/base/safe_int.h"
#include "spmd/redistribute/redistribute_graph.h"
#include "spmd/redistribute/redistribute_internal.h"

enum { MAX_LAYOUTS = 1 << 13, STOPOVERS = 2 };

/* A graph, or the fact that it would be too large. */
typedef struct graph_entry {
    struct graph_entry *next;
    int32_t n_axes;
    int64_t parts[DTP_MAX_RANK];
    dtp_even_graph *graph; /* NULL: too many layouts */
} graph_entry;

/* The tables of tensors of one size. */
typedef struct size_tables {
    struct size_tables *next;
    const graph_entry *of;
    dtp_dtype dtype;
    dtp_reduce_op op;
    int64_t bytes;
    int64_t *step_cost; /* by kind, mesh dims and splits before; -1 = not known yet */
    int64_t **tables;   /* by target: costs by source; NULL = not made yet */
} size_tables;

typedef struct queue_entry {
    int64_t cost;
    int32_t layout;
} queue_entry;

struct dtp_redistribute_costs {
    dtp_arena *arena;
    const dtp_mesh *mesh;
    int64_t ranks;
    dtp_even_step_cost price;
    void *user;
    graph_entry *graphs;
    size_tables *sizes; /* those used last first */
    /* Of the type that was asked for last. */
    dtp_ttype type;
    int64_t type_bytes, type_parts[DTP_MAX_RANK];
    /* Layouts to visit, a binary heap in which each is once. */
    int32_t n_queue, cap_queue;
    queue_entry *queue;
    int32_t *place; /* of a layout in the queue, or -1 */
};

/* ---- a pair with tensor dims renumbered --------------------------------------------------------
 */

typedef struct pair {
    const dtp_ttype *type;
    uint64_t from, to;           /* keys */
    int32_t op;                  /* of partial values; -1: none */
    bool mixed;                  /* partial values of two ops */
    int32_t n_axes;              /* that may be split */
    int8_t axis[DTP_MAX_RANK];   /* the tensor dim of a number */
    int8_t number[DTP_MAX_RANK]; /* -1: none */
    int64_t parts[DTP_MAX_RANK]; /* by number */
} pair;

static void add_axis(const dtp_redistribute_costs *c, int32_t axis, pair *p)
{
    if (p->number[axis] < 0) {
        p->parts[p->n_axes] = c->type_parts[axis];
        p->axis[p->n_axes] = (int8_t)axis;
        p->number[axis] = (int8_t)p->n_axes++;
    }
}

static void add_splits(const dtp_redistribute_costs *c, const dtp_layout *layout, pair *p)
{
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_SHARD) {
            add_axis(c, layout->placement[m].axis, p);
        }
    }
}

/* By what decides their even splits, the most first; those that are alike in this as they came. */
static void sort_axes(pair *p)
{
    for (int32_t i = 1; i < p->n_axes; i++) {
        const int64_t parts = p->parts[i];
        const int8_t axis = p->axis[i];
        int32_t at = i;
        for (; at > 0 && p->parts[at - 1] < parts; at--) {
            p->parts[at] = p->parts[at - 1];
            p->axis[at] = p->axis[at - 1];
        }
        p->parts[at] = parts;
        p->axis[at] = axis;
    }
    for (int32_t i = 0; i < p->n_axes; i++) {
        p->number[p->axis[i]] = (int8_t)i;
    }
}

static uint64_t key_of(const dtp_layout *layout, pair *p)
{
    uint64_t key = 0;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *place = &layout->placement[m];
        uint64_t what = 0;
        if (place->kind == DTP_SHARD) {
            what = (uint64_t)p->number[place->axis];
        } else if (place->kind == DTP_PARTIAL) {
            p->mixed = p->mixed || (p->op >= 0 && p->op != place->op);
            p->op = place->op;
        }
        key |= ((uint64_t)place->kind | what << 2 | (uint64_t)place->order << 5) << (8 * m);
    }
    return key;
}

static void read_pair(const dtp_redistribute_costs *c, const dtp_ttype *type,
                      const dtp_layout *from, const dtp_layout *to, pair *p)
{
    *p = (pair){.type = type, .op = -1};
    memset(p->number, -1, sizeof p->number);
    add_splits(c, to, p);
    add_splits(c, from, p);
    for (int32_t axis = 0, n = 0; axis < type->rank && n < STOPOVERS; axis++) {
        n += p->number[axis] < 0 ? 1 : 0;
        add_axis(c, axis, p);
    }
    sort_axes(p);
    p->to = key_of(to, p);
    p->from = key_of(from, p);
}

/* ---- which table -------------------------------------------------------------------------------
 */

static dtp_status no_memory(dtp_err *err)
{
    return DTP_FAIL(err, DTP_NOMEM, "out of memory for the costs of redistributions");
}

static bool has_axes(const graph_entry *e, const pair *p)
{
    return e->n_axes == p->n_axes &&
           memcmp(e->parts, p->parts, (size_t)p->n_axes * sizeof p->parts[0]) == 0;
}

static dtp_status find_graph(dtp_redistribute_costs *c, const pair *p, const graph_entry **out,
                             dtp_err *err)
{
    graph_entry *e = c->graphs;
    while (e != NULL && !has_axes(e, p)) {
        e = e->next;
    }
    *out = e;
    if (e != NULL) {
        return DTP_OK;
    }
    e = dtp_arena_alloc(c->arena, 1, sizeof *e);
    if (e == NULL) {
        return no_memory(err);
    }
    e->n_axes = p->n_axes;
    memcpy(e->parts, p->parts, sizeof e->parts);
    DTP_TRY(
        dtp_even_graph_create(c->arena, c->mesh, p->n_axes, p->parts, MAX_LAYOUTS, &e->graph, err));
    e->next = c->graphs;
    *out = c->graphs = e;
    return DTP_OK;
}

static size_t n_step_costs(const dtp_redistribute_costs *c)
{
    return (size_t)(DTP_STEP_KEEP_FIRST + 1) << 2 * c->mesh->n_dims;
}

static dtp_status make_size(dtp_redistribute_costs *c, const graph_entry *of, const pair *p,
                            dtp_err *err)
{
    const size_t n_layouts = of->graph != NULL ? (size_t)of->graph->n_layouts : 0;
    size_tables *s = dtp_arena_alloc(c->arena, 1, sizeof *s);
    if (s == NULL) {
        return no_memory(err);
    }
    *s =
        (size_tables){.next = c->sizes,
                      .of = of,
                      .dtype = p->type->dtype,
                      .op = (dtp_reduce_op)p->op,
                      .bytes = c->type_bytes,
                      .step_cost = dtp_arena_alloc(c->arena, n_step_costs(c), sizeof *s->step_cost),
                      .tables = dtp_arena_alloc(c->arena, n_layouts, sizeof *s->tables)};
    if (s->step_cost == NULL || s->tables == NULL) {
        return no_memory(err);
    }
    memset(s->step_cost, 0xff, n_step_costs(c) * sizeof *s->step_cost);
    c->sizes = s;
    return DTP_OK;
}

/* Brings the tables of the pair to the head of the list. */
static dtp_status find_size(dtp_redistribute_costs *c, const pair *p, dtp_err *err)
{
    for (size_tables **at = &c->sizes; *at != NULL; at = &(*at)->next) {
        size_tables *s = *at;
        if (s->bytes == c->type_bytes && s->dtype == p->type->dtype && (int32_t)s->op == p->op &&
            has_axes(s->of, p)) {
            *at = s->next;
            s->next = c->sizes;
            c->sizes = s;
            return DTP_OK;
        }
    }
    const graph_entry *of;
    DTP_TRY(find_graph(c, p, &of, err));
    return make_size(c, of, p, err);
}

/* ---- queue -------------------------------------------------------------------------------------
 */

static bool entry_before(const queue_entry *a, const queue_entry *b)
{
    return a->cost < b->cost || (a->cost == b->cost && a->layout < b->layout);
}

static void put(dtp_redistribute_costs *c, int32_t at, queue_entry e)
{
    c->queue[at] = e;
    c->place[e.layout] = at;
}

/* Adds a layout, or lowers its cost. */
static void push(dtp_redistribute_costs *c, queue_entry e)
{
    int32_t i = c->place[e.layout] >= 0 ? c->place[e.layout] : c->n_queue++;
    while (i > 0 && entry_before(&e, &c->queue[(i - 1) / 2])) {
        put(c, i, c->queue[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(c, i, e);
}

static queue_entry pop(dtp_redistribute_costs *c)
{
    const queue_entry top = c->queue[0], e = c->queue[--c->n_queue];
    int32_t i = 0;
    c->place[top.layout] = -1;
    for (int32_t child = 1; child < c->n_queue; child = 2 * i + 1) {
        if (child + 1 < c->n_queue && entry_before(&c->queue[child + 1], &c->queue[child])) {
            child++;
        }
        if (!entry_before(&c->queue[child], &e)) {
            break;
        }
        put(c, i, c->queue[child]);
        i = child;
    }
    if (c->n_queue > 0) {
        put(c, i, e);
    }
    return top;
}

static dtp_status reserve_queue(dtp_redistribute_costs *c, int32_t n, dtp_err *err)
{
    if (n <= c->cap_queue) {
        return DTP_OK;
    }
    c->cap_queue = n;
    c->queue = dtp_arena_alloc(c->arena, (size_t)n, sizeof *c->queue);
    c->place = dtp_arena_alloc(c->arena, (size_t)n, sizeof *c->place);
    if (c->queue == NULL || c->place == NULL) {
        c->cap_queue = 0;
        return no_memory(err);
    }
    memset(c->place, 0xff, (size_t)n * sizeof *c->place);
    return DTP_OK;
}

/* ---- a table -----------------------------------------------------------------------------------
 */

/* What one search works on. */
typedef struct table_search {
    dtp_redistribute_costs *c;
    const pair *p;
    const size_tables *s;
    const dtp_even_graph *g;
    dtp_mesh_set split, partial; /* mesh dims of the target */
    int64_t *cost;
} table_search;

static dtp_mesh_set dims_of_kind(uint64_t key, int32_t n_mesh, dtp_placement_kind kind)
{
    dtp_mesh_set set = 0;
    for (int32_t m = 0; m < n_mesh; m++) {
        set |= (key >> (8 * m) & 3U) == (uint64_t)kind ? 1U << m : 0U;
    }
    return set;
}

/* The layout of a key, in the tensor's own dims. */
static dtp_layout layout_of(const table_search *t, uint64_t key)
{
    dtp_layout layout = dtp_layout__of_key(key, t->p->type->rank, t->g->n_mesh);
    for (int32_t m = 0; m < layout.n_mesh; m++) {
        dtp_placement *place = &layout.placement[m];
        if (place->kind == DTP_SHARD) {
            place->axis = t->p->axis[place->axis];
        } else if (place->kind == DTP_PARTIAL) {
            place->op = (int8_t)t->s->op;
        }
    }
    return layout;
}

static dtp_status price_step(const table_search *t, const dtp_even_step *e, int32_t to,
                             int64_t *cost, dtp_err *err)
{
    const dtp_layout before = layout_of(t, t->g->keys[e->from]);
    dtp_step step = {
        .kind = (dtp_step_kind)e->kind, .set = e->set, .after = layout_of(t, t->g->keys[to])};
    int32_t m = 0;
    while ((e->set >> m & 1U) == 0) {
        m++;
    }
    step.to_axis = step.kind == DTP_STEP_ALL_TO_ALL ? step.after.placement[m].axis : 0;
    step.axis = before.placement[m].kind == DTP_SHARD ? before.placement[m].axis
                                                      : step.after.placement[m].axis;
    if (before.placement[m].kind == DTP_PARTIAL || step.kind == DTP_STEP_KEEP_FIRST) {
        step.op = t->s->op;
    }
    DTP_TRY(t->c->price(t->c->user, t->p->type, &before, &step, cost, err));
    return *cost >= 0
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "a step of a redistribution has a negative cost");
}

/* Mesh dims over which a kind of step may not lead to the layout. */
static void find_forbidden(const table_search *t, int32_t to, dtp_mesh_set *forbidden)
{
    const dtp_mesh_set summed = dims_of_kind(t->g->keys[to], t->g->n_mesh, DTP_PARTIAL);
    for (int32_t kind = 0; kind <= DTP_STEP_KEEP_FIRST; kind++) {
        forbidden[kind] = t->partial;
    }
    forbidden[DTP_STEP_SLICE] = ~t->split;
    forbidden[DTP_STEP_KEEP_FIRST] = (t->partial & ~summed) == 0 ? ~t->partial : ~0U;
}

static dtp_status visit(const table_search *t, int32_t to, dtp_err *err)
{
    const dtp_even_graph *g = t->g;
    const int32_t n = g->n_mesh;
    dtp_mesh_set forbidden[DTP_STEP_KEEP_FIRST + 1];
    find_forbidden(t, to, forbidden);
    for (int32_t i = g->first[to]; i < g->first[to + 1]; i++) {
        const dtp_even_step e = g->steps[i];
        int64_t *step_cost = &t->s->step_cost[((((size_t)e.kind << n) | e.set) << n) | e.splits];
        int64_t cost;
        if ((e.set & forbidden[e.kind]) != 0) {
            continue;
        }
        if (*step_cost < 0) {
            DTP_TRY(price_step(t, &e, to, step_cost, err));
        }
        if (dtp_add_i64(t->cost[to], *step_cost, &cost) && cost < t->cost[e.from]) {
            t->cost[e.from] = cost;
            push(t->c, (queue_entry){cost, e.from});
        }
    }
    return DTP_OK;
}

/* Costs from every layout to this one. */
static dtp_status make_table(dtp_redistribute_costs *c, const pair *p, int32_t target,
                             int64_t **out, dtp_err *err)
{
    const dtp_even_graph *g = c->sizes->of->graph;
    int64_t *cost = dtp_arena_alloc(c->arena, (size_t)g->n_layouts, sizeof *cost);
    const table_search t = {.c = c,
                            .p = p,
                            .s = c->sizes,
                            .g = g,
                            .split = dims_of_kind(p->to, g->n_mesh, DTP_SHARD),
                            .partial = dims_of_kind(p->to, g->n_mesh, DTP_PARTIAL),
                            .cost = cost};
    DTP_TRY(reserve_queue(c, g->n_layouts, err));
    if (cost == NULL) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < g->n_layouts; i++) {
        cost[i] = DTP_COST_IMPOSSIBLE;
    }
    cost[target] = 0;
    push(c, (queue_entry){0, target});
    dtp_status s = DTP_OK;
    while (c->n_queue > 0) {
        const queue_entry e = pop(c);
        s = s == DTP_OK ? visit(&t, e.layout, err) : s;
    }
    *out = s == DTP_OK ? cost : NULL;
    return s;
}

/* ---- entry -------------------------------------------------------------------------------------
 */

dtp_status dtp_redistribute_costs_create(const dtp_mesh *mesh, dtp_even_step_cost price, void *user,
                                         dtp_redistribute_costs **out, dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_redistribute_costs *c = arena != NULL ? dtp_arena_alloc(arena, 1, sizeof *c) : NULL;
    *out = c;
    if (c == NULL) {
        dtp_arena_destroy(arena);
        return no_memory(err);
    }
    *c = (dtp_redistribute_costs){.arena = arena,
                                  .mesh = mesh,
                                  .ranks = dtp_mesh_ranks(mesh),
                                  .price = price,
                                  .user = user,
                                  .type = {.rank = -1}};
    return DTP_OK;
}

void dtp_redistribute_costs_destroy(dtp_redistribute_costs *c)
{
    if (c != NULL) {
        dtp_arena_destroy(c->arena);
    }
}

static void set_type(dtp_redistribute_costs *c, const dtp_ttype *type)
{
    if (dtp_ttype_equal(&c->type, type)) {
        return;
    }
    c->type = *type;
    c->type_bytes = dtp_ttype_bytes(type);
    for (int32_t i = 0; i < type->rank; i++) {
        c->type_parts[i] = dtp_even_part(c->ranks, type->dims[i].size);
    }
}

dtp_status dtp_redistribute_costs_find(dtp_redistribute_costs *c, const dtp_ttype *type,
                                       const dtp_layout *from, const dtp_layout *to, bool *known,
                                       int64_t *cost, dtp_err *err)
{
    pair p;
    set_type(c, type);
    read_pair(c, type, from, to, &p);
    *known = false;
    if (p.mixed || p.op == DTP_REDUCE_AVG || p.op == DTP_REDUCE_PROD) {
        return DTP_OK;
    }
    p.op = p.op < 0 ? DTP_REDUCE_SUM : p.op;
    DTP_TRY(find_size(c, &p, err));
    const dtp_even_graph *g = c->sizes->of->graph;
    const int32_t source = g != NULL ? dtp_even_graph_find(g, p.from) : -1;
    const int32_t target = g != NULL ? dtp_even_graph_find(g, p.to) : -1;
    if (source < 0 || target < 0) {
        return DTP_OK;
    }
    int64_t **table = &c->sizes->tables[target];
    if (*table == NULL) {
        DTP_TRY(make_table(c, &p, target, table, err));
    }
    *cost = (*table)[source];
    *known = true;
    return DTP_OK;
}
