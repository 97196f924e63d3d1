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
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
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
} memory;

/* ---- bytes ---- */

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

/* ---- tensors and replicas ---- */

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
        DTP_TRY(add_piece(
            m, (piece){view, life.begin, life.end, replaces ? m->own[view] : m->copied[view]},
            err));
        if (!last && !stays && life.made < life.end) {
            DTP_TRY(add_piece(m, (piece){variable, begin, life.made, m->own[variable]}, err));
            begin = life.end > begin ? life.end : begin;
        }
        end = last ? life.made : end;
    }
    return add_piece(m, (piece){variable, begin, end, m->own[variable]}, err);
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
    const bool one_kernel = node->op->decompose == NULL && node->op->rotates == NULL;
    const int64_t inside = one_kernel || !fuses ? c->price[strategy].sure_bytes : 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        if ((dying >> i & 1U) != 0 && !seen_before(c, node, i, strategy)) {
            in += shard_bytes(b, &b->g->tensors[node->in[i]].type,
                              &c->in[i].items[c->in_of[i][strategy]]);
        }
    }
    for (int32_t o = 0; o < node->n_out; o++) {
        if (node->op->inplace_in[o] == 0 && (node->op->flags & DTP_OP_RELABEL) == 0) {
            out += shard_bytes(b, &b->g->tensors[node->out[o]].type,
                               &c->out[o].items[c->out_of[o][strategy]]);
        }
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
            sum += shard_bytes(b, &b->g->tensors[t].type, &c->in[i].items[c->in_of[i][strategy]]);
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
        usage[g].dying = UINT32_MAX;
    }
    for (dtp_node_id n = 0; n < b->g->n_nodes; n++) {
        op_usage *u = &usage[b->group_of_node[n]];
        u->dying &= m->lives.dying[n];
        u->merged = u->merged || m->lives.places.merged[n];
    }
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

static dtp_status add_ops(memory *m, dtp_err *err)
{
    const tensor_build *b = m->b;
    op_usage *usage;
    DTP_TRY(DTP_NEW(b->arena, usage, b->n_node_groups, err));
    DTP_TRY(find_usages(m, usage, err));
    for (dtp_node_id n = 0; n < b->g->n_nodes; n++) {
        const op_usage *u = &usage[b->group_of_node[n]];
        const int32_t variable = b->p->variable_of_node[n];
        const int64_t at = DTP_NODE_TICKS * (int64_t)n + 1;
        DTP_TRY(u->merged ? DTP_OK : add_piece(m, (piece){variable, at, at + 1, u->kernel}, err));
        DTP_TRY(u->any_state ? add_piece(m, (piece){variable, 0, m->lives.end, u->states}, err)
                             : DTP_OK);
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

dtp_status dtp_tensor__memory(tensor_build *b, dtp_err *err)
{
    const size_t n_variables = (size_t)b->p->n_variables;
    memory m = {.b = b};
    DTP_TRY(dtp_lifetimes_find(b->g, b->p->pricer->target, b->arena, &m.lives, err));
    DTP_TRY(dtp_forgotten_find(b->g, NULL, b->p->pricer->target, b->arena, &m.forgets, err));
    DTP_TRY(DTP_NEW(b->arena, m.own, n_variables, err));
    DTP_TRY(DTP_NEW(b->arena, m.copied, n_variables, err));
    for (int32_t c = 0; c < b->p->n_variables; c++) {
        const dtp_tensor_variable *variable = &b->p->variables[c];
        if (variable->tensor < 0) {
            continue;
        }
        const dtp_ttype *type = &b->g->tensors[variable->tensor].type;
        DTP_TRY(DTP_NEW(b->arena, m.own[c], variable->n_strategies, err));
        DTP_TRY(DTP_NEW(b->arena, m.copied[c], variable->n_strategies, err));
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
