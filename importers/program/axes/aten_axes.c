/* Axes of the outputs of ATen ops, by family. */
#include "importers/program/axes/aten_axes.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/text.h"
#include "importers/program/axes/aten_products.h"

static const dtp_aten_value *value(const dtp_axes *x, int32_t v)
{
    return &x->g->values[v];
}

static dtp_status missing(const char *what, dtp_err *err)
{
    return DTP_FAIL(err, DTP_UNSUPPORTED, "%s", what);
}

/* Axis i of value a is axis k of value b, where there is an a. */
static dtp_status unify(dtp_axes *x, int32_t a, int32_t i, int32_t b, int32_t k, dtp_err *err)
{
    return a < 0 ? DTP_OK : dtp_axis_unify(x, &x->of[a][i], &x->of[b][k], err);
}

/* An axis of its own, whose class comes from "layers.*.fc1.gelu". */
static dtp_status fresh(dtp_axes *x, const dtp_aten_node *node, int64_t size, dtp_axis *out,
                        dtp_err *err)
{
    char general[512];
    const char *op = strchr(node->op, '.') == NULL ? node->op : strchr(node->op, '.') + 1;
    dtp_general_name(node->path, general, sizeof general);
    const char *origin = dtp_arena_printf(x->arena, "%s.%.*s", general, (int)strcspn(op, "."), op);
    DTP_TRY(DTP_MEMORY(err, origin));
    return dtp_axis_new(x, size, origin, out, err);
}

/* The class of `to` is that of `from`, a single one, and `more` elements. */
static void derive(dtp_axes *x, const dtp_axis *to, const dtp_axis *from, int64_t more)
{
    const int32_t one = dtp_axis_one(x, from);
    if (to->n == 1 && one >= 0) {
        x->cls[to->cls[0]].base = one;
        x->cls[to->cls[0]].more = more;
    }
}

dtp_status dtp_axes_same(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0);
    for (int32_t i = 0; i < node->n_outs; i++) {
        if (v < 0 || value(x, v)->rank != value(x, node->outs[i])->rank) {
            return missing("an output of another rank than its operand", err);
        }
        memcpy(x->of[node->outs[i]], x->of[v], sizeof x->of[v]);
    }
    return DTP_OK;
}

/* Axes of one value, where there is one, against those of the output, from the last on. */
static dtp_status meet(dtp_axes *x, int32_t v, int32_t out, dtp_err *err)
{
    if (v < 0) {
        return DTP_OK;
    }
    const int32_t more = value(x, out)->rank - value(x, v)->rank;
    if (more < 0) {
        return missing("an operand of a higher rank than the output", err);
    }
    for (int32_t i = 0; i < value(x, v)->rank; i++) {
        dtp_axis *to = &x->of[out][i + more];
        if (value(x, v)->sizes[i] == 1) {
            continue;
        }
        if (to->n == 0) {
            *to = x->of[v][i];
        }
        DTP_TRY(dtp_axis_unify(x, to, &x->of[v][i], err));
    }
    return DTP_OK;
}

/* Elementwise ops, expand: axes that no operand has are new. */
dtp_status dtp_axes_broadcast(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t out = node->outs[0];
    memset(x->of[out], 0, sizeof x->of[out]);
    for (int32_t i = 0; i < node->n_args; i++) {
        DTP_TRY(meet(x, dtp_aten_input(node, i), out, err));
    }
    for (int32_t i = 0; i < value(x, out)->rank; i++) {
        if (x->of[out][i].n == 0 && value(x, out)->sizes[i] != 1) {
            DTP_TRY(fresh(x, node, value(x, out)->sizes[i], &x->of[out][i], err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_axes_view(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0), out = node->outs[0];
    return dtp_axes_regroup(x, value(x, v)->rank, x->of[v], value(x, out)->rank,
                            value(x, out)->sizes, x->of[out], err);
}

dtp_status dtp_axes_permute(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0), out = node->outs[0], rank = value(x, v)->rank;
    uint32_t seen = 0;
    for (int32_t i = 0; i < rank && value(x, out)->rank == rank; i++) {
        const int32_t from = dtp_aten_from(x->g, node, i);
        seen |= from < 0 ? 0 : UINT32_C(1) << from;
        x->of[out][i] = x->of[v][from < 0 ? 0 : from];
    }
    return seen + 1 == UINT32_C(1) << rank ? DTP_OK : missing("a permutation of other axes", err);
}

/* Factors of a nearest element are those of the sizes, as far as they are said. */
static bool fits_factors(const dtp_axes *x, const dtp_aten_node *node)
{
    static const char *const names[] = {"scales_d", "scales_h", "scales_w", "scales"};
    const dtp_aten_value *v = value(x, dtp_aten_input(node, 0)), *out = value(x, node->outs[0]);
    const dtp_aten_arg *all = dtp_aten_arg_of(node, "scale_factors");
    bool fits = true;
    for (int32_t i = 0; i < 4; i++) {
        const int32_t axis = v->rank - 1 - (i == 3 ? 0 : 2 - i);
        const double by = dtp_aten_real(node, names[i], 0);
        fits = fits &&
               (by == 0 || (axis >= 0 && by * (double)v->sizes[axis] == (double)out->sizes[axis]));
    }
    for (int32_t i = 0; all != NULL && i < all->n && fits; i++) {
        const int32_t axis = v->rank - all->n + i;
        fits = axis >= 0 && all->reals[i] * (double)v->sizes[axis] == (double)out->sizes[axis];
    }
    return fits;
}

/* repeat, tile: an axis is so many times its elements; repeat_interleave and the nearest element of
 * a smaller image: each of them so many times. */
dtp_status dtp_axes_repeat(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0), out = node->outs[0], rank = value(x, out)->rank;
    const int32_t more = rank - value(x, v)->rank;
    const bool each = !dtp_aten_is(node, "repeat") && !dtp_aten_is(node, "tile");
    memset(x->of[out], 0, sizeof x->of[out]);
    for (int32_t i = 0; i < rank && more >= 0; i++) {
        const dtp_axis none = {0}, *own = i < more ? &none : &x->of[v][i - more];
        const int64_t size = i < more ? 1 : value(x, v)->sizes[i - more];
        const int64_t times = size < 1 ? 0 : value(x, out)->sizes[i] / size;
        dtp_axis *to = &x->of[out][i], by;
        DTP_TRY(fresh(x, node, times, &by, err));
        if (times < 1 || own->n + by.n > DTP_AXIS_PARTS) {
            return missing("an axis of no elements, or of many parts", err);
        }
        *to = each ? *own : by;
        const dtp_axis *then = each ? &by : own;
        memcpy(to->cls + to->n, then->cls, (size_t)then->n * sizeof to->cls[0]);
        to->n += then->n;
    }
    return more < 0 || !fits_factors(x, node)
               ? missing("a result of a lower rank, or factors that are not those of the sizes",
                         err)
               : DTP_OK;
}

dtp_status dtp_axes_reduce(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0), out = node->outs[0];
    const bool keep = value(x, out)->rank == value(x, v)->rank;
    int32_t to = 0;
    (void)err;
    memset(x->of[out], 0, sizeof x->of[out]);
    for (int32_t i = 0; i < value(x, v)->rank; i++) {
        if (dtp_aten_reduces(x->g, node, i)) {
            to += keep ? 1 : 0;
        } else {
            x->of[out][to++] = x->of[v][i];
        }
    }
    return DTP_OK;
}

/* ---- products ---- */

dtp_status dtp_axes_product(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    dtp_product p;
    const int32_t out = node->outs[0];
    DTP_TRY(dtp_product_of(x->g, node, &p, err));
    for (int32_t i = 0; i < p.n; i++) {
        const int32_t v = p.values[i];
        for (int32_t a = 0; a < value(x, v)->rank; a++) {
            const int32_t k = p.of[i][a];
            DTP_TRY(value(x, v)->sizes[a] == 1
                        ? DTP_OK
                        : unify(x, v, a, p.values[p.factor[k]], p.axis[k], err));
        }
    }
    memset(x->of[out], 0, sizeof x->of[out]);
    for (int32_t a = 0; a < value(x, out)->rank; a++) {
        const int32_t k = p.out[a];
        x->of[out][a] = x->of[p.values[p.factor[k]]][p.axis[k]];
    }
    return meet(x, p.added, out, err);
}

/* ---- rows ---- */

dtp_status dtp_axes_norm(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0);
    DTP_TRY(dtp_axes_same(x, node, err));
    DTP_TRY(meet(x, dtp_aten_operand(node, "weight"), v, err));
    return meet(x, dtp_aten_operand(node, "bias"), v, err);
}

dtp_status dtp_axes_embedding(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t w = dtp_aten_operand(node, "weight"), ids = dtp_aten_operand(node, "indices");
    if (w < 0 || ids < 0 || value(x, w)->rank != 2 || value(x, ids)->rank >= DTP_MAX_RANK) {
        return missing("a table that is no matrix", err);
    }
    memcpy(x->of[node->outs[0]], x->of[ids], sizeof x->of[ids]);
    x->of[node->outs[0]][value(x, ids)->rank] = x->of[w][1];
    return DTP_OK;
}

/* The only index of aten.index that is not counted, and the axis of x that it is of. The others are
 * None, or count along the only axis of that index. */
static int32_t only_index(const dtp_aten *g, const dtp_const *consts, const dtp_aten_arg *list,
                          const dtp_aten_value *x, dtp_lookup *out)
{
    int32_t ids = -1, last = -1;
    for (int32_t i = 0; i < list->n; i++) {
        const int32_t v = list->values[i];
        if (v < 0) {
            continue;
        }
        if (i >= x->rank || (last >= 0 && last != i - 1)) {
            return -1; /* of axes that are not side by side */
        }
        last = i;
        out->first = out->first < 0 ? i : out->first;
        const dtp_aten_value *at = &g->values[v];
        if (consts[v].kind == DTP_CONST_INDEX && consts[v].low == 0 && at->rank == 1 &&
            at->sizes[0] == x->sizes[i]) { /* 0, 1, .. for all of the axis */
            out->counted |= UINT32_C(1) << i;
        } else if (ids < 0) {
            ids = v;
            out->over = i;
        } else {
            return -1;
        }
    }
    const int32_t rank = ids < 0 ? 0 : g->values[ids].rank;
    return rank == 1 || (rank > 0 && out->counted == 0) ? ids : -1;
}

dtp_status dtp_lookup_of(const dtp_aten *g, const dtp_const *consts, const dtp_aten_node *node,
                         dtp_lookup *out, dtp_err *err)
{
    const int32_t x = dtp_aten_input(node, 0), rank = g->values[x].rank;
    const dtp_aten_arg *list = dtp_aten_arg_of(node, "indices");
    *out = (dtp_lookup){.gathers = dtp_aten_is(node, "gather"), .first = -1};
    if (dtp_aten_is(node, "dtp.take")) {
        *out = (dtp_lookup){.ids = dtp_aten_operand(node, "index"), .over = 1, .counted = 1};
        for (int32_t i = 2; i < rank; i++) {
            out->to[i] = g->values[out->ids].rank + i - 2;
        }
        return DTP_OK;
    }
    out->over = dtp_aten_axis(dtp_aten_int(node, "dim", 0), rank);
    out->ids = list == NULL ? dtp_aten_operand(node, "index")
                            : only_index(g, consts, list, &g->values[x], out);
    const dtp_aten_value *ids = out->ids < 0 ? NULL : &g->values[out->ids];
    int32_t n = 0, more = ids == NULL || out->gathers ? 0 : ids->rank - 1;
    for (int32_t i = 0; i < rank; i++) {
        n += (out->counted >> i & 1) != 0 ? 0 : 1;
    }
    if (ids == NULL || out->over < 0 || g->values[node->outs[0]].rank != n + more ||
        (ids->dtype != ATEN_I64 && ids->dtype != ATEN_I32) || (out->gathers && ids->rank != rank)) {
        return missing("positions that are no integers, or along several axes", err);
    }
    out->first = out->gathers ? 0 : out->first < 0 ? out->over : out->first;
    n = 0;
    for (int32_t i = 0; i < rank; i++) {
        const bool counted = (out->counted >> i & 1) != 0;
        out->to[i] = counted ? out->first : i < out->first ? n : n + more;
        n += counted ? 0 : 1;
    }
    return DTP_OK;
}

dtp_status dtp_axes_lookup(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0), out = node->outs[0];
    dtp_lookup u;
    DTP_TRY(dtp_lookup_of(x->g, x->consts, node, &u, err));
    for (int32_t i = 0; i < value(x, v)->rank; i++) {
        const bool counted = (u.counted >> i & 1) != 0;
        if (i != u.over) {
            x->of[out][u.to[i]] = x->of[v][i];
            DTP_TRY(u.gathers || counted ? unify(x, u.ids, counted ? 0 : i, v, i, err) : DTP_OK);
        }
    }
    for (int32_t i = 0; i < value(x, u.ids)->rank; i++) {
        if (!u.gathers || i == u.over) {
            x->of[out][u.first + i] = x->of[u.ids][i];
        }
    }
    return DTP_OK;
}

/* dtp.slots: where each choice of a token is among the slots of its expert, whether it has one, and
 * which token each slot holds, [rows, experts, capacity]: as many as a row has tokens. */
dtp_status dtp_axes_slots(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t ids = dtp_aten_input(node, 0);
    char general[512];
    if (ids < 0 || node->n_outs != 3 || value(x, ids)->rank != 3) {
        return missing("experts that are not chosen by tokens of rows", err);
    }
    dtp_axis *source = x->of[node->outs[2]];
    const dtp_axis *tokens = &x->of[ids][1];
    memcpy(x->of[node->outs[0]], x->of[ids], sizeof x->of[ids]);
    memcpy(x->of[node->outs[1]], x->of[ids], sizeof x->of[ids]);
    source[0] = x->of[ids][0];
    dtp_general_name(node->path, general, sizeof general);
    DTP_TRY(fresh(x, node, dtp_aten_int(node, "experts", 0), &source[1], err));
    const char *origin = dtp_arena_printf(x->arena, "%s.capacity.%d", general,
                                          tokens->n == 0 ? -1 : dtp_class_root(x, tokens->cls[0]));
    DTP_TRY(DTP_MEMORY(err, origin));
    DTP_TRY(dtp_axis_new(x, value(x, ids)->sizes[1], origin, &source[2], err));
    derive(x, &source[2], tokens, 0);
    return DTP_OK;
}

/* dtp.entries: the same for which choice each slot holds. */
dtp_status dtp_axes_entries(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t like = dtp_aten_operand(node, "like");
    if (like < 0) {
        return missing("slots of no experts", err);
    }
    memcpy(x->of[node->outs[0]], x->of[like], sizeof x->of[like]);
    return DTP_OK;
}

dtp_status dtp_axes_one_hot(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0), out = node->outs[0], last = value(x, v)->rank;
    if (value(x, out)->rank != last + 1) {
        return missing("an output of another rank", err);
    }
    memcpy(x->of[out], x->of[v], sizeof x->of[v]);
    return fresh(x, node, value(x, out)->sizes[last], &x->of[out][last], err);
}

dtp_status dtp_axes_topk(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t rank = value(x, dtp_aten_input(node, 0))->rank;
    const int32_t axis = dtp_aten_axis(dtp_aten_int(node, "dim", -1), rank);
    DTP_TRY(dtp_axes_same(x, node, err));
    if (axis < 0 || node->n_outs != 2 || dtp_aten_int(node, "sorted", 1) != 1) {
        return missing("no such axis, or an order that is not said", err);
    }
    DTP_TRY(fresh(x, node, value(x, node->outs[0])->sizes[axis], &x->of[node->outs[0]][axis], err));
    x->of[node->outs[1]][axis] = x->of[node->outs[0]][axis];
    return DTP_OK;
}

/* Rows of logits and labels are the same; classes are axis 1, or 0 of a single row. */
dtp_status dtp_axes_cross_entropy(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0), labels = dtp_aten_operand(node, "target");
    const int32_t over = v >= 0 && value(x, v)->rank > 1 ? 1 : 0, out = node->outs[0];
    if (v < 0 || labels < 0 || value(x, labels)->rank != value(x, v)->rank - 1 ||
        value(x, labels)->dtype != ATEN_I64) {
        return missing("labels that are no class numbers", err);
    }
    memset(x->of[out], 0, sizeof x->of[out]);
    for (int32_t i = 0; i < value(x, labels)->rank; i++) {
        DTP_TRY(unify(x, labels, i, v, i < over ? i : i + 1, err));
        if (value(x, out)->rank > 0) {
            x->of[out][i] = x->of[labels][i];
        }
    }
    return DTP_OK;
}

/* ---- pieces ---- */

/* cat; stack, whose operands lack the axis. The operands are those that were checked. */
dtp_status dtp_axes_cat(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const dtp_aten_arg *list = &node->args[0];
    const int32_t out = node->outs[0], rank = value(x, out)->rank;
    const int32_t axis = dtp_aten_axis(dtp_aten_int(node, "dim", 0), rank);
    const int32_t lacks = dtp_aten_is(node, "stack") ? 1 : 0;
    memset(x->of[out], 0, sizeof x->of[out]);
    for (int32_t k = 0; k < list->n && axis >= 0; k++) {
        const int32_t v = list->values[k];
        if (value(x, v)->rank + lacks != rank) {
            return missing("operands of several ranks", err);
        }
        for (int32_t i = 0; i < rank; i++) {
            const dtp_axis *from = &x->of[v][i > axis ? i - lacks : i];
            dtp_axis *to = &x->of[out][i];
            *to = k == 0 && i != axis ? *from : *to;
            DTP_TRY(i == axis ? DTP_OK : dtp_axis_unify(x, to, from, err));
        }
    }
    return axis < 0 ? missing("no such axis", err)
                    : fresh(x, node, value(x, out)->sizes[axis], &x->of[out][axis], err);
}

/* A convolution whose stride is its kernel: every axis of the image is patches times the kernel's
 * axis. */
dtp_status dtp_axes_patches(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0), w = dtp_aten_operand(node, "weight"),
                  out = node->outs[0];
    const int32_t bias = dtp_aten_operand(node, "bias"), rank = v < 0 ? 0 : value(x, v)->rank;
    x->of[out][0] = x->of[v][0];
    x->of[out][1] = x->of[w][0];
    DTP_TRY(unify(x, v, 1, w, 1, err));
    DTP_TRY(unify(x, bias, 0, w, 0, err));
    for (int32_t i = 2; i < rank; i++) {
        const int64_t sizes[2] = {value(x, out)->sizes[i], value(x, w)->sizes[i]};
        dtp_axis parts[2];
        DTP_TRY(dtp_axes_regroup(x, 1, &x->of[v][i], 2, sizes, parts, err));
        DTP_TRY(dtp_axis_unify(x, &parts[1], &x->of[w][i], err));
        x->of[out][i] = parts[0];
    }
    return DTP_OK;
}

dtp_status dtp_axes_slice(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    DTP_TRY(dtp_axes_same(x, node, err));
    const int32_t v = dtp_aten_input(node, 0), out = node->outs[0];
    const int32_t axis = dtp_aten_axis(dtp_aten_int(node, "dim", 0), value(x, v)->rank);
    const int64_t start = dtp_aten_int(node, "start", 0),
                  end = dtp_aten_int(node, "end", INT64_MAX);
    if (axis < 0 || dtp_aten_int(node, "step", 1) != 1) {
        return missing("a slice with a step", err);
    }
    const int64_t size = value(x, v)->sizes[axis], kept = value(x, out)->sizes[axis];
    const int64_t first = start < -size ? 0 : start < 0 ? start + size : start;
    const int64_t last = end < -size ? 0 : end < 0 ? end + size : end < size ? end : size;
    if (kept != (last > first ? last - first : 0)) {
        return DTP_FAIL(err, DTP_INVALID, "a slice of %" PRId64 " elements has %" PRId64,
                        last > first ? last - first : 0, kept);
    }
    if (kept == size) {
        return DTP_OK;
    }
    DTP_TRY(fresh(x, node, kept, &x->of[out][axis], err));
    if (start >= 0 && (end < 0 || end >= size)) { /* all but so many */
        derive(x, &x->of[out][axis], &x->of[v][axis], kept - size);
    }
    return DTP_OK;
}

dtp_status dtp_axes_select(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0), out = node->outs[0];
    const int32_t axis = dtp_aten_axis(dtp_aten_int(node, "dim", 0), value(x, v)->rank);
    if (axis < 0) {
        return missing("no such axis", err);
    }
    memset(x->of[out], 0, sizeof x->of[out]);
    for (int32_t i = 0; i < value(x, out)->rank; i++) {
        x->of[out][i] = x->of[v][i < axis ? i : i + 1];
    }
    return DTP_OK;
}

/* Equal pieces: the axis is pieces times what each has, where that is a boundary of its parts. */
dtp_status dtp_axes_split(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t v = dtp_aten_input(node, 0);
    const int32_t axis = dtp_aten_axis(dtp_aten_int(node, "dim", 0), value(x, v)->rank);
    if (axis < 0 || node->n_outs == 0) {
        return missing("no such axis", err);
    }
    DTP_TRY(dtp_axes_same(x, node, err));
    const int64_t size = value(x, v)->sizes[axis], piece = value(x, node->outs[0])->sizes[axis];
    const int64_t sizes[2] = {node->n_outs, piece};
    dtp_axis parts[2];
    const bool equal = piece * node->n_outs == size && piece > 1 &&
                       dtp_axes_regroup(x, 1, &x->of[v][axis], 2, sizes, parts, NULL) == DTP_OK &&
                       parts[0].n == 1;
    if (equal) {
        x->cls[dtp_class_root(x, parts[0].cls[0])].pieces = true;
    }
    for (int32_t i = 0; i < node->n_outs; i++) {
        const int32_t out = node->outs[i];
        if (equal) {
            x->of[out][axis] = parts[1];
        } else {
            DTP_TRY(fresh(x, node, value(x, out)->sizes[axis], &x->of[out][axis], err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_axes_pad(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const dtp_aten_arg *pad = dtp_aten_arg_of(node, "pad");
    DTP_TRY(dtp_axes_same(x, node, err));
    const int32_t v = dtp_aten_input(node, 0), out = node->outs[0];
    const int32_t axis = dtp_aten_axis(dtp_aten_int(node, "dim", -1), value(x, v)->rank);
    if (pad == NULL || pad->n != 2 || axis < 0) {
        return missing("padding that is not by a constant", err);
    }
    if (pad->ints[0] + pad->ints[1] == 0) { /* a shift */
        return DTP_OK;
    }
    DTP_TRY(fresh(x, node, value(x, out)->sizes[axis], &x->of[out][axis], err));
    derive(x, &x->of[out][axis], &x->of[v][axis], pad->ints[0] + pad->ints[1]);
    return DTP_OK;
}

/* ---- attention ---- */

/* Heads of q are those of k, each so many times. */
static dtp_status group_heads(dtp_axes *x, const dtp_aten_node *node, int32_t q, int32_t k,
                              int32_t axis, dtp_err *err)
{
    const int64_t n = value(x, q)->sizes[axis], kept = value(x, k)->sizes[axis];
    if (kept == 1 || n == kept) {
        return kept == 1 ? DTP_OK : unify(x, q, axis, k, axis, err);
    }
    dtp_axis both = x->of[k][axis], group;
    if (n % kept != 0 || both.n == DTP_AXIS_PARTS) {
        return missing("heads of keys that do not divide those of queries", err);
    }
    DTP_TRY(fresh(x, node, n / kept, &group, err));
    both.cls[both.n++] = group.cls[0];
    return dtp_axis_unify(x, &x->of[q][axis], &both, err);
}

/* A mask of batch, heads, queries and keys, each perhaps of size 1. */
static dtp_status meet_mask(dtp_axes *x, const dtp_aten_node *node, int32_t q, int32_t k,
                            dtp_err *err)
{
    const int32_t mask = dtp_aten_operand(node, "mask"), n = value(x, mask)->rank;
    const int32_t more = value(x, q)->rank - n;
    for (int32_t i = 0; i < n; i++) {
        const dtp_axis *to = i == n - 1 ? &x->of[k][i + more - 1] : &x->of[q][i + more];
        if (more < 0 || value(x, mask)->sizes[i] == 1) {
            continue;
        }
        DTP_TRY(dtp_axis_unify(x, &x->of[mask][i], to, err));
    }
    return DTP_OK;
}

dtp_status dtp_axes_attention(dtp_axes *x, const dtp_aten_node *node, dtp_err *err)
{
    const int32_t q = dtp_aten_operand(node, "query"), k = dtp_aten_operand(node, "key");
    const int32_t v = dtp_aten_operand(node, "value"), out = node->outs[0];
    const int32_t r = value(x, q)->rank;
    if (r < 3 || value(x, k)->rank != r || value(x, v)->rank != r || value(x, out)->rank != r) {
        return missing("operands of several ranks", err);
    }
    for (int32_t i = 0; i < r - 2; i++) {
        DTP_TRY(unify(x, k, i, v, i, err));
        DTP_TRY(group_heads(x, node, q, k, i, err));
    }
    DTP_TRY(unify(x, k, r - 2, v, r - 2, err));
    DTP_TRY(unify(x, q, r - 1, k, r - 1, err));
    if (value(x, v)->sizes[r - 1] == value(x, q)->sizes[r - 1]) {
        DTP_TRY(unify(x, q, r - 1, v, r - 1, err));
    }
    memcpy(x->of[out], x->of[q], sizeof x->of[q]);
    x->of[out][r - 1] = x->of[v][r - 1];
    return dtp_aten_operand(node, "mask") < 0 ? DTP_OK : meet_mask(x, node, q, k, err);
}
