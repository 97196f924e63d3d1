/* The cost matrix of an edge: redistributions between the layouts of two variables, each as
 * often as the step runs it. Edges whose matrices are equal by construction share one. */
#include "planner/problem/tensors/edge_costs.h"

#include <stdlib.h>

#include "core/transform/microbatch.h"
#include "planner/problem/tensors/redistribution_costs.h"
#include "core/plan/sharding_microbatch.h"

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

/* An operand or output of a node: its layouts, and which of them a strategy wants or leaves. */
typedef struct node_port {
    const node_group *group;
    const layout_list *layouts;
    const int32_t *of_option;
} node_port;

static node_port operand_of(const tensor_build *b, int32_t group, int32_t i)
{
    const class_strategies *c = dtp_tensor__class_of(b, group);
    return (node_port){&b->node_groups[group], &c->in[i], c->in_of[i]};
}

static node_port output_of(const tensor_build *b, int32_t group, int32_t i)
{
    const class_strategies *c = dtp_tensor__class_of(b, group);
    return (node_port){&b->node_groups[group], &c->out[i], c->out_of[i]};
}

/* Those that some strategy has. */
static void list_port(const node_port *port, const dtp_layout **out)
{
    for (int32_t k = 0; k < port->group->n_strategies; k++) {
        const int32_t i = port->of_option[port->group->option[k]];
        out[i] = &port->layouts->items[i];
    }
}

static void list_variable(const dtp_tensor_variable *variable, const dtp_layout **out)
{
    for (int32_t k = 0; k < variable->n_strategies; k++) {
        out[k] = &variable->strategies[k].layout;
    }
}

/* A sum over microbatches is formed in place: it stays where it is made. */
static bool stays_where_made(const tensor_build *b, const link *l)
{
    return l->kind == LINK_MADE &&
           dtp_is_accumulate(b->g, &b->g->nodes[b->node_groups[l->node].example]);
}

static void forbid_moves(const tensor_build *b, const link *l, const move_table *redistributions)
{
    if (!stays_where_made(b, l)) {
        return;
    }
    for (int32_t i = 0; i < redistributions->n_from; i++) {
        const dtp_layout *from = redistributions->layouts[i];
        for (int32_t k = 0; k < redistributions->n_to; k++) {
            if (from != NULL &&
                !dtp_layout_equal(from, redistributions->layouts[redistributions->n_from + k])) {
                redistributions->ps[(size_t)i * (size_t)redistributions->n_to + (size_t)k] =
                    DTP_FORBIDDEN;
            }
        }
    }
}

static dtp_status fill_made(tensor_build *b, const link *l, int64_t *m, dtp_err *err)
{
    const dtp_tensor_variable *tensor = &b->p->variables[l->b];
    const node_port from = output_of(b, l->node, (int32_t)l->operands);
    move_table redistributions;
    DTP_TRY(dtp_tensor__redistributions_create(from.layouts->n, tensor->n_strategies,
                                               &redistributions, err));
    list_port(&from, redistributions.layouts);
    list_variable(tensor, redistributions.layouts + redistributions.n_from);
    const dtp_status s =
        dtp_tensor__redistributions_price(b, &b->g->tensors[l->tensor].type, &redistributions, err);
    if (s == DTP_OK) {
        forbid_moves(b, l, &redistributions);
    }
    for (int32_t o = 0; o < from.group->n_strategies && s == DTP_OK; o++) {
        const int32_t row = from.of_option[from.group->option[o]];
        const int64_t *ps = redistributions.ps + (size_t)row * (size_t)redistributions.n_to;
        for (int32_t k = 0; k < redistributions.n_to; k++) {
            m[(size_t)o * (size_t)redistributions.n_to + (size_t)k] =
                dtp_tensor__times(b, ps[k], l->count);
        }
    }
    dtp_tensor__redistributions_free(&redistributions);
    return s;
}

/* An earlier operand of the mask wants the same layout: brought once. */
static bool wanted_before(const class_strategies *c, uint32_t operands, int32_t i, int32_t option)
{
    for (int32_t j = 0; j < i; j++) {
        if ((operands >> j & 1U) != 0 && dtp_layout_equal(&c->in[j].items[c->in_of[j][option]],
                                                          &c->in[i].items[c->in_of[i][option]])) {
            return true;
        }
    }
    return false;
}

/* Row by row of the matrix: what it costs to bring operand i from one layout. */
static void add_operand(tensor_build *b, const link *l, int32_t i, const int64_t *ps, int64_t *row)
{
    const node_port to = operand_of(b, l->node, i);
    const class_strategies *c = dtp_tensor__class_of(b, l->node);
    for (int32_t k = 0; k < to.group->n_strategies; k++) {
        const int32_t option = to.group->option[k];
        if (!wanted_before(c, l->operands, i, option)) {
            const int64_t all = dtp_tensor__times(b, ps[to.of_option[option]], l->count);
            row[k] = dtp_tensor__plus(b, row[k], all);
        }
    }
}

static dtp_status read_operand(tensor_build *b, const link *l, int32_t i, int64_t *m, dtp_err *err)
{
    const dtp_tensor_variable *tensor = &b->p->variables[l->a];
    const node_port to = operand_of(b, l->node, i);
    move_table redistributions;
    DTP_TRY(dtp_tensor__redistributions_create(tensor->n_strategies, to.layouts->n,
                                               &redistributions, err));
    list_variable(tensor, redistributions.layouts);
    list_port(&to, redistributions.layouts + redistributions.n_from);
    const dtp_status s =
        dtp_tensor__redistributions_price(b, &b->g->tensors[l->tensor].type, &redistributions, err);
    for (int32_t r = 0; r < redistributions.n_from && s == DTP_OK; r++) {
        add_operand(b, l, i, redistributions.ps + (size_t)r * (size_t)redistributions.n_to,
                    m + (size_t)r * (size_t)to.group->n_strategies);
    }
    dtp_tensor__redistributions_free(&redistributions);
    return s;
}

/* From every layout in which the maker leaves the tensor. */
static dtp_status pass_operand(tensor_build *b, const link *l, int32_t i, int64_t *m, dtp_err *err)
{
    const int32_t maker = b->group_of_node[b->g->tensors[l->tensor].producer];
    const node_port from = output_of(b, maker, l->output), to = operand_of(b, l->node, i);
    move_table redistributions;
    DTP_TRY(
        dtp_tensor__redistributions_create(from.layouts->n, to.layouts->n, &redistributions, err));
    list_port(&from, redistributions.layouts);
    list_port(&to, redistributions.layouts + redistributions.n_from);
    const dtp_status s =
        dtp_tensor__redistributions_price(b, &b->g->tensors[l->tensor].type, &redistributions, err);
    for (int32_t r = 0; r < from.group->n_strategies && s == DTP_OK; r++) {
        const int32_t row = from.of_option[from.group->option[r]];
        add_operand(b, l, i, redistributions.ps + (size_t)row * (size_t)redistributions.n_to,
                    m + (size_t)r * (size_t)to.group->n_strategies);
    }
    dtp_tensor__redistributions_free(&redistributions);
    return s;
}

static dtp_status fill_operands(tensor_build *b, const link *l, int64_t *m, dtp_err *err)
{
    for (int32_t i = 0; i < DTP_MAX_OP_IN; i++) {
        if ((l->operands >> i & 1U) != 0) {
            DTP_TRY(l->kind == LINK_READ ? read_operand(b, l, i, m, err)
                                         : pass_operand(b, l, i, m, err));
        }
    }
    return DTP_OK;
}

/* Replicas that are the tensor itself come first, in the tensor's order; a copy in the tensor's own
 * layout is no copy. */
static dtp_status fill_viewed(tensor_build *b, const link *l, int64_t *m, dtp_err *err)
{
    const dtp_tensor_variable *tensor = &b->p->variables[l->a], *view = &b->p->variables[l->b];
    move_table redistributions;
    DTP_TRY(dtp_tensor__redistributions_create(tensor->n_strategies, view->n_strategies,
                                               &redistributions, err));
    list_variable(tensor, redistributions.layouts);
    for (int32_t j = 0; j < view->n_strategies; j++) {
        redistributions.layouts[redistributions.n_from + j] =
            view->strategies[j].own ? NULL : &view->strategies[j].layout;
    }
    const dtp_status s =
        dtp_tensor__redistributions_price(b, &b->g->tensors[l->tensor].type, &redistributions, err);
    for (size_t x = 0;
         s == DTP_OK && x < (size_t)redistributions.n_from * (size_t)redistributions.n_to; x++) {
        const dtp_layout *from = &tensor->strategies[x / (size_t)redistributions.n_to].layout;
        const dtp_tensor_strategy *to = &view->strategies[x % (size_t)redistributions.n_to];
        const bool allowed = to->own == dtp_layout_equal(from, &to->layout);
        m[x] = allowed ? dtp_tensor__times(b, redistributions.ps[x], l->count) : DTP_FORBIDDEN;
    }
    dtp_tensor__redistributions_free(&redistributions);
    return s;
}

/* ---- shared matrices ---------------------------------------------------------------------------
 */

/* All that a matrix depends on. */
typedef struct matrix_key {
    link_kind kind;
    uint32_t operands;
    int32_t output;
    bool stays;
    int32_t node, maker; /* classes; -1: of no node */
    int64_t count;
    const dtp_tensor_strategy *from, *to;
    const dtp_ttype *type;
    int32_t edge;    /* the first that has it */
    int64_t dearest; /* its largest cost */
} matrix_key;

static bool same_key(const matrix_key *x, const matrix_key *y)
{
    return x->kind == y->kind && x->operands == y->operands && x->output == y->output &&
           x->stays == y->stays && x->node == y->node && x->maker == y->maker &&
           x->count == y->count && x->from == y->from && x->to == y->to &&
           dtp_tensor__same_sizes(x->type, y->type);
}

static dtp_status fill(tensor_build *b, const link *l, matrix_key *key, dtp_err *err)
{
    const size_t rows = (size_t)b->p->variables[l->a].n_strategies;
    const size_t cols = (size_t)b->p->variables[l->b].n_strategies;
    int64_t *m = calloc(rows * cols + 1, sizeof *m);
    dtp_status s = DTP_OK;
    DTP_TRY(DTP_MEMORY(err, m));
    switch (l->kind) {
    case LINK_MADE:
        s = fill_made(b, l, m, err);
        break;
    case LINK_VIEWED:
        s = fill_viewed(b, l, m, err);
        break;
    case LINK_PASSED:
    case LINK_READ:
    default:
        s = fill_operands(b, l, m, err);
        break;
    }
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
    return s;
}

dtp_status dtp_tensor__edge(tensor_build *b, const link *l, dtp_err *err)
{
    const dtp_graph_tensor *tensor = &b->g->tensors[l->tensor];
    matrix_key key = {.kind = l->kind,
                      .operands = l->operands,
                      .output = l->output,
                      .stays = stays_where_made(b, l),
                      .node =
                          l->node >= 0 ? b->classes.of_node[b->node_groups[l->node].example] : -1,
                      .maker = l->kind == LINK_PASSED ? b->classes.of_node[tensor->producer] : -1,
                      .count = l->count,
                      .from = b->p->variables[l->a].strategies,
                      .to = b->p->variables[l->b].strategies,
                      .type = &tensor->type};
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
