#include "spmd/redistribute/redistribute_graph.h"

#include "spmd/redistribute/redistribute_bound.h"

enum { FIRST_SLOTS = 256 };

typedef struct builder {
    dtp_arena *arena;
    const dtp_mesh *mesh;
    dtp_even_graph *g;
} builder;

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

/* ---- layouts -----------------------------------------------------------------------------------
 */

/* The slot of the key, or the one where it belongs. */
static uint32_t slot_of(const dtp_even_graph *g, uint64_t key)
{
    uint32_t at = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32) & (g->n_slots - 1);
    while (g->slots[at] > 0 && g->keys[g->slots[at] - 1] != key) {
        at = (at + 1) & (g->n_slots - 1);
    }
    return at;
}

int32_t dtp_even_graph_find(const dtp_even_graph *g, uint64_t key)
{
    return g->slots[slot_of(g, key)] - 1;
}

static dtp_status grow_slots(builder *b, dtp_err *err)
{
    dtp_even_graph *g = b->g;
    if (2 * ((uint32_t)g->n_layouts + 1) <= g->n_slots) {
        return DTP_OK;
    }
    g->n_slots = g->n_slots == 0 ? FIRST_SLOTS : 4 * g->n_slots;
    g->slots = dtp_arena_alloc(b->arena, g->n_slots, sizeof *g->slots);
    if (g->slots == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the layouts of a tensor");
    }
    for (int32_t i = 0; i < g->n_layouts; i++) {
        g->slots[slot_of(g, g->keys[i])] = i + 1;
    }
    return DTP_OK;
}

static dtp_status add_layout(builder *b, uint64_t key, dtp_err *err)
{
    dtp_even_graph *g = b->g;
    DTP_TRY(grow_slots(b, err));
    const uint32_t slot = slot_of(g, key);
    if (g->slots[slot] > 0) {
        return DTP_OK;
    }
    DTP_TRY(dtp_arena_grow(b->arena, &g->keys, g->n_layouts, g->n_layouts + 1, &g->cap_layouts,
                           sizeof *g->keys, err));
    g->keys[g->n_layouts++] = key;
    g->slots[slot] = g->n_layouts;
    return DTP_OK;
}

static dtp_mesh_set dims_of_kind(const builder *b, uint64_t key, dtp_placement_kind kind)
{
    dtp_mesh_set set = 0;
    for (int32_t m = 0; m < b->mesh->n_dims; m++) {
        set |= (key >> (8 * m) & 3U) == (uint64_t)kind ? 1U << m : 0U;
    }
    return set;
}

/* The key with the mesh dims of a set replicated, or partial. */
static uint64_t with_kind(uint64_t key, dtp_mesh_set set, dtp_placement_kind kind)
{
    for (int32_t shift = 0; set != 0; set >>= 1, shift += 8) {
        if ((set & 1U) != 0) {
            key = (key & ~(UINT64_C(0xff) << shift)) | (uint64_t)kind << shift;
        }
    }
    return key;
}

/* The key with the mesh dims of a set as the innermost splits of the axis, in ascending order. */
static uint64_t with_splits(uint64_t key, dtp_mesh_set set, int32_t axis, int32_t depth)
{
    const uint64_t what = (uint64_t)DTP_SHARD | (uint64_t)axis << 2;
    key = with_kind(key, set, DTP_REPLICATE);
    for (int32_t shift = 0; set != 0; set >>= 1, shift += 8) {
        if ((set & 1U) != 0) {
            key |= (what | (uint64_t)depth++ << 5) << shift;
        }
    }
    return key;
}

/* Into how many pieces the stack splits the axis. */
static int64_t pieces_of(const builder *b, const dtp_stacks *stacks, int32_t axis)
{
    int64_t n = 1;
    for (int32_t i = 0; i < stacks->depth[axis]; i++) {
        n *= b->mesh->sizes[stacks->of[axis][i]];
    }
    return n;
}

/* The layouts that have one more mesh dim partial, or as the innermost split of an axis. */
static dtp_status add_larger(builder *b, uint64_t key, dtp_err *err)
{
    dtp_stacks stacks;
    dtp_stacks__read(key, b->mesh->n_dims, &stacks);
    for (int32_t m = 0; m < b->mesh->n_dims; m++) {
        const dtp_mesh_set set = 1U << m;
        if ((key >> (8 * m) & 3U) != DTP_REPLICATE) {
            continue;
        }
        DTP_TRY(add_layout(b, with_kind(key, set, DTP_PARTIAL), err));
        for (int32_t axis = 0; axis < b->g->n_axes; axis++) {
            const int64_t pieces = pieces_of(b, &stacks, axis) * b->mesh->sizes[m];
            if (b->g->parts[axis] % pieces == 0) {
                DTP_TRY(add_layout(b, with_splits(key, set, axis, stacks.depth[axis]), err));
            }
        }
    }
    return DTP_OK;
}

/* ---- steps -------------------------------------------------------------------------------------
 */

/* A step from the layout of this key to the last one; none when that layout is not even. */
static dtp_status add_step(builder *b, uint64_t from, dtp_step_kind kind, dtp_mesh_set set,
                           dtp_err *err)
{
    dtp_even_graph *g = b->g;
    const dtp_even_step step = {.from = dtp_even_graph_find(g, from),
                                .kind = (uint8_t)kind,
                                .set = (uint8_t)set,
                                .splits = (uint8_t)dims_of_kind(b, from, DTP_SHARD)};
    if (step.from < 0) {
        return DTP_OK;
    }
    DTP_TRY(dtp_arena_grow(b->arena, &g->steps, g->n_steps, g->n_steps + 1, &g->cap_steps,
                           sizeof *g->steps, err));
    g->steps[g->n_steps++] = step;
    return DTP_OK;
}

/* Steps that leave a set of mesh dims replicated. */
static dtp_status add_steps_to_whole(builder *b, uint64_t to, const dtp_stacks *stacks,
                                     dtp_err *err)
{
    const dtp_mesh_set all = dims_of_kind(b, to, DTP_REPLICATE);
    for (dtp_mesh_set set = all; set != 0; set = (set - 1U) & all) {
        DTP_TRY(add_step(b, with_kind(to, set, DTP_PARTIAL), DTP_STEP_ALL_REDUCE, set, err));
        for (int32_t axis = 0; axis < b->g->n_axes; axis++) {
            DTP_TRY(add_step(b, with_splits(to, set, axis, stacks->depth[axis]),
                             DTP_STEP_ALL_GATHER, set, err));
        }
    }
    return DTP_OK;
}

static dtp_status add_steps_to_partial(builder *b, uint64_t to, dtp_err *err)
{
    const dtp_mesh_set all = dims_of_kind(b, to, DTP_PARTIAL);
    for (dtp_mesh_set set = all; set != 0; set = (set - 1U) & all) {
        DTP_TRY(add_step(b, with_kind(to, set, DTP_REPLICATE), DTP_STEP_KEEP_FIRST, set, err));
    }
    return DTP_OK;
}

/* Steps that leave a set of mesh dims as the innermost splits of the axis. */
static dtp_status add_steps_to_splits(builder *b, uint64_t to, const dtp_stacks *stacks,
                                      int32_t axis, dtp_mesh_set set, dtp_err *err)
{
    DTP_TRY(add_step(b, with_kind(to, set, DTP_PARTIAL), DTP_STEP_REDUCE_SCATTER, set, err));
    DTP_TRY(add_step(b, with_kind(to, set, DTP_REPLICATE), DTP_STEP_SLICE, set, err));
    for (int32_t from = 0; from < b->g->n_axes; from++) {
        if (from != axis) {
            DTP_TRY(add_step(b, with_splits(to, set, from, stacks->depth[from]),
                             DTP_STEP_ALL_TO_ALL, set, err));
        }
    }
    return DTP_OK;
}

static dtp_status add_steps_to(builder *b, uint64_t to, dtp_err *err)
{
    dtp_stacks stacks;
    dtp_stacks__read(to, b->mesh->n_dims, &stacks);
    DTP_TRY(add_steps_to_whole(b, to, &stacks, err));
    DTP_TRY(add_steps_to_partial(b, to, err));
    for (int32_t axis = 0; axis < b->g->n_axes; axis++) {
        const int8_t *of = stacks.of[axis];
        dtp_mesh_set set = 0;
        for (int32_t i = stacks.depth[axis] - 1; i >= 0; i--) {
            if (set != 0 && of[i] > of[i + 1]) {
                break;
            }
            set |= 1U << of[i];
            DTP_TRY(add_steps_to_splits(b, to, &stacks, axis, set, err));
        }
    }
    return DTP_OK;
}

/* ---- the graph ---------------------------------------------------------------------------------
 */

static dtp_status add_layouts(builder *b, int32_t max_layouts, dtp_err *err)
{
    dtp_even_graph *g = b->g;
    DTP_TRY(add_layout(b, 0, err));
    for (int32_t i = 0; i < g->n_layouts && g->n_layouts <= max_layouts; i++) {
        DTP_TRY(add_larger(b, g->keys[i], err));
    }
    return DTP_OK;
}

static dtp_status add_steps(builder *b, dtp_err *err)
{
    dtp_even_graph *g = b->g;
    g->first = dtp_arena_alloc(b->arena, (size_t)g->n_layouts + 1, sizeof *g->first);
    if (g->first == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the layouts of a tensor");
    }
    for (int32_t i = 0; i < g->n_layouts; i++) {
        DTP_TRY(add_steps_to(b, g->keys[i], err));
        g->first[i + 1] = g->n_steps;
    }
    return DTP_OK;
}

dtp_status dtp_even_graph_create(dtp_arena *arena, const dtp_mesh *mesh, int32_t n_axes,
                                 const int64_t *parts, int32_t max_layouts, dtp_even_graph **out,
                                 dtp_err *err)
{
    dtp_even_graph *g = dtp_arena_alloc(arena, 1, sizeof *g);
    builder b = {.arena = arena, .mesh = mesh, .g = g};
    *out = NULL;
    if (g == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the layouts of a tensor");
    }
    g->n_mesh = mesh->n_dims;
    g->n_axes = n_axes;
    for (int32_t i = 0; i < n_axes; i++) {
        g->parts[i] = parts[i];
    }
    DTP_TRY(add_layouts(&b, max_layouts, err));
    if (g->n_layouts > max_layouts) {
        return DTP_OK;
    }
    DTP_TRY(add_steps(&b, err));
    *out = g;
    return DTP_OK;
}
