/* The matrix of prices of an edge: redistributions between the layouts of two choices, each as
 * often as the step runs it. */
#include "planner/tensor/edge_costs.h"

#include <stdlib.h>

#include "core/microbatch.h"
#include "core/safe_int.h"

int64_t dtp_tensor__times(int64_t ps, int64_t count)
{
    int64_t all;
    return ps >= DTP_SELECT_FORBIDDEN || !dtp_mul_i64(ps, count, &all) ||
                   all >= DTP_SELECT_FORBIDDEN
               ? DTP_SELECT_FORBIDDEN
               : all;
}

dtp_status dtp_tensor__move(tensor_build *b, dtp_tensor_id t, const dtp_layout *from,
                            const dtp_layout *to, int64_t *ps, dtp_err *err)
{
    DTP_TRY(dtp_move_price(b->moves, &b->g->tensors[t].type, from, to, ps, err));
    *ps = *ps < DTP_SELECT_FORBIDDEN ? *ps : DTP_SELECT_FORBIDDEN;
    return DTP_OK;
}

typedef struct move_table {
    int32_t rows, cols;
    int64_t *ps; /* row by row; malloc */
} move_table;

/* An operand or output of a node: its layouts, and which of them an option wants or leaves. */
typedef struct node_port {
    const node_group *group;
    const layout_list *layouts;
    const int32_t *of_option;
} node_port;

/* used[] by layout: some option of the node has it. */
static void find_used(const node_port *port, bool *used)
{
    for (int32_t k = 0; k < port->group->n_options; k++) {
        used[port->of_option[port->group->option[k]]] = true;
    }
}

static dtp_status price_used(tensor_build *b, dtp_tensor_id t, const dtp_choice *choice,
                             const node_port *port, const bool *used, bool to_port, move_table *out,
                             dtp_err *err)
{
    const int32_t rows = choice->n_options, cols = port->layouts->n;
    const int32_t targets = to_port ? cols : rows, sources = to_port ? rows : cols;
    for (int32_t i = 0; i < targets; i++) {
        for (int32_t j = 0; j < sources; j++) {
            const int32_t row = to_port ? j : i, col = to_port ? i : j;
            const dtp_layout *kept = &choice->options[row].layout,
                             *other = &port->layouts->items[col];
            if (used[col]) {
                DTP_TRY(dtp_tensor__move(b, t, to_port ? kept : other, to_port ? other : kept,
                                         &out->ps[(size_t)row * (size_t)cols + (size_t)col], err));
            }
        }
    }
    return DTP_OK;
}

/* Prices of moves of a tensor between the layouts of a choice (rows) and those of a port (columns),
 * to it or from it: all that lead to one layout together, since their prices are found together.
 * Columns that no option uses stay 0. out->ps is the caller's, also on failure. */
static dtp_status price_moves(tensor_build *b, dtp_tensor_id t, const dtp_choice *choice,
                              const node_port *port, bool to_port, move_table *out, dtp_err *err)
{
    const size_t rows = (size_t)choice->n_options, cols = (size_t)port->layouts->n;
    bool *used = calloc(cols + 1, sizeof *used);
    *out = (move_table){.rows = choice->n_options, .cols = port->layouts->n};
    out->ps = calloc(rows * cols + 1, sizeof *out->ps);
    if (out->ps == NULL || used == NULL) {
        free(used);
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for prices");
    }
    find_used(port, used);
    const dtp_status s = price_used(b, t, choice, port, used, to_port, out, err);
    free(used);
    return s;
}

/* A sum over microbatches is formed in place: it stays where it is made. */
static void forbid_moves(const tensor_build *b, const link *l, const move_table *prices)
{
    const node_group *group = &b->node_groups[l->node];
    const dtp_choice *tensor = &b->p->choices[l->b];
    const layout_list *outs = &dtp_tensor__class_of(b, l->node)->out[l->operands];
    if (!dtp_is_accumulate(b->g, &b->g->nodes[group->example])) {
        return;
    }
    for (int32_t k = 0; k < prices->rows; k++) {
        for (int32_t i = 0; i < prices->cols; i++) {
            if (!dtp_layout_equal(&tensor->options[k].layout, &outs->items[i])) {
                prices->ps[(size_t)k * (size_t)prices->cols + (size_t)i] = DTP_SELECT_FORBIDDEN;
            }
        }
    }
}

static dtp_status fill_made(tensor_build *b, const link *l, int64_t *m, dtp_err *err)
{
    const node_group *group = &b->node_groups[l->node];
    const class_options *c = dtp_tensor__class_of(b, l->node);
    const dtp_choice *tensor = &b->p->choices[l->b];
    const node_port from = {group, &c->out[l->operands], c->out_of[l->operands]};
    move_table prices = {0};
    dtp_status s = price_moves(b, l->tensor, tensor, &from, false, &prices, err);
    if (s == DTP_OK) {
        forbid_moves(b, l, &prices);
    }
    for (int32_t o = 0; o < group->n_options && s == DTP_OK; o++) {
        const int32_t col = c->out_of[l->operands][group->option[o]];
        for (int32_t k = 0; k < tensor->n_options; k++) {
            const int64_t ps = prices.ps[(size_t)k * (size_t)prices.cols + (size_t)col];
            m[(size_t)o * (size_t)tensor->n_options + (size_t)k] = dtp_tensor__times(ps, l->count);
        }
    }
    free(prices.ps);
    return s;
}

/* An earlier operand of the mask wants the same layout: brought once. */
static bool wanted_before(const class_options *c, uint32_t operands, int32_t i, int32_t option)
{
    for (int32_t j = 0; j < i; j++) {
        if ((operands >> j & 1U) != 0 && dtp_layout_equal(&c->in[j].items[c->in_of[j][option]],
                                                          &c->in[i].items[c->in_of[i][option]])) {
            return true;
        }
    }
    return false;
}

static void add_operand(const tensor_build *b, const link *l, int32_t i, const move_table *prices,
                        int64_t *m)
{
    const node_group *group = &b->node_groups[l->node];
    const class_options *c = dtp_tensor__class_of(b, l->node);
    for (int32_t k = 0; k < group->n_options; k++) {
        if (wanted_before(c, l->operands, i, group->option[k])) {
            continue;
        }
        const int32_t col = c->in_of[i][group->option[k]];
        for (int32_t r = 0; r < prices->rows; r++) {
            int64_t *to = &m[(size_t)r * (size_t)group->n_options + (size_t)k];
            const int64_t ps = prices->ps[(size_t)r * (size_t)prices->cols + (size_t)col];
            *to = dtp_select_add_cost(*to, dtp_tensor__times(ps, l->count));
        }
    }
}

static dtp_status fill_read(tensor_build *b, const link *l, int64_t *m, dtp_err *err)
{
    const node_group *group = &b->node_groups[l->node];
    const class_options *c = dtp_tensor__class_of(b, l->node);
    for (int32_t i = 0; i < DTP_MAX_OP_IN; i++) {
        move_table prices = {0};
        if ((l->operands >> i & 1U) == 0) {
            continue;
        }
        const node_port to = {group, &c->in[i], c->in_of[i]};
        dtp_status s = price_moves(b, l->tensor, &b->p->choices[l->a], &to, true, &prices, err);
        if (s == DTP_OK) {
            add_operand(b, l, i, &prices, m);
        }
        free(prices.ps);
        DTP_TRY(s);
    }
    return DTP_OK;
}

/* ps[row * columns + column]: of all that options of both ports use. */
static dtp_status price_passed(tensor_build *b, dtp_tensor_id t, const node_port *from,
                               const node_port *to, int64_t *ps, dtp_err *err)
{
    const int32_t rows = from->layouts->n, cols = to->layouts->n;
    bool *used = calloc((size_t)rows + (size_t)cols + 1, sizeof *used);
    if (used == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for prices");
    }
    dtp_status s = DTP_OK;
    find_used(from, used);
    find_used(to, used + rows);
    for (int32_t x = 0; x < rows * cols && s == DTP_OK; x++) {
        const int32_t row = x / cols, col = x % cols;
        if (used[row] && used[rows + col]) {
            s = dtp_tensor__move(b, t, &from->layouts->items[row], &to->layouts->items[col], &ps[x],
                                 err);
        }
    }
    free(used);
    return s;
}

/* Prices of operand i from every layout in which the maker leaves the tensor. */
static dtp_status add_passed(tensor_build *b, const link *l, int32_t i, int64_t *m, dtp_err *err)
{
    const int32_t maker = b->group_of_node[b->g->tensors[l->tensor].producer];
    const node_group *from = &b->node_groups[maker];
    const node_group *to = &b->node_groups[l->node];
    const class_options *a = dtp_tensor__class_of(b, maker);
    const class_options *c = dtp_tensor__class_of(b, l->node);
    const node_port left = {from, &a->out[l->output], a->out_of[l->output]};
    const node_port wanted = {to, &c->in[i], c->in_of[i]};
    const size_t cols = (size_t)wanted.layouts->n;
    int64_t *ps = calloc((size_t)left.layouts->n * cols + 1, sizeof *ps);
    if (ps == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for prices");
    }
    const dtp_status s = price_passed(b, l->tensor, &left, &wanted, ps, err);
    for (int32_t r = 0; r < from->n_options && s == DTP_OK; r++) {
        const int64_t *row = ps + (size_t)left.of_option[from->option[r]] * cols;
        for (int32_t k = 0; k < to->n_options; k++) {
            int64_t *at = &m[(size_t)r * (size_t)to->n_options + (size_t)k];
            if (!wanted_before(c, l->operands, i, to->option[k])) {
                *at = dtp_select_add_cost(
                    *at, dtp_tensor__times(row[wanted.of_option[to->option[k]]], l->count));
            }
        }
    }
    free(ps);
    return s;
}

static dtp_status fill_passed(tensor_build *b, const link *l, int64_t *m, dtp_err *err)
{
    for (int32_t i = 0; i < DTP_MAX_OP_IN; i++) {
        if ((l->operands >> i & 1U) != 0) {
            DTP_TRY(add_passed(b, l, i, m, err));
        }
    }
    return DTP_OK;
}

/* Views that are the tensor itself come first, in the tensor's order; a copy in the tensor's own
 * layout is no copy. */
static dtp_status fill_viewed(tensor_build *b, const link *l, int64_t *m, dtp_err *err)
{
    const dtp_choice *tensor = &b->p->choices[l->a], *view = &b->p->choices[l->b];
    for (int32_t i = 0; i < tensor->n_options; i++) {
        for (int32_t j = 0; j < view->n_options; j++) {
            int64_t *to = &m[(size_t)i * (size_t)view->n_options + (size_t)j];
            const dtp_layout *from = &tensor->options[i].layout;
            const bool same = dtp_layout_equal(from, &view->options[j].layout);
            *to = view->options[j].own && same ? 0 : DTP_SELECT_FORBIDDEN;
            if (!view->options[j].own && !same) {
                DTP_TRY(dtp_tensor__move(b, l->tensor, from, &view->options[j].layout, to, err));
                *to = dtp_tensor__times(*to, l->count);
            }
        }
    }
    return DTP_OK;
}

/* Instances of one node that follow each other decide alike: the diagonal is a cost of the node. */
static dtp_status hand_over(dtp_select_problem *p, const link *l, const int64_t *m, size_t rows,
                            dtp_err *err)
{
    if (l->a != l->b) {
        return dtp_select_add_edge(p, l->a, l->b, m, err);
    }
    for (size_t i = 0; i < rows; i++) {
        int64_t *cost = &p->cost[p->first[l->a] + (int64_t)i];
        *cost = dtp_select_add_cost(*cost, m[i * rows + i]);
    }
    return DTP_OK;
}

dtp_status dtp_tensor__edge(tensor_build *b, const link *l, dtp_err *err)
{
    const size_t rows = (size_t)b->p->choices[l->a].n_options;
    const size_t cols = (size_t)b->p->choices[l->b].n_options;
    int64_t *m = calloc(rows * cols + 1, sizeof *m);
    dtp_status s = DTP_OK;
    if (m == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a matrix of %zu x %zu", rows, cols);
    }
    switch (l->kind) {
    case LINK_MADE:
        s = fill_made(b, l, m, err);
        break;
    case LINK_VIEWED:
        s = fill_viewed(b, l, m, err);
        break;
    case LINK_PASSED:
        s = fill_passed(b, l, m, err);
        break;
    case LINK_READ:
    default:
        s = fill_read(b, l, m, err);
        break;
    }
    s = s == DTP_OK ? hand_over(b->p->select, l, m, rows, err) : s;
    free(m);
    return s;
}
