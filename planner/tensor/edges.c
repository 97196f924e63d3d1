/* Prices between choices. Every node and tensor of the graph is walked; what comes out is a list of
 * (kind, choice a, choice b, operands) in which equal entries are the instances of folded blocks,
 * so that a matrix is made once and multiplied by their number, and by the microbatches where the
 * node that moves the data runs for each of them.
 *
 *   made    op -> tensor: an output is brought to where it is kept
 *   viewed  tensor -> view: the copy of a phase is made
 *   read    tensor or view -> op: an operand is brought to where the op wants it
 *   passed  op -> op: a tensor that the next node alone reads
 */
#include <stdlib.h>
#include <string.h>

#include "core/microbatch.h"
#include "core/safe_int.h"
#include "core/sort.h"
#include "planner/tensor/tensor_internal.h"

typedef enum link_kind { LINK_MADE, LINK_VIEWED, LINK_READ, LINK_PASSED } link_kind;

/* One price between two choices. */
typedef struct link {
    link_kind kind;
    int32_t a, b;      /* choices, in the direction of the data */
    uint32_t operands; /* MADE: the output; READ, PASSED: bit i: operand i is the tensor */
    int32_t output;    /* PASSED: of node a */
    int32_t node;      /* MADE: group of the maker; READ, PASSED: of the reader */
    dtp_tensor_id tensor;
    dtp_node_id reader; /* READ, PASSED */
    int64_t count;      /* how often it runs in a step, over all instances */
} link;

typedef struct link_list {
    int32_t n, cap;
    link *items;
} link_list;

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

/* ---- the list ----------------------------------------------------------------------------------
 */

static dtp_status add_link(const tensor_build *b, link_list *list, link l, dtp_err *err)
{
    DTP_TRY(dtp_arena_grow(b->arena, &list->items, list->n, list->n + 1, &list->cap,
                           sizeof *list->items, err));
    list->items[list->n++] = l;
    return DTP_OK;
}

static uint32_t operands_of(const dtp_node *node, dtp_tensor_id t)
{
    uint32_t mask = 0;
    for (int32_t i = 0; i < node->n_in; i++) {
        mask |= node->in[i] == t ? 1U << i : 0U;
    }
    return mask;
}

/* How often a node runs in a step, and what moves data for it. */
static int64_t runs_of(const tensor_build *b, dtp_node_id id)
{
    return dtp_graph_runs(b->g, b->g->nodes[id].phase);
}

static link passed_link(const tensor_build *b, dtp_tensor_id t)
{
    const dtp_graph_tensor *tensor = &b->g->tensors[t];
    const dtp_node_id reader = b->reader[b->first_reader[t]];
    return (link){.kind = LINK_PASSED,
                  .a = b->p->choice_of_node[tensor->producer],
                  .b = b->p->choice_of_node[reader],
                  .operands = operands_of(&b->g->nodes[reader], t),
                  .output = tensor->out_index,
                  .node = b->group_of_node[reader],
                  .tensor = t,
                  .reader = reader,
                  .count = runs_of(b, reader)};
}

static dtp_status link_reads(const tensor_build *b, link_list *list, dtp_tensor_id t, dtp_err *err)
{
    const dtp_tensor_problem *p = b->p;
    bool seen[DTP_N_PHASES] = {false};
    for (int32_t r = b->first_reader[t]; r < b->first_reader[t + 1]; r++) {
        const dtp_node_id id = b->reader[r];
        const dtp_node *node = &b->g->nodes[id];
        const int32_t view = p->choice_of_view[node->phase][t];
        link l = {.kind = LINK_READ,
                  .a = view >= 0 ? view : p->choice_of_tensor[t],
                  .b = p->choice_of_node[id],
                  .operands = operands_of(node, t),
                  .node = b->group_of_node[id],
                  .tensor = t,
                  .reader = id,
                  .count = runs_of(b, id)};
        if (p->choice_of_tensor[t] < 0) {
            continue; /* a state: kept as it is read */
        }
        DTP_TRY(add_link(b, list, l, err));
        if (view >= 0 && !seen[node->phase]) {
            l = (link){.kind = LINK_VIEWED,
                       .a = p->choice_of_tensor[t],
                       .b = view,
                       .node = -1,
                       .tensor = t,
                       .reader = id,
                       .count = runs_of(b, id)};
            DTP_TRY(add_link(b, list, l, err));
        }
        seen[node->phase] = true;
    }
    return DTP_OK;
}

static uint64_t key_ends(const link *l)
{
    return (uint64_t)l->a << 32 | (uint64_t)l->b;
}

static uint64_t key_kind(const link *l)
{
    return (uint64_t)l->kind << 48 | (uint64_t)l->operands << 16 | (uint64_t)l->output;
}

/* By choices, kind, operands and output, in the order of the tensors, in which they were added. */
static dtp_status sort_links(const tensor_build *b, link_list *list, dtp_err *err)
{
    const size_t n = (size_t)list->n;
    dtp_keyed *order = dtp_arena_alloc(b->arena, 2 * n, sizeof *order);
    link *sorted = dtp_arena_alloc(b->arena, n, sizeof *sorted);
    if (order == NULL || sorted == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu edges", n);
    }
    for (int32_t i = 0; i < list->n; i++) {
        order[i] = (dtp_keyed){key_kind(&list->items[i]), i};
    }
    dtp_sort_keyed(order, order + n, list->n);
    for (int32_t i = 0; i < list->n; i++) {
        order[i].key = key_ends(&list->items[order[i].item]);
    }
    dtp_sort_keyed(order, order + n, list->n);
    for (int32_t i = 0; i < list->n; i++) {
        sorted[i] = list->items[order[i].item];
    }
    list->items = sorted;
    list->cap = list->n;
    return DTP_OK;
}

static bool same_link(const link *x, const link *y)
{
    return x->a == y->a && x->b == y->b && x->kind == y->kind && x->operands == y->operands &&
           x->output == y->output;
}

static dtp_unfolded_edge unfold(const tensor_build *b, const link *l, int32_t edge)
{
    const dtp_graph *g = b->g;
    const dtp_graph_tensor *tensor = &g->tensors[l->tensor];
    const int32_t kept = g->n_nodes + b->target[l->tensor];
    const dtp_phase phase = g->nodes[l->reader].phase;
    const int32_t view = g->n_nodes + g->n_tensors + DTP_N_PHASES * l->tensor + (int32_t)phase;
    const bool viewed = b->p->choice_of_view[phase][l->tensor] >= 0;
    switch (l->kind) {
    case LINK_MADE:
        return (dtp_unfolded_edge){edge, tensor->producer, kept};
    case LINK_VIEWED:
        return (dtp_unfolded_edge){edge, kept, view};
    case LINK_PASSED:
        return (dtp_unfolded_edge){edge, tensor->producer, l->reader};
    case LINK_READ:
    default:
        return (dtp_unfolded_edge){edge, viewed ? view : kept, l->reader};
    }
}

/* Equal links become one with their count; those between one choice and itself have no edge. */
static dtp_status merge_links(const tensor_build *b, link_list *list, dtp_err *err)
{
    dtp_tensor_problem *p = b->p;
    int32_t n = 0, edge = -1;
    DTP_TRY(sort_links(b, list, err));
    p->unfolded = dtp_arena_alloc(p->arena, (size_t)list->n, sizeof *p->unfolded);
    p->edge_count = dtp_arena_alloc(p->arena, (size_t)list->n, sizeof *p->edge_count);
    if (p->unfolded == NULL || p->edge_count == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d edges", list->n);
    }
    for (int32_t i = 0; i < list->n; i++) {
        const link l = list->items[i];
        const bool first = n == 0 || !same_link(&list->items[n - 1], &l);
        edge += first && l.a != l.b ? 1 : 0;
        if (l.a != l.b) {
            p->unfolded[p->n_unfolded++] = unfold(b, &l, edge);
            p->edge_count[edge]++;
        }
        if (first) {
            list->items[n++] = l;
        } else {
            list->items[n - 1].count += l.count;
        }
    }
    list->n = n;
    return DTP_OK;
}

static dtp_status find_links(const tensor_build *b, link_list *list, dtp_err *err)
{
    const dtp_tensor_problem *p = b->p;
    for (dtp_tensor_id t = 0; t < b->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &b->g->tensors[t];
        if (b->tensor_groups[b->group_of_tensor[t]].passes) {
            DTP_TRY(add_link(b, list, passed_link(b, t), err));
            continue;
        }
        if (tensor->producer >= 0 && p->choice_of_tensor[t] >= 0) {
            const link made = {.kind = LINK_MADE,
                               .a = p->choice_of_node[tensor->producer],
                               .b = p->choice_of_tensor[t],
                               .operands = (uint32_t)tensor->out_index,
                               .node = b->group_of_node[tensor->producer],
                               .tensor = t,
                               .count = runs_of(b, tensor->producer)};
            DTP_TRY(add_link(b, list, made, err));
        }
        DTP_TRY(link_reads(b, list, t, err));
    }
    return merge_links(b, list, err);
}

/* ---- matrices ----------------------------------------------------------------------------------
 */

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
    move_table prices = {0};
    dtp_status s =
        dtp_tensor__move_table(b, l->tensor, tensor, &c->out[l->operands], false, &prices, err);
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
    const class_options *c = dtp_tensor__class_of(b, l->node);
    for (int32_t i = 0; i < DTP_MAX_OP_IN; i++) {
        move_table prices = {0};
        if ((l->operands >> i & 1U) == 0) {
            continue;
        }
        dtp_status s = dtp_tensor__move_table(b, l->tensor, &b->p->choices[l->a], &c->in[i], true,
                                              &prices, err);
        if (s == DTP_OK) {
            add_operand(b, l, i, &prices, m);
        }
        free(prices.ps);
        DTP_TRY(s);
    }
    return DTP_OK;
}

/* Prices of operand i from every layout in which the maker leaves the tensor. */
static dtp_status add_passed(tensor_build *b, const link *l, int32_t i, int64_t *m, dtp_err *err)
{
    const dtp_node_id maker = b->g->tensors[l->tensor].producer;
    const node_group *from = &b->node_groups[b->group_of_node[maker]];
    const node_group *to = &b->node_groups[l->node];
    const class_options *a = dtp_tensor__class_of(b, b->group_of_node[maker]);
    const class_options *c = dtp_tensor__class_of(b, l->node);
    const layout_list *left = &a->out[l->output], *wanted = &c->in[i];
    int64_t *ps = malloc(((size_t)left->n * (size_t)wanted->n + 1) * sizeof *ps);
    dtp_status s = ps != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for prices");
    for (int32_t x = 0; x < left->n * wanted->n && s == DTP_OK; x++) {
        s = dtp_tensor__move(b, l->tensor, &left->items[x / wanted->n],
                             &wanted->items[x % wanted->n], &ps[x], err);
    }
    for (int32_t r = 0; r < from->n_options && s == DTP_OK; r++) {
        const int64_t *row = ps + (size_t)a->out_of[l->output][from->option[r]] * (size_t)wanted->n;
        for (int32_t k = 0; k < to->n_options; k++) {
            int64_t *at = &m[(size_t)r * (size_t)to->n_options + (size_t)k];
            if (!wanted_before(c, l->operands, i, to->option[k])) {
                *at = dtp_select_add_cost(
                    *at, dtp_tensor__times(row[c->in_of[i][to->option[k]]], l->count));
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

static dtp_status add_edge(tensor_build *b, const link *l, dtp_err *err)
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

dtp_status dtp_tensor__edges(tensor_build *b, dtp_err *err)
{
    link_list list = {0};
    DTP_TRY(find_links(b, &list, err));
    for (int32_t i = 0; i < list.n; i++) {
        DTP_TRY(add_edge(b, &list.items[i], err));
    }
    return DTP_OK;
}
