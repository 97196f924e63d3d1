/* Three levels, each made when it is first asked for:
 *
 *   graph_entry  even layouts and steps between them, by the number of even parts of every tensor
 *                dim
 *   size_tables  costs of these steps, by dtype, reduction and bytes of the tensor; on a target
 *                without strided collectives by its shape
 *   tables       by target: costs from every layout, by Dijkstra's algorithm over reversed steps
 *
 * A question is first renumbered (read_pair): tensor dims get numbers in an order that depends on
 * what decides their even splits, so that tensors with other dim orders find the same table. */
#include "spmd/redistribute/redistribute_tables.h"

#include <string.h>

#include "core/base/safe_int.h"
#include "spmd/redistribute/redistribute_even.h"

enum { MAX_LAYOUTS = 1 << 13, STOPOVERS = 2, PACK_BITS = 2, UNKNOWN = 1 << PACK_BITS };

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
    /* Without strided collectives, else NULL: by step of the graph what it packs (dtp_step_packs),
     * UNKNOWN = not found yet; for tensors of this shape whose dims have these numbers. */
    uint8_t *packs;
    dtp_ttype shape;
    int8_t axis[DTP_MAX_RANK];
    int64_t *step_cost; /* by kind, mesh dims, splits before and packing; -1 = not known yet */
    int64_t **tables;   /* by target: costs by source; NULL = not made yet */
} size_tables;

struct dtp_redistribute_tables {
    dtp_arena *arena;
    const dtp_mesh *mesh;
    const dtp_target *target;
    int64_t ranks;
    dtp_even_step_cost price;
    void *user;
    graph_entry *graphs;
    size_tables *sizes; /* those used last first */
    /* Of the type that was asked for last. */
    dtp_ttype type;
    int64_t type_bytes, type_parts[DTP_MAX_RANK];
    dtp_layout_queue queue;
};

/* ---- a pair with tensor dims renumbered --------------------------------------------------------
 */

typedef struct table_pair {
    const dtp_ttype *type;
    uint64_t from, to;           /* keys */
    int32_t op;                  /* of partial values; -1: none */
    bool mixed;                  /* partial values of two ops */
    int32_t n_axes;              /* that may be split */
    int8_t axis[DTP_MAX_RANK];   /* the tensor dim of a number */
    int8_t number[DTP_MAX_RANK]; /* -1: none */
    int64_t parts[DTP_MAX_RANK]; /* by number */
} table_pair;

static void add_axis(const dtp_redistribute_tables *c, int32_t axis, table_pair *p)
{
    if (p->number[axis] < 0) {
        p->parts[p->n_axes] = c->type_parts[axis];
        p->axis[p->n_axes] = (int8_t)axis;
        p->number[axis] = (int8_t)p->n_axes++;
    }
}

static uint64_t key_of(const dtp_layout *layout, table_pair *p)
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

static void read_pair(const dtp_redistribute_tables *c, const dtp_ttype *type,
                      const dtp_layout *from, const dtp_layout *to, table_pair *p)
{
    *p = (table_pair){.type = type, .op = -1};
    memset(p->number, -1, sizeof p->number);
    for (int32_t m = 0; m < 2 * to->n_mesh; m++) {
        const dtp_placement *place =
            m < to->n_mesh ? &to->placement[m] : &from->placement[m - to->n_mesh];
        if (place->kind == DTP_SHARD) {
            add_axis(c, place->axis, p);
        }
    }
    for (int32_t axis = 0, n = 0; axis < type->rank && n < STOPOVERS; axis++) {
        n += p->number[axis] < 0 ? 1 : 0;
        add_axis(c, axis, p);
    }
    /* By what decides their even splits, the most first; those that are alike in this as they
     * came. */
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
    p->to = key_of(to, p);
    p->from = key_of(from, p);
}

/* ---- which table -------------------------------------------------------------------------------
 */

static bool has_axes(const graph_entry *e, const table_pair *p)
{
    return e->n_axes == p->n_axes &&
           memcmp(e->parts, p->parts, (size_t)p->n_axes * sizeof p->parts[0]) == 0;
}

/* Whether the steps of the pair pack what those of the tables pack. */
static bool packs_alike(const size_tables *s, const table_pair *p)
{
    bool alike = s->shape.rank == p->type->rank &&
                 memcmp(s->axis, p->axis, (size_t)p->n_axes * sizeof p->axis[0]) == 0;
    for (int32_t i = 0; i < p->type->rank && alike; i++) {
        alike = s->shape.dims[i].size == p->type->dims[i].size;
    }
    return alike;
}

/* Brings the tables of the pair to the head of the list. */
static dtp_status find_size(dtp_redistribute_tables *c, const table_pair *p, dtp_err *err)
{
    size_tables **at = &c->sizes, *s;
    for (; (s = *at) != NULL; at = &s->next) {
        if (s->bytes == c->type_bytes && s->dtype == p->type->dtype && (int32_t)s->op == p->op &&
            has_axes(s->of, p) && (c->target->strided || packs_alike(s, p))) {
            *at = s->next;
            s->next = c->sizes;
            c->sizes = s;
            return DTP_OK;
        }
    }
    const size_t n_costs = (size_t)(DTP_STEP_KEEP_FIRST + 1) << (2 * c->mesh->n_dims + PACK_BITS);
    graph_entry *of = c->graphs;
    while (of != NULL && !has_axes(of, p)) {
        of = of->next;
    }
    if (of == NULL) {
        DTP_TRY(DTP_NEW(c->arena, of, 1, err));
        of->n_axes = p->n_axes;
        memcpy(of->parts, p->parts, sizeof of->parts);
        DTP_TRY(dtp_even_graph_create(c->arena, c->mesh, p->n_axes, p->parts, MAX_LAYOUTS,
                                      &of->graph, err));
        of->next = c->graphs;
        c->graphs = of;
    }
    DTP_TRY(DTP_NEW(c->arena, s, 1, err));
    *s = (size_tables){.next = c->sizes,
                       .of = of,
                       .dtype = p->type->dtype,
                       .op = (dtp_reduce_op)p->op,
                       .bytes = c->type_bytes,
                       .shape = *p->type};
    memcpy(s->axis, p->axis, sizeof s->axis);
    if (!c->target->strided && of->graph != NULL) {
        const int32_t n_steps = of->graph->first[of->graph->n_layouts];
        DTP_TRY(DTP_NEW(c->arena, s->packs, n_steps, err));
        memset(s->packs, UNKNOWN, (size_t)n_steps);
    }
    DTP_TRY(DTP_NEW(c->arena, s->step_cost, n_costs, err));
    DTP_TRY(DTP_NEW(c->arena, s->tables, of->graph != NULL ? of->graph->n_layouts : 0, err));
    memset(s->step_cost, 0xff, n_costs * sizeof *s->step_cost);
    c->sizes = s;
    return DTP_OK;
}

/* ---- a table -----------------------------------------------------------------------------------
 */

/* What one search works on. */
typedef struct table_search {
    dtp_redistribute_tables *c;
    const table_pair *p;
    const size_tables *s;
    const dtp_even_graph *g;
    dtp_mesh_set split, partial; /* mesh dims of the target */
    int64_t *cost;
} table_search;

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

/* Step i of the graph, which leads to a layout, in the tensor's own dims; *before is where it
 * starts. */
static dtp_step step_of(const table_search *t, int32_t i, int32_t to, dtp_layout *before)
{
    const dtp_even_step *e = &t->g->steps[i];
    *before = layout_of(t, t->g->keys[e->from]);
    dtp_step step = {
        .kind = (dtp_step_kind)e->kind, .set = e->set, .after = layout_of(t, t->g->keys[to])};
    int32_t m = 0;
    while ((e->set >> m & 1U) == 0) {
        m++;
    }
    step.to_axis = step.kind == DTP_STEP_ALL_TO_ALL ? step.after.placement[m].axis : 0;
    step.axis = before->placement[m].kind == DTP_SHARD ? before->placement[m].axis
                                                       : step.after.placement[m].axis;
    if (before->placement[m].kind == DTP_PARTIAL || step.kind == DTP_STEP_KEEP_FIRST) {
        step.op = t->s->op;
    }
    return step;
}

/* Offers the ways through a layout to those that lead to it. */
static dtp_status relax_into(const table_search *t, int32_t to, dtp_err *err)
{
    const dtp_even_graph *g = t->g;
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
        if ((e->set & forbidden[e->kind]) != 0) {
            continue;
        }
        if (t->s->packs != NULL && t->s->packs[i] == UNKNOWN) {
            const dtp_step step = step_of(t, i, to, &before);
            t->s->packs[i] =
                (uint8_t)dtp_step_packs(t->c->mesh, t->p->type, &before, &step, t->c->target);
        }
        const size_t kind = ((((size_t)e->kind << n) | e->set) << n) | e->splits;
        int64_t *step_cost =
            &t->s->step_cost[kind << PACK_BITS | (t->s->packs != NULL ? t->s->packs[i] : 0U)];
        if (*step_cost < 0) {
            const dtp_step step = step_of(t, i, to, &before);
            DTP_TRY(t->c->price(t->c->user, t->p->type, &before, &step, step_cost, err));
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

/* Costs from every layout to this one. The queue orders layouts by rounded costs; one whose cost
 * falls after it was left is left again, so that the costs are exact. */
static dtp_status make_table(dtp_redistribute_tables *c, const table_pair *p, int32_t target,
                             int64_t **out, dtp_err *err)
{
    const dtp_even_graph *g = c->sizes->of->graph;
    int64_t *cost;
    DTP_TRY(DTP_NEW(c->arena, cost, g->n_layouts, err));
    const table_search t = {.c = c,
                            .p = p,
                            .s = c->sizes,
                            .g = g,
                            .split = dtp_layout__dims_of_kind(p->to, g->n_mesh, DTP_SHARD),
                            .partial = dtp_layout__dims_of_kind(p->to, g->n_mesh, DTP_PARTIAL),
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

/* ---- entry -------------------------------------------------------------------------------------
 */

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
    *c = (dtp_redistribute_tables){.arena = arena,
                                   .mesh = mesh,
                                   .target = target,
                                   .ranks = dtp_mesh_ranks(mesh),
                                   .price = price,
                                   .user = user,
                                   .type = {.rank = -1}};
    *out = c;
    return DTP_OK;
}

void dtp_redistribute_tables_destroy(dtp_redistribute_tables *c)
{
    if (c != NULL) {
        dtp_arena_destroy(c->arena);
    }
}

dtp_status dtp_redistribute_tables_find(dtp_redistribute_tables *c, const dtp_ttype *type,
                                        const dtp_layout *from, const dtp_layout *to, bool *known,
                                        int64_t *cost, dtp_err *err)
{
    table_pair p;
    if (!dtp_ttype_equal(&c->type, type)) {
        c->type = *type;
        c->type_bytes = dtp_ttype_bytes(type);
        for (int32_t i = 0; i < type->rank; i++) {
            c->type_parts[i] = dtp_even_part(c->ranks, type->dims[i].size);
        }
    }
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
