/* Usage over time, so that no program needs less than the problem says.
 *
 * Node n has three times: 3n, its operands are there as their tensors are kept (redistributions
 * begin); 3n + 1, its kernel runs; 3n + 2, its results are there as they are kept.
 *
 *   tensor  from 3 producer + 2 until it is last read from where it is kept
 *   replica a copy: from its first reader's kernel until its last reader brings it to itself; in
 *           the last phase that reads the tensor, `own` is the tensor itself, which a copy replaces
 *   op      while its kernel runs: operands that die here as the op wants them, results as it
 *           leaves them, workspace and staging; and the states that only it reads, at all times
 *
 * What may be written over something that dies does not count beside it, and neither do what only
 * renames a buffer (relabel) while that lives, sums over microbatches, which lie in accumulators,
 * copies for one op, and values that replace their targets.
 */
#include <stdlib.h>
#include <string.h>

#include "core/transform/microbatch.h"
#include "core/base/sort.h"
#include "planner/problem/tensors/tensor_internal.h"
#include "core/plan/sharding_microbatch.h"

enum { TICKS = DTP_NODE_TICKS, ALIGN = 64 };

/* An interval of a variable's usage; many share one array. Bytes per rank. */
typedef struct piece {
    int32_t variable;
    int64_t begin, end;
    const int64_t *usage;
} piece;

typedef struct memory {
    tensor_build *b;
    int64_t end; /* of all times */
    int32_t n, cap;
    piece *pieces;
    int64_t *hold;    /* by tensor: when what lies in its buffer is last read */
    bool *aliased;    /* by tensor: renames a buffer that lives on */
    bool *survives;   /* by tensor */
    int64_t **own;    /* by variable of a tensor or replica: bytes of every strategy */
    int64_t **copied; /* by variable of a replica: 0 for own */
} memory;

static dtp_status no_memory(dtp_err *err)
{
    return DTP_FAIL(err, DTP_NOMEM, "out of memory for usages");
}

/* ---- lives -------------------------------------------------------------------------------------
 */

static bool is_relabel(const dtp_node *node)
{
    return (node->op->flags & DTP_OP_RELABEL) != 0;
}

/* Its result lies in the buffer of operand 0. */
static bool stays_in_buffer(const dtp_graph *g, const dtp_node *node)
{
    return is_relabel(node) || dtp_is_accumulate(g, node);
}

static dtp_node_id last_reader(const tensor_build *b, dtp_tensor_id t)
{
    return b->first_reader[t] < b->first_reader[t + 1] ? b->reader[b->first_reader[t + 1] - 1] : -1;
}

static int64_t last_read(const memory *m, dtp_tensor_id t)
{
    const dtp_tensor_kind kind = m->b->g->tensors[t].kind;
    const dtp_node_id last = last_reader(m->b, t);
    if (m->survives[t] || kind == DTP_TENSOR_PARAM || kind == DTP_TENSOR_STATE) {
        return m->end;
    }
    return last >= 0 ? TICKS * (int64_t)last + 1 : 0;
}

/* ---- bytes -------------------------------------------------------------------------------------
 */

static int64_t shard_bytes(const tensor_build *b, const dtp_ttype *type, const dtp_layout *layout)
{
    dtp_ttype local;
    dtp_layout_local_max(layout, b->mesh, type, &local);
    return (dtp_ttype_bytes(&local) + ALIGN - 1) / ALIGN * ALIGN;
}

static dtp_status add_piece(memory *m, piece x, dtp_err *err)
{
    if (x.begin >= x.end) {
        return DTP_OK;
    }
    DTP_TRY(
        dtp_arena_grow(m->b->arena, &m->pieces, m->n, m->n + 1, &m->cap, sizeof *m->pieces, err));
    m->pieces[m->n++] = x;
    return DTP_OK;
}

/* ---- tensors and replicas
 * -------------------------------------------------------------------------
 */

/* Readers of one phase: the first and the last, -1 when there is none. */
static void readers_of(const tensor_build *b, dtp_tensor_id t, int phase, dtp_node_id *first,
                       dtp_node_id *last)
{
    *first = *last = -1;
    for (int32_t r = b->first_reader[t]; r < b->first_reader[t + 1]; r++) {
        if ((int)b->g->nodes[b->reader[r]].phase == phase) {
            *first = *first < 0 ? b->reader[r] : *first;
            *last = b->reader[r];
        }
    }
}

static dtp_status add_tensor(memory *m, dtp_tensor_id t, dtp_err *err)
{
    const tensor_build *b = m->b;
    const dtp_graph_tensor *tensor = &b->g->tensors[t];
    const int32_t variable = b->p->variable_of_tensor[t];
    const dtp_node_id last = last_reader(b, t);
    const bool stays = m->survives[t] || tensor->kind == DTP_TENSOR_PARAM;
    const int last_phase = stays || last < 0 ? -1 : (int)b->g->nodes[last].phase;
    int64_t begin = tensor->producer >= 0 ? TICKS * (int64_t)tensor->producer + 2 : 0;
    int64_t end = last_read(m, t);
    if (variable < 0 || b->tensor_groups[b->group_of_tensor[t]].same_as >= 0) {
        return DTP_OK;
    }
    for (int phase = 0; phase < DTP_N_PHASES; phase++) {
        const bool final = phase == last_phase;
        const int32_t view = b->p->variable_of_replica[phase][t];
        dtp_node_id from, until;
        readers_of(b, t, phase, &from, &until);
        if (view < 0 || from < 0) {
            continue;
        }
        const piece x = {view, TICKS * (int64_t)from + 1, TICKS * (int64_t)until + 1,
                         final && !m->aliased[t] ? m->own[view] : m->copied[view]};
        DTP_TRY(add_piece(m, x, err));
    }
    if (last_phase >= 0 && b->p->variable_of_replica[last_phase][t] >= 0) {
        dtp_node_id first, unused;
        readers_of(b, t, last_phase, &first, &unused);
        end = TICKS * (int64_t)first + 1;
    }
    if (tensor->producer >= 0 && stays_in_buffer(b->g, &b->g->nodes[tensor->producer])) {
        const int64_t shared = m->hold[b->g->nodes[tensor->producer].in[0]];
        begin = shared > begin ? shared : begin;
    }
    return add_piece(m, (piece){variable, begin, end, m->own[variable]}, err);
}

/* ---- ops ---------------------------------------------------------------------------------------
 */

/* Bit i: operand i is dead after the node, in every node of the group. */
static uint32_t dying_operands(const memory *m, dtp_node_id id)
{
    const dtp_graph *g = m->b->g;
    const dtp_node *node = &g->nodes[id];
    uint32_t mask = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        const bool dies = m->hold[t] == TICKS * (int64_t)id + 1 && !m->aliased[t] &&
                          g->tensors[t].kind != DTP_TENSOR_PARAM &&
                          g->tensors[t].kind != DTP_TENSOR_STATE;
        mask |= dies ? 1U << i : 0U;
    }
    return mask;
}

static bool seen_before(const class_strategies *c, const dtp_node *node, int32_t i, int32_t option)
{
    for (int32_t j = 0; j < i; j++) {
        if (node->in[j] == node->in[i] && dtp_layout_equal(&c->in[j].items[c->in_of[j][option]],
                                                           &c->in[i].items[c->in_of[i][option]])) {
            return true;
        }
    }
    return false;
}

/* Bytes while the kernel of a strategy runs. What runs as several instructions has its operands at
 * the beginning and its results at the end. */
static int64_t kernel_bytes(const tensor_build *b, int32_t group, int32_t option, uint32_t dying)
{
    const class_strategies *c = dtp_tensor__class_of(b, group);
    const dtp_node *node = &b->g->nodes[b->node_groups[group].example];
    int64_t in = 0, out = 0;
    const int64_t inside = c->price[option].sure_bytes;
    for (int32_t i = 0; i < node->n_in; i++) {
        if ((dying >> i & 1U) != 0 && !seen_before(c, node, i, option)) {
            in += shard_bytes(b, &b->g->tensors[node->in[i]].type,
                              &c->in[i].items[c->in_of[i][option]]);
        }
    }
    for (int32_t o = 0; o < node->n_out; o++) {
        if (node->op->inplace_in[o] == 0 && !is_relabel(node)) {
            out += shard_bytes(b, &b->g->tensors[node->out[o]].type,
                               &c->out[o].items[c->out_of[o][option]]);
        }
    }
    const bool one_kernel = node->op->decompose == NULL && node->op->rotates == NULL;
    const int64_t most = in > out ? in : out;
    return one_kernel ? in + out + inside : most > inside ? most : inside;
}

/* Bytes of the states that follow the group's nodes, for one node. */
static int64_t state_bytes(const tensor_build *b, int32_t group, int32_t option)
{
    const class_strategies *c = dtp_tensor__class_of(b, group);
    const dtp_node *node = &b->g->nodes[b->node_groups[group].example];
    int64_t sum = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        if (b->tensor_groups[b->group_of_tensor[t]].follows && b->p->variable_of_tensor[t] < 0) {
            sum += shard_bytes(b, &b->g->tensors[t].type, &c->in[i].items[c->in_of[i][option]]);
        }
    }
    return sum;
}

/* Usages of a group's strategies: while a kernel runs, and of the states of one node. */
typedef struct op_usage {
    int64_t *kernel, *states;
    bool any_state;
} op_usage;

static dtp_status add_ops(memory *m, dtp_err *err)
{
    const tensor_build *b = m->b;
    const size_t n_groups = (size_t)b->n_node_groups;
    uint32_t *dying = dtp_arena_alloc(b->arena, n_groups, sizeof *dying);
    op_usage *usage = dtp_arena_alloc(b->arena, n_groups, sizeof *usage);
    if (dying == NULL || usage == NULL) {
        return no_memory(err);
    }
    for (int32_t g = 0; g < b->n_node_groups; g++) {
        dying[g] = UINT32_MAX;
    }
    for (dtp_node_id n = 0; n < b->g->n_nodes; n++) {
        dying[b->group_of_node[n]] &= dying_operands(m, n);
    }
    for (int32_t g = 0; g < b->n_node_groups; g++) {
        op_usage *out = &usage[g];
        const node_group *node = &b->node_groups[g];
        out->kernel = dtp_arena_alloc(b->arena, (size_t)node->n_strategies, sizeof *out->kernel);
        out->states = dtp_arena_alloc(b->arena, (size_t)node->n_strategies, sizeof *out->states);
        if (out->kernel == NULL || out->states == NULL) {
            return no_memory(err);
        }
        for (int32_t k = 0; k < node->n_strategies; k++) {
            out->kernel[k] = kernel_bytes(b, g, node->option[k], dying[g]);
            out->states[k] = state_bytes(b, g, node->option[k]);
            out->any_state = out->any_state || out->states[k] > 0;
        }
    }
    for (dtp_node_id n = 0; n < b->g->n_nodes; n++) {
        const op_usage *u = &usage[b->group_of_node[n]];
        const int32_t variable = m->b->p->variable_of_node[n];
        const int64_t at = TICKS * (int64_t)n + 1;
        DTP_TRY(add_piece(m, (piece){variable, at, at + 1, u->kernel}, err));
        DTP_TRY(u->any_state ? add_piece(m, (piece){variable, 0, m->end, u->states}, err) : DTP_OK);
    }
    return DTP_OK;
}

/* ---- all ---------------------------------------------------------------------------------------
 */

/* Stably by one of its numbers. */
typedef uint64_t piece_key(const piece *x);

static uint64_t key_begin(const piece *x)
{
    return (uint64_t)x->begin;
}

/* By variable, then by length. */
static uint64_t key_variable(const piece *x)
{
    return (uint64_t)x->variable << 40 | (uint64_t)(x->end - x->begin);
}

/* The first piece becomes the node's own interval, the others further ones. */
static dtp_status hand_over(memory *m, dtp_err *err)
{
    dtp_problem *s = m->b->p->select;
    /* By variable, length, begin. */
    piece_key *const keys[] = {key_begin, key_variable};
    const size_t n = (size_t)m->n;
    dtp_keyed *list = dtp_arena_alloc(m->b->arena, 2 * n, sizeof *list);
    piece *sorted = dtp_arena_alloc(m->b->arena, n, sizeof *sorted);
    if (list == NULL || sorted == NULL) {
        return no_memory(err);
    }
    for (int32_t i = 0; i < m->n; i++) {
        list[i].item = i;
    }
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
        for (int32_t i = 0; i < m->n; i++) {
            list[i].key = keys[k](&m->pieces[list[i].item]);
        }
        dtp_sort_keyed(list, list + n, m->n);
    }
    for (int32_t i = 0; i < m->n; i++) {
        sorted[i] = m->pieces[list[i].item];
    }
    m->pieces = sorted;
    for (int32_t i = 0; i < m->n; i++) {
        const piece *x = &m->pieces[i];
        if (i > 0 && m->pieces[i - 1].variable == x->variable) {
            DTP_TRY(dtp_problem_add_interval(s, x->variable, x->begin, x->end, x->usage, err));
            continue;
        }
        s->begin[x->variable] = x->begin;
        s->end[x->variable] = x->end;
        memcpy(s->usage + s->first[x->variable], x->usage,
               (size_t)dtp_problem_n_strategies(s, x->variable) * sizeof *x->usage);
    }
    return DTP_OK;
}

dtp_status dtp_tensor__memory(tensor_build *b, dtp_err *err)
{
    const dtp_graph *g = b->g;
    const size_t n = (size_t)g->n_tensors, n_variables = (size_t)b->p->n_variables;
    memory m = {.b = b,
                .end = TICKS * (int64_t)b->g->n_nodes,
                .hold = dtp_arena_alloc(b->arena, n, sizeof *m.hold),
                .aliased = dtp_arena_alloc(b->arena, n, sizeof *m.aliased),
                .survives = dtp_arena_alloc(b->arena, n, sizeof *m.survives),
                .own = dtp_arena_alloc(b->arena, n_variables, sizeof *m.own),
                .copied = dtp_arena_alloc(b->arena, n_variables, sizeof *m.copied)};
    if (m.hold == NULL || m.aliased == NULL || m.survives == NULL || m.own == NULL ||
        m.copied == NULL) {
        return no_memory(err);
    }
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        m.survives[t] = dtp_tensor__survives(g, t);
        const dtp_node_id maker = g->tensors[t].producer;
        m.hold[t] = last_read(&m, t);
        if (maker >= 0 && stays_in_buffer(g, &g->nodes[maker])) {
            const dtp_tensor_id in = g->nodes[maker].in[0];
            m.aliased[t] = m.aliased[in] || m.hold[in] > TICKS * (int64_t)maker + 1;
            m.hold[t] = m.hold[in] > m.hold[t] ? m.hold[in] : m.hold[t];
        }
    }
    for (int32_t c = 0; c < b->p->n_variables; c++) {
        const dtp_tensor_variable *variable = &b->p->variables[c];
        if (variable->tensor < 0) {
            continue;
        }
        const dtp_ttype *type = &b->g->tensors[variable->tensor].type;
        m.own[c] = dtp_arena_alloc(b->arena, (size_t)variable->n_strategies, sizeof **m.own);
        m.copied[c] = dtp_arena_alloc(b->arena, (size_t)variable->n_strategies, sizeof **m.copied);
        if (m.own[c] == NULL || m.copied[c] == NULL) {
            return no_memory(err);
        }
        for (int32_t k = 0; k < variable->n_strategies; k++) {
            m.own[c][k] = shard_bytes(b, type, &variable->strategies[k].layout);
            m.copied[c][k] = variable->strategies[k].own ? 0 : m.own[c][k];
        }
    }
    for (dtp_tensor_id t = 0; t < b->g->n_tensors; t++) {
        DTP_TRY(add_tensor(&m, t, err));
    }
    DTP_TRY(add_ops(&m, err));
    return hand_over(&m, err);
}
