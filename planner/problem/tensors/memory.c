/* Usage over time, so that no program needs less than the problem says; what is there when is said
 * in planner/problem/lifetimes.h.
 *
 *   tensor  from when it is made until it is last read from where it is kept
 *   replica a copy: from its first reader's kernel until its last reader brings it to itself; in
 *           the last phase that reads the tensor, `own` is the tensor itself, which a copy
 *           replaces; in others, too, where later phases read copies of this one instead of the
 *           tensor: such a copy is not smaller than the tensor, which ends when nothing else reads
 *           it
 *   op      while its kernel runs: operands that die here as the op wants them, results as it
 *           leaves them, workspace and staging; and the states that only it reads, at all times
 *
 * Copies for one op do not count.
 *
 * With stages each chunk has a window of its own in time, in which its nodes and tensors count as
 * above, and the parameters and states of the other chunks of its stage. What one microbatch leaves
 * from the forward pass for the backward pass is in the stash, which has slots of equal size: it
 * counts once per slot.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/safe_int.h"
#include "core/base/sort.h"
#include "core/transform/stages.h"
#include "planner/problem/lifetimes.h"
#include "planner/problem/tensors/tensor_internal.h"
#include "spmd/lower/lower.h"

enum { ALIGN = 64 };

/* An interval of a variable's usage; many share one array. Bytes per rank. */
typedef struct piece {
    int32_t variable;
    int64_t begin, end;
    const int64_t *usage;
} piece;

typedef struct memory {
    tensor_build *b;
    dtp_lifetimes lives;
    int32_t n, cap;
    piece *pieces;
    int64_t **own;    /* by variable of a tensor or replica: bytes of every strategy */
    int64_t **copied; /* by variable of a replica: 0 for own */
    bool *forgets;    /* by tensor: no phase reads copies of earlier ones */
    /* Of the chunk whose pieces are made: */
    int32_t chunk;     /* -1: the graph has no stages */
    int64_t window;    /* its time 0 */
    int64_t back;      /* time of the first backward node */
    bool *varies;      /* by tensor: another one in every microbatch */
    int64_t **stashed; /* by 2 * variable, + 1: of a copy; in all slots; NULL: not made yet */
} memory;

/* ---- bytes ---- */

static int64_t shard_bytes(const tensor_build *b, dtp_tensor_id t, const dtp_layout *layout)
{
    const dtp_ttype type = dtp_target_type(b->p->pricer->target, b->g, t);
    dtp_ttype local;
    dtp_layout_local_max(layout, b->mesh, &type, &local);
    return (dtp_ttype_bytes(&local) + ALIGN - 1) / ALIGN * ALIGN;
}

static dtp_status add_piece(memory *m, piece x, dtp_err *err)
{
    if (x.begin >= x.end) {
        return DTP_OK;
    }
    x.begin += m->window;
    x.end += m->window;
    DTP_TRY(
        dtp_arena_grow(m->b->arena, &m->pieces, m->n, m->n + 1, &m->cap, sizeof *m->pieces, err));
    m->pieces[m->n++] = x;
    return DTP_OK;
}

/* ---- tensors and replicas ---- */

/* Bytes of a piece of a tensor: of all slots when it lies in the stash. */
static dtp_status in_slots(memory *m, dtp_tensor_id t, piece *x, dtp_err *err)
{
    const int32_t k = m->b->p->variables[x->variable].n_strategies;
    const bool copy = x->usage != m->own[x->variable];
    const bool crosses = m->chunk >= 0 && x->begin < m->back && x->end > m->back;
    if (!crosses || !m->varies[t]) {
        return DTP_OK;
    }
    int64_t **at = &m->stashed[2 * x->variable + (copy ? 1 : 0)];
    if (*at == NULL) {
        const int32_t slots = dtp_stage_slots(m->b->g, dtp_chunk_stage(m->b->g, m->chunk));
        DTP_TRY(DTP_NEW(m->b->arena, *at, k, err));
        for (int32_t i = 0; i < k; i++) {
            (*at)[i] = dtp_mul_i64(x->usage[i], slots, &(*at)[i]) ? (*at)[i] : x->usage[i];
        }
    }
    x->usage = *at;
    return DTP_OK;
}

static dtp_status add_tensor_piece(memory *m, dtp_tensor_id t, piece x, dtp_err *err)
{
    DTP_TRY(in_slots(m, t, &x, err));
    return add_piece(m, x, err);
}

static dtp_status add_tensor(memory *m, dtp_tensor_id t, dtp_err *err)
{
    const tensor_build *b = m->b;
    const int32_t variable = b->p->variable_of_tensor[t];
    const int final = dtp_lifetimes_last_phase(&m->lives, t);
    int64_t begin = m->lives.begin[t], end = m->lives.end_of[t];
    if (variable < 0 || b->tensor_groups[b->group_of_tensor[t]].same_as >= 0) {
        return DTP_OK;
    }
    for (int phase = 0; phase < DTP_N_PHASES; phase++) {
        const int32_t view = b->p->variable_of_replica[phase][t];
        const dtp_copy_life life = dtp_lifetimes_of_copy(&m->lives, t, phase);
        if (view < 0) {
            continue;
        }
        const bool last = phase == final, stays = final < 0 || m->forgets[t];
        const bool replaces = (last || !stays) && !m->lives.aliased[t];
        const piece copy = {view, life.begin, life.end, replaces ? m->own[view] : m->copied[view]};
        DTP_TRY(add_tensor_piece(m, t, copy, err));
        if (!last && !stays && life.made < life.end) {
            const piece before = {variable, begin, life.made, m->own[variable]};
            DTP_TRY(add_tensor_piece(m, t, before, err));
            begin = life.end > begin ? life.end : begin;
        }
        end = last && (m->chunk < 0 || life.made < end) ? life.made : end;
    }
    return add_tensor_piece(m, t, (piece){variable, begin, end, m->own[variable]}, err);
}

/* ---- ops ---- */

static bool seen_before(const class_strategies *c, const dtp_node *node, int32_t i,
                        int32_t strategy)
{
    for (int32_t j = 0; j < i; j++) {
        if (node->in[j] == node->in[i] &&
            dtp_layout_equal(&c->in[j].items[c->in_of[j][strategy]],
                             &c->in[i].items[c->in_of[i][strategy]])) {
            return true;
        }
    }
    return false;
}

/* Bytes while the kernel of a strategy runs. What runs as several instructions has its operands at
 * the beginning and its results at the end; what they leave between may be inside a fused kernel.
 */
static int64_t kernel_bytes(const tensor_build *b, int32_t group, int32_t strategy, uint32_t dying)
{
    const bool fuses = b->p->pricer->target->fuse != 0;
    const class_strategies *c = dtp_tensor__class_of(b, group);
    const dtp_node *node = &b->g->nodes[b->node_groups[group].example];
    int64_t in = 0, out = 0;
    const bool one_kernel = node->op->decompose == NULL;
    const int64_t inside = one_kernel || !fuses ? c->price[strategy].sure_bytes : 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        if ((dying >> i & 1U) != 0 && !seen_before(c, node, i, strategy)) {
            in += shard_bytes(b, node->in[i], &c->in[i].items[c->in_of[i][strategy]]);
        }
    }
    for (int32_t o = 0; o < node->n_out; o++) {
        if (node->op->inplace_in[o] == 0 && (node->op->flags & DTP_OP_RELABEL) == 0) {
            out += shard_bytes(b, node->out[o], &c->out[o].items[c->out_of[o][strategy]]);
        }
    }
    if (c->price[strategy].fills) { /* ranges are in the place of pieces that die */
        const int64_t run = out + c->price[strategy].kernel_bytes;
        return in > run ? in : run;
    }
    const int64_t most = in > out ? in : out;
    return one_kernel ? in + out + inside : most > inside ? most : inside;
}

/* Bytes of the states that follow the group's nodes, for one node. */
static int64_t state_bytes(const tensor_build *b, int32_t group, int32_t strategy)
{
    const class_strategies *c = dtp_tensor__class_of(b, group);
    const dtp_node *node = &b->g->nodes[b->node_groups[group].example];
    int64_t sum = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dtp_tensor_id t = node->in[i];
        if (b->tensor_groups[b->group_of_tensor[t]].follows && b->p->variable_of_tensor[t] < 0) {
            sum += shard_bytes(b, t, &c->in[i].items[c->in_of[i][strategy]]);
        }
    }
    return sum;
}

/* Usages of a group's strategies: while a kernel runs, and of the states of one node. */
typedef struct op_usage {
    int64_t *kernel, *states;
    bool any_state;
    uint32_t dying; /* bit i: operand i is dead after the node, in every node of the group */
    bool merged;    /* some node of the group may have no kernel of its own */
} op_usage;

static dtp_status find_usages(const memory *m, op_usage *usage, dtp_err *err)
{
    const tensor_build *b = m->b;
    for (int32_t g = 0; g < b->n_node_groups; g++) {
        op_usage *u = &usage[g];
        const node_group *node = &b->node_groups[g];
        DTP_TRY(DTP_NEW(b->arena, u->kernel, node->n_strategies, err));
        DTP_TRY(DTP_NEW(b->arena, u->states, node->n_strategies, err));
        for (int32_t k = 0; k < node->n_strategies; k++) {
            u->kernel[k] = u->merged ? 0 : kernel_bytes(b, g, node->strategy[k], u->dying);
            u->states[k] = state_bytes(b, g, node->strategy[k]);
            u->any_state = u->any_state || u->states[k] > 0;
        }
    }
    return DTP_OK;
}

static bool is_here(const memory *m, dtp_node_id n)
{
    return m->chunk < 0 || dtp_in_chunk(m->b->g->stages->on[n], m->chunk);
}

/* Of the nodes of a stage: which operands die, and what may be merged. */
static void add_deaths(const memory *m, op_usage *usage)
{
    for (dtp_node_id n = 0; n < m->b->g->n_nodes; n++) {
        op_usage *u = &usage[m->b->group_of_node[n]];
        u->dying &= is_here(m, n) ? m->lives.dying[n] : UINT32_MAX;
        u->merged = u->merged || m->lives.places.merged[n];
    }
}

static dtp_status add_ops(memory *m, const op_usage *usage, dtp_err *err)
{
    const tensor_build *b = m->b;
    for (dtp_node_id n = 0; n < b->g->n_nodes; n++) {
        const op_usage *u = &usage[b->group_of_node[n]];
        const int32_t variable = b->p->variable_of_node[n];
        const int64_t at = DTP_NODE_TICKS * (int64_t)n + 1;
        if (!is_here(m, n)) {
            continue;
        }
        DTP_TRY(u->merged ? DTP_OK : add_piece(m, (piece){variable, at, at + 1, u->kernel}, err));
        DTP_TRY(u->any_state ? add_piece(m, (piece){variable, 0, m->lives.end, u->states}, err)
                             : DTP_OK);
    }
    return DTP_OK;
}

/* In the window of another chunk of the stage: parameters and states. */
static dtp_status add_residents(memory *m, const op_usage *usage, dtp_err *err)
{
    const tensor_build *b = m->b;
    for (dtp_tensor_id t = 0; t < b->g->n_tensors; t++) {
        const dtp_tensor_kind kind = b->g->tensors[t].kind;
        const int32_t variable = b->p->variable_of_tensor[t];
        if ((kind != DTP_TENSOR_PARAM && kind != DTP_TENSOR_STATE) || variable < 0 ||
            b->tensor_groups[b->group_of_tensor[t]].same_as >= 0) {
            continue;
        }
        const piece x = {variable, m->lives.begin[t], m->lives.end_of[t], m->own[variable]};
        DTP_TRY(add_piece(m, x, err));
    }
    for (dtp_node_id n = 0; n < b->g->n_nodes; n++) {
        const op_usage *u = &usage[b->group_of_node[n]];
        const piece x = {b->p->variable_of_node[n], 0, m->lives.end, u->states};
        DTP_TRY(u->any_state && is_here(m, n) ? add_piece(m, x, err) : DTP_OK);
    }
    return DTP_OK;
}

/* ---- all ---- */

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
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for usages");
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

/* Which tensors another microbatch has others of. */
static dtp_status find_varying(memory *m, dtp_err *err)
{
    const dtp_graph *g = m->b->g;
    DTP_TRY(DTP_NEW(m->b->arena, m->varies, g->n_tensors, err));
    m->back = DTP_NODE_TICKS * (int64_t)g->n_nodes;
    for (dtp_tensor_id t = 0; t < g->n_tensors; t++) {
        m->varies[t] = g->tensors[t].kind == DTP_TENSOR_INPUT;
    }
    for (dtp_node_id n = g->n_nodes - 1; n >= 0; n--) {
        m->back = g->nodes[n].phase == DTP_BACKWARD ? DTP_NODE_TICKS * (int64_t)n : m->back;
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        const dtp_node *node = &g->nodes[n];
        bool varies = false;
        for (int32_t i = 0; i < node->n_in; i++) {
            varies = varies || m->varies[node->in[i]];
        }
        for (int32_t i = 0; i < node->n_out; i++) {
            m->varies[node->out[i]] = varies;
        }
    }
    return DTP_OK;
}

static dtp_status find_bytes(memory *m, dtp_err *err)
{
    const tensor_build *b = m->b;
    const size_t n_variables = (size_t)b->p->n_variables;
    DTP_TRY(DTP_NEW(b->arena, m->own, n_variables, err));
    DTP_TRY(DTP_NEW(b->arena, m->copied, n_variables, err));
    for (int32_t c = 0; c < b->p->n_variables; c++) {
        const dtp_tensor_variable *variable = &b->p->variables[c];
        if (variable->tensor < 0) {
            continue;
        }
        DTP_TRY(DTP_NEW(b->arena, m->own[c], variable->n_strategies, err));
        DTP_TRY(DTP_NEW(b->arena, m->copied[c], variable->n_strategies, err));
        for (int32_t k = 0; k < variable->n_strategies; k++) {
            m->own[c][k] = shard_bytes(b, variable->tensor, &variable->strategies[k].layout);
            m->copied[c][k] = variable->strategies[k].own ? 0 : m->own[c][k];
        }
    }
    return DTP_OK;
}

dtp_status dtp_tensor__memory(tensor_build *b, dtp_err *err)
{
    const int32_t n_stages = dtp_graph_stages(b->g), n_chunks = dtp_graph_chunks(b->g);
    memory m = {.b = b, .chunk = -1};
    dtp_lifetimes all;
    op_usage *usage;
    dtp_lifetimes *lives;
    DTP_TRY(dtp_lifetimes_find(b->g, b->p->pricer->target, b->arena, &all, err));
    DTP_TRY(dtp_forgotten_find(b->g, NULL, b->p->pricer->target, b->arena, &m.forgets, err));
    DTP_TRY(find_bytes(&m, err));
    DTP_TRY(find_varying(&m, err));
    DTP_TRY(DTP_NEW(b->arena, usage, b->n_node_groups, err));
    DTP_TRY(DTP_NEW(b->arena, lives, n_chunks, err));
    for (int32_t g = 0; g < b->n_node_groups; g++) {
        usage[g].dying = UINT32_MAX;
    }
    for (int32_t c = 0; c < n_chunks; c++) {
        m.chunk = b->g->stages != NULL ? c : -1;
        lives[c] = all;
        DTP_TRY(m.chunk >= 0 ? dtp_lifetimes_in_chunk(&all, c, b->arena, &lives[c], err) : DTP_OK);
        m.lives = lives[c];
        add_deaths(&m, usage);
    }
    DTP_TRY(find_usages(&m, usage, err));
    for (int32_t c = 0; c < n_chunks; c++) {
        m.chunk = b->g->stages != NULL ? c : -1;
        m.lives = lives[c];
        m.window = c * all.end;
        DTP_TRY(DTP_NEW(b->arena, m.stashed, 2 * (size_t)b->p->n_variables, err));
        for (dtp_tensor_id t = 0; t < b->g->n_tensors; t++) {
            DTP_TRY(add_tensor(&m, t, err));
        }
        DTP_TRY(add_ops(&m, usage, err));
        for (int32_t other = c % n_stages; other < n_chunks; other += n_stages) {
            m.window = other * all.end;
            DTP_TRY(other != c ? add_residents(&m, usage, err) : DTP_OK);
        }
    }
    return hand_over(&m, err);
}
