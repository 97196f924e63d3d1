/* Nodes and values that a rewrite puts in the place of others. */
#include <math.h>
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

int32_t dtp_expand_node(dtp_expansion *e, const char *op, int32_t n_args, const dtp_aten_arg *args,
                        int32_t n_outs, const dtp_aten_value *like)
{
    dtp_aten *g = e->g;
    const dtp_aten_value v = *like;
    const int32_t first = g->n_values;
    dtp_aten_node node = {.op = op, .path = e->of->path, .where = e->of->where};
    dtp_status s = e->status;
    s = s != DTP_OK ? s : DTP_ONE_MORE(g->arena, e->nodes, e->n, e->capacity, e->err);
    s = s != DTP_OK ? s
                    : dtp_arena_grow(g->arena, &g->values, g->n_values, g->n_values + n_outs,
                                     &g->values_capacity, sizeof *g->values, e->err);
    s = s != DTP_OK ? s : DTP_NEW(g->arena, node.args, n_args + 1, e->err);
    s = s != DTP_OK ? s : DTP_NEW(g->arena, node.outs, n_outs + 1, e->err);
    e->status = s;
    if (s != DTP_OK) {
        return -1;
    }
    for (; node.n_args < n_args; node.n_args++) {
        node.args[node.n_args] = args[node.n_args];
    }
    for (; node.n_outs < n_outs; node.n_outs++) {
        node.outs[node.n_outs] = g->n_values;
        g->values[g->n_values] = v;
        g->values[g->n_values].role = ATEN_NODE;
        g->values[g->n_values++].node = e->n;
    }
    e->nodes[e->n++] = node;
    return first;
}

bool dtp_expand_allows(dtp_expansion *e, const char *rule)
{
    const char *why = dtp_arg_refused(e->g, e->of, rule);
    e->of->refused = e->of->refused == NULL ? why : e->of->refused;
    return why == NULL;
}

static dtp_aten_arg argument(dtp_expansion *e, const char *name, dtp_aten_kind kind, int32_t n)
{
    dtp_aten_arg a = {.name = name, .kind = kind, .n = n};
    dtp_status s = e->status;
    s = s != DTP_OK ? s : DTP_NEW(e->g->arena, a.values, n + 1, e->err);
    e->status = s != DTP_OK ? s : DTP_NEW(e->g->arena, a.ints, n + 1, e->err);
    a.kind = e->status == DTP_OK ? kind : ATEN_NONE;
    return a;
}

dtp_aten_arg dtp_expand_tensor(dtp_expansion *e, const char *name, int32_t value)
{
    dtp_aten_arg a = argument(e, name, ATEN_VALUE, 1);
    if (a.kind == ATEN_VALUE) {
        a.values[0] = value;
    }
    return a;
}

dtp_aten_arg dtp_expand_number(dtp_expansion *e, const char *name, double x)
{
    dtp_aten_arg a = argument(e, name, x == floor(x) && fabs(x) < 1e15 ? ATEN_INT : ATEN_FLOAT, 1);
    a.real = x;
    if (a.kind == ATEN_INT) {
        a.ints[0] = (int64_t)x;
    }
    return a;
}

dtp_aten_arg dtp_expand_ints(dtp_expansion *e, const char *name, int32_t n, const int64_t *ints)
{
    dtp_aten_arg a = argument(e, name, ATEN_INTS, n);
    for (int32_t i = 0; a.kind == ATEN_INTS && i < n; i++) {
        a.ints[i] = ints[i];
    }
    return a;
}

dtp_aten_arg dtp_expand_list(dtp_expansion *e, const char *name, int32_t n, const int32_t *values)
{
    dtp_aten_arg a = argument(e, name, ATEN_VALUES, n);
    for (int32_t i = 0; a.kind == ATEN_VALUES && i < n; i++) {
        a.values[i] = values[i];
    }
    return a;
}

int32_t dtp_expand_one(dtp_expansion *e, const char *op, int32_t x, const dtp_aten_value *like)
{
    const dtp_aten_arg self = dtp_expand_tensor(e, "self", x);
    return x < 0 ? -1 : dtp_expand_node(e, op, 1, &self, 1, like);
}

const dtp_aten_node *dtp_expand_maker(const dtp_expansion *e, int32_t value)
{
    return value < 0 || e->g->values[value].node < 0 ? NULL : &e->nodes[e->g->values[value].node];
}

void dtp_expand_out(dtp_expansion *e, int32_t k, int32_t value)
{
    const int32_t out = e->of->outs[k];
    if (e->status != DTP_OK || out < 0) {
        return;
    }
    if (value < e->first) { /* no node of its own */
        const dtp_aten_value like = e->g->values[out];
        value = dtp_expand_one(e, "aten.alias", value, &like);
    }
    if (value >= 0) {
        const int32_t node = e->g->values[value].node;
        for (int32_t i = 0; i < e->nodes[node].n_outs; i++) {
            e->nodes[node].outs[i] = e->nodes[node].outs[i] == value ? out : e->nodes[node].outs[i];
        }
        e->g->values[value].node = -1;
        e->g->values[out].node = node;
    }
}

/* Sizes of operands that are broadcast against each other. */
dtp_aten_value dtp_expand_broadcast(const dtp_expansion *e, int32_t n, const dtp_aten_arg *args)
{
    dtp_aten_value like = e->g->values[e->of->outs[0]];
    like.rank = 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t rank = args[i].kind == ATEN_VALUE ? e->g->values[args[i].values[0]].rank : 0;
        like.rank = rank > like.rank ? rank : like.rank;
    }
    for (int32_t a = 0; a < like.rank; a++) {
        like.sizes[a] = 1;
        for (int32_t i = 0; i < n; i++) {
            const dtp_aten_value *v =
                args[i].kind == ATEN_VALUE ? &e->g->values[args[i].values[0]] : NULL;
            const int32_t k = v == NULL ? -1 : a - (like.rank - v->rank);
            like.sizes[a] = k >= 0 && v->sizes[k] != 1 ? v->sizes[k] : like.sizes[a];
        }
    }
    return like;
}

int32_t dtp_expand_with(dtp_expansion *e, const char *op, int32_t x, double by,
                        const dtp_aten_value *like)
{
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x),
                                 dtp_expand_number(e, "other", by)};
    return x < 0 ? -1 : dtp_expand_node(e, op, 2, args, 1, like);
}

int32_t dtp_expand_two(dtp_expansion *e, const char *op, int32_t a, int32_t b)
{
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", a), dtp_expand_tensor(e, "other", b)};
    if (a < 0 || b < 0 || e->status != DTP_OK) {
        return -1;
    }
    const dtp_aten_value like = dtp_expand_broadcast(e, 2, args);
    return dtp_expand_node(e, op, 2, args, 1, &like);
}

int32_t dtp_expand_source(const dtp_expansion *e, int32_t value)
{
    for (const dtp_aten_node *node; (node = dtp_expand_maker(e, value)) != NULL;) {
        const int32_t x = dtp_aten_input(node, 0);
        const bool cast = dtp_aten_is(node, "to") || dtp_aten_is(node, "_to_copy") ||
                          dtp_aten_is(node, "type_as");
        const bool off = dtp_aten_is(node, "dropout") && dtp_aten_int(node, "train", 1) == 0;
        const bool copy = dtp_aten_is(node, "contiguous") || dtp_aten_is(node, "clone") ||
                          dtp_aten_is(node, "alias");
        if (x < 0 || !(off || copy ||
                       (cast && dtp_aten_real_type(e->g->values[x].dtype) &&
                        dtp_aten_real_type(e->g->values[value].dtype)))) {
            return value;
        }
        value = x;
    }
    return value;
}
