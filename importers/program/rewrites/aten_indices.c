/* Index tensors of several axes, rows that are changed by index, the diagonal, differences,
 * quotients of integers. */
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

/* i, or i + n where it is negative. */
static int32_t from_start(dtp_expansion *e, int32_t i, int64_t n)
{
    const dtp_aten_value like = e->g->values[i];
    dtp_aten_value flag = like;
    flag.dtype = ATEN_BOOL;
    const dtp_aten_arg test[] = {dtp_expand_tensor(e, "self", i), dtp_expand_number(e, "other", 0)};
    const dtp_aten_arg sum[] = {dtp_expand_tensor(e, "self", i),
                                dtp_expand_number(e, "other", (double)n)};
    const dtp_aten_arg args[] = {
        dtp_expand_tensor(e, "condition", dtp_expand_node(e, "aten.lt", 2, test, 1, &flag)),
        dtp_expand_tensor(e, "self", dtp_expand_node(e, "aten.add", 2, sum, 1, &like)),
        dtp_expand_tensor(e, "other", i)};
    return e->status == DTP_OK ? dtp_expand_node(e, "aten.where", 3, args, 1, &like) : -1;
}

/* Whether an index counts along an axis: it has a way of its own, in which sizes stay free. */
static bool counts(const dtp_expansion *e, int32_t value)
{
    static const char *const views[] = {"view",      "unsqueeze", "expand", "reshape",
                                        "transpose", "_to_copy",  "to",     NULL};
    for (const dtp_aten_node *node; (node = dtp_expand_maker(e, value)) != NULL;) {
        bool view = false;
        for (int32_t i = 0; views[i] != NULL; i++) {
            view = view || dtp_aten_is(node, views[i]);
        }
        if (!view) {
            return dtp_aten_is(node, "arange");
        }
        value = dtp_aten_input(node, 0);
    }
    return false;
}

/* Whether an index is a constant of the file, which may count from the end. */
static bool is_listed(const dtp_expansion *e, int32_t value)
{
    const dtp_aten_node *node = dtp_expand_maker(e, value);
    while (dtp_aten_is(node, "lift_fresh_copy") || dtp_aten_is(node, "alias") ||
           dtp_aten_is(node, "detach") || dtp_aten_is(node, "to") ||
           dtp_aten_is(node, "_to_copy")) {
        value = dtp_aten_input(node, 0);
        node = dtp_expand_maker(e, value);
    }
    return value >= 0 && e->g->values[value].role == ATEN_BUFFER;
}

/* x[.., i, j, ..] of axes that lie side by side: x with these axes as one, at i n_j + j. */
bool dtp_expand_index(dtp_expansion *e, int32_t x)
{
    const dtp_aten_arg *list = dtp_aten_arg_of(e->of, "indices");
    const dtp_aten_value v = e->g->values[x], like = e->g->values[e->of->outs[0]];
    int32_t first = -1, n = 0, ids = -1, values[DTP_MAX_RANK];
    for (int32_t i = 0; list != NULL && list->kind == ATEN_VALUES && i < list->n; i++) {
        const int32_t at = list->values[i];
        if (at < 0) {
            continue;
        }
        const int32_t dtype = e->g->values[at].dtype;
        if (i >= v.rank || (first >= 0 && i != first + n) || counts(e, at) ||
            (dtype != ATEN_I64 && dtype != ATEN_I32)) {
            return false;
        }
        first = first < 0 ? i : first;
        values[n++] = at;
    }
    if (n < 1 || (n == 1 && !is_listed(e, values[0]))) {
        return false;
    }
    dtp_aten_value flat = v;
    for (int32_t k = 0; k < n; k++) {
        const int64_t size = v.sizes[first + k];
        const int32_t at = from_start(e, values[k], size);
        const dtp_aten_value of = e->g->values[k == 0 || ids < 0 ? (at < 0 ? 0 : at) : ids];
        const dtp_aten_arg by[] = {dtp_expand_tensor(e, "self", ids),
                                   dtp_expand_number(e, "other", (double)size)};
        ids = k == 0 ? at
                     : dtp_expand_two(e, "aten.add",
                                      ids < 0 ? -1 : dtp_expand_node(e, "aten.mul", 2, by, 1, &of),
                                      at);
        if (ids >= 0) {
            e->g->values[ids].dtype = ATEN_I64;
        }
        flat.sizes[first] = k == 0 ? size : flat.sizes[first] * size;
    }
    flat.rank = v.rank - n + 1;
    memmove(&flat.sizes[first + 1], &v.sizes[first + n],
            (size_t)(v.rank - first - n) * sizeof v.sizes[0]);
    values[first] = ids;
    for (int32_t i = 0; i < first; i++) {
        values[i] = -1;
    }
    const dtp_aten_arg args[] = {
        dtp_expand_tensor(e, "self", dtp_expand_one(e, "aten.view", x, &flat)),
        dtp_expand_list(e, "indices", first + 1, values)};
    if (ids >= 0 && e->status == DTP_OK) {
        dtp_expand_out(e, 0, dtp_expand_node(e, "aten.index", 2, args, 1, &like));
    }
    return ids >= 0;
}

/* ---- rows that are changed ---- */

/* Whether the elements of an index differ: those of a topk, or of a constant in the file. */
static bool are_distinct(const dtp_expansion *e, int32_t index)
{
    const dtp_aten_node *node = dtp_expand_maker(e, index);
    while (dtp_aten_is(node, "lift_fresh_copy") || dtp_aten_is(node, "alias") ||
           dtp_aten_is(node, "detach")) {
        index = dtp_aten_input(node, 0);
        node = dtp_expand_maker(e, index);
    }
    const dtp_aten_value *v = &e->g->values[index];
    if (node != NULL) {
        return dtp_aten_is(node, "topk") && node->n_outs == 2 && node->outs[1] == index;
    }
    const int64_t n =
        v->rank == 1 && v->role == ATEN_BUFFER && v->dtype == ATEN_I64 ? v->bytes / 8 : 0;
    bool distinct = n > 0 && n <= 1024 && v->data != NULL && n == v->sizes[0];
    for (int64_t i = 0; i < n && distinct; i++) {
        int64_t a, b;
        memcpy(&a, v->data + 8 * i, sizeof a);
        for (int64_t k = 0; k < i && distinct; k++) {
            memcpy(&b, v->data + 8 * k, sizeof b);
            distinct = a != b && a >= 0 && b >= 0;
        }
    }
    return distinct;
}

typedef struct changed_rows {
    int32_t axis, index, y; /* y -1: a number, `value` */
    bool add, one;          /* one: y is a single number */
    const dtp_aten_arg *value;
} changed_rows;

/* What index_add, index_copy, index_fill and index_put change; false: other forms. */
static bool read_rows(const dtp_expansion *e, int32_t x, changed_rows *r)
{
    const dtp_aten_arg *list = dtp_aten_arg_of(e->of, "indices");
    const dtp_aten_value *v = &e->g->values[x], *of;
    *r = (changed_rows){.axis = dtp_aten_axis(dtp_aten_int(e->of, "dim", 0), v->rank),
                        .index = dtp_aten_operand(e->of, "index"),
                        .y = dtp_aten_operand(e->of, "source"),
                        .add = dtp_aten_is(e->of, "index_add") ||
                               dtp_aten_int(e->of, "accumulate", 0) != 0,
                        .one = true};
    for (int32_t i = 0; list != NULL && list->kind == ATEN_VALUES && i < list->n; i++) {
        if (list->values[i] >= 0 && (r->index >= 0 || i >= v->rank)) {
            return false;
        }
        r->axis = list->values[i] >= 0 ? i : r->axis;
        r->index = list->values[i] >= 0 ? list->values[i] : r->index;
    }
    r->value = dtp_aten_arg_of(e->of, list != NULL ? "values" : "value");
    r->y = r->value != NULL && r->value->kind == ATEN_VALUE ? r->value->values[0] : r->y;
    of = r->y < 0 ? NULL : &e->g->values[r->y];
    for (int32_t i = 0; of != NULL && i < of->rank; i++) {
        r->one = r->one && of->sizes[i] == 1;
    }
    if (r->index < 0 || r->axis < 0 || v->sizes[r->axis] < 2 || (of == NULL && r->value == NULL) ||
        (of != NULL && (of->dtype != v->dtype || of->rank > v->rank))) {
        return false;
    }
    const dtp_aten_value *ids = &e->g->values[r->index];
    const bool sums = !r->one || r->add;
    return ids->rank == 1 && (ids->dtype == ATEN_I64 || ids->dtype == ATEN_I32) &&
           (!sums || (of != NULL && dtp_aten_real_type(v->dtype))) &&
           (!sums || r->add || are_distinct(e, r->index));
}

/* `all` (-1: the number) where an element of the index is, else x. */
static int32_t where_hit(dtp_expansion *e, int32_t x, const changed_rows *r, int32_t hot,
                         int32_t all)
{
    const dtp_aten_value v = e->g->values[x];
    dtp_aten_value counts = e->g->values[hot], hit = v;
    const int64_t first = 0;
    counts.rank = 1;
    counts.sizes[0] = v.sizes[r->axis];
    const dtp_aten_arg sum[] = {dtp_expand_tensor(e, "self", hot),
                                dtp_expand_ints(e, "dim", 1, &first)};
    const dtp_aten_arg test[] = {
        dtp_expand_tensor(e, "self", dtp_expand_node(e, "aten.sum", 2, sum, 1, &counts)),
        dtp_expand_number(e, "other", 0)};
    counts.dtype = hit.dtype = ATEN_BOOL;
    for (int32_t i = 0; i < hit.rank; i++) {
        hit.sizes[i] = i == r->axis ? v.sizes[r->axis] : 1;
    }
    const int32_t is =
        e->status == DTP_OK ? dtp_expand_node(e, "aten.gt", 2, test, 1, &counts) : -1;
    dtp_aten_arg args[] = {
        dtp_expand_tensor(e, "condition", dtp_expand_one(e, "aten.view", is, &hit)),
        all >= 0 ? dtp_expand_tensor(e, "self", all) : *r->value, dtp_expand_tensor(e, "other", x)};
    args[1].name = "self";
    return e->status == DTP_OK ? dtp_expand_node(e, "aten.where", 3, args, 1, &v) : -1;
}

/* index_add, index_copy, index_fill, x[.., i, ..] = y and += y. Rows that stand for those of x must
 * differ: PyTorch leaves open which of several counts. One number for all of them may. */
bool dtp_expand_index_rows(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value v = e->g->values[x];
    changed_rows r;
    if (!read_rows(e, x, &r)) {
        return false;
    }
    dtp_aten_value hot = e->g->values[r.index], rows = v, number = v;
    rows.sizes[r.axis] = hot.sizes[0];
    number.rank = 0;
    hot.dtype = ATEN_I64;
    hot.sizes[hot.rank++] = v.sizes[r.axis];
    if (dtp_aten_arg_of(e->of, "indices") != NULL || dtp_aten_is(e->of, "index_fill")) {
        r.index = from_start(e, r.index, v.sizes[r.axis]);
    }
    const dtp_aten_arg ask[] = {dtp_expand_tensor(e, "self", r.index),
                                dtp_expand_number(e, "num_classes", (double)v.sizes[r.axis])};
    const int32_t which = r.index < 0 ? -1 : dtp_expand_node(e, "aten.one_hot", 2, ask, 1, &hot);
    int32_t all = which < 0 || r.y < 0 ? -1 : r.y;
    if (all >= 0 && (r.add || !r.one)) {
        char from[DTP_MAX_RANK + 1] = "abcdefgh", to[DTP_MAX_RANK + 1] = "abcdefgh";
        hot.dtype = v.dtype;
        const int32_t list[2] = {dtp_expand_one(e, "aten._to_copy", which, &hot),
                                 dtp_expand_one(e, "aten.expand", r.y, &rows)};
        from[v.rank] = to[v.rank] = '\0';
        from[r.axis] = 'y';
        to[r.axis] = 'z';
        const dtp_aten_arg args[] = {{.name = "equation",
                                      .kind = ATEN_TEXT,
                                      .text = dtp_arena_printf(e->g->arena, "yz,%s->%s", from, to)},
                                     dtp_expand_list(e, "tensors", 2, list)};
        all = args[0].text != NULL && e->status == DTP_OK
                  ? dtp_expand_node(e, "aten.einsum", 2, args, 1, &v)
                  : -1;
    } else if (all >= 0) {
        all = dtp_expand_one(e, "aten.view", r.y, &number);
    }
    if (which < 0 || e->status != DTP_OK || (all < 0 && r.y >= 0)) {
        return false;
    }
    dtp_expand_out(e, 0,
                   r.add ? dtp_expand_two(e, "aten.add", x, all) : where_hit(e, x, &r, which, all));
    return e->status == DTP_OK;
}

/* ---- the diagonal and others ---- */

static int32_t count(dtp_expansion *e, int64_t n, int32_t rank, int32_t axis)
{
    dtp_aten_value like = e->g->values[e->of->outs[0]];
    const dtp_aten_arg end = dtp_expand_number(e, "end", (double)n);
    like.dtype = ATEN_I64;
    like.rank = 1;
    like.sizes[0] = n;
    const int32_t x = dtp_expand_node(e, "aten.arange", 1, &end, 1, &like);
    like.rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        like.sizes[i] = i == axis ? n : 1;
    }
    return dtp_expand_one(e, "aten.view", x, &like);
}

/* Ones where the index of both axes is the same. */
bool dtp_expand_eye(dtp_expansion *e)
{
    const dtp_aten_value like = e->g->values[e->of->outs[0]];
    dtp_aten_value flag = like;
    flag.dtype = ATEN_BOOL;
    if (like.rank != 2) {
        return false;
    }
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", count(e, like.sizes[0], 2, 0)),
                                 dtp_expand_tensor(e, "other", count(e, like.sizes[1], 2, 1))};
    int32_t x = e->status == DTP_OK ? dtp_expand_node(e, "aten.eq", 2, args, 1, &flag) : -1;
    x = x < 0 || like.dtype == ATEN_BOOL ? x : dtp_expand_one(e, "aten._to_copy", x, &like);
    if (x >= 0) {
        dtp_expand_out(e, 0, x);
    }
    return x >= 0;
}

static int32_t part(dtp_expansion *e, int32_t x, int32_t axis, int64_t start, int64_t end)
{
    dtp_aten_value like = e->g->values[x];
    const int64_t size = like.sizes[axis];
    like.sizes[axis] = size - 1;
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x), dtp_expand_number(e, "dim", axis),
                                 dtp_expand_number(e, "start", (double)start),
                                 dtp_expand_number(e, "end", (double)end)};
    return dtp_expand_node(e, "aten.slice", 4, args, 1, &like);
}

/* x[1:] - x[:-1], behind what is put before and behind x. */
bool dtp_expand_diff(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value like = e->g->values[e->of->outs[0]];
    const int32_t axis = dtp_aten_axis(dtp_aten_int(e->of, "dim", -1), like.rank);
    const int32_t all[3] = {dtp_aten_operand(e->of, "prepend"), x,
                            dtp_aten_operand(e->of, "append")};
    int32_t list[3], n = 0;
    dtp_aten_value whole = e->g->values[x];
    if (axis < 0 || dtp_aten_int(e->of, "n", 1) != 1 || like.dtype == ATEN_BOOL) {
        return false;
    }
    whole.sizes[axis] = 0;
    for (int32_t i = 0; i < 3; i++) {
        if (all[i] >= 0) {
            list[n++] = all[i];
            whole.sizes[axis] += e->g->values[all[i]].sizes[axis];
        }
    }
    const dtp_aten_arg args[] = {dtp_expand_list(e, "tensors", n, list),
                                 dtp_expand_number(e, "dim", axis)};
    x = n == 1 ? x : dtp_expand_node(e, "aten.cat", 2, args, 1, &whole);
    if (x >= 0 && whole.sizes[axis] >= 2) {
        const int32_t later = part(e, x, axis, 1, whole.sizes[axis]);
        const int32_t before = part(e, x, axis, 0, -1);
        dtp_expand_out(e, 0, dtp_expand_two(e, "aten.sub", later, before));
    }
    return x >= 0 && whole.sizes[axis] >= 2;
}

/* The integer next to x / by, which is wrong by a few 2^-23 of itself. */
static int32_t nearest(dtp_expansion *e, int32_t x, const dtp_aten_arg *by, int32_t dtype)
{
    dtp_aten_value wide = e->g->values[x < 0 ? 0 : x], result = e->g->values[e->of->outs[0]];
    wide.dtype = result.dtype = ATEN_F32;
    dtp_aten_arg args[] = {
        dtp_expand_tensor(e, "self", x < 0 ? -1 : dtp_expand_one(e, "aten._to_copy", x, &wide)),
        *by};
    if (by->kind == ATEN_VALUE) {
        wide = e->g->values[by->values[0]];
        wide.dtype = ATEN_F32;
        args[1] =
            dtp_expand_tensor(e, "other", dtp_expand_one(e, "aten._to_copy", by->values[0], &wide));
    }
    int32_t y =
        e->status == DTP_OK && x >= 0 ? dtp_expand_node(e, "aten.div", 2, args, 1, &result) : -1;
    const dtp_aten_arg half[] = {dtp_expand_tensor(e, "self", y),
                                 dtp_expand_number(e, "other", 0.5)};
    y = y < 0 ? -1 : dtp_expand_node(e, "aten.add", 2, half, 1, &result);
    y = y < 0 ? -1 : dtp_expand_one(e, "aten.floor", y, &result);
    result.dtype = dtype;
    return y < 0 ? -1 : dtp_expand_one(e, "aten._to_copy", y, &result);
}

/* Of integers: less the remainder, which has the sign of the divisor, the quotient is whole. It is
 * that of f32, and that of what this one leaves: exact up to 2^40. */
bool dtp_expand_quotient(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value like = e->g->values[e->of->outs[0]];
    const dtp_aten_arg *mode = dtp_aten_arg_of(e->of, "rounding_mode");
    const dtp_aten_arg *by = dtp_aten_arg_of(e->of, "other");
    const bool floor = dtp_aten_is(e->of, "floor_divide") ||
                       (mode != NULL && mode->text != NULL && strcmp(mode->text, "floor") == 0);
    if (!floor || by == NULL || (like.dtype != ATEN_I64 && like.dtype != ATEN_I32)) {
        return false;
    }
    dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x), *by};
    const int32_t rest = dtp_expand_node(e, "aten.remainder", 2, args, 1, &like);
    const int32_t whole = dtp_expand_two(e, "aten.sub", x, rest);
    const int32_t first = nearest(e, whole, by, like.dtype);
    args[0] = dtp_expand_tensor(e, "self", first);
    const int32_t back = first < 0 ? -1 : dtp_expand_node(e, "aten.mul", 2, args, 1, &like);
    const int32_t more = nearest(e, dtp_expand_two(e, "aten.sub", whole, back), by, like.dtype);
    const int32_t y = dtp_expand_two(e, "aten.add", first, more);
    if (y >= 0) {
        dtp_expand_out(e, 0, y);
    }
    return y >= 0;
}
