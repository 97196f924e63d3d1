/* The graph of layouts of one tensor, in which a redistribution is a shortest path: layouts as
 * words, the steps that leave a layout, and the queue of Dijkstra's algorithm.
 *
 * A step runs over one mesh dim or over a set of them at once ("flattened"). A set of several mesh
 * dims is one group of ranks ordered row-major, so it can take off (or put on) the innermost splits
 * of a tensor dim only when these are nested in ascending mesh order, and only when everything
 * divides evenly: nested chunks of an uneven length are not the chunks of the flattened group.
 * Uneven sizes go one mesh dim at a time.
 *
 *   all_reduce     partial dims of one op               -> replicated
 *   reduce_scatter partial dims of one op               -> innermost splits of an axis
 *   all_gather     innermost splits of an axis          -> replicated
 *   all_to_all     innermost splits of an axis          -> innermost splits of another
 *   slice          replicated dims                      -> innermost splits of an axis
 *   scale          partial(avg) dims                    -> partial(sum)
 *   keep_first     replicated dims                      -> partial
 *
 * Changing the order of shards needs no step of its own: it is made of gathers and all-to-alls.
 */
#ifndef DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_GRAPH_H
#define DTP_SPMD_REDISTRIBUTE_REDISTRIBUTE_GRAPH_H

#include "core/base/arena.h"
#include "spmd/redistribute/steps.h"

/* ---- layouts as words ---- */

/* A layout in one word, 8 bits per mesh dim (kind, tensor dim or reduction, order): equal layouts
 * of one tensor on one mesh have equal keys. */
static inline uint64_t dtp_layout__key(const dtp_layout *layout)
{
    uint64_t key = 0;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        uint64_t what = (uint64_t)p->axis | (uint64_t)p->op;
        key |= ((uint64_t)p->kind | what << 2 | (uint64_t)p->order << 5) << (8 * m);
    }
    return key;
}

/* The inverse, for a tensor of `rank` dims on n_mesh mesh dims. */
dtp_layout dtp_layout__of_key(uint64_t key, int32_t rank, int32_t n_mesh);

/* For tables of keys. */
static inline uint32_t dtp_layout__hash(uint64_t key)
{
    return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

/* One mesh dim of a key. */
static inline dtp_placement_kind dtp_layout__kind(uint64_t key, int32_t m)
{
    return (dtp_placement_kind)(key >> (8 * m) & 3U);
}

static inline uint32_t dtp_layout__axis_or_op(uint64_t key, int32_t m)
{
    return (uint32_t)(key >> (8 * m + 2)) & 7U;
}

/* The mesh dims of a kind. */
static inline dtp_mesh_set dtp_layout__dims_of_kind(uint64_t key, int32_t n_mesh,
                                                    dtp_placement_kind kind)
{
    dtp_mesh_set set = 0;
    for (int32_t m = 0; m < n_mesh; m++) {
        set |= dtp_layout__kind(key, m) == kind ? 1U << m : 0U;
    }
    return set;
}

/* Whether a step over these mesh dims leaves them as the target has them, or only makes them whole:
 * no detour over another tensor dim, and no reduction in two steps. Terms of a sum that becomes
 * whole over other mesh dims are added up before it is scattered, as gradients are over tensor
 * dims before FSDP has them. */
static inline bool dtp_layout__is_direct(dtp_step_kind kind, dtp_mesh_set set, uint64_t after,
                                         uint64_t target)
{
    bool direct = true;
    for (int32_t m = 0; m < DTP_MAX_MESH_DIMS; m++) {
        direct = direct &&
                 (kind != DTP_STEP_REDUCE_SCATTER || dtp_layout__kind(after, m) != DTP_PARTIAL ||
                  dtp_layout__kind(target, m) != DTP_REPLICATE);
        if ((set >> m & 1U) != 0 && kind != DTP_STEP_ALL_GATHER && kind != DTP_STEP_SCALE) {
            direct = direct && dtp_layout__kind(after, m) == dtp_layout__kind(target, m) &&
                     dtp_layout__axis_or_op(after, m) == dtp_layout__axis_or_op(target, m);
        }
    }
    return direct;
}

/* The mesh dims that split each tensor dim, outermost first. */
typedef struct dtp_stacks {
    int8_t depth[DTP_MAX_RANK];
    int8_t of[DTP_MAX_RANK][DTP_MAX_MESH_DIMS];
} dtp_stacks;

void dtp_stacks__read(uint64_t key, int32_t n_mesh, dtp_stacks *out);

/* ---- steps ---- */

typedef struct dtp_layout_graph {
    int32_t n_mesh, rank;
    int64_t sizes[DTP_MAX_RANK];              /* of tensor dims */
    int64_t set_size[1 << DTP_MAX_MESH_DIMS]; /* ranks of a set of mesh dims */
    dtp_mesh_set reduced;                     /* mesh dims whose partial values may be reduced, */
    dtp_mesh_set sliced;                      /* that may be sliced, */
    dtp_mesh_set kept[DTP_N_REDUCE_OPS];      /* that may become partial of an op: all at once, */
    bool keeps_some;                          /* ... or any of them */
    bool single;                              /* every step runs over one mesh dim */
    bool even;                                /* only layouts that split everything evenly */
} dtp_layout_graph;

/* Sets sizes and set_size; nothing is allowed yet. */
void dtp_layout_graph__init(dtp_layout_graph *g, const dtp_mesh *mesh, const dtp_ttype *type);

/* A step and the layout that it leads to. */
typedef struct dtp_layout_hop {
    uint64_t key;             /* of that layout */
    int8_t kind;              /* dtp_step_kind */
    int8_t axis, to_axis, op; /* as in dtp_step */
    dtp_mesh_set set;
} dtp_layout_hop;

/* Calls visit for every step that leaves the layout, `at`, until one returns a failure. */
typedef dtp_status (*dtp_layout_visit)(void *user, const dtp_layout *at, const dtp_layout_hop *hop);
dtp_status dtp_layout_graph__expand(const dtp_layout_graph *g, uint64_t key, dtp_layout_visit visit,
                                    void *user) DTP_MUST_CHECK;

/* The step of a hop that leads to the layout of this key. */
dtp_step dtp_layout_graph__step(const dtp_layout_graph *g, const dtp_layout_hop *hop, uint64_t key);

/* ---- queue ---- */

typedef struct dtp_queue_entry {
    double cost;
    int32_t layout;
} dtp_queue_entry;

/* A binary heap; least cost first, then the least layout. Zeroed it is empty. */
typedef struct dtp_layout_queue {
    int32_t n, capacity;
    dtp_queue_entry *entries;
} dtp_layout_queue;

dtp_status dtp_layout_queue__push(dtp_layout_queue *q, dtp_arena *arena, dtp_queue_entry entry,
                                  dtp_err *err) DTP_MUST_CHECK;
/* The queue is not empty. */
dtp_queue_entry dtp_layout_queue__pop(dtp_layout_queue *q);

#endif
