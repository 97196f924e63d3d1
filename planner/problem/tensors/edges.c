/* Which variables have an edge between them. Every node and tensor of the graph gives links (kind,
 * variable a, variable b, operands). Equal links are the instances of tied blocks: their matrix is
 * made once and multiplied by their number, and by the number of microbatches where the node that
 * causes the redistribution runs for each of them.
 *
 *   made    op -> tensor: an output is brought to where it is kept
 *   viewed  tensor -> replica: the copy of a phase is made
 *   read    tensor or replica -> op: an operand is brought to where the op wants it
 *   passed  op -> op: a tensor that the next node alone reads
 */
#include <stdlib.h>

#include "core/transform/microbatch.h"
#include "core/base/sort.h"
#include "planner/problem/tensors/edge_costs.h"

typedef struct link_list {
    int32_t n, cap;
    link *items;
} link_list;

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

/* How often a node runs in a step, and the redistributions for it. */
static int64_t runs_of(const tensor_build *b, dtp_node_id id)
{
    return dtp_graph_runs(b->g, b->g->nodes[id].phase);
}

static dtp_status link_reads(const tensor_build *b, link_list *list, dtp_tensor_id t, dtp_err *err)
{
    const dtp_tensor_problem *p = b->p;
    bool seen[DTP_N_PHASES] = {false};
    for (int32_t r = b->readers.first[t]; r < b->readers.first[t + 1]; r++) {
        const dtp_node_id id = b->readers.node[r];
        const dtp_node *node = &b->g->nodes[id];
        const int32_t view = p->variable_of_replica[node->phase][t];
        link l = {.kind = LINK_READ,
                  .a = view >= 0 ? view : p->variable_of_tensor[t],
                  .b = p->variable_of_node[id],
                  .operands = operands_of(node, t),
                  .node = b->group_of_node[id],
                  .tensor = t,
                  .reader = id,
                  .count = runs_of(b, id)};
        if (p->variable_of_tensor[t] < 0) {
            continue; /* a state: kept as it is read */
        }
        DTP_TRY(add_link(b, list, l, err));
        if (view >= 0 && !seen[node->phase]) {
            l = (link){.kind = LINK_VIEWED,
                       .a = p->variable_of_tensor[t],
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

static bool same_link(const link *x, const link *y)
{
    return x->a == y->a && x->b == y->b && x->kind == y->kind && x->operands == y->operands &&
           x->output == y->output;
}

/* Equal links become one with their count; those between one variable and itself have no edge. */
static dtp_status merge_links(const tensor_build *b, link_list *list, dtp_err *err)
{
    dtp_tensor_problem *p = b->p;
    int32_t n = 0, edge = -1;
    /* By variables, kind, operands and output; equal ones in the order in which they were added. */
    const size_t size = (size_t)list->n;
    dtp_keyed *order = dtp_arena_alloc(b->arena, 2 * size, sizeof *order);
    link *sorted = dtp_arena_alloc(b->arena, size, sizeof *sorted);
    DTP_TRY(DTP_MEMORY(err, order, sorted));
    for (int32_t i = 0; i < list->n; i++) {
        const link *l = &list->items[i];
        order[i] = (dtp_keyed){
            (uint64_t)l->kind << 48 | (uint64_t)l->operands << 16 | (uint64_t)l->output, i};
    }
    dtp_sort_keyed(order, order + size, list->n);
    for (int32_t i = 0; i < list->n; i++) {
        const link *l = &list->items[order[i].item];
        order[i].key = (uint64_t)l->a << 32 | (uint64_t)l->b;
    }
    dtp_sort_keyed(order, order + size, list->n);
    for (int32_t i = 0; i < list->n; i++) {
        sorted[i] = list->items[order[i].item];
    }
    list->items = sorted;
    list->cap = list->n;
    DTP_TRY(DTP_NEW(p->arena, p->sent, list->n, err));
    DTP_TRY(DTP_NEW(p->arena, p->edge_runs, list->n, err));
    for (int32_t i = 0; i < list->n; i++) {
        const link l = list->items[i];
        const bool first = n == 0 || !same_link(&list->items[n - 1], &l);
        edge += first && l.a != l.b ? 1 : 0;
        if (l.a != l.b) {
            const dtp_node_id mover =
                l.kind == LINK_MADE ? b->g->tensors[l.tensor].producer : l.reader;
            p->sent[p->n_sent++] = (dtp_sent_tensor){edge, l.tensor, b->g->nodes[mover].phase};
            p->edge_runs[edge] += l.count;
            p->n_redistributions = edge + 1;
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

/* ---- ties of a form ---- */

/* The variable that decides on a layout; *group, *slot: of the nodes that read or make it, -1: the
 * variable keeps the tensor. Tensors without a variable are kept as their reader wants them. -1:
 * nothing reads it. */
static int32_t decider(const tensor_build *b, const dtp_layout_place *at, int32_t *group,
                       int32_t *slot)
{
    const dtp_tensor_problem *p = b->p;
    const dtp_tensor_id t = at->tensor;
    dtp_node_id node = at->node;
    *slot = at->slot;
    *group = -1;
    if (node < 0 && p->variable_of_tensor[t] >= 0) {
        return p->variable_of_tensor[t];
    }
    if (node < 0 && b->readers.first[t] == b->readers.first[t + 1]) {
        return -1;
    }
    if (node < 0) {
        node = b->readers.node[b->readers.first[t]];
        *slot = 0;
        while (b->g->nodes[node].in[*slot] != t) {
            (*slot)++;
        }
    }
    *group = b->group_of_node[node];
    return p->variable_of_node[node];
}

/* After the redistributions, whose edges are numbered from 0 on. */
static dtp_status add_ties(tensor_build *b, dtp_err *err)
{
    const dtp_form_space *space = b->p->options.space;
    link_list list = {0};
    for (int32_t i = 0; space != NULL && i < space->n_ties; i++) {
        const dtp_layout_tie *tie = &space->ties[i];
        link l = {.kind = LINK_TIED, .tensor = tie->a.tensor};
        int32_t slot;
        bool known = false;
        l.a = decider(b, &tie->a, &l.maker, &l.output);
        l.b = decider(b, &tie->b, &l.node, &slot);
        l.operands = (uint32_t)slot;
        for (int32_t k = 0; k < list.n && !known; k++) {
            known = same_link(&list.items[k], &l);
        }
        if (l.a >= 0 && l.b >= 0 && !known) {
            DTP_TRY(add_link(b, &list, l, err));
            DTP_TRY(dtp_tensor__edge(b, &l, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_tensor__edges(tensor_build *b, dtp_err *err)
{
    link_list list = {0};
    const dtp_tensor_problem *p = b->p;
    for (dtp_tensor_id t = 0; t < b->g->n_tensors; t++) {
        const dtp_graph_tensor *tensor = &b->g->tensors[t];
        if (b->tensor_groups[b->group_of_tensor[t]].passes) {
            const dtp_node_id reader = b->readers.node[b->readers.first[t]];
            DTP_TRY(add_link(b, &list,
                             (link){.kind = LINK_PASSED,
                                    .a = b->p->variable_of_node[tensor->producer],
                                    .b = b->p->variable_of_node[reader],
                                    .operands = operands_of(&b->g->nodes[reader], t),
                                    .output = tensor->out_index,
                                    .node = b->group_of_node[reader],
                                    .tensor = t,
                                    .reader = reader,
                                    .count = runs_of(b, reader)},
                             err));
            continue;
        }
        if (tensor->producer >= 0 && p->variable_of_tensor[t] >= 0) {
            const link made = {.kind = LINK_MADE,
                               .a = p->variable_of_node[tensor->producer],
                               .b = p->variable_of_tensor[t],
                               .output = tensor->out_index,
                               .node = b->group_of_node[tensor->producer],
                               .tensor = t,
                               .count = runs_of(b, tensor->producer)};
            DTP_TRY(add_link(b, &list, made, err));
        }
        DTP_TRY(link_reads(b, &list, t, err));
    }
    DTP_TRY(merge_links(b, &list, err));
    for (int32_t i = 0; i < list.n; i++) {
        DTP_TRY(dtp_stop_check(b->p->options.stop, err));
        DTP_TRY(dtp_tensor__edge(b, &list.items[i], err));
    }
    return add_ties(b, err);
}
