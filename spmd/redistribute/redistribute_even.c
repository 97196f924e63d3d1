/* The layouts that split a tensor evenly and the steps between them, as a table of edges. */
#include "spmd/redistribute/redistribute_even.h"

int64_t dtp_even_part(int64_t ranks, int64_t size)
{
    int64_t a = ranks, b = size;
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int32_t dtp_even_graph_find(const dtp_even_graph *g, uint64_t key)
{
    const uint32_t hash = dtp_layout__hash(key);
    uint32_t at = hash;
    int32_t i = dtp_hash_table_next(&g->index, hash, &at);
    while (i >= 0 && g->keys[i] != key) {
        i = dtp_hash_table_next(&g->index, hash, &at);
    }
    return i;
}

typedef struct even_builder {
    dtp_arena *arena;
    dtp_even_graph *g;
    int32_t from; /* the layout that is being left */
    dtp_err *err;
} even_builder;

static dtp_status add_layout(even_builder *b, uint64_t key)
{
    dtp_even_graph *g = b->g;
    DTP_TRY(dtp_arena_grow(b->arena, &g->keys, g->n_layouts, g->n_layouts + 1, &g->cap_layouts,
                           sizeof *g->keys, b->err));
    g->keys[g->n_layouts] = key;
    return dtp_hash_table_add(&g->index, b->arena, dtp_layout__hash(key), g->n_layouts++, b->err);
}

static dtp_status visit_layout(void *user, const dtp_layout *at, const dtp_layout_hop *hop)
{
    (void)at;
    even_builder *b = user;
    return dtp_even_graph_find(b->g, hop->key) >= 0 ? DTP_OK : add_layout(b, hop->key);
}

static dtp_status count_step(void *user, const dtp_layout *at, const dtp_layout_hop *hop)
{
    (void)at;
    const even_builder *b = user;
    b->g->first[dtp_even_graph_find(b->g, hop->key)]++;
    return DTP_OK;
}

static dtp_status write_step(void *user, const dtp_layout *at, const dtp_layout_hop *hop)
{
    (void)at;
    const even_builder *b = user;
    const dtp_mesh_set splits =
        dtp_layout__dims_of_kind(b->g->keys[b->from], b->g->n_mesh, DTP_SHARD);
    b->g->steps[--b->g->first[dtp_even_graph_find(b->g, hop->key)]] =
        (dtp_even_step){b->from, (uint8_t)hop->kind, (uint8_t)hop->set, (uint8_t)splits};
    return DTP_OK;
}

dtp_status dtp_even_graph_create(dtp_arena *arena, const dtp_mesh *mesh, int32_t n_axes,
                                 const int64_t *parts, int32_t max_layouts, dtp_even_graph **out,
                                 dtp_err *err)
{
    dtp_even_graph *g;
    dtp_layout_graph steps;
    dtp_ttype type = {.dtype = DTP_F32, .rank = n_axes};
    *out = NULL;
    DTP_TRY(DTP_NEW(arena, g, 1, err));
    even_builder b = {.arena = arena, .g = g, .err = err};
    g->n_mesh = mesh->n_dims;
    for (int32_t i = 0; i < n_axes; i++) {
        type.dims[i].size = parts[i];
    }
    dtp_layout_graph__init(&steps, mesh, &type);
    steps.reduced = steps.sliced = steps.kept[DTP_REDUCE_SUM] = (1U << mesh->n_dims) - 1U;
    steps.keeps_some = steps.even = steps.single = true;
    DTP_TRY(add_layout(&b, 0));
    for (int32_t i = 0; i < g->n_layouts && g->n_layouts <= max_layouts; i++) {
        DTP_TRY(dtp_layout_graph__expand(&steps, g->keys[i], visit_layout, &b));
    }
    if (g->n_layouts > max_layouts) {
        return DTP_OK;
    }
    /* Steps by the layout that they lead to: counted, summed, written from the end of each. */
    steps.single = false;
    DTP_TRY(DTP_NEW(arena, g->first, g->n_layouts + 1, err));
    for (int32_t i = 0; i < g->n_layouts; i++) {
        DTP_TRY(dtp_layout_graph__expand(&steps, g->keys[i], count_step, &b));
    }
    for (int32_t i = 0; i < g->n_layouts; i++) {
        g->first[i + 1] += g->first[i];
    }
    DTP_TRY(DTP_NEW(arena, g->steps, g->first[g->n_layouts], err));
    for (b.from = 0; b.from < g->n_layouts; b.from++) {
        DTP_TRY(dtp_layout_graph__expand(&steps, g->keys[b.from], write_step, &b));
    }
    *out = g;
    return DTP_OK;
}
