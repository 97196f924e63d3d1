/* Ops that write into a tensor, or into a view of it, as ops that make another one. A write of
 * `content` into a view: what it is a view of becomes a tensor that has the content in its place,
 * and so on up to the tensor that is no view; every other view of that one is taken again. */
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

/* ---- which tensors are views ---- */

typedef enum view_kind { NO_VIEW, VIEW, PERHAPS } view_kind;

/* PERHAPS: the result is a copy in one case, and a view in another. */
static view_kind kind_of(const dtp_aten_node *node)
{
    static const char *const views[] = {
        "view",         "view_as",   "slice",    "select",    "transpose",
        "permute",      "unsqueeze", "squeeze",  "t",         "split",
        "chunk",        "alias",     "detach",   "unbind",    "movedim",
        "moveaxis",     "swapaxes",  "swapdims", "mT",        "numpy_T",
        "unflatten",    "narrow",    "expand",   "expand_as", "split_with_sizes",
        "tensor_split", NULL};
    static const char *const perhaps[] = {"reshape",    "flatten",  "contiguous", "to", "type_as",
                                          "reshape_as", "diagonal", "lift_fresh", NULL};
    for (int32_t i = 0; views[i] != NULL; i++) {
        if (dtp_aten_is(node, views[i])) {
            return VIEW;
        }
    }
    for (int32_t i = 0; perhaps[i] != NULL; i++) {
        if (dtp_aten_is(node, perhaps[i])) {
            return PERHAPS;
        }
    }
    return NO_VIEW;
}

bool dtp_writes_in_place(const dtp_aten_node *node)
{
    const size_t n = strcspn(node->op, ".") + 1, len = strcspn(node->op + n, ".");
    return strncmp(node->op, "aten.", 5) == 0 && len > 1 && node->op[n + len - 1] == '_' &&
           node->op[n] != '_' && node->n_outs == 1;
}

dtp_status dtp_writes_begin(dtp_expansion *e)
{
    const dtp_aten *g = e->g;
    e->n_file = g->n_values;
    DTP_TRY(DTP_NEW(g->arena, e->views, g->n_values + 1, e->err));
    DTP_TRY(DTP_NEW(g->arena, e->last, g->n_values + 1, e->err));
    for (int32_t i = 0; i < g->n_values; i++) {
        e->views[i] = (dtp_view_of){.base = -1};
        e->last[i] = -1;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        const dtp_aten_node *node = &g->nodes[i];
        for (int32_t k = 0; k < node->n_args; k++) {
            for (int32_t j = 0; j < dtp_aten_tensors(&node->args[k]); j++) {
                const int32_t v = node->args[k].values[j];
                e->last[v < 0 ? g->n_values : v] = i;
            }
        }
        const bool same = dtp_writes_in_place(node);
        const view_kind kind = same ? VIEW : kind_of(node);
        const int32_t base = dtp_aten_input(node, 0);
        for (int32_t k = 0; k < node->n_outs && kind != NO_VIEW && base >= 0; k++) {
            if (node->outs[k] >= 0) {
                e->views[node->outs[k]] = (dtp_view_of){base, i, k, kind == PERHAPS, same};
            }
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        e->last[g->outputs[i]] = g->n_nodes;
    }
    return DTP_OK;
}

/* The tensor that value is a view of in the end. */
int32_t dtp_writes_root(const dtp_expansion *e, int32_t value)
{
    while (e->views[value].base >= 0) {
        value = e->views[value].base;
    }
    return value;
}

/* ---- pieces of an axis ---- */

static dtp_aten_value sized(const dtp_expansion *e, int32_t x, int32_t axis, int64_t n)
{
    dtp_aten_value like = e->g->values[x];
    like.sizes[axis] = n;
    return like;
}

/* Elements start .. end of an axis; those of an operand of a concatenation are taken from it. */
static int32_t piece(dtp_expansion *e, int32_t x, int32_t axis, int64_t start, int64_t end)
{
    for (const dtp_aten_node *cat; dtp_aten_is(cat = dtp_expand_maker(e, x), "cat");) {
        const dtp_aten_arg *list = dtp_aten_arg_of(cat, "tensors");
        int64_t at = 0;
        int32_t inner = -1;
        for (int32_t k = 0; list != NULL && k < list->n && inner < 0; k++) {
            const int64_t n = e->g->values[list->values[k]].sizes[axis];
            inner = start >= at && end <= at + n ? list->values[k] : -1;
            at += inner < 0 ? n : 0;
        }
        if (inner < 0 || dtp_aten_int(cat, "dim", -1) != axis) {
            break;
        }
        x = inner;
        start -= at;
        end -= at;
    }
    if (start == 0 && end == e->g->values[x].sizes[axis]) {
        return x;
    }
    const dtp_aten_value like = sized(e, x, axis, end - start);
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x), dtp_expand_number(e, "dim", axis),
                                 dtp_expand_number(e, "start", (double)start),
                                 dtp_expand_number(e, "end", (double)end)};
    return dtp_expand_node(e, "aten.slice", 4, args, 1, &like);
}

static int32_t joined(dtp_expansion *e, int32_t n, const int32_t *parts, int32_t axis, int64_t size)
{
    const dtp_aten_arg list = dtp_expand_list(e, "tensors", n, parts);
    const dtp_aten_value like = sized(e, parts[0], axis, size);
    const dtp_aten_arg args[] = {list, dtp_expand_number(e, "dim", axis)};
    return n == 1 ? parts[0] : dtp_expand_node(e, "aten.cat", 2, args, 1, &like);
}

/* `base` with the content in the place of its elements from `start` on. */
static int32_t in_place_of(dtp_expansion *e, int32_t base, int32_t axis, int64_t start,
                           int32_t content)
{
    const int64_t size = e->g->values[base].sizes[axis];
    const int64_t end = start + e->g->values[content].sizes[axis];
    int32_t parts[3], n = 0;
    if (start > 0) {
        parts[n++] = piece(e, base, axis, 0, start);
    }
    parts[n++] = content;
    if (end < size) {
        parts[n++] = piece(e, base, axis, end, size);
    }
    return e->status == DTP_OK ? joined(e, n, parts, axis, size) : -1;
}

/* Every step-th element from `start` on: so many times `step` elements from there on, of which the
 * first is written. Behind the end stand others meanwhile. */
static int32_t by_steps(dtp_expansion *e, int32_t base, int32_t axis, int64_t start, int64_t step,
                        int32_t content)
{
    const dtp_aten_value v = e->g->values[base];
    const int64_t n = e->g->values[content].sizes[axis], size = v.sizes[axis];
    if (n < 1 || step > size || n > size / step + 1 || v.rank >= DTP_MAX_RANK) {
        return -1;
    }
    const int64_t end = start + n * step, more = end > size ? end - size : 0;
    dtp_aten_value apart = v, one = e->g->values[content];
    if (more > size) {
        return -1;
    }
    const size_t behind = (size_t)(v.rank - 1 - axis) * sizeof v.sizes[0];
    memmove(&apart.sizes[axis + 2], &v.sizes[axis + 1], behind);
    memmove(&one.sizes[axis + 2], &e->g->values[content].sizes[axis + 1], behind);
    apart.rank = one.rank = v.rank + 1;
    apart.sizes[axis] = n;
    apart.sizes[axis + 1] = step;
    one.sizes[axis + 1] = 1;
    const int32_t list[2] = {base, more > 0 ? piece(e, base, axis, 0, more) : -1};
    const int32_t all = joined(e, more > 0 ? 2 : 1, list, axis, size + more);
    const int32_t run = all < 0 ? -1 : piece(e, all, axis, start, end);
    const int32_t from = run < 0 ? -1 : dtp_expand_one(e, "aten.view", run, &apart);
    const int32_t put = from < 0 ? -1 : dtp_expand_one(e, "aten.view", content, &one);
    const int32_t mixed = put < 0 ? -1 : in_place_of(e, from, axis + 1, 0, put);
    const dtp_aten_value flat = sized(e, base, axis, n * step);
    const int32_t back = mixed < 0 ? -1 : dtp_expand_one(e, "aten.view", mixed, &flat);
    const int32_t out = back < 0 ? -1 : in_place_of(e, all, axis, start, back);
    return out < 0 ? -1 : piece(e, out, axis, 0, size);
}

/* ---- a view written ---- */

static bool is_any(const dtp_aten_node *node, const char *const *names)
{
    bool is = false;
    for (int32_t i = 0; names[i] != NULL && !is; i++) {
        is = dtp_aten_is(node, names[i]);
    }
    return is;
}

/* Output `k` of a view that takes elements of one axis: the axis, the first of them, the step. */
static bool taken(const dtp_expansion *e, const dtp_aten_node *view, int32_t base, int32_t k,
                  int64_t out[3])
{
    static const char *const pieces[] = {"split", "chunk", "split_with_sizes", "tensor_split",
                                         NULL};
    const dtp_aten_value *v = &e->g->values[base];
    const bool slice = dtp_aten_is(view, "slice"), narrow = dtp_aten_is(view, "narrow");
    out[0] = dtp_aten_axis(dtp_aten_int(view, "dim", 0), v->rank);
    out[1] = dtp_aten_int(view, dtp_aten_is(view, "select") ? "index" : "start", 0);
    out[2] = slice ? dtp_aten_int(view, "step", 1) : 1;
    if (out[0] < 0) {
        return false;
    }
    const int64_t size = v->sizes[out[0]];
    if (is_any(view, pieces)) {
        out[1] = 0;
        for (int32_t i = 0; i < k; i++) {
            out[1] += e->g->values[view->outs[i]].sizes[out[0]];
        }
    } else if (dtp_aten_is(view, "unbind")) {
        out[1] = k;
    } else if (!slice && !narrow && !dtp_aten_is(view, "select")) {
        return false;
    }
    out[1] += out[1] < 0 ? size : 0;
    out[1] = out[1] < 0 ? 0 : out[1];
    return out[1] <= size && out[2] >= 1;
}

/* The tensor of which `content` is output k of the view, and that is `base` elsewhere; -1. */
static int32_t written(dtp_expansion *e, const dtp_aten_node *view, int32_t base, int32_t k,
                       int32_t content)
{
    static const char *const turned[] = {"transpose", "permute", "t",  "swapaxes",
                                         "swapdims",  "numpy_T", "mT", NULL};
    static const char *const same[] = {"view",      "view_as", "unsqueeze", "squeeze",
                                       "unflatten", "alias",   "detach",    NULL};
    int64_t at[3];
    if (is_any(view, turned)) {
        const dtp_aten_value like = e->g->values[base];
        int64_t dims[DTP_MAX_RANK] = {0};
        for (int32_t i = 0; i < like.rank; i++) {
            const int32_t from = dtp_aten_from(e->g, view, i);
            if (from < 0) {
                return -1;
            }
            dims[from] = i;
        }
        const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", content),
                                     dtp_expand_ints(e, "dims", like.rank, dims)};
        return dtp_expand_node(e, "aten.permute", 2, args, 1, &like);
    }
    if (is_any(view, same)) {
        const dtp_aten_value like = e->g->values[base];
        return dtp_expand_one(e, "aten.view", content, &like);
    }
    if (!taken(e, view, base, k, at)) {
        return -1;
    }
    const int32_t axis = (int32_t)at[0];
    if (dtp_aten_is(view, "select") || dtp_aten_is(view, "unbind")) {
        const dtp_aten_value like = sized(e, base, axis, 1);
        content = dtp_expand_one(e, "aten.view", content, &like);
    }
    return content < 0  ? -1
           : at[2] == 1 ? in_place_of(e, base, axis, at[1], content)
                        : by_steps(e, base, axis, at[1], at[2], content);
}

/* ---- writes ---- */

/* Whether value i is p, or a view of it. */
static bool is_of(const dtp_expansion *e, int32_t i, int32_t p)
{
    while (i >= 0 && i != p) {
        i = e->views[i].base;
    }
    return i == p;
}

/* A copy that may be a view stands for itself where nothing else of its tensor is read behind it:
 * x = x.contiguous(). */
static void cut_copies(dtp_expansion *e, int32_t x)
{
    for (int32_t p = x; p >= 0; p = e->views[p].base) {
        const int32_t root = dtp_writes_root(e, p);
        bool others = !e->views[p].perhaps;
        for (int32_t i = 0; i < e->n_file && !others; i++) {
            others =
                e->last[i] > e->views[p].node && dtp_writes_root(e, i) == root && !is_of(e, i, p);
        }
        if (!others) {
            e->views[p].base = -1;
            return;
        }
    }
}

bool dtp_writes_can(dtp_expansion *e, int32_t x)
{
    cut_copies(e, x);
    const int32_t root = dtp_writes_root(e, x);
    const dtp_aten_role role = e->g->values[root].role;
    if (role != ATEN_NODE && role != ATEN_BUFFER) {
        return false;
    }
    for (int32_t i = 0; i < e->n_file; i++) { /* no copy that may be a view is read behind it */
        bool perhaps = false;
        int32_t v = i;
        for (; e->views[v].base >= 0; v = e->views[v].base) {
            perhaps = perhaps || e->views[v].perhaps;
        }
        const bool there = e->views[i].node < e->now;
        if (v == root && perhaps && there && (e->last[i] > e->now || is_of(e, x, i))) {
            return false;
        }
    }
    return true;
}

int32_t dtp_writes_apply(dtp_expansion *e, int32_t x, int32_t content, bool *done)
{
    const int32_t root = dtp_writes_root(e, x);
    int32_t v = x;
    for (; e->status == DTP_OK && v != root && content >= 0; v = e->views[v].base) {
        const dtp_view_of *view = &e->views[v];
        e->is[v] = content;
        done[v] = true;
        content = view->same
                      ? content
                      : written(e, &e->file[view->node], e->is[view->base], view->k, content);
    }
    if (e->status == DTP_OK && content >= 0) {
        e->is[root] = content;
    }
    return content;
}

/* ---- ops that are written ---- */

/* What x becomes when it is written: with its type and all its elements. */
static int32_t as_content(dtp_expansion *e, int32_t x, const dtp_aten_value *like)
{
    dtp_aten_value v = e->g->values[x];
    if (v.dtype != like->dtype) {
        v.dtype = like->dtype;
        x = dtp_expand_one(e, "aten._to_copy", x, &v);
    }
    return x < 0 ? -1 : dtp_expand_one(e, "aten.expand", x, like);
}

static int32_t filled(dtp_expansion *e, int32_t self, const dtp_aten_arg *number)
{
    const dtp_aten_value like = e->g->values[self];
    dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", self), *number};
    args[1].name = "fill_value";
    return dtp_expand_node(e, "aten.full_like.default", 2, args, 1, &like);
}

/* copy, fill and zero, of which only those in place are in programs. */
bool dtp_expand_copy(dtp_expansion *e, int32_t x)
{
    const bool copy = dtp_aten_is(e->of, "copy");
    const dtp_aten_arg *a = dtp_aten_arg_of(e->of, copy ? "src" : "value");
    const dtp_aten_value like = e->g->values[e->of->outs[0]];
    const dtp_aten_arg zero = dtp_expand_number(e, "", 0);
    a = dtp_aten_is(e->of, "zero") ? &zero : a;
    if (a == NULL || (a->kind == ATEN_VALUE && a->values[0] < 0) ||
        (a->kind != ATEN_VALUE && a->kind != ATEN_INT && a->kind != ATEN_FLOAT &&
         a->kind != ATEN_BOOLEAN)) {
        return false;
    }
    dtp_expand_out(e, 0,
                   a->kind == ATEN_VALUE ? as_content(e, a->values[0], &like) : filled(e, x, a));
    return true;
}

/* x[mask] = value: a mask over the first axes, and a single number; else an index. */
bool dtp_expand_index_put(dtp_expansion *e, int32_t x)
{
    const dtp_aten_arg *list = dtp_aten_arg_of(e->of, "indices");
    int32_t value = dtp_aten_operand(e->of, "values");
    int32_t mask = list != NULL && list->kind == ATEN_VALUES && list->n == 1 ? list->values[0] : -1;
    if (mask < 0 || e->g->values[mask].dtype != ATEN_BOOL) {
        return dtp_expand_index_rows(e, x);
    }
    if (value < 0 || dtp_aten_int(e->of, "accumulate", 0) != 0) {
        return false;
    }
    const dtp_aten_value like = e->g->values[x], m = e->g->values[mask], v = e->g->values[value];
    dtp_aten_value wide = m, number = v;
    int64_t n = 1;
    for (int32_t i = 0; i < v.rank; i++) {
        n *= v.sizes[i];
    }
    if (n != 1 || m.rank > like.rank) {
        return false;
    }
    for (wide.rank = m.rank; wide.rank < like.rank; wide.rank++) {
        wide.sizes[wide.rank] = 1;
    }
    number.rank = 0;
    mask = wide.rank == m.rank ? mask : dtp_expand_one(e, "aten.view", mask, &wide);
    value = v.rank == 0 ? value : dtp_expand_one(e, "aten.view", value, &number);
    number.dtype = like.dtype;
    value = v.dtype == like.dtype ? value : dtp_expand_one(e, "aten._to_copy", value, &number);
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "condition", mask),
                                 dtp_expand_tensor(e, "self", value),
                                 dtp_expand_tensor(e, "other", x)};
    if (e->status == DTP_OK) {
        dtp_expand_out(e, 0, dtp_expand_node(e, "aten.where", 3, args, 1, &like));
    }
    return e->status == DTP_OK;
}

/* scatter(self, dim, index, src or value): which element of the axis each index is, as a dim of its
 * own; where none is, self stays. Several indices of one element: a value is the same, of sources
 * PyTorch takes any, and scatter_add their sum. */
bool dtp_expand_scatter(dtp_expansion *e, int32_t x)
{
    const dtp_aten_node *node = e->of;
    const dtp_aten_value v = e->g->values[x];
    const int32_t axis = dtp_aten_axis(dtp_aten_int(node, "dim", 0), v.rank);
    const int32_t index = dtp_aten_operand(node, "index"), src = dtp_aten_operand(node, "src");
    const dtp_aten_arg *number = dtp_aten_arg_of(node, "value");
    const bool add = dtp_aten_is(node, "scatter_add");
    if (axis < 0 || index < 0 || v.rank >= DTP_MAX_RANK || (src < 0) == (number == NULL) ||
        dtp_aten_arg_of(node, "reduce") != NULL || v.sizes[axis] < 2) {
        return false;
    }
    dtp_aten_value hot = e->g->values[index], wide = v, hit = v;
    for (int32_t i = 0; i < v.rank; i++) {
        if (i != axis && hot.sizes[i] != v.sizes[i]) {
            return false;
        }
    }
    hot.sizes[hot.rank++] = v.sizes[axis];
    const int64_t dims[1] = {axis};
    int64_t back[DTP_MAX_RANK];
    for (int32_t i = 0; i < v.rank; i++) { /* behind the sum the axis is the last */
        back[i] = i < axis ? i : i == axis ? v.rank - 1 : i - 1;
    }
    dtp_aten_value summed = v;
    memmove(&summed.sizes[axis], &summed.sizes[axis + 1],
            (size_t)(v.rank - axis - 1) * sizeof summed.sizes[0]);
    summed.sizes[v.rank - 1] = v.sizes[axis];
    const dtp_aten_arg ask[] = {dtp_expand_tensor(e, "self", index),
                                dtp_expand_number(e, "num_classes", (double)v.sizes[axis])};
    int32_t one = dtp_expand_node(e, "aten.one_hot", 2, ask, 1, &hot);
    hot.dtype = v.dtype;
    one = one < 0 ? -1 : dtp_expand_one(e, "aten._to_copy", one, &hot);
    const dtp_aten_arg back_arg = dtp_expand_ints(e, "dims", v.rank, back);
    int32_t sums[2];
    for (int32_t k = 0; k < 2 && one >= 0; k++) {
        wide = e->g->values[index];
        wide.dtype = v.dtype;
        wide.sizes[wide.rank++] = 1;
        const int32_t by = k == 0 || src < 0 ? -1 : dtp_expand_one(e, "aten.view", src, &wide);
        const int32_t all = by < 0 ? one : dtp_expand_two(e, "aten.mul", one, by);
        const dtp_aten_arg sum[] = {dtp_expand_tensor(e, "self", all),
                                    dtp_expand_ints(e, "dim", 1, dims)};
        const int32_t s = dtp_expand_node(e, "aten.sum", 2, sum, 1, &summed);
        const dtp_aten_arg turn[] = {dtp_expand_tensor(e, "self", s), back_arg};
        sums[k] = dtp_expand_node(e, "aten.permute", 2, turn, 1, &v);
    }
    if (e->status != DTP_OK || one < 0) {
        return false;
    }
    if (add) {
        dtp_expand_out(e, 0, dtp_expand_two(e, "aten.add", x, sums[1]));
        return src >= 0;
    }
    hit.dtype = ATEN_BOOL;
    const dtp_aten_arg test[] = {dtp_expand_tensor(e, "self", sums[0]),
                                 dtp_expand_number(e, "other", 0)};
    const int32_t there = dtp_expand_node(e, "aten.gt", 2, test, 1, &hit);
    dtp_aten_arg args[] = {dtp_expand_tensor(e, "condition", there),
                           src >= 0 ? dtp_expand_tensor(e, "self", sums[1]) : *number,
                           dtp_expand_tensor(e, "other", x)};
    args[1].name = "self";
    dtp_expand_out(e, 0, dtp_expand_node(e, "aten.where", 3, args, 1, &v));
    return true;
}
