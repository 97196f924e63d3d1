/* Layer tying: nodes at one position of the instances of a block decide together when they are of
 * one class and their instances in one group, and so do the tensors that they make, and the
 * parameters that they are the first to read. Without tying every node and tensor is a group of its
 * own. Any nodes may share decisions: costs and usage are added up over the members.
 *
 * The instances of a group (`runs`) are neighbours: the first group has half of the instances, the
 * next half of the rest, the last all that is left. What n runs can decide, n + 1 can too.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/transform/microbatch.h"
#include "planner/problem/tensors/tensor_internal.h"
#include "core/plan/sharding_microbatch.h"

/* Where a node or tensor stands in its template; equal places form a group. */
typedef struct place {
    int32_t a, b, c, d; /* d: its class or type, so that members are alike */
} place;

/* Numbers groups in the order of their first members; places and groups are by id. */
static dtp_status number_groups(const place *places, int32_t n, dtp_arena *arena, int32_t *group,
                                int32_t *n_groups, dtp_err *err)
{
    dtp_hash_table first_members = {0};
    *n_groups = 0;
    for (int32_t id = 0; id < n; id++) {
        const place *p = &places[id];
        const uint64_t ab = (uint64_t)(uint32_t)p->a << 32 | (uint32_t)p->b;
        const uint64_t cd = (uint64_t)(uint32_t)p->c << 32 | (uint32_t)p->d;
        const uint32_t hash = dtp_hash_fold(dtp_hash_word(dtp_hash_word(0, ab), cd));
        uint32_t at = hash;
        int32_t first;
        do {
            first = dtp_hash_table_next(&first_members, hash, &at);
        } while (first >= 0 && !(places[first].a == p->a && places[first].b == p->b &&
                                 places[first].c == p->c && places[first].d == p->d));
        group[id] = first >= 0 ? group[first] : (*n_groups)++;
        if (first < 0) {
            DTP_TRY(dtp_hash_table_add(&first_members, arena, hash, id, err));
        }
    }
    return DTP_OK;
}

/* ---- nodes ---- */

/* Where nodes stand in repeated blocks. */
typedef struct block_places {
    int32_t *position; /* by node: among those of its block, instance and phase, in graph order */
    int32_t *n_instances; /* by block */
} block_places;

static dtp_status find_places(const tensor_build *b, block_places *out, dtp_err *err)
{
    const dtp_graph *g = b->g;
    const size_t n = (size_t)g->n_nodes;
    dtp_keyed *list = dtp_arena_alloc(b->arena, 2 * n, sizeof *list);
    out->position = dtp_arena_alloc(b->arena, n, sizeof *out->position);
    out->n_instances = dtp_arena_alloc(b->arena, (size_t)g->n_blocks, sizeof *out->n_instances);
    DTP_TRY(DTP_MEMORY(err, list, out->position, out->n_instances));
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        const dtp_node *node = &g->nodes[id];
        list[id] = (dtp_keyed){(uint64_t)(uint32_t)(node->block + 1) << 34 |
                                   (uint64_t)node->phase << 32 | (uint32_t)node->instance,
                               id};
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

/* The run of an instance, 0 to runs - 1. */
static int32_t run_of(int32_t instance, int32_t n_instances, int32_t runs)
{
    int32_t run = 0;
    for (int32_t end = (n_instances + 1) / 2; run + 1 < runs && instance >= end; run++) {
        end += (n_instances - end + 1) / 2;
    }
    return run;
}

/* Block, run and phase, position, class. */
static place place_of_node(const tensor_build *b, const block_places *places, int32_t runs,
                           dtp_node_id n)
{
    const dtp_node *node = &b->g->nodes[n];
    if (runs == 0 || node->block < 0) {
        return (place){-1, -1, n, 0};
    }
    const int32_t run = run_of(node->instance, places->n_instances[node->block], runs);
    return (place){node->block, run * DTP_N_PHASES + (int32_t)node->phase, places->position[n],
                   b->classes.of_node[n]};
}

static dtp_status group_nodes(tensor_build *b, int32_t runs, dtp_err *err)
{
    const dtp_graph *g = b->g;
    const size_t n = (size_t)g->n_nodes;
    block_places in_blocks;
    place *places = dtp_arena_alloc(b->arena, n, sizeof *places);
    b->group_of_node = dtp_arena_alloc(b->arena, n, sizeof *b->group_of_node);
    b->node_groups = dtp_arena_alloc(b->arena, n, sizeof *b->node_groups);
    DTP_TRY(DTP_MEMORY(err, places, b->group_of_node, b->node_groups));
    DTP_TRY(find_places(b, &in_blocks, err));
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        places[id] = place_of_node(b, &in_blocks, runs, id);
    }
    DTP_TRY(number_groups(places, g->n_nodes, b->arena, b->group_of_node, &b->n_node_groups, err));
    for (dtp_node_id id = g->n_nodes - 1; id >= 0; id--) {
        node_group *group = &b->node_groups[b->group_of_node[id]];
        group->example = id;
        group->members++;
    }
    return DTP_OK;
}

int32_t dtp_tensor__count_readers(const tensor_build *b, dtp_tensor_id t, int phase)
{
    int32_t n = 0;
    for (int32_t r = b->readers.first[t]; r < b->readers.first[t + 1]; r++) {
        n += (int)b->g->nodes[b->readers.node[r]].phase == phase ? 1 : 0;
    }
    return n;
}

/* ---- tensors ---- */

static int32_t operand_of(const dtp_node *node, dtp_tensor_id t)
{
    int32_t i = 0;
    while (node->in[i] != t) {
        i++;
    }
    return i;
}

/* The first tensor of this type: a small number that stands for it. */
static int32_t type_number(const dtp_graph *g, int32_t *seen, int32_t *n_seen, dtp_tensor_id t)
{
    for (int32_t i = 0; i < *n_seen; i++) {
        if (dtp_ttype_equal(&g->tensors[seen[i]].type, &g->tensors[t].type)) {
            return i;
        }
    }
    seen[(*n_seen)++] = t;
    return *n_seen - 1;
}

static place place_of_tensor(const tensor_build *b, dtp_tensor_id t, int32_t type)
{
    const dtp_graph_tensor *tensor = &b->g->tensors[t];
    const int32_t kind = type * 8 + (int32_t)tensor->kind;
    if (tensor->producer >= 0) {
        return (place){0, b->group_of_node[tensor->producer], tensor->out_index, kind};
    }
    const bool read = b->readers.first[t] < b->readers.first[t + 1];
    if (read) {
        const dtp_node_id reader = b->readers.node[b->readers.first[t]];
        if (b->node_groups[b->group_of_node[reader]].members > 1) {
            return (place){1, b->group_of_node[reader], operand_of(&b->g->nodes[reader], t), kind};
        }
    }
    return (place){2, t, 0, kind};
}

static bool is_accumulator(const dtp_graph *g, const dtp_update *u)
{
    const dtp_node_id maker = g->tensors[u->value].producer;
    return maker >= 0 && dtp_is_accumulate(g, &g->nodes[maker]) &&
           g->nodes[maker].in[0] == u->target;
}

/* A state that one node reads and replaces: of an optimizer, or an accumulator. */
static bool follows_reader(const tensor_build *b, const dtp_update *u)
{
    const dtp_graph *g = b->g;
    const dtp_node_id maker = g->tensors[u->value].producer;
    if (is_accumulator(g, u)) {
        return true;
    }
    if (g->tensors[u->target].kind != DTP_TENSOR_STATE || maker < 0 ||
        b->readers.first[u->target + 1] - b->readers.first[u->target] != 1 ||
        b->readers.first[u->value + 1] != b->readers.first[u->value]) {
        return false;
    }
    const dtp_node *node = &g->nodes[maker];
    const int32_t i = node->op->inplace_in[g->tensors[u->value].out_index] - 1;
    return (node->op->flags & DTP_OP_UPDATE) != 0 && i >= 0 && i < node->n_in &&
           node->in[i] == u->target && b->readers.node[b->readers.first[u->target]] == maker;
}

/* Values of updates end where their targets are kept; a sum over microbatches, which is read in the
 * update, lies where it is added up, and its accumulator follows. *apart: members of one group have
 * targets in several, so that they cannot decide together. */
static dtp_status tie_updates(const tensor_build *b, bool *apart, dtp_err *err)
{
    const dtp_graph *g = b->g;
    bool *follows = dtp_arena_alloc(b->arena, (size_t)g->n_tensors, sizeof *follows);
    DTP_TRY(DTP_MEMORY(err, follows));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        b->target[t] = t;
    }
    for (int32_t i = 0; i < g->n_updates; i++) {
        const dtp_update *u = &g->updates[i];
        tensor_group *value = &b->tensor_groups[b->group_of_tensor[u->value]];
        if (g->tensors[u->value].kind != DTP_TENSOR_VALUE) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "'%s' is replaced by '%s', which no node makes",
                            g->tensors[u->target].name, g->tensors[u->value].name);
        }
        follows[u->target] = follows_reader(b, u);
        if (is_accumulator(g, u)) {
            continue;
        }
        b->target[u->value] = u->target;
        *apart = *apart || (value->same_as >= 0 && value->same_as != b->group_of_tensor[u->target]);
        value->same_as = b->group_of_tensor[u->target];
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        tensor_group *group = &b->tensor_groups[b->group_of_tensor[t]];
        group->follows = group->follows && follows[t];
    }
    return DTP_OK;
}

/* Made by a node and read by the next one alone, in one phase: where it is kept in between does not
 * matter to the price of bringing it from one to the other, nor to the peak of memory. */
static bool passes(const tensor_build *b, dtp_tensor_id t)
{
    const dtp_graph *g = b->g;
    const dtp_node_id maker = g->tensors[t].producer;
    return maker >= 0 && b->readers.first[t + 1] - b->readers.first[t] == 1 &&
           b->readers.node[b->readers.first[t]] == maker + 1 &&
           g->nodes[maker].phase == g->nodes[maker + 1].phase;
}

static dtp_status group_tensors(tensor_build *b, bool *apart, dtp_err *err)
{
    const dtp_graph *g = b->g;
    const size_t n = (size_t)g->n_tensors;
    place *places = dtp_arena_alloc(b->arena, n, sizeof *places);
    int32_t *seen = dtp_arena_alloc(b->arena, n, sizeof *seen), n_seen = 0;
    b->group_of_tensor = dtp_arena_alloc(b->arena, n, sizeof *b->group_of_tensor);
    b->tensor_groups = dtp_arena_alloc(b->arena, n, sizeof *b->tensor_groups);
    b->target = dtp_arena_alloc(b->arena, n, sizeof *b->target);
    DTP_TRY(DTP_MEMORY(err, places, seen, b->group_of_tensor, b->tensor_groups, b->target));
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        places[t] = place_of_tensor(b, t, type_number(g, seen, &n_seen, t));
    }
    DTP_TRY(number_groups(places, g->n_tensors, b->arena, b->group_of_tensor, &b->n_tensor_groups,
                          err));
    for (dtp_tensor_id t = g->n_tensors - 1; t >= 0; t--) {
        tensor_group *group = &b->tensor_groups[b->group_of_tensor[t]];
        group->example = t;
        group->members++;
        group->read = group->read || b->readers.first[t] < b->readers.first[t + 1];
        group->survives = group->survives || b->uses.survives[t];
        group->follows = g->tensors[t].kind == DTP_TENSOR_STATE;
        group->same_as = group->variable = -1;
        group->view[0] = group->view[1] = group->view[2] = -1;
    }
    return tie_updates(b, apart, err);
}

dtp_status dtp_tensor__groups(tensor_build *b, dtp_err *err)
{
    const dtp_graph *g = b->g;
    bool apart = false;
    DTP_TRY(dtp_readers_find(b->g, b->arena, &b->readers, err));
    DTP_TRY(dtp_uses_find(b->g, b->arena, &b->uses, err));
    DTP_TRY(group_nodes(b, 1, err));
    DTP_TRY(group_tensors(b, &apart, err));
    b->n_kinds = b->n_tensor_groups;
    b->kind_of_tensor = b->group_of_tensor;
    if (apart || b->p->options.runs != 1) {
        b->p->options.runs = apart ? 0 : b->p->options.runs;
        apart = false;
        DTP_TRY(group_nodes(b, b->p->options.runs, err));
        DTP_TRY(group_tensors(b, &apart, err));
    }
    if (apart) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "one value replaces two tensors");
    }
    /* All members do, between the same two groups of nodes, and no pin speaks of them. */
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        tensor_group *group = &b->tensor_groups[b->group_of_tensor[t]];
        const bool same = passes(b, t) && passes(b, group->example) &&
                          b->group_of_node[b->readers.node[b->readers.first[t]]] ==
                              b->group_of_node[b->readers.node[b->readers.first[group->example]]];
        group->passes = (t == group->example || group->passes) && same && !group->survives &&
                        group->same_as < 0;
    }
    for (int32_t i = 0; i < b->p->options.n_pins; i++) {
        const dtp_pin *pin = &b->p->options.pins[i];
        if (pin->tensor >= 0 && pin->tensor < g->n_tensors && pin->node < 0) {
            b->tensor_groups[b->group_of_tensor[pin->tensor]].passes = false;
        }
    }
    return DTP_OK;
}

/* ---- what a sharding needs ---- */

/* Only what two or more nodes of a phase read has a replica of its own. */
static bool same_tensor(const tensor_build *b, const dtp_sharding *s, dtp_tensor_id x,
                        dtp_tensor_id y)
{
    bool same = dtp_layout_equal(&s->layouts[x], &s->layouts[y]);
    for (int phase = 0; phase < DTP_N_PHASES && same && dtp_sharding_has_replicas(s); phase++) {
        same = dtp_tensor__count_readers(b, x, phase) < 2 ||
               dtp_tensor__count_readers(b, y, phase) < 2 ||
               dtp_layout_equal(&s->replicas[phase][x], &s->replicas[phase][y]);
    }
    return same;
}

/* Whether the members of every group are sharded as its example is. */
static bool groups_agree(const tensor_build *b, const dtp_sharding *s)
{
    bool agree = true;
    for (dtp_node_id id = 0; id < b->g->n_nodes && agree; id++) {
        const dtp_node_id example = b->node_groups[b->group_of_node[id]].example;
        agree = memcmp(&s->strategies[id], &s->strategies[example], sizeof *s->strategies) == 0;
    }
    for (dtp_tensor_id t = 0; t < b->g->n_tensors && agree; t++) {
        agree = same_tensor(b, s, t, b->tensor_groups[b->group_of_tensor[t]].example);
    }
    return agree;
}

static dtp_status find_needed(tensor_build *b, const dtp_sharding *s, int32_t most, int32_t *runs,
                              dtp_err *err)
{
    DTP_TRY(dtp_node_classes_find(b->g, b->arena, &b->classes, err));
    for (*runs = 1; *runs <= most; (*runs)++) {
        b->p->options.runs = *runs;
        DTP_TRY(dtp_tensor__groups(b, err));
        if (groups_agree(b, s)) {
            return DTP_OK;
        }
    }
    *runs = 0;
    return DTP_OK;
}

dtp_status dtp_runs_needed(const dtp_graph *g, const dtp_sharding *s, int32_t most, int32_t *runs,
                           dtp_err *err)
{
    dtp_tensor_problem p = {.graph = g};
    tensor_build b = {.p = &p, .g = g, .arena = dtp_arena_create()};
    DTP_TRY(DTP_MEMORY(err, b.arena));
    const dtp_status status = find_needed(&b, s, most, runs, err);
    dtp_arena_destroy(b.arena);
    return status;
}
