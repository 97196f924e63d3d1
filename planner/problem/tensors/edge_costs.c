/* The cost matrix of an edge: redistributions between the layouts of two variables, each as
 * often as the step runs it. Edges whose matrices are equal by construction share one; the others
 * ask for the same pairs of layouts again and again, two dozen times each on large meshes, so every
 * price is found once. */
#include "planner/problem/tensors/edge_costs.h"

#include <stdlib.h>

#include "core/transform/microbatch.h"
#include "core/plan/sharding_microbatch.h"

/* ---- prices ---- */

enum { UNKNOWN = -1 };

/* Costs from one layout, by the number of the layout that a redistribution leads to. */
typedef struct prices_from {
    int32_t n;
    int64_t *ps;
} prices_from;

/* Of tensors of one size. */
struct redistribution_costs {
    struct redistribution_costs *next;
    dtp_ttype type; /* names of dims do not matter */
    layout_set layouts;
    int32_t cap;
    prices_from *from; /* by the number of a layout */
};

/* Brings the costs of the type to the head of the list. */
static dtp_status find_prices(tensor_build *b, const dtp_ttype *type, dtp_err *err)
{
    redistribution_costs **at = &b->prices;
    while (*at != NULL && !dtp_ttype_same_sizes(&(*at)->type, type)) {
        at = &(*at)->next;
    }
    redistribution_costs *x = *at;
    if (x != NULL) {
        *at = x->next;
    } else {
        DTP_TRY(DTP_NEW(b->arena, x, 1, err));
        x->type = *type;
    }
    x->next = b->prices;
    b->prices = x;
    return DTP_OK;
}

/* The number of a layout among those of the type at the head of the list. */
static dtp_status number_layout(tensor_build *b, const dtp_layout *layout, int32_t *out,
                                dtp_err *err)
{
    redistribution_costs *x = b->prices;
    *out = dtp_tensor__find_layout(&x->layouts, layout);
    if (*out >= 0) {
        return DTP_OK;
    }
    *out = x->layouts.list.n;
    DTP_TRY(dtp_tensor__add_layout(b, &x->layouts, layout, err));
    return dtp_arena_grow(b->arena, &x->from, *out, *out + 1, &x->cap, sizeof *x->from, err);
}

/* Costs from a numbered layout, with room for those to all that have a number. */
static dtp_status prices_of(tensor_build *b, int32_t from, int64_t **out, dtp_err *err)
{
    const redistribution_costs *x = b->prices;
    prices_from *known = &x->from[from];
    int32_t cap = known->n;
    DTP_TRY(dtp_arena_grow(b->arena, &known->ps, known->n, x->layouts.list.n, &cap,
                           sizeof *known->ps, err));
    for (int32_t i = known->n; i < cap; i++) {
        known->ps[i] = UNKNOWN;
    }
    known->n = cap;
    *out = known->ps;
    return DTP_OK;
}

dtp_status dtp_tensor__redistribution(tensor_build *b, const dtp_ttype *type,
                                      const dtp_layout *from, const dtp_layout *to, int64_t *ps,
                                      dtp_err *err)
{
    DTP_TRY(dtp_redistribution_price(b->p->redistributions, type, from, to, ps, err));
    *ps = *ps < DTP_FORBIDDEN ? *ps : DTP_FORBIDDEN;
    return DTP_OK;
}

int64_t dtp_tensor__times(tensor_build *b, int64_t ps, int64_t count)
{
    int64_t all = 0;
    const bool forbidden = ps >= DTP_FORBIDDEN;
    const bool fits = !forbidden && dtp_cost_add(&all, ps, count);
    b->too_large = b->too_large || (!forbidden && !fits);
    return fits ? all : DTP_FORBIDDEN;
}

int64_t dtp_tensor__plus(tensor_build *b, int64_t x, int64_t y)
{
    const int64_t sum = dtp_problem_add_cost(x, y);
    b->too_large = b->too_large || (sum >= DTP_FORBIDDEN && x < DTP_FORBIDDEN && y < DTP_FORBIDDEN);
    return sum;
}

/* ---- matrices ---- */

enum { NOWHERE = -1 };

/* One end of a redistribution: the number of the layout of every strategy, or NOWHERE. */
typedef struct edge_end {
    int32_t n;
    int32_t *layout;
} edge_end;

/* The layouts in which a tensor or a replica is kept. */
static dtp_status end_at_variable(tensor_build *b, const dtp_tensor_variable *v, edge_end *out,
                                  dtp_err *err)
{
    out->n = v->n_strategies;
    for (int32_t k = 0; k < out->n; k++) {
        DTP_TRY(number_layout(b, &v->strategies[k].layout, &out->layout[k], err));
    }
    return DTP_OK;
}

/* The layouts in which the nodes of a group want an operand, or leave an output: of[strategy] is
 * the index into the list. */
static dtp_status end_at_node(tensor_build *b, const node_group *group, const layout_list *layouts,
                              const int32_t *of, edge_end *out, dtp_err *err)
{
    out->n = group->n_strategies;
    for (int32_t k = 0; k < out->n; k++) {
        DTP_TRY(number_layout(b, &layouts->items[of[group->strategy[k]]], &out->layout[k], err));
    }
    return DTP_OK;
}

/* A sum over microbatches is formed in place: it stays where it is made. */
static bool stays_where_made(const tensor_build *b, const link *l)
{
    return l->kind == LINK_MADE &&
           dtp_is_accumulate(b->g, &b->g->nodes[b->node_groups[l->node].example]);
}

/* An earlier operand of the mask wants the same layout: brought once. */
static bool wanted_before(const class_strategies *c, uint32_t operands, int32_t i, int32_t strategy)
{
    for (int32_t j = 0; j < i; j++) {
        if ((operands >> j & 1U) != 0 && dtp_layout_equal(&c->in[j].items[c->in_of[j][strategy]],
                                                          &c->in[i].items[c->in_of[i][strategy]])) {
            return true;
        }
    }
    return false;
}

/* Adds what it costs to bring the tensor from every layout of one end to every one of the other.
 * Replicas that are the tensor itself come first, in the tensor's order; a copy in the tensor's own
 * layout is no copy. */
static dtp_status add_prices(tensor_build *b, const link *l, const edge_end *from,
                             const edge_end *to, int64_t *m, dtp_err *err)
{
    const dtp_tensor_strategy *replicas =
        l->kind == LINK_VIEWED ? b->p->variables[l->b].strategies : NULL;
    const dtp_layout *layouts = b->prices->layouts.list.items;
    const bool stays = stays_where_made(b, l);
    for (int32_t r = 0; r < from->n; r++) {
        int64_t *row = m + (size_t)r * (size_t)to->n, *known = NULL;
        DTP_TRY(prices_of(b, from->layout[r], &known, err));
        for (int32_t k = 0; k < to->n; k++) {
            const int32_t at = to->layout[k];
            if (at == NOWHERE) {
                continue;
            }
            const bool same = at == from->layout[r];
            const bool allowed = replicas != NULL ? replicas[k].own == same : same || !stays;
            if (allowed && known[at] == UNKNOWN) {
                DTP_TRY(dtp_tensor__redistribution(b, &b->prices->type, &layouts[from->layout[r]],
                                                   &layouts[at], &known[at], err));
            }
            const int64_t ps = allowed ? known[at] : DTP_FORBIDDEN;
            row[k] = dtp_tensor__plus(b, row[k], dtp_tensor__times(b, ps, l->count));
        }
    }
    return DTP_OK;
}

/* From where the tensor is kept, or from where its maker leaves it. */
static dtp_status begin_of(tensor_build *b, const link *l, edge_end *out, dtp_err *err)
{
    if (l->kind == LINK_READ || l->kind == LINK_VIEWED) {
        return end_at_variable(b, &b->p->variables[l->a], out, err);
    }
    const dtp_graph_tensor *tensor = &b->g->tensors[l->tensor];
    const int32_t maker = b->group_of_node[tensor->producer];
    const class_strategies *c = dtp_tensor__class_of(b, maker);
    return end_at_node(b, &b->node_groups[maker], &c->out[tensor->out_index],
                       c->out_of[tensor->out_index], out, err);
}

/* To the operands of a reader, one after the other. */
static dtp_status add_operands(tensor_build *b, const link *l, const edge_end *from, edge_end *to,
                               int64_t *m, dtp_err *err)
{
    const node_group *group = &b->node_groups[l->node];
    const class_strategies *c = dtp_tensor__class_of(b, l->node);
    for (int32_t i = 0; i < DTP_MAX_OP_IN; i++) {
        if ((l->operands >> i & 1U) == 0) {
            continue;
        }
        DTP_TRY(end_at_node(b, group, &c->in[i], c->in_of[i], to, err));
        for (int32_t k = 0; k < to->n; k++) {
            const bool brought = wanted_before(c, l->operands, i, group->strategy[k]);
            to->layout[k] = brought ? NOWHERE : to->layout[k];
        }
        DTP_TRY(add_prices(b, l, from, to, m, err));
    }
    return DTP_OK;
}

/* One end of a tie: a variable keeps the tensor, or its nodes read or make it. */
static dtp_status tied_end(tensor_build *b, int32_t variable, int32_t group, int32_t slot,
                           edge_end *out, dtp_err *err)
{
    if (group < 0) {
        return end_at_variable(b, &b->p->variables[variable], out, err);
    }
    const class_strategies *c = dtp_tensor__class_of(b, group);
    const bool reads = slot < DTP_MAX_OP_IN;
    const int32_t i = reads ? slot : slot - DTP_MAX_OP_IN;
    return end_at_node(b, &b->node_groups[group], reads ? &c->in[i] : &c->out[i],
                       reads ? c->in_of[i] : c->out_of[i], out, err);
}

static dtp_status forbid_others(tensor_build *b, const link *l, edge_end *from, edge_end *to,
                                int64_t *m, dtp_err *err)
{
    DTP_TRY(tied_end(b, l->a, l->maker, l->output, from, err));
    DTP_TRY(tied_end(b, l->b, l->node, (int32_t)l->operands, to, err));
    for (int32_t r = 0; r < from->n; r++) {
        for (int32_t k = 0; k < to->n; k++) {
            const bool same = from->layout[r] == to->layout[k];
            m[(size_t)r * (size_t)to->n + (size_t)k] = same ? 0 : DTP_FORBIDDEN;
        }
    }
    return DTP_OK;
}

static dtp_status fill_matrix(tensor_build *b, const link *l, edge_end *from, edge_end *to,
                              int64_t *m, dtp_err *err)
{
    const dtp_ttype type = dtp_target_type(b->p->pricer->target, b->g, l->tensor);
    DTP_TRY(find_prices(b, &type, err));
    if (l->kind == LINK_TIED) {
        return forbid_others(b, l, from, to, m, err);
    }
    DTP_TRY(begin_of(b, l, from, err));
    if (l->kind == LINK_READ || l->kind == LINK_PASSED) {
        return add_operands(b, l, from, to, m, err);
    }
    DTP_TRY(end_at_variable(b, &b->p->variables[l->b], to, err));
    return add_prices(b, l, from, to, m, err);
}

/* ---- shared matrices ---- */

/* All that a matrix depends on. */
typedef struct matrix_key {
    link_kind kind;
    uint32_t operands;
    int32_t output;
    bool stays;
    int32_t node, maker; /* classes; -1: of no node */
    int64_t count;
    const dtp_tensor_strategy *from, *to;
    dtp_ttype type;
    int32_t edge;    /* the first that has it */
    int64_t dearest; /* its largest cost */
} matrix_key;

static bool same_key(const matrix_key *x, const matrix_key *y)
{
    return x->kind == y->kind && x->operands == y->operands && x->output == y->output &&
           x->stays == y->stays && x->node == y->node && x->maker == y->maker &&
           x->count == y->count && x->from == y->from && x->to == y->to &&
           dtp_ttype_same_sizes(&x->type, &y->type);
}

static int32_t maker_class(const tensor_build *b, const link *l)
{
    const bool tied = l->kind == LINK_TIED;
    const dtp_node_id maker = l->kind == LINK_PASSED  ? b->g->tensors[l->tensor].producer
                              : tied && l->maker >= 0 ? b->node_groups[l->maker].example
                                                      : -1;
    return maker >= 0 ? b->classes.of_node[maker] : -1;
}

static dtp_status fill(tensor_build *b, const link *l, matrix_key *key, dtp_err *err)
{
    const size_t rows = (size_t)b->p->variables[l->a].n_strategies;
    const size_t cols = (size_t)b->p->variables[l->b].n_strategies;
    int64_t *m = calloc(rows * cols + 1, sizeof *m);
    int32_t *layouts = calloc(rows + cols + 1, sizeof *layouts);
    edge_end from = {.layout = layouts}, to = {.layout = layouts != NULL ? layouts + rows : NULL};
    dtp_status s = DTP_MEMORY(err, m, layouts);
    s = s == DTP_OK ? fill_matrix(b, l, &from, &to, m, err) : s;
    if (s == DTP_OK && l->a == l->b) {
        /* Instances of one node that follow each other decide alike: the diagonal is its cost. */
        const dtp_problem *p = b->p->select;
        for (size_t i = 0; i < rows; i++) {
            int64_t *cost = &p->cost[p->first[l->a] + (int64_t)i];
            *cost = dtp_tensor__plus(b, *cost, m[i * rows + i]);
        }
    } else if (s == DTP_OK) {
        key->edge = b->p->select->n_edges;
        for (size_t k = 0; k < rows * cols; k++) {
            key->dearest = m[k] < DTP_FORBIDDEN && m[k] > key->dearest ? m[k] : key->dearest;
        }
        s = dtp_problem_add_edge(b->p->select, l->a, l->b, m, err);
    }
    free(m);
    free(layouts);
    return s;
}

dtp_status dtp_tensor__edge(tensor_build *b, const link *l, dtp_err *err)
{
    matrix_key key = {.kind = l->kind,
                      .operands = l->operands,
                      .output = l->output,
                      .stays = stays_where_made(b, l),
                      .node =
                          l->node >= 0 ? b->classes.of_node[b->node_groups[l->node].example] : -1,
                      .maker = maker_class(b, l),
                      .count = l->count,
                      .from = b->p->variables[l->a].strategies,
                      .to = b->p->variables[l->b].strategies,
                      .type = dtp_target_type(b->p->pricer->target, b->g, l->tensor)};
    uint64_t h = dtp_hash_word((uint64_t)key.kind << 32 | key.operands, (uint64_t)key.output);
    h = dtp_hash_word(h, (uint64_t)(uint32_t)key.node << 32 | (uint32_t)key.maker);
    h = dtp_hash_word(h, (uint64_t)(uintptr_t)key.from);
    const uint32_t hash = dtp_hash_fold(dtp_hash_word(h, (uint64_t)(uintptr_t)key.to));
    uint32_t at = hash;
    int32_t like;
    do {
        like = dtp_hash_table_next(&b->matrix_table, hash, &at);
    } while (like >= 0 && !same_key(&b->matrices[like], &key));
    if (like >= 0 && l->a != l->b) {
        key = b->matrices[like];
        DTP_TRY(dtp_problem_add_edge_like(b->p->select, l->a, l->b, key.edge, err));
    } else {
        DTP_TRY(fill(b, l, &key, err));
    }
    if (like < 0 && l->a != l->b) {
        DTP_TRY(dtp_arena_grow(b->arena, &b->matrices, b->n_matrices, b->n_matrices + 1,
                               &b->cap_matrices, sizeof *b->matrices, err));
        DTP_TRY(dtp_hash_table_add(&b->matrix_table, b->arena, hash, b->n_matrices, err));
        b->matrices[b->n_matrices++] = key;
    }
    b->too_large = !dtp_cost_add(&b->dearest, key.dearest, 1) || b->too_large;
    return DTP_OK;
}
