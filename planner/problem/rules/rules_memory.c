/* Buffers of the graph with their lives, and the exact value of a assignment.
 *
 * Memory at node i = parameters, states and inputs + results that are alive + what the node's own
 * lowering needs besides (staging, workspace, parts of a decomposition). A result written over a
 * dying operand of the same type counts once, as the lowering does it.
 */
#include <stdlib.h>
#include <string.h>

#include "planner/problem/rules/rules_internal.h"

/* ---- lives --------------------------------------------------------------------------------------
 */

typedef struct lives {
    int32_t *root;     /* by tensor: the tensor whose buffer it uses */
    int32_t *first;    /* by root */
    int32_t *last;     /* by root */
    int32_t *own_last; /* by tensor: last node that reads it */
} lives;

static dtp_status allocate_lives(const dtp_rules_problem *p, lives *l, dtp_err *err)
{
    const size_t n = (size_t)p->graph->n_tensors;
    l->root = dtp_arena_alloc(p->arena, n, sizeof *l->root);
    l->first = dtp_arena_alloc(p->arena, n, sizeof *l->first);
    l->last = dtp_arena_alloc(p->arena, n, sizeof *l->last);
    l->own_last = dtp_arena_alloc(p->arena, n, sizeof *l->own_last);
    if (l->root == NULL || l->first == NULL || l->last == NULL || l->own_last == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for the lives of %zu tensors", n);
    }
    return DTP_OK;
}

static void find_last_reads(const dtp_graph *g, lives *l)
{
    const int32_t end = g->n_nodes - 1;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        l->own_last[t] = g->tensors[t].producer;
    }
    for (dtp_node_id n = 0; n < g->n_nodes; n++) {
        for (int32_t i = 0; i < g->nodes[n].n_in; i++) {
            l->own_last[g->nodes[n].in[i]] = n;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        l->own_last[g->outputs[i]] = end;
    }
    if (g->loss >= 0) {
        l->own_last[g->loss] = end;
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].kind != DTP_TENSOR_VALUE) {
            l->own_last[t] = end;
        }
    }
}

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

dtp_status dtp_rules__buffers(dtp_rules_problem *p, dtp_err *err)
{
    const dtp_graph *g = p->graph;
    lives l;
    DTP_TRY(allocate_lives(p, &l, err));
    p->buffers = dtp_arena_alloc(p->arena, (size_t)g->n_tensors, sizeof *p->buffers);
    if (p->buffers == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %d buffers", g->n_tensors);
    }
    find_last_reads(g, &l);
    share_buffers(g, &l);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (l.root[t] == t) {
            dtp_rules_buffer b = {.tensor = t, .first = l.first[t], .last = l.last[t]};
            DTP_TRY(dtp_rules__tensor_set(p, t, &b.set, err));
            p->buffers[p->n_buffers++] = b;
        }
    }
    return DTP_OK;
}

/* ---- value of a assignment
 * --------------------------------------------------------------------------
 */

int64_t dtp_rules_buffer_bytes(const dtp_rules_problem *p, const dtp_rules_buffer *b, int32_t a)
{
    enum { ALIGN = 64 };
    const dtp_rules_set *s = &p->sets[b->set];
    int64_t bytes = dtp_ttype_bytes(&p->graph->tensors[b->tensor].type);
    for (int32_t i = 0; i < s->n; i++) {
        bytes /= dtp_mesh_set_size(&p->pricer->mesh, s->assign[a * s->n + i]);
    }
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

int32_t dtp_rules_assignment(const dtp_rules_problem *p, int32_t s,
                             const dtp_rules_choice *assignment)
{
    const dtp_rules_set *set = &p->sets[s];
    uint8_t map[DTP_MAX_OP_DIMS];
    for (int32_t i = 0; i < set->n; i++) {
        map[i] = assignment->mesh_dims[p->name_of[set->dims[i]]];
    }
    for (int32_t a = 0; a < set->n_assign; a++) {
        if (set->n == 0 || memcmp(&set->assign[a * set->n], map, (size_t)set->n) == 0) {
            return a;
        }
    }
    return -1;
}

typedef struct evaluation {
    const dtp_rules_problem *p;
    int32_t *chosen; /* by set */
    int64_t *delta;  /* by node: bytes born there minus bytes that died before it */
} evaluation;

static bool choose(evaluation *e, const dtp_rules_choice *assignment)
{
    for (int32_t s = 0; s < e->p->n_sets; s++) {
        e->chosen[s] = dtp_rules_assignment(e->p, s, assignment);
        if (e->chosen[s] < 0 || e->p->sets[s].forbidden[e->chosen[s]]) {
            return false;
        }
    }
    return true;
}

static void add_up(evaluation *e, dtp_rules_value *v)
{
    const dtp_rules_problem *p = e->p;
    int64_t live = 0;
    for (int32_t b = 0; b < p->n_buffers; b++) {
        const dtp_rules_buffer *buffer = &p->buffers[b];
        const int64_t bytes = dtp_rules_buffer_bytes(p, buffer, e->chosen[buffer->set]);
        e->delta[buffer->first] += bytes;
        e->delta[buffer->last + 1] -= bytes;
    }
    for (dtp_node_id n = 0; n < p->graph->n_nodes; n++) {
        const dtp_rules_class *c = &p->classes[p->class_of_node[n]];
        live += e->delta[n];
        const int64_t bytes = live + c->temp_bytes[e->chosen[c->set]];
        if (bytes > v->peak_bytes) {
            v->peak_bytes = bytes;
            v->peak_node = n;
        }
        v->cost_ps += c->cost_ps[e->chosen[c->set]];
    }
}

dtp_status dtp_rules_evaluate(const dtp_rules_problem *p, const dtp_rules_choice *assignment,
                              dtp_rules_value *out, dtp_err *err)
{
    *out = (dtp_rules_value){.peak_node = -1};
    evaluation e = {.p = p,
                    .chosen = calloc((size_t)p->n_sets + 1, sizeof *e.chosen),
                    .delta = calloc((size_t)p->graph->n_nodes + 2, sizeof *e.delta)};
    const bool ok = e.chosen != NULL && e.delta != NULL;
    if (ok && choose(&e, assignment)) {
        out->legal = true;
        add_up(&e, out);
    }
    free(e.chosen);
    free(e.delta);
    return ok ? DTP_OK
              : DTP_FAIL(err, DTP_NOMEM, "out of memory for the value of a choice of %d sets",
                         p->n_sets);
}
