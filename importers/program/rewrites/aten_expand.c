/* Ops that are several others are written as nodes of those that the table has, before constants
 * are evaluated; ops that change a tensor in place become those that make another one. */
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

/* ---- in place ---- */

/* add_, mul_, ..: the result in the place of operand `x` of the file; later readers of the operand,
 * of what it is a view of and of other views mean the result. Where a graph of values cannot say it
 * the node stays, and is reported, whether its result is read or not. */
static bool begin_in_place(dtp_expansion *e, dtp_aten_node *node, int32_t x)
{
    const size_t n = strcspn(node->op, ".") + 1, len = strcspn(node->op + n, ".");
    if (!dtp_writes_in_place(node)) {
        return false;
    }
    char *op = dtp_arena_strdup(e->g->arena, node->op);
    e->status = DTP_MEMORY(e->err, op);
    if (op == NULL) {
        return false;
    }
    memmove(op + n + len - 1, op + n + len, strlen(op + n + len) + 1); /* without '_' */
    const dtp_aten_value *v = &e->g->values[x], *out = &e->g->values[node->outs[0]];
    const bool detach = dtp_aten_is(node, "detach_");
    if (!detach && (!dtp_writes_can(e, x) || v->dtype != out->dtype || v->rank != out->rank ||
                    memcmp(v->sizes, out->sizes, (size_t)v->rank * sizeof v->sizes[0]) != 0)) {
        node->effect = true;
        return false;
    }
    node->op = op;
    return !detach;
}

/* ---- all ---- */

static dtp_status expand_as(dtp_expansion *e, dtp_aten_node *node, bool complex)
{
    const int32_t n = e->n;
    e->of = node;
    e->first = e->g->n_values;
    const bool made = complex ? dtp_expand_complex(e)
                              : dtp_expand_experts(e) || dtp_expand_views(e) ||
                                    dtp_expand_formula(e) || dtp_expand_attention(e);
    if (made) {
        return e->status;
    }
    e->n = n; /* what was begun */
    e->g->n_values = e->first;
    DTP_TRY(e->status);
    DTP_TRY(DTP_ONE_MORE(e->g->arena, e->nodes, e->n, e->capacity, e->err));
    if (complex) { /* no op of the table is one of pairs */
        node->op = dtp_arena_printf(e->g->arena, "complex %s", node->op);
        DTP_TRY(DTP_MEMORY(e->err, node->op));
    }
    for (int32_t i = 0; i < node->n_outs; i++) {
        if (node->outs[i] >= 0) {
            e->g->values[node->outs[i]].node = e->n;
        }
    }
    e->nodes[e->n++] = *node;
    return DTP_OK;
}

static int32_t expand_again(dtp_expansion *e, const dtp_aten_node *of, const char *op,
                            int32_t n_args, const dtp_aten_arg *args, const dtp_aten_value *like)
{
    const int32_t first = dtp_expand_node(e, op, n_args, args, of->n_outs, like);
    if (first < 0) {
        return -1;
    }
    for (int32_t k = 0; k < of->n_outs; k++) {
        dtp_aten_value *to = &e->g->values[first + k];
        const dtp_aten_value *from = &e->g->values[of->outs[k]];
        memcpy(&to->sizes[3], &from->sizes[1], (size_t)(from->rank - 1) * sizeof to->sizes[0]);
        to->rank = from->rank + 2;
        to->dtype = from->dtype;
    }
    dtp_aten_node again = e->nodes[--e->n], *now = e->of;
    e->status = expand_as(e, &again, false);
    e->of = now; /* `again` ends here */
    return e->status == DTP_OK ? first : -1;
}

/* Views of the same tensor but those that were written, taken again. */
static dtp_status take_again(dtp_expansion *e, int32_t root, const bool *done)
{
    for (int32_t i = 0; i < e->now; i++) {
        const dtp_aten_node *node = &e->file[i];
        const int32_t first = node->n_outs > 0 ? node->outs[0] : -1;
        if (first < 0 || e->views[first].base < 0 || e->views[first].node != i ||
            dtp_writes_root(e, first) != root) {
            continue;
        }
        if (e->views[first].same) {
            e->is[first] = done[first] ? e->is[first] : e->is[e->views[first].base];
            continue;
        }
        const dtp_aten_value like = e->g->values[first];
        dtp_aten_arg *args;
        DTP_TRY(DTP_NEW(e->g->arena, args, node->n_args + 1, e->err));
        memcpy(args, node->args, (size_t)node->n_args * sizeof *args);
        args[0] = dtp_expand_tensor(e, args[0].name, e->is[e->views[first].base]);
        const int32_t out = dtp_expand_node(e, node->op, node->n_args, args, node->n_outs, &like);
        DTP_TRY(e->status);
        for (int32_t k = 0; k < node->n_outs; k++) {
            const int32_t was = node->outs[k];
            memcpy(e->g->values[out + k].sizes, e->g->values[was].sizes,
                   sizeof e->g->values[was].sizes);
            e->is[was] = done[was] ? e->is[was] : out + k;
        }
        dtp_aten_node again = e->nodes[--e->n], *of = e->of;
        const dtp_status s = expand_as(e, &again, e->pair[first] || e->pair[e->views[first].base]);
        e->of = of; /* `again` ends here */
        DTP_TRY(s);
    }
    return DTP_OK;
}

/* Later readers of value x of the file, of what it is a view of and of all views of that one see
 * output 0 of the node in the place of x. Where a view does not say where its elements lie, the
 * node stays, and is reported. */
static dtp_status put_in_place(dtp_expansion *e, int32_t x, const dtp_aten_node *node)
{
    bool *done;
    DTP_TRY(DTP_NEW(e->g->arena, done, e->n_file + 1, e->err));
    const int32_t all = dtp_writes_apply(e, x, node->outs[0], done);
    DTP_TRY(e->status);
    if (all >= 0) {
        return take_again(e, dtp_writes_root(e, x), done);
    }
    dtp_aten_node *last = &e->nodes[e->g->values[node->outs[0]].node];
    last->op = dtp_arena_printf(e->g->arena, "in place: %s", last->op);
    last->effect = true;
    return DTP_MEMORY(e->err, last->op);
}

static dtp_status expand_node(dtp_expansion *e, dtp_aten_node *node)
{
    const int32_t x = dtp_aten_input(node, 0);
    const bool writes = x >= 0 && begin_in_place(e, node, x);
    const bool complex = dtp_complex_reads(e, node);
    DTP_TRY(e->status);
    for (int32_t k = 0; k < node->n_args; k++) {
        dtp_aten_arg *a = &node->args[k];
        for (int32_t j = 0; j < dtp_aten_tensors(a); j++) {
            a->values[j] = a->values[j] < 0 ? -1 : e->is[a->values[j]];
        }
    }
    const int32_t from = dtp_aten_input(node, 0);
    if (dtp_aten_is(node, "detach") && from >= 0 && node->n_outs == 1 &&
        (!e->trains || !node->live || !dtp_aten_real_type(e->g->values[from].dtype) ||
         dtp_aten_is(dtp_expand_maker(e, from), "lift_fresh_copy") ||
         e->g->values[from].role == ATEN_BUFFER)) { /* no gradient flows through it */
        node->op = "aten.alias";
    }
    DTP_TRY(expand_as(e, node, complex));
    dtp_experts_follow(e, node);
    DTP_TRY(e->status);
    return writes ? put_in_place(e, x, node) : e->status;
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

static bool has_windows(const dtp_aten *g, const dtp_aten_node *node)
{
    const int32_t w = dtp_aten_operand(node, "weight");
    bool several = strstr(node->op, "pool") != NULL;
    for (int32_t i = 2; w >= 0 && i < g->values[w].rank && strstr(node->op, "conv") != NULL; i++) {
        several = several || g->values[w].sizes[i] > 1;
    }
    return several;
}

/* Marks the nodes behind windows. Windows side by side are dims of their own, but those of an axis
 * that was made of windows are not, or it would soon be too many dims. */
static dtp_status mark_windowed(dtp_aten *g, dtp_err *err)
{
    bool *by_windows; /* by value */
    DTP_TRY(DTP_NEW(g->arena, by_windows, g->n_values + 1, err));
    for (int32_t i = 0; i < g->n_nodes; i++) {
        dtp_aten_node *node = &g->nodes[i];
        for (int32_t k = 0; k < node->n_args; k++) {
            for (int32_t j = 0; j < dtp_aten_tensors(&node->args[k]); j++) {
                const int32_t v = node->args[k].values[j];
                node->windowed = node->windowed || (v >= 0 && by_windows[v]);
            }
        }
        for (int32_t k = 0; k < node->n_outs; k++) {
            const int32_t out = node->outs[k] < 0 ? g->n_values : node->outs[k];
            by_windows[out] = node->windowed || has_windows(g, node);
        }
    }
    return DTP_OK;
}

/* Buffers that are written take their last content after a step. Those of integers count steps:
 * what reads none of them loses nothing. */
static dtp_status find_updates(const dtp_expansion *e)
{
    for (int32_t v = 0; v < e->n_file; v++) {
        dtp_aten_value *buffer = &e->g->values[v];
        if (buffer->role != ATEN_BUFFER || e->is[v] == v) {
            continue;
        }
        if (dtp_aten_real_type(buffer->dtype)) {
            buffer->update = e->is[v];
        } else if (e->uses[v] > 0) {
            return DTP_FAIL(e->err, DTP_UNSUPPORTED,
                            "%s: the buffer '%s' is changed and read, and is no float", e->g->file,
                            buffer->source);
        }
    }
    return DTP_OK;
}

dtp_status dtp_aten_expand(dtp_aten *g, dtp_err *err)
{
    dtp_expansion e = {.g = g, .err = err, .again = expand_again};
    DTP_TRY(DTP_NEW(g->arena, e.is, g->n_values + 1, err));
    for (int32_t i = 0; i < g->n_values; i++) {
        e.is[i] = i;
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        const dtp_aten_value *v = &g->values[g->outputs[i]];
        e.trains = e.trains || (v->rank == 0 && dtp_aten_real_type(v->dtype));
    }
    DTP_TRY(mark_windowed(g, err));
    DTP_TRY(count_uses(&e));
    DTP_TRY(dtp_writes_begin(&e));
    DTP_TRY(dtp_complex_begin(&e));
    const int32_t n = g->n_nodes;
    e.file = g->nodes;
    for (int32_t i = 0; i < n; i++) {
        e.now = i;
        DTP_TRY(expand_node(&e, &g->nodes[i]));
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i] = e.is[g->outputs[i]];
    }
    DTP_TRY(find_updates(&e));
    g->nodes = e.nodes;
    g->n_nodes = e.n;
    dtp_aten_mark(g);
    return DTP_OK;
}
