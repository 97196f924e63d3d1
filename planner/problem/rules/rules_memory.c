/* Buffers of the graph with their lives, and the usage of the sets.
 *
 * Memory at node i = parameters, states and inputs + results that are alive + what the node's own
 * lowering needs besides (staging, workspace, parts of a decomposition). A result written over a
 * dying operand of the same type counts once, as the lowering does it.
 */
#include <stdlib.h>

#include "planner/problem/rules/rules_internal.h"

/* ---- lives --------------------------------------------------------------------------------------
 */

typedef struct lives {
    int32_t *root;     /* by tensor: the tensor whose buffer it uses */
    int32_t *first;    /* by root */
    int32_t *last;     /* by root */
    int32_t *own_last; /* by tensor: last node that reads it */
} lives;

/* Operand whose buffer output i of a node takes, -1 for a buffer of its own. */
static dtp_tensor_id reused(const dtp_graph *g, const lives *l, dtp_node_id id, int32_t i)
{
    const dtp_node *n = &g->nodes[id];
    const int32_t j = n->op->inplace_in[i] - 1;
    if (j < 0 || j >= n->n_in ||
        !dtp_ttype_equal(&g->tensors[n->in[j]].type, &g->tensors[n->out[i]].type)) {
        return -1;
    }
    const dtp_tensor_id in = n->in[j];
    if ((n->op->flags & DTP_OP_UPDATE) != 0) {
        return in;
    }
    const bool dies = g->tensors[in].kind == DTP_TENSOR_VALUE && l->own_last[in] == id;
    for (int32_t k = 0; k < n->n_in; k++) {
        if (k != j && n->in[k] == in) {
            return -1;
        }
    }
    return dies ? in : -1;
}

static void share_buffers(const dtp_graph *g, lives *l)
{
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const bool value = g->tensors[t].kind == DTP_TENSOR_VALUE;
        l->root[t] = t;
        l->first[t] = value ? g->tensors[t].producer : 0;
        l->last[t] = l->own_last[t];
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_out; i++) {
            const dtp_tensor_id in = reused(g, l, n, i), out = g->nodes[n].out[i];
            if (in >= 0) {
                const int32_t root = l->root[in];
                l->root[out] = root;
                l->last[root] = l->last[out] > l->last[root] ? l->last[out] : l->last[root];
            }
        }
    }
}

/* By set and size, so that those that use the same follow each other. */
static int compare_buffers(const void *a, const void *b)
{
    const dtp_rules_buffer *x = a, *y = b;
    const int by_set = (x->set > y->set) - (x->set < y->set);
    const int by_size = (x->bytes > y->bytes) - (x->bytes < y->bytes);
    const int by_time = (x->first > y->first) - (x->first < y->first);
    return by_set != 0 ? by_set : by_size != 0 ? by_size : by_time;
}

dtp_status dtp_rules__buffers(dtp_rules_problem *p, int32_t *n, dtp_rules_buffer **out,
                              dtp_err *err)
{
    const dtp_graph *g = p->graph;
    lives l;
    const size_t n_tensors = (size_t)p->graph->n_tensors;
    DTP_TRY(DTP_NEW(p->arena, l.root, n_tensors, err));
    DTP_TRY(DTP_NEW(p->arena, l.first, n_tensors, err));
    DTP_TRY(DTP_NEW(p->arena, l.last, n_tensors, err));
    DTP_TRY(DTP_NEW(p->arena, l.own_last, n_tensors, err));
    dtp_rules_buffer *buffers = dtp_arena_alloc(p->arena, (size_t)g->n_tensors, sizeof *buffers);
    DTP_TRY(DTP_MEMORY(err, buffers));
    const int32_t end = g->n_nodes - 1;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        l.own_last[t] = g->tensors[t].producer;
    }
    for (dtp_node_id id = 0; id < g->n_nodes; id++) {
        for (int32_t i = 0; i < g->nodes[id].n_in; i++) {
            l.own_last[g->nodes[id].in[i]] = id;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        l.own_last[g->outputs[i]] = end;
    }
    if (g->loss >= 0) {
        l.own_last[g->loss] = end;
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].kind != DTP_TENSOR_VALUE) {
            l.own_last[t] = end;
        }
    }
    share_buffers(g, &l);
    *n = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (l.root[t] == t) {
            dtp_rules_buffer b = {.bytes = dtp_ttype_bytes(&g->tensors[t].type),
                                  .first = l.first[t],
                                  .last = l.last[t]};
            DTP_TRY(dtp_rules__tensor_set(p, t, &b.set, err));
            buffers[(*n)++] = b;
        }
    }
    qsort(buffers, (size_t)*n, sizeof *buffers, compare_buffers);
    *out = buffers;
    return DTP_OK;
}

/* ---- usage --------------------------------------------------------------------------------------
 */

dtp_status dtp_rules__usage(const dtp_rules_problem *p, int32_t n, const dtp_rules_buffer *buffers,
                            dtp_err *err)
{
    int64_t *usage = dtp_arena_alloc(p->arena, DTP_RULES_MAX_ASSIGN, sizeof *usage);
    DTP_TRY(DTP_MEMORY(err, usage));
    for (int32_t i = 0; i < n; i++) {
        const dtp_rules_buffer *b = &buffers[i];
        for (int32_t a = 0; a < p->sets[b->set].n_assign; a++) {
            /* Bytes per rank of a buffer under an assignment of its set. */
            enum { ALIGN = 64 };
            const dtp_rules_set *s = &p->sets[b->set];
            int64_t bytes = b->bytes;
            for (int32_t k = 0; k < s->n; k++) {
                bytes /= dtp_mesh_set_size(&p->pricer->mesh, s->assign[a * s->n + k]);
            }
            usage[a] = (bytes + ALIGN - 1) / ALIGN * ALIGN;
        }
        DTP_TRY(dtp_problem_add_interval(p->select, p->n_names + b->set, b->first, b->last + 1,
                                         usage, err));
    }
    for (int32_t k = 0; k < p->n_classes; k++) {
        const dtp_rules_class *c = &p->classes[k];
        for (dtp_node_id node = c->example; node < p->graph->n_nodes; node++) {
            if (p->class_of_node[node] == k) {
                DTP_TRY(dtp_problem_add_interval(p->select, p->n_names + c->set, node, node + 1,
                                                 c->temp_bytes, err));
            }
        }
    }
    return DTP_OK;
}
