/* Ops that are several others are written as nodes of those that the table has, before constants
 * are evaluated; ops that change a tensor in place become those that make another one. */
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

/* ---- in place ---- */

/* Ops whose result may share the elements of their operand. */
static bool is_view(const dtp_aten_node *node)
{
    static const char *const names[] = {
        "view",    "slice",   "select", "transpose", "expand", "permute", "unsqueeze", "squeeze",
        "reshape", "flatten", "t",      "split",     "chunk",  "alias",   "detach",    NULL};
    bool is = false;
    for (int32_t i = 0; names[i] != NULL && !is; i++) {
        is = dtp_aten_is(node, names[i]);
    }
    return is;
}

/* add_, mul_, ..: the result in the operand's place; later readers of the operand mean the result.
 * A view of the operand, or what it is a view of, would change as well, which a graph of values
 * cannot say: such a node stays, and is reported, whether its result is read or not. */
static dtp_status in_place(dtp_expansion *e, dtp_aten_node *node)
{
    const size_t n = strcspn(node->op, ".") + 1, len = strcspn(node->op + n, ".");
    const int32_t x = dtp_aten_input(node, 0);
    if (len < 2 || node->op[n + len - 1] != '_' || node->op[n] == '_' || x < 0 ||
        node->n_outs != 1 || strncmp(node->op, "aten.", 5) != 0) {
        return DTP_OK;
    }
    const bool detach = dtp_aten_is(node, "detach_");
    const dtp_aten_value *v = &e->g->values[x], *out = &e->g->values[node->outs[0]];
    if (!detach && (v->role != ATEN_NODE || e->viewed[x] || is_view(dtp_expand_maker(e, x)) ||
                    v->dtype != out->dtype || v->rank != out->rank ||
                    memcmp(v->sizes, out->sizes, (size_t)v->rank * sizeof v->sizes[0]) != 0)) {
        node->effect = true;
        return DTP_OK;
    }
    char *op = dtp_arena_strdup(e->g->arena, node->op);
    DTP_TRY(DTP_MEMORY(e->err, op));
    memmove(op + n + len - 1, op + n + len, strlen(op + n + len) + 1);
    node->op = op;
    e->is[x] = detach ? e->is[x] : node->outs[0];
    return DTP_OK;
}

/* ---- all ---- */

/* A tensor that no gradient flows through: without a loss, of integers, or a constant. */
static bool is_detached(const dtp_expansion *e, const dtp_aten_node *node)
{
    const int32_t x = dtp_aten_input(node, 0);
    return dtp_aten_is(node, "detach") && x >= 0 && node->n_outs == 1 &&
           (!e->trains || !dtp_aten_real_type(e->g->values[x].dtype) ||
            dtp_aten_is(dtp_expand_maker(e, x), "lift_fresh_copy") ||
            e->g->values[x].role == ATEN_BUFFER);
}

static dtp_status expand_node(dtp_expansion *e, dtp_aten_node *node)
{
    for (int32_t k = 0; k < node->n_args; k++) {
        dtp_aten_arg *a = &node->args[k];
        for (int32_t j = 0; j < dtp_aten_tensors(a); j++) {
            a->values[j] = a->values[j] < 0 ? -1 : e->is[a->values[j]];
        }
    }
    DTP_TRY(in_place(e, node));
    if (is_view(node) && dtp_aten_input(node, 0) >= 0) {
        e->viewed[dtp_aten_input(node, 0)] = true;
    }
    if (is_detached(e, node)) {
        node->op = "aten.alias";
    }
    const int32_t n = e->n;
    e->of = node;
    e->first = e->g->n_values;
    if (!(dtp_expand_views(e) || dtp_expand_formula(e) || dtp_expand_attention(e))) {
        e->n = n; /* what was begun */
        e->g->n_values = e->first;
        DTP_TRY(e->status);
        DTP_TRY(DTP_ONE_MORE(e->g->arena, e->nodes, e->n, e->capacity, e->err));
        for (int32_t i = 0; i < node->n_outs; i++) {
            if (node->outs[i] >= 0) {
                e->g->values[node->outs[i]].node = e->n;
            }
        }
        e->nodes[e->n++] = *node;
    }
    return e->status;
}

static dtp_status count_uses(dtp_expansion *e)
{
    dtp_aten *g = e->g;
    DTP_TRY(DTP_NEW(g->arena, e->uses, g->n_values + 1, e->err));
    dtp_aten_mark(g);
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int32_t k = 0; k < g->nodes[i].n_args && g->nodes[i].live; k++) {
            const dtp_aten_arg *a = &g->nodes[i].args[k];
            for (int32_t j = 0; j < dtp_aten_tensors(a); j++) {
                e->uses[a->values[j] < 0 ? g->n_values : a->values[j]]++;
            }
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        e->uses[g->outputs[i]]++;
    }
    return DTP_OK;
}

dtp_status dtp_aten_expand(dtp_aten *g, dtp_err *err)
{
    dtp_expansion e = {.g = g, .err = err};
    DTP_TRY(DTP_NEW(g->arena, e.is, g->n_values + 1, err));
    DTP_TRY(DTP_NEW(g->arena, e.viewed, g->n_values + 1, err));
    for (int32_t i = 0; i < g->n_values; i++) {
        e.is[i] = i;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const dtp_aten_value *v = &g->values[g->outputs[i]];
        e.trains = e.trains || (v->rank == 0 && dtp_aten_real_type(v->dtype));
    }
    DTP_TRY(count_uses(&e));
    const int32_t n = g->n_nodes;
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(expand_node(&e, &g->nodes[i]));
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i] = e.is[g->outputs[i]];
    }
    g->nodes = e.nodes;
    g->n_nodes = e.n;
    dtp_aten_mark(g);
    return DTP_OK;
}
