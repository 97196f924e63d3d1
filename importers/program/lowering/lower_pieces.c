/* Views, and pieces of axes: slices, splits, concatenation, padding. */
#include <inttypes.h>
#include <string.h>

#include "importers/program/lowering/aten_ops.h"
#include "importers/program/lowering/lower.h"

/* The axis that the argument "dim" names. */
static int32_t dim_of(const dtp_lowering *l, int32_t value)
{
    return dtp_aten_axis(dtp_aten_int(l->node, "dim", 0), dtp_value_of(l, value)->rank);
}

dtp_status dtp_lower_view(dtp_lowering *l, dtp_err *err)
{
    return dtp_low_view(l, NULL, err);
}

dtp_status dtp_lower_permute(dtp_lowering *l, dtp_err *err)
{
    int32_t from[DTP_MAX_RANK];
    for (int32_t i = 0; i < dtp_value_of(l, l->out)->rank; i++) {
        from[i] = dtp_aten_from(l->m->g, l->node, i);
    }
    return dtp_low_view(l, from, err);
}

/* What repeats is no dim of the tensor: the other parts of every axis are those of the operand. */
dtp_status dtp_lower_repeat(dtp_lowering *l, dtp_err *err)
{
    const bool each = !dtp_aten_is(l->node, "repeat") && !dtp_aten_is(l->node, "tile");
    const int32_t rank = dtp_value_of(l, l->out)->rank, more = rank - dtp_value_of(l, l->x)->rank;
    const dtp_low *in;
    int32_t place[DTP_FLAT_PARTS], n = 0, part = 0;
    DTP_TRY(dtp_low_get(l, l->x, &in, err));
    dtp_low low = {.id = in->id, .n_dims = in->n_dims, .param = in->param};
    low.n = dtp_axis_leaves(&l->m->axes, rank, l->m->axes.of[l->out], low.cls, DTP_FLAT_PARTS);
    memset(low.alias, -1, sizeof low.alias);
    for (int32_t i = 0; i < rank; i++) {
        const int32_t all = dtp_axis_parts(l->m, l->out, i);
        const int32_t own = i < more ? 0 : dtp_axis_parts(l->m, l->x, i - more);
        for (int32_t k = 0; k < own; k++, n++) {
            place[n] = part + k + (each ? 0 : all - own);
            low.alias[place[n]] = in->alias[n];
        }
        part += all;
    }
    for (int32_t i = 0; i < in->n_dims; i++) {
        low.order[i] = (int8_t)place[in->order[i]];
    }
    l->m->low[l->out] = low;
    return DTP_OK;
}

/* ---- pieces of one axis ---- */

/* Dims of a value in the order of its axes, with `piece` in the place of axis `axis`. */
static const char *dims_of(dtp_lowering *l, int32_t value, int32_t axis, const int32_t *firsts,
                           const char *piece)
{
    const char *dims = "";
    for (int32_t i = 0; i < dtp_value_of(l, value)->rank; i++) {
        const int32_t n = dtp_axis_parts(l->m, value, i);
        dims =
            dtp_joined(l->m, dims, ",", i == axis ? piece : dtp_group_names(l, firsts[i], n, ","));
    }
    return dims;
}

dtp_status dtp_one_dim(dtp_lowering *l, int32_t value, int32_t axis, const int32_t *firsts,
                       const char **id, dtp_err *err)
{
    const int32_t kept = l->groups.n; /* the axis has groups of its own, here alone */
    int32_t mine[DTP_MAX_RANK];
    memcpy(mine, firsts, sizeof mine);
    l->n = 0;
    DTP_TRY(dtp_groups_add(l, value, axis, &mine[axis], err));
    DTP_TRY(dtp_use_add(l, value, mine, err));
    DTP_TRY(dtp_settle(l, err));
    DTP_TRY(dtp_whole(l, &l->uses[0], err));
    l->groups.n = kept;
    const char *dims = dims_of(l, value, axis, firsts,
                               dtp_joined(l->m, DTP_PIECE, "=", dtp_axis_size(l->m, value, axis)));
    DTP_TRY(DTP_MEMORY(err, dims));
    *id = l->uses[0].id;
    return dtp_emit_one(l, "relabel", "relabel", id, dims, "", err);
}

dtp_status dtp_groups_but(dtp_lowering *l, int32_t axis, dtp_err *err)
{
    l->groups.n = 0;
    for (int32_t i = 0; i < dtp_value_of(l, l->out)->rank; i++) {
        l->firsts[i] = -1;
        DTP_TRY(i == axis ? DTP_OK : dtp_groups_add(l, l->out, i, &l->firsts[i], err));
    }
    return DTP_OK;
}

dtp_status dtp_from_piece(dtp_lowering *l, const char *id, int32_t axis, dtp_err *err)
{
    l->n = 1;
    l->uses[0] = (dtp_use){.value = -1, .id = id};
    if (axis >= 0) {
        DTP_TRY(dtp_groups_add(l, l->out, axis, &l->firsts[axis], err));
        for (int32_t i = 0; i < dtp_axis_parts(l->m, l->out, axis); i++) {
            dtp_name_group(&l->groups, l->firsts[axis] + i, 0);
        }
    }
    return dtp_emit_value(l, "relabel", "", err);
}

/* Elements of an axis from `start` on, as many as the result has; `gone`: one, and the result lacks
 * the axis. */
static dtp_status cut(dtp_lowering *l, int32_t axis, bool gone, const char *start, dtp_err *err)
{
    int32_t mine[DTP_MAX_RANK] = {0};
    const char *id;
    DTP_TRY(dtp_groups_but(l, gone ? -1 : axis, err));
    for (int32_t i = 0; i < dtp_value_of(l, l->out)->rank; i++) {
        mine[gone && i >= axis ? i + 1 : i] = l->firsts[i];
    }
    DTP_TRY(dtp_one_dim(l, l->x, axis, mine, &id, err));
    const char *size = gone ? "1" : dtp_axis_size(l->m, l->out, axis);
    const char *stop = strcmp(start, "0") == 0 ? size : dtp_joined(l->m, start, "+", size);
    const char *attrs = dtp_arena_printf(
        l->m->arena, "\"dim\": \"" DTP_PIECE "\", \"start\": \"%s\", \"stop\": \"%s\"", start,
        stop);
    DTP_TRY(dtp_emit_one(l, "piece", "slice", &id, NULL, attrs, err));
    return dtp_from_piece(l, id, gone ? -1 : axis, err);
}

/* A place counted from the end stays there when the size changes. */
static const char *place(const dtp_lowering *l, int32_t axis, int64_t at)
{
    dtp_importer *m = l->m;
    return at >= 0 ? dtp_arena_printf(m->arena, "%" PRId64, at)
                   : dtp_arena_printf(m->arena, "%s-%" PRId64, dtp_axis_size(m, l->x, axis), -at);
}

dtp_status dtp_lower_slice(dtp_lowering *l, dtp_err *err)
{
    const int32_t axis = dim_of(l, l->x);
    const int64_t size = dtp_value_of(l, l->x)->sizes[axis];
    const int64_t start = dtp_aten_int(l->node, "start", 0);
    return size == dtp_value_of(l, l->out)->sizes[axis]
               ? dtp_low_view(l, NULL, err)
               : cut(l, axis, false, place(l, axis, start < -size ? 0 : start), err);
}

/* Piece i of an axis whose outer part counts equal pieces: that part is cut and gone. */
static dtp_status outer_piece(dtp_lowering *l, int32_t axis, int32_t i, dtp_err *err)
{
    DTP_TRY(dtp_only_operand(l, err));
    DTP_TRY(dtp_whole(l, &l->uses[0], err));
    const char *attrs =
        dtp_arena_printf(l->m->arena, "\"dim\": \"%s\", \"start\": %d, \"stop\": %d",
                         dtp_group_name(l, l->firsts[axis]), i, i + 1);
    DTP_TRY(dtp_emit_one(l, "slice", "slice", &l->uses[0].id, NULL, attrs, err));
    l->firsts[axis]++;
    return dtp_emit_value(l, "relabel", "", err);
}

/* split, chunk; select */
dtp_status dtp_lower_pieces(dtp_lowering *l, dtp_err *err)
{
    const int32_t axis = dim_of(l, l->x);
    if (l->op->ours != NULL) { /* select: a piece of one element */
        return cut(l, axis, true, place(l, axis, dtp_aten_int(l->node, "index", 0)), err);
    }
    /* Whether the outer part of the axis counts the pieces, and the others are those of a piece. */
    const dtp_axes *x = &l->m->axes;
    int32_t all[DTP_FLAT_PARTS], piece[DTP_FLAT_PARTS];
    const int32_t n_all = dtp_axis_leaves(x, 1, &x->of[l->x][axis], all, DTP_FLAT_PARTS);
    const int32_t n_one = dtp_axis_leaves(x, 1, &x->of[l->out][axis], piece, DTP_FLAT_PARTS);
    const bool equal = n_all > 1 && n_all == n_one + 1 &&
                       memcmp(all + 1, piece, (size_t)n_one * sizeof piece[0]) == 0;
    int64_t at = 0;
    for (int32_t i = 0; i < l->node->n_outs; i++) {
        dtp_lowering one = dtp_lowering_of(l->m, l->node, l->op, l->node->outs[i]);
        DTP_TRY(equal ? outer_piece(&one, axis, i, err)
                      : cut(&one, axis, false, place(l, axis, at), err));
        at += dtp_value_of(l, one.out)->sizes[axis];
    }
    return DTP_OK;
}

/* cumsum, roll */
dtp_status dtp_lower_along(dtp_lowering *l, dtp_err *err)
{
    const bool roll = strcmp(l->op->ours, "roll") == 0;
    const dtp_aten_arg *by = dtp_aten_arg_of(l->node, "shifts");
    const dtp_aten_arg *dims = dtp_aten_arg_of(l->node, roll ? "dims" : "dim");
    const bool one = dims != NULL && (dims->kind == ATEN_INT || dims->n == 1) &&
                     (!roll || (by != NULL && by->kind == ATEN_INTS && by->n == 1));
    const dtp_aten_value *out = dtp_value_of(l, l->out);
    const int32_t axis = one ? dtp_aten_axis(dims->ints[0], out->rank) : -1;
    const char *id, *type, *attrs = "\"dim\": \"" DTP_PIECE "\"";
    if (axis < 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "no such axis, or several");
    }
    DTP_TRY(dtp_groups_but(l, axis, err));
    DTP_TRY(dtp_one_dim(l, l->x, axis, l->firsts, &id, err));
    DTP_TRY(dtp_type_attr(l->m, out->dtype, &type, err));
    DTP_TRY(dtp_value_of(l, l->x)->dtype == out->dtype
                ? DTP_OK
                : dtp_emit_one(l, "cast", "cast", &id, NULL, type, err));
    if (roll) {
        attrs = dtp_arena_printf(l->m->arena, "%s, \"shift\": %" PRId64, attrs, by->ints[0]);
    }
    DTP_TRY(dtp_emit_one(l, l->op->ours, l->op->ours, &id, NULL, attrs, err));
    return dtp_from_piece(l, id, axis, err);
}

/* Values and places of the largest along an axis. */
dtp_status dtp_lower_topk(dtp_lowering *l, dtp_err *err)
{
    const int32_t rank = dtp_value_of(l, l->x)->rank;
    const int32_t axis = dtp_aten_axis(dtp_aten_int(l->node, "dim", -1), rank);
    const char *id, *type;
    if (!dtp_aten_real_type(dtp_value_of(l, l->x)->dtype)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "the largest of integers");
    }
    DTP_TRY(dtp_groups_but(l, axis, err));
    DTP_TRY(dtp_one_dim(l, l->x, axis, l->firsts, &id, err));
    const int32_t kept = l->groups.n;
    const char *attrs =
        dtp_arena_printf(l->m->arena, "\"over\": \"" DTP_PIECE "\", \"k\": \"%s\", \"largest\": %s",
                         dtp_axis_size(l->m, l->out, axis),
                         dtp_aten_int(l->node, "largest", 1) != 0 ? "true" : "false");
    DTP_TRY(dtp_emit_one(l, "piece", "topk", &id, NULL, attrs, err));
    DTP_TRY(dtp_from_piece(l, id, axis, err));
    l->out = l->node->outs[1];
    l->groups.n = kept;
    id = dtp_arena_printf(l->m->arena, "%s.indices", id);
    DTP_TRY(DTP_MEMORY(err, id));
    DTP_TRY(dtp_type_attr(l->m, dtp_value_of(l, l->out)->dtype, &type, err));
    DTP_TRY(dtp_emit_one(l, "cast", "cast", &id, NULL, type, err));
    return dtp_from_piece(l, id, axis, err);
}

/* The operands of cat and stack. */
static dtp_status list_of(const dtp_lowering *l, const dtp_aten_arg **list, dtp_err *err)
{
    *list = &l->node->args[0];
    return (*list)->n <= DTP_MOST_OPERANDS
               ? DTP_OK
               : DTP_FAIL(err, DTP_UNSUPPORTED, "%d operands, at most %d", (*list)->n,
                          DTP_MOST_OPERANDS);
}

/* The result of tensors whose axis `axis` is the dim "piece". */
static dtp_status concat(dtp_lowering *l, int32_t n, const char *const *ids, int32_t axis,
                         dtp_err *err)
{
    const dtp_out_node o = {"piece", "concat", n,    ids, NULL, "\"dim\": \"" DTP_PIECE "\"",
                            NULL,    0,        NULL, -1};
    const char *all;
    DTP_TRY(dtp_emit(l, &o, &all, err));
    return dtp_from_piece(l, all, axis, err);
}

dtp_status dtp_lower_cat(dtp_lowering *l, dtp_err *err)
{
    const dtp_aten_arg *list;
    const int32_t axis = dim_of(l, l->out);
    const char *ids[DTP_MOST_OPERANDS];
    DTP_TRY(list_of(l, &list, err));
    DTP_TRY(dtp_groups_but(l, axis, err));
    for (int32_t i = 0; i < l->groups.n; i++) {
        dtp_name_group(&l->groups, i, 0);
    }
    for (int32_t i = 0; i < list->n; i++) {
        DTP_TRY(dtp_one_dim(l, list->values[i], axis, l->firsts, &ids[i], err));
    }
    return concat(l, list->n, ids, axis, err);
}

dtp_status dtp_lower_stack(dtp_lowering *l, dtp_err *err)
{
    const dtp_aten_arg *list;
    const int32_t axis = dim_of(l, l->out), rank = dtp_value_of(l, l->out)->rank;
    int32_t mine[DTP_MAX_RANK] = {0};
    DTP_TRY(list_of(l, &list, err));
    if (dtp_axis_parts(l->m, l->out, axis) != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a stack of one operand");
    }
    DTP_TRY(dtp_groups_of(l, l->out, l->firsts, err));
    for (int32_t i = 0; i < rank - 1; i++) {
        mine[i] = l->firsts[i < axis ? i : i + 1];
    }
    for (int32_t i = 0; i < list->n; i++) {
        DTP_TRY(dtp_use_add(l, list->values[i], mine, err));
    }
    DTP_TRY(dtp_settle(l, err));
    for (int32_t i = 0; i < list->n; i++) {
        DTP_TRY(dtp_whole(l, &l->uses[i], err));
    }
    l->groups.alias[l->firsts[axis]] = 0;
    return dtp_emit_value(
        l, l->op->ours,
        dtp_arena_printf(l->m->arena, "\"dim\": \"%s\"", dtp_axis_size(l->m, l->out, axis)), err);
}

/* Numbers around an axis, the last one if none is named. */
dtp_status dtp_lower_pad(dtp_lowering *l, dtp_err *err)
{
    const dtp_aten_arg *pad = dtp_aten_arg_of(l->node, "pad");
    const dtp_aten_arg *mode = dtp_aten_arg_of(l->node, "mode");
    const int32_t axis =
        dtp_aten_axis(dtp_aten_int(l->node, "dim", -1), dtp_value_of(l, l->x)->rank);
    const char *ids[3];
    int32_t n = 0;
    if ((mode != NULL && (mode->text == NULL || strcmp(mode->text, "constant") != 0)) ||
        dtp_axis_parts(l->m, l->out, axis) < 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "padding that is not by a constant");
    }
    DTP_TRY(dtp_groups_but(l, axis, err));
    const char *self;
    DTP_TRY(dtp_one_dim(l, l->x, axis, l->firsts, &self, err));
    if (dtp_aten_real(l->node, "value", 0) == 0) {
        const char *attrs = dtp_arena_printf(
            l->m->arena, "\"dim\": \"" DTP_PIECE "\", \"before\": %" PRId64 ", \"after\": %" PRId64,
            pad->ints[0], pad->ints[1]);
        DTP_TRY(dtp_emit_one(l, "piece", "pad", &self, NULL, attrs, err));
        return dtp_from_piece(l, self, axis, err);
    }
    for (int32_t i = 0; i < 2; i++) {
        if (pad->ints[i] > 0) {
            const char *dims =
                dims_of(l, l->x, axis, l->firsts,
                        dtp_arena_printf(l->m->arena, DTP_PIECE "=%" PRId64, pad->ints[i]));
            DTP_TRY(DTP_MEMORY(err, dims));
            DTP_TRY(dtp_emit_number(l, dtp_aten_real(l->node, "value", 0),
                                    dtp_value_of(l, l->out)->dtype, dims, &ids[n++], err));
        }
        if (i == 0) {
            ids[n++] = self;
        }
    }
    return concat(l, n, ids, axis, err);
}
