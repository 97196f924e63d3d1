/* topk(sorted=False), whose order PyTorch leaves open: the same as in order where nothing that the
 * program gives depends on it. Of every value that is computed from its results it is known along
 * which axis the open order lies; a sum over the axis, a mask of the places and experts of rows
 * (aten_experts.c) end it. */
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

enum {
    CLEAN = -1,
    FLAT = DTP_MAX_RANK, /* the axis is the inner part of axis 0 */
    SORTED               /* what is computed of rows in the order of their experts */
};

enum { MOST_STEPS = 1 << 24 };

typedef struct trace {
    const dtp_expansion *e;
    int8_t *at; /* by value of the file: the axis */
    int64_t choices;
} trace;

static bool is_any(const dtp_aten_node *node, const char *const *names)
{
    bool is = false;
    for (int32_t i = 0; names[i] != NULL && !is; i++) {
        is = dtp_aten_is(node, names[i]);
    }
    return is;
}

/* Axis of a view of rows (token, choice), [tokens, choices, ..] or with tokens in several axes. */
static int32_t axis_of_rows(const trace *t, const dtp_aten_value *from, const dtp_aten_value *to)
{
    int64_t n = 1;
    for (int32_t i = 0; i < to->rank && from->rank > 0; i++) {
        if (to->sizes[i] < 1 || n > from->sizes[0] / to->sizes[i]) {
            return -2;
        }
        n *= to->sizes[i];
        if (n == from->sizes[0]) {
            return i > 0 && to->sizes[i] == t->choices ? i : i == 0 ? FLAT : -2;
        }
    }
    return -2;
}

/* Of a node all of whose tensors are clean but those along one axis; -2: the order is seen. */
static int32_t through(const trace *t, const dtp_aten_node *node, int32_t x, int32_t axis)
{
    const dtp_aten_value *v = &t->e->g->values[x], *out = &t->e->g->values[node->outs[0]];
    static const char *const elements[] = {
        /* also in place */
        "to",     "_to_copy", "alias", "clone", "contiguous", "add",       "add_",      "sub",
        "mul",    "mul_",     "div",   "div_",  "sigmoid",    "exp",       "neg",       "abs",
        "square", "sqrt",     "relu",  "tanh",  "clamp",      "clamp_min", "clamp_max", NULL};
    const bool view =
        dtp_aten_is(node, "view") || dtp_aten_is(node, "reshape") || dtp_aten_is(node, "flatten");
    if (axis == SORTED || axis == FLAT) {
        static const char *const sorts[] = {"sort", "argsort", "index", "index_select", NULL};
        static const char *const copies[] = {"to", "_to_copy", "alias", "clone", NULL};
        const int32_t back = view ? axis_of_rows(t, v, out) : -2;
        return back != -2                              ? back
               : axis == SORTED || is_any(node, sorts) ? SORTED
               : is_any(node, copies)                  ? FLAT
                                                       : -2;
    }
    if (view && axis == v->rank - 1) {
        return out->rank == 1                                             ? FLAT
               : out->rank > 0 && out->sizes[out->rank - 1] == t->choices ? out->rank - 1
                                                                          : -2;
    }
    if (is_any(node, elements) && out->rank == v->rank) {
        return axis;
    }
    if ((dtp_aten_is(node, "sum") || dtp_aten_is(node, "amax") || dtp_aten_is(node, "mean")) &&
        dtp_aten_reduces(t->e->g, node, axis)) {
        return CLEAN;
    }
    const bool along = dtp_aten_axis(dtp_aten_int(node, "dim", -1), v->rank) == axis;
    if (dtp_aten_is(node, "softmax") || dtp_aten_is(node, "_softmax")) {
        return along ? axis : -2;
    }
    const bool places = dtp_aten_operand(node, "index") == x && along;
    if (places && dtp_aten_is(node, "gather")) {
        return axis;
    }
    const bool number = dtp_aten_operand(node, "src") < 0;
    const bool scatters = dtp_aten_is(node, "scatter") || dtp_aten_is(node, "scatter_");
    return places && scatters && number ? CLEAN : -2;
}

/* What a node makes of the order; false: it is seen. */
static bool follow(trace *t, const dtp_aten_node *node)
{
    int32_t x = -1, axis = CLEAN;
    for (int32_t k = 0; k < node->n_args; k++) {
        for (int32_t j = 0; j < dtp_aten_tensors(&node->args[k]); j++) {
            const int32_t v = node->args[k].values[j];
            if (v < 0 || v >= t->e->n_file || t->at[v] == CLEAN) {
                continue;
            }
            if (axis != CLEAN && t->at[v] != axis && !(axis >= FLAT && t->at[v] >= FLAT)) {
                return false;
            }
            x = axis == CLEAN || t->at[v] > axis ? v : x;
            axis = t->at[v] > axis ? t->at[v] : axis;
        }
    }
    if (x < 0 || node->n_outs == 0 || node->outs[0] < 0) {
        return axis == CLEAN || node->n_outs == 0;
    }
    const bool by_place = dtp_aten_is(node, "gather") || strstr(node->op, "scatter") != NULL;
    for (int32_t k = 0; k < node->n_args && axis < FLAT && !by_place; k++) {
        for (int32_t j = 0; j < dtp_aten_tensors(&node->args[k]); j++) {
            const int32_t v = node->args[k].values[j];
            const dtp_aten_value *values = t->e->g->values;
            const int32_t at = v < 0 ? -1 : axis - values[node->outs[0]].rank + values[v].rank;
            if (at >= 0 && t->at[v] == CLEAN && values[v].sizes[at] != 1) {
                return false; /* it is not the same for all places */
            }
        }
    }
    const int32_t to = through(t, node, x, axis), first = dtp_aten_input(node, 0);
    const size_t dot = strcspn(node->op, ".") + 1, n = strcspn(node->op + dot, ".");
    const bool writes = n > 1 && node->op[dot + n - 1] == '_';
    if (to == -2 || (writes && axis < FLAT && first >= 0 && t->e->views[first].base >= 0)) {
        return false;
    }
    for (int32_t k = 0; k < node->n_outs; k++) {
        t->at[node->outs[k] < 0 ? t->e->n_file : node->outs[k]] = (int8_t)to;
    }
    if (writes && first >= 0) {
        t->at[first] = (int8_t)to;
    }
    return true;
}

/* topk, the node of the file that is written anew. */
bool dtp_expand_unordered(dtp_expansion *e, int32_t x)
{
    const dtp_aten *g = e->g;
    const dtp_aten_node *topk = &e->file[e->now];
    const int32_t rank = g->values[x].rank;
    const int32_t axis = dtp_aten_axis(dtp_aten_int(topk, "dim", -1), rank);
    trace t = {.e = e};
    dtp_aten_arg args[5];
    int32_t n = 0;
    e->steps += g->n_nodes - e->now + e->n_file;
    if (e->of->n_outs != 2 || e->of->n_args > 5 || dtp_aten_int(e->of, "sorted", 1) != 0 ||
        axis < 0 || e->steps > MOST_STEPS || e->status != DTP_OK) {
        return false;
    }
    e->status = DTP_NEW(g->arena, t.at, e->n_file + 1, e->err);
    if (e->status != DTP_OK) {
        return false;
    }
    memset(t.at, CLEAN, (size_t)e->n_file + 1);
    t.choices = g->values[topk->outs[0]].sizes[axis];
    t.at[topk->outs[0]] = t.at[topk->outs[1]] = (int8_t)axis;
    for (int32_t i = e->now + 1; i < g->n_nodes; i++) {
        if ((e->file[i].live || e->file[i].effect) && !follow(&t, &e->file[i])) {
            return false;
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (t.at[g->outputs[i]] != CLEAN) {
            return false;
        }
    }
    for (int32_t i = 0; i < e->of->n_args; i++) {
        if (strcmp(e->of->args[i].name, "sorted") != 0) {
            args[n++] = e->of->args[i];
        }
    }
    const dtp_aten_value like = g->values[e->of->outs[0]];
    const int32_t y = dtp_expand_node(e, e->of->op, n, args, 2, &like);
    if (y >= 0) {
        e->g->values[y + 1].dtype = e->g->values[e->of->outs[1]].dtype;
        dtp_expand_out(e, 1, y + 1);
        dtp_expand_out(e, 0, y);
    }
    return y >= 0;
}
