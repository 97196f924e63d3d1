#include "planner/problem/tensors/tying_groups.h"

#include <string.h>

#include "core/base/sort.h"

int32_t dtp_run_of(int32_t instance, int32_t n_instances, int32_t runs)
{
    int32_t run = 0;
    for (int32_t end = (n_instances + 1) / 2; run + 1 < runs && instance >= end; run++) {
        end += (n_instances - end + 1) / 2;
    }
    return run;
}

/* ---- places -------------------------------------------------------------------------------------
 */

/* Orders by block, phase, and `last`. */
static uint64_t place_key(const dtp_node *node, int32_t last)
{
    return (uint64_t)(uint32_t)(node->block + 1) << 34 | (uint64_t)node->phase << 32 |
           (uint32_t)last;
}

dtp_status dtp_block_places_find(const dtp_graph *g, dtp_arena *arena, dtp_block_places *out,
                                 dtp_err *err)
{
    const size_t n = (size_t)g->n_nodes;
    dtp_keyed *list = dtp_arena_alloc(arena, 2 * n, sizeof *list);
    out->position = dtp_arena_alloc(arena, n, sizeof *out->position);
    out->n_instances = dtp_arena_alloc(arena, (size_t)g->n_blocks, sizeof *out->n_instances);
    DTP_TRY(DTP_MEMORY(err, list, out->position, out->n_instances));
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        const dtp_node *node = &g->nodes[id];
        list[id] = (dtp_keyed){place_key(node, node->instance), id};
        if (node->block >= 0 && out->n_instances[node->block] <= node->instance) {
            out->n_instances[node->block] = node->instance + 1;
        }
    }
    dtp_sort_keyed(list, list + n, g->n_nodes);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const bool next = i > 0 && list[i].key == list[i - 1].key;
        out->position[list[i].item] = next ? out->position[list[i - 1].item] + 1 : 0;
    }
    return DTP_OK;
}

/* ---- what a sharding needs ----------------------------------------------------------------------
 */

enum { PHASES = 3 };

typedef struct comparison {
    const dtp_graph *g;
    const dtp_sharding *s;
    int32_t *readers; /* by PHASES * tensor + phase: operands that are the tensor */
} comparison;

/* Only what two or more readers of a phase share is a replica of its own. */
static bool is_shared(const comparison *c, dtp_tensor_id t, int phase)
{
    return c->readers[PHASES * t + phase] > 1;
}

static bool same_tensor(const comparison *c, dtp_tensor_id a, dtp_tensor_id b)
{
    const dtp_sharding *s = c->s;
    bool same = dtp_layout_equal(&s->layouts[a], &s->layouts[b]);
    for (int phase = 0; phase < PHASES && same && dtp_sharding_has_replicas(s); phase++) {
        same = !is_shared(c, a, phase) || !is_shared(c, b, phase) ||
               dtp_layout_equal(&s->replicas[phase][a], &s->replicas[phase][b]);
    }
    return same;
}

static bool alike(const comparison *c, dtp_node_id a, dtp_node_id b)
{
    const dtp_graph *g = c->g;
    const dtp_sharding *s = c->s;
    const dtp_node *x = &g->nodes[a], *y = &g->nodes[b];
    if (x->op != y->op || x->n_in != y->n_in || x->n_out != y->n_out ||
        memcmp(&s->strategies[a], &s->strategies[b], sizeof s->strategies[a]) != 0) {
        return false;
    }
    bool same = true;
    for (int32_t i = 0; i < x->n_out && same; i++) {
        same = same_tensor(c, x->out[i], y->out[i]);
    }
    for (int32_t i = 0; i < x->n_in && same; i++) {
        const bool made = g->tensors[x->in[i]].producer >= 0 || g->tensors[y->in[i]].producer >= 0;
        same = made || same_tensor(c, x->in[i], y->in[i]);
    }
    return same;
}

/* The fewest runs that part an instance from the one before it; 0 when `most` do not. */
static int32_t runs_that_part(int32_t instance, int32_t n_instances, int32_t most)
{
    for (int32_t runs = 2; runs <= most; runs++) {
        if (dtp_run_of(instance - 1, n_instances, runs) !=
            dtp_run_of(instance, n_instances, runs)) {
            return runs;
        }
    }
    return 0;
}

static dtp_status find_needed(const dtp_graph *g, const dtp_sharding *s, int32_t most,
                              dtp_arena *arena, int32_t *runs, dtp_err *err)
{
    dtp_block_places places;
    comparison c = {.g = g, .s = s};
    DTP_TRY(dtp_block_places_find(g, arena, &places, err));
    const size_t n = (size_t)g->n_nodes;
    dtp_keyed *list = dtp_arena_alloc(arena, 2 * n, sizeof *list);
    c.readers = dtp_arena_alloc(arena, PHASES * (size_t)g->n_tensors, sizeof *c.readers);
    DTP_TRY(DTP_MEMORY(err, list, c.readers));
    for (dtp_node_id id = 0; id < c.g->n_nodes; id++) {
        const dtp_node *node = &c.g->nodes[id];
        for (int32_t i = 0; i < node->n_in; i++) {
            c.readers[PHASES * node->in[i] + (int32_t)node->phase]++;
        }
    }
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        list[id] = (dtp_keyed){place_key(&g->nodes[id], places.position[id]), id};
    }
    dtp_sort_keyed(list, list + n, g->n_nodes);
    *runs = 1;
    for (int32_t i = 1; i<g->n_nodes && * runs> 0; i++) {
        const int32_t a = (int32_t)list[i - 1].item, b = (int32_t)list[i].item;
        const dtp_node *x = &g->nodes[a], *y = &g->nodes[b];
        if (list[i].key != list[i - 1].key || y->block < 0 || alike(&c, a, b)) {
            continue;
        }
        const int32_t later = x->instance > y->instance ? x->instance : y->instance;
        const int32_t parted = runs_that_part(later, places.n_instances[y->block], most);
        *runs = parted == 0 ? 0 : parted > *runs ? parted : *runs;
    }
    return DTP_OK;
}

dtp_status dtp_runs_needed(const dtp_graph *g, const dtp_sharding *s, int32_t most, int32_t *runs,
                           dtp_err *err)
{
    dtp_arena *arena = dtp_arena_create();
    DTP_TRY(DTP_MEMORY(err, arena));
    const dtp_status status = find_needed(g, s, most, arena, runs, err);
    dtp_arena_destroy(arena);
    return status;
}
