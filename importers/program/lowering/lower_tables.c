/* Tables that integers are read at, labels. */
#include <inttypes.h>
#include <string.h>

#include "core/graph/ops/op_table.h"
#include "importers/program/lowering/aten_ops.h"
#include "importers/program/lowering/lower.h"

/* Integers of tensor `id` are below the size of a class. */
static void bound(dtp_importer *m, const char *id, int32_t cls)
{
    const int32_t node = dtp_name_find(&m->ids, id), value = dtp_name_find(&m->g->sources, id);
    const bool fed = node < 0 && value >= 0 && m->g->values[value].dtype <= ATEN_I64;
    int32_t *below = node >= 0 ? &m->nodes[node].below : fed ? &m->below[value] : NULL;
    if (cls >= 0 && below != NULL &&
        (*below < 0 || m->axes.cls[cls].size < m->axes.cls[*below].size)) {
        *below = cls;
    }
}

/* Integers that a table is read at are below the size of axis `axis` of `table`, which is one part.
 */
static void set_below(dtp_importer *m, const dtp_use *use, int32_t table, int32_t axis)
{
    bound(m, use->id, dtp_axis_one(&m->axes, &m->axes.of[table][axis]));
}

void dtp_carry_bounds(dtp_importer *m)
{
    for (int32_t i = m->n - 1; i >= 0; i--) {
        const dtp_out_node *node = &m->nodes[i];
        const dtp_op_def *op = node->below < 0 ? NULL : dtp_op_find(node->op);
        const bool truth = strstr(node->attrs, "\"bool\"") != NULL; /* of a cast */
        const int32_t n = op == NULL || truth ? 0 : dtp_op_moved(op, node->n_in);
        for (int32_t k = 0; k < n; k++) {
            bound(m, node->in[k], node->below);
        }
    }
}

/* Rows start .. of the table in the place of an index of them. */
static dtp_status table_slice(dtp_lowering *l, int32_t over, double start, const char *size,
                              dtp_err *err)
{
    if (!(start >= 0 && start < 9e15)) {
        return DTP_FAIL(err, DTP_INVALID, "row %g of a table", start);
    }
    const int64_t at = (int64_t)start;
    const char *from = at == 0 ? "" : dtp_arena_printf(l->m->arena, "%" PRId64 "+", at);
    const char *attrs =
        dtp_arena_printf(l->m->arena, "\"dim\": \"%s\", \"start\": %" PRId64 ", \"stop\": \"%s%s\"",
                         dtp_group_name(l, over), at, from, size);
    DTP_TRY(dtp_emit_one(l, "slice", "slice", &l->uses[0].id, NULL, attrs, err));
    return dtp_emit_value(l, "relabel", "", err);
}

dtp_status dtp_lower_embedding(dtp_lowering *l, dtp_err *err)
{
    dtp_importer *m = l->m;
    const int32_t w = dtp_aten_operand(l->node, "weight");
    const int32_t ids = dtp_aten_operand(l->node, "indices");
    int32_t table[DTP_MAX_RANK];
    DTP_TRY(dtp_groups_of(l, ids, l->firsts, err));
    DTP_TRY(dtp_groups_of(l, w, table, err));
    l->firsts[dtp_value_of(l, ids)->rank] = table[1];
    DTP_TRY(dtp_use_add(l, w, table, err));
    if (dtp_axis_parts(m, w, 0) != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a table whose rows are split");
    }
    if (dtp_value_of(l, ids)->role == ATEN_CONST) {
        DTP_TRY(dtp_settle(l, err));
        const dtp_const *c = &m->consts[ids];
        const int32_t axis = c->axis[0];
        if (dtp_aten_int(l->node, "padding_idx", -1) >= 0) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "rows that are constant, and one without gradient");
        }
        if (c->kind == DTP_CONST_INDEX) {
            for (int32_t k = 0; k < dtp_axis_parts(m, ids, axis); k++) {
                l->groups.alias[l->firsts[axis] + k] = 0;
            }
            return table_slice(l, table[0], c->low, dtp_axis_size(m, ids, axis), err);
        }
        if (c->kind == DTP_CONST_UNIFORM) {
            return table_slice(l, table[0], c->low, "1", err);
        }
    }
    DTP_TRY(dtp_use_add(l, ids, l->firsts, err));
    DTP_TRY(dtp_settle(l, err));
    set_below(m, &l->uses[1], w, 0);
    const char *attrs = dtp_arena_printf(m->arena, "\"over\": \"%s\"", dtp_group_name(l, table[0]));
    const int64_t padding = dtp_aten_int(l->node, "padding_idx", -1);
    if (padding >= 0) {
        attrs = dtp_joined(m, attrs, ", ",
                           dtp_arena_printf(m->arena, "\"padding\": %" PRId64, padding));
    }
    return dtp_emit_value(l, "embedding", attrs, err);
}

dtp_status dtp_lower_cross_entropy(dtp_lowering *l, dtp_err *err)
{
    static const char *const kinds[] = {"none", "mean", "sum"};
    const int32_t labels = dtp_aten_operand(l->node, "target"), rank = dtp_value_of(l, l->x)->rank;
    const int32_t over = rank > 1 ? 1 : 0;
    const int64_t kind = dtp_aten_int(l->node, "reduction", 1);
    int32_t firsts[DTP_MAX_RANK], n = 0;
    if (dtp_aten_operand(l->node, "weight") >= 0 || kind < 0 || kind > 2 ||
        dtp_axis_parts(l->m, l->x, over) != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "class weights, or classes that are split");
    }
    DTP_TRY(dtp_groups_of(l, l->x, firsts, err));
    for (int32_t i = 0; i < rank; i++) {
        if (i != over) {
            l->firsts[n++] = firsts[i];
        }
    }
    DTP_TRY(dtp_use_add(l, l->x, firsts, err));
    DTP_TRY(dtp_use_add(l, labels, l->firsts, err));
    DTP_TRY(dtp_settle(l, err));
    for (int32_t i = 0; i < 2; i++) {
        const bool lacks = l->m->low[l->uses[i].value].n_dims < l->uses[i].n;
        DTP_TRY(lacks ? dtp_whole(l, &l->uses[i], err) : DTP_OK);
    }
    set_below(l->m, &l->uses[1], l->x, over);
    const char *attrs = dtp_arena_printf(
        l->m->arena, "\"over\": \"%s\", \"reduce\": \"%s\", \"ignore\": %" PRId64,
        dtp_group_name(l, firsts[over]), kinds[kind], dtp_aten_int(l->node, "ignore_index", -100));
    const double smoothing = dtp_aten_real(l->node, "label_smoothing", 0);
    if (smoothing != 0) {
        attrs = dtp_joined(l->m, attrs, ", ", dtp_real_attr(l->m, "smoothing", smoothing));
    }
    return dtp_emit_value(l, "cross_entropy", attrs, err);
}

/* ---- elements at integer positions ---- */

/* gather, index_select, x[:, ids]: `over` is the axis of x that is read at. */
dtp_status dtp_lower_lookup(dtp_lowering *l, dtp_err *err)
{
    dtp_lookup u;
    int32_t x[DTP_MAX_RANK];
    DTP_TRY(dtp_lookup_of(l->m->g, l->m->consts, l->node, &u, err));
    const bool split = dtp_axis_parts(l->m, l->x, u.over) != 1;
    const char *piece = NULL;
    const dtp_const *c = &l->m->consts[u.ids];
    if (c->kind != DTP_CONST_OTHER && c->kind != DTP_CONST_STEP && c->low < 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "positions counted from the end");
    }
    DTP_TRY(dtp_groups_of(l, l->out, l->firsts, err));
    DTP_TRY(split ? DTP_OK : dtp_groups_add(l, l->x, u.over, &x[u.over], err));
    for (int32_t i = 0; i < dtp_value_of(l, l->x)->rank; i++) {
        x[i] = i == u.over ? (split ? -1 : x[i]) : l->firsts[u.to[i]];
    }
    if (split) {
        DTP_TRY(dtp_one_dim(l, l->x, u.over, x, &piece, err));
        l->n = 1;
        l->uses[0] = (dtp_use){.value = -1, .id = piece, .whole = true};
    } else {
        DTP_TRY(dtp_use_add(l, l->x, x, err));
    }
    DTP_TRY(dtp_use_add(l, u.ids, l->firsts + u.first, err));
    DTP_TRY(dtp_settle(l, err));
    DTP_TRY(split ? DTP_OK : dtp_whole(l, &l->uses[0], err));
    if (l->m->low[u.ids].n_dims < l->uses[1].n || u.gathers) {
        DTP_TRY(dtp_whole(l, &l->uses[1], err));
    }
    set_below(l->m, &l->uses[1], l->x, u.over);
    const char *attrs = dtp_arena_printf(l->m->arena, "\"over\": \"%s\"",
                                         split ? DTP_PIECE : dtp_group_name(l, x[u.over]));
    return dtp_emit_value(l, l->op->ours, attrs, err);
}

/* Classes that are several dims: whether the index of the class is the label. */
static dtp_status split_classes(dtp_lowering *l, int32_t last, dtp_err *err)
{
    dtp_importer *m = l->m;
    const int32_t n = dtp_axis_parts(m, l->out, last);
    const char *in[2], *type, *dims = "", *size = dtp_axis_size(m, l->out, last);
    if (n < 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a single class");
    }
    for (int32_t i = 0; i < n; i++) {
        dtp_name_group(&l->groups, l->firsts[last] + i, 0);
    }
    DTP_TRY(dtp_whole(l, &l->uses[0], err));
    DTP_TRY(dtp_type_attr(m, dtp_value_of(l, l->x)->dtype, &type, err));
    const dtp_out_node index = {
        "index", "iota", .out = dtp_joined(m, DTP_PIECE, "=", size),
        .attrs = dtp_arena_printf(m->arena, "\"dim\": \"" DTP_PIECE "\", %s", type)};
    DTP_TRY(DTP_MEMORY(err, index.out));
    DTP_TRY(dtp_emit(l, &index, &in[1], err));
    DTP_TRY(dtp_emit_one(l, "index", "relabel", &in[1], dtp_group_names(l, l->firsts[last], n, ","),
                         "", err));
    in[0] = l->uses[0].id;
    for (int32_t i = 0; i <= last; i++) {
        const int32_t parts = dtp_axis_parts(m, l->out, i);
        dims = parts == 0 ? dims
                          : dtp_joined(m, dims, ",", dtp_group_names(l, l->firsts[i], parts, ","));
    }
    DTP_TRY(DTP_MEMORY(err, dims));
    const dtp_out_node o = {"one_hot",         "compare", 2, in,   dims,
                            "\"cmp\": \"eq\"", NULL,      0, NULL, -1};
    DTP_TRY(dtp_emit(l, &o, &in[0], err));
    DTP_TRY(dtp_type_attr(m, dtp_value_of(l, l->out)->dtype, &type, err));
    l->n = 1;
    l->uses[0] = (dtp_use){.value = -1, .id = in[0]};
    return dtp_emit_value(l, "cast", type, err);
}

dtp_status dtp_lower_one_hot(dtp_lowering *l, dtp_err *err)
{
    const int32_t last = dtp_value_of(l, l->out)->rank - 1;
    const char *type;
    DTP_TRY(dtp_groups_of(l, l->out, l->firsts, err));
    DTP_TRY(dtp_use_add(l, l->x, l->firsts, err));
    DTP_TRY(dtp_settle(l, err));
    if (dtp_axis_parts(l->m, l->out, last) != 1) {
        return split_classes(l, last, err);
    }
    dtp_name_group(&l->groups, l->firsts[last], 0);
    DTP_TRY(dtp_whole(l, &l->uses[0], err));
    set_below(l->m, &l->uses[0], l->out, last);
    const char *dim = dtp_group_name(l, l->firsts[last]);
    DTP_TRY(dtp_emit_one(l, "one_hot", "one_hot", &l->uses[0].id, NULL,
                         dtp_arena_printf(l->m->arena, "\"dim\": \"%s\"", dim), err));
    DTP_TRY(dtp_type_attr(l->m, dtp_value_of(l, l->out)->dtype, &type, err));
    return dtp_emit_value(l, "cast", type, err);
}
