/* Views, and pieces of axes: slices, splits, concatenation, padding. */
#include <inttypes.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "interop/import/program/aten_axes.h"
#include "interop/import/program/aten_lower.h"
#include "interop/import/program/lower.h"

static int32_t first(const dtp_aten_node *node)
{
    return node->n_args > 0 && node->args[0].kind == ATEN_VALUE ? node->args[0].values[0] : -1;
}

dtp_status dtp_lower_view(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                          dtp_err *err)
{
    (void)op;
    return dtp_low_view(m, node, first(node), node->outs[0], NULL, err);
}

dtp_status dtp_lower_permute(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                             dtp_err *err)
{
    int32_t from[DTP_MAX_RANK];
    (void)op;
    memset(from, -1, sizeof from);
    for (int32_t i = 0; i < m->g->values[first(node)].rank; i++) {
        const int32_t to = dtp_aten_moved(m->g, node, i);
        if (to >= 0) {
            from[to] = i;
        }
    }
    return dtp_low_view(m, node, first(node), node->outs[0], from, err);
}

dtp_status dtp_lower_expand(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                            dtp_err *err)
{
    const dtp_aten_value *v = &m->g->values[first(node)], *out = &m->g->values[node->outs[0]];
    int32_t from[DTP_MAX_RANK];
    (void)op;
    for (int32_t i = 0; i < out->rank; i++) {
        const int32_t at = i - (out->rank - v->rank);
        from[i] = at >= 0 && v->sizes[at] != 1 ? at : -1;
    }
    return dtp_low_view(m, node, first(node), node->outs[0], from, err);
}

/* ---- pieces of one axis ---- */

/* The axis that is cut or put together is the dim "piece" meanwhile: layout rules speak of the dims
 * before and behind it, whose sizes are those that are declared. */
#define PIECE "piece"

/* The operand as a tensor in which axis `axis` is the dim "piece"; an operand
 * that lacks a dim is repeated over it. The other dims are those of `firsts`. */
static dtp_status one_dim(dtp_importer *m, const dtp_aten_node *node, int32_t value, int32_t axis,
                          dtp_groups *groups, const int32_t *firsts, const char **id, dtp_err *err)
{
    const dtp_aten_value *v = &m->g->values[value];
    dtp_groups own = *groups;
    int32_t mine[DTP_MAX_RANK] = {0};
    dtp_use use;
    memcpy(mine, firsts, sizeof mine);
    DTP_TRY(dtp_groups_add(m, &own, value, axis, &mine[axis], err));
    DTP_TRY(dtp_use_make(m, value, mine, &use, err));
    DTP_TRY(dtp_settle(m, node, 1, &use, &own, err));
    DTP_TRY(dtp_whole_use(m, node, &use, &own, err));
    memcpy(groups->alias, own.alias, (size_t)groups->n * sizeof own.alias[0]);
    const char *dims = "";
    for (int32_t i = 0; i < v->rank; i++) {
        const int32_t n = dtp_axis_parts(m, value, i);
        const char *part =
            i == axis ? dtp_arena_printf(m->arena, PIECE "=%s", dtp_axis_size(m, value, axis))
                      : dtp_group_names(m, groups, firsts[i], n, ",");
        DTP_TRY(DTP_MEMORY(err, part));
        if (part[0] != '\0') {
            dims = dtp_arena_printf(m->arena, "%s%s%s", dims, dims[0] != '\0' ? "," : "", part);
            DTP_TRY(DTP_MEMORY(err, dims));
        }
    }
    const char *in = use.id;
    return dtp_emit(m, node, "relabel", "relabel", 1, &in, dims, "", id, err);
}

/* Groups of all axes of `out` but one, which has its own. */
static dtp_status groups_but(dtp_importer *m, int32_t out, int32_t axis, dtp_groups *groups,
                             int32_t *firsts, dtp_err *err)
{
    for (int32_t i = 0; i < m->g->values[out].rank; i++) {
        firsts[i] = -1;
        DTP_TRY(i == axis ? DTP_OK : dtp_groups_add(m, groups, out, i, &firsts[i], err));
    }
    return DTP_OK;
}

/* The value from a tensor whose axis `axis` is the dim "piece". */
static dtp_status from_piece(dtp_importer *m, const dtp_aten_node *node, const char *id,
                             int32_t out, int32_t axis, dtp_groups *groups, int32_t *firsts,
                             dtp_err *err)
{
    const int32_t parts = dtp_axis_parts(m, out, axis);
    const dtp_use use = {.value = -1, .id = id};
    DTP_TRY(dtp_groups_add(m, groups, out, axis, &firsts[axis], err));
    for (int32_t i = 0; i < parts; i++) {
        dtp_name_group(groups, firsts[axis] + i, 0);
    }
    return dtp_emit_value(m, node, "relabel", 1, &use, groups, out, firsts, "", err);
}

/* Elements start .. start+size of an axis. */
static dtp_status slice(dtp_importer *m, const dtp_aten_node *node, int32_t axis, const char *start,
                        int32_t out, dtp_err *err)
{
    const char *id, *cut;
    const bool zero = strcmp(start, "0") == 0;
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK] = {0};
    DTP_TRY(groups_but(m, out, axis, &groups, firsts, err));
    DTP_TRY(one_dim(m, node, first(node), axis, &groups, firsts, &id, err));
    const char *attrs = dtp_arena_printf(
        m->arena, "\"dim\": \"" PIECE "\", \"start\": \"%s\", \"stop\": \"%s%s%s\"", start,
        zero ? "" : start, zero ? "" : "+", dtp_axis_size(m, out, axis));
    DTP_TRY(dtp_emit(m, node, "piece", "slice", 1, &id, NULL, attrs, &cut, err));
    return from_piece(m, node, cut, out, axis, &groups, firsts, err);
}

/* A place counted from the end stays there when the size changes. */
static const char *place(dtp_importer *m, int32_t value, int32_t axis, int64_t at)
{
    return at >= 0 ? dtp_arena_printf(m->arena, "%" PRId64, at)
                   : dtp_arena_printf(m->arena, "%s-%" PRId64, dtp_axis_size(m, value, axis), -at);
}

dtp_status dtp_lower_slice(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                           dtp_err *err)
{
    const int32_t x = first(node), out = node->outs[0];
    const int32_t axis = dtp_aten_axis(dtp_aten_int(node, "dim", 0), m->g->values[x].rank);
    const int64_t start = dtp_aten_int(node, "start", 0);
    (void)op;
    if (m->g->values[x].sizes[axis] == m->g->values[out].sizes[axis]) {
        return dtp_low_view(m, node, x, out, NULL, err);
    }
    return slice(m, node, axis, place(m, x, axis, start), out, err);
}

/* One of the equal pieces, or one element, of an axis whose outer part is `cls` alone: that part
 * is cut and gone. */
static dtp_status outer_piece(dtp_importer *m, const dtp_aten_node *node, int32_t axis, int32_t i,
                              dtp_err *err)
{
    const int32_t x = first(node), out = node->outs[i];
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK] = {0}, mine[DTP_MAX_RANK] = {0};
    dtp_use use;
    for (int32_t a = 0; a < m->g->values[x].rank; a++) {
        DTP_TRY(dtp_groups_add(m, &groups, x, a, &firsts[a], err));
    }
    DTP_TRY(dtp_use_make(m, x, firsts, &use, err));
    DTP_TRY(dtp_settle(m, node, 1, &use, &groups, err));
    DTP_TRY(dtp_whole_use(m, node, &use, &groups, err));
    const char *in = use.id,
               *attrs =
                   dtp_arena_printf(m->arena, "\"dim\": \"%s\", \"start\": %d, \"stop\": %d",
                                    dtp_group_names(m, &groups, firsts[axis], 1, ""), i, i + 1);
    DTP_TRY(DTP_MEMORY(err, attrs));
    DTP_TRY(dtp_emit(m, node, "slice", "slice", 1, &in, NULL, attrs, &use.id, err));
    memcpy(mine, firsts, sizeof mine);
    mine[axis]++;
    return dtp_emit_value(m, node, "relabel", 1, &use, &groups, out, mine, "", err);
}

/* split, chunk; select */
dtp_status dtp_lower_pieces(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                            dtp_err *err)
{
    const int32_t x = first(node);
    const int32_t axis = dtp_aten_axis(dtp_aten_int(node, "dim", 0), m->g->values[x].rank);
    if (op->ours != NULL) { /* select: a piece of one element, whose axis is gone */
        dtp_groups groups = {0};
        int32_t firsts[DTP_MAX_RANK] = {0}, mine[DTP_MAX_RANK] = {0};
        const char *id, *cut, *at = place(m, x, axis, dtp_aten_int(node, "index", 0));
        const int32_t out = node->outs[0];
        for (int32_t i = 0; i < m->g->values[out].rank; i++) {
            DTP_TRY(dtp_groups_add(m, &groups, out, i, &firsts[i], err));
            mine[i < axis ? i : i + 1] = firsts[i];
        }
        DTP_TRY(one_dim(m, node, x, axis, &groups, mine, &id, err));
        const char *attrs = dtp_arena_printf(
            m->arena, "\"dim\": \"" PIECE "\", \"start\": \"%s\", \"stop\": \"%s+1\"", at, at);
        DTP_TRY(DTP_MEMORY(err, attrs));
        DTP_TRY(dtp_emit(m, node, "slice", "slice", 1, &id, NULL, attrs, &cut, err));
        const dtp_use use = {.value = -1, .id = cut};
        return dtp_emit_value(m, node, "relabel", 1, &use, &groups, out, firsts, "", err);
    }
    const bool equal = dtp_axis_parts(m, x, axis) == 1 + dtp_axis_parts(m, node->outs[0], axis);
    int64_t at = 0;
    for (int32_t i = 0; i < node->n_outs; i++) {
        if (equal) {
            DTP_TRY(outer_piece(m, node, axis, i, err));
        } else {
            DTP_TRY(slice(m, node, axis, place(m, x, axis, at), node->outs[i], err));
        }
        at += m->g->values[node->outs[i]].sizes[axis];
    }
    return DTP_OK;
}

dtp_status dtp_lower_cat(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                         dtp_err *err)
{
    const dtp_aten_arg *list = dtp_aten_arg_of(node, "tensors");
    const int32_t out = node->outs[0];
    const int32_t axis = dtp_aten_axis(dtp_aten_int(node, "dim", 0), m->g->values[out].rank);
    const char *ids[DTP_MOST_OPERANDS], *all;
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK] = {0};
    (void)op;
    if (list->n > DTP_MOST_OPERANDS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%d operands, at most %d", list->n,
                        DTP_MOST_OPERANDS);
    }
    DTP_TRY(groups_but(m, out, axis, &groups, firsts, err));
    for (int32_t i = 0; i < groups.n; i++) {
        dtp_name_group(&groups, i, 0);
    }
    for (int32_t i = 0; i < list->n; i++) {
        DTP_TRY(one_dim(m, node, list->values[i], axis, &groups, firsts, &ids[i], err));
    }
    DTP_TRY(dtp_emit(m, node, "piece", "concat", list->n, ids, NULL, "\"dim\": \"" PIECE "\"", &all,
                     err));
    return from_piece(m, node, all, out, axis, &groups, firsts, err);
}

dtp_status dtp_lower_stack(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                           dtp_err *err)
{
    const dtp_aten_arg *list = dtp_aten_arg_of(node, "tensors");
    const int32_t out = node->outs[0], rank = m->g->values[out].rank;
    const int32_t axis = dtp_aten_axis(dtp_aten_int(node, "dim", 0), rank);
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK] = {0}, mine[DTP_MAX_RANK] = {0};
    dtp_use uses[DTP_MOST_OPERANDS];
    if (list->n > DTP_MOST_OPERANDS || dtp_axis_parts(m, out, axis) != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%d operands, at most %d and at least 2", list->n,
                        DTP_MOST_OPERANDS);
    }
    for (int32_t i = 0; i < rank; i++) {
        DTP_TRY(dtp_groups_add(m, &groups, out, i, &firsts[i], err));
    }
    for (int32_t i = 0; i < rank - 1; i++) {
        mine[i] = firsts[i < axis ? i : i + 1];
    }
    for (int32_t i = 0; i < list->n; i++) {
        DTP_TRY(dtp_use_make(m, list->values[i], mine, &uses[i], err));
    }
    DTP_TRY(dtp_settle(m, node, list->n, uses, &groups, err));
    for (int32_t i = 0; i < list->n; i++) {
        DTP_TRY(dtp_whole_use(m, node, &uses[i], &groups, err));
    }
    groups.alias[firsts[axis]] = 0;
    return dtp_emit_value(
        m, node, op->ours, list->n, uses, &groups, out, firsts,
        dtp_arena_printf(m->arena, "\"dim\": \"%s\"", dtp_axis_size(m, out, axis)), err);
}

/* Numbers around the last axis. */
dtp_status dtp_lower_pad(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                         dtp_err *err)
{
    const dtp_aten_arg *pad = dtp_aten_arg_of(node, "pad"), *mode = dtp_aten_arg_of(node, "mode");
    const int32_t x = first(node), out = node->outs[0], axis = m->g->values[x].rank - 1;
    const char *ids[3], *all, *type;
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK] = {0}, n = 0;
    char value[32];
    (void)op;
    type = dtp_type_name(m->g->values[out].dtype);
    if ((mode != NULL && (mode->text == NULL || strcmp(mode->text, "constant") != 0)) ||
        type == NULL || dtp_axis_parts(m, out, axis) != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "padding that is not by a constant");
    }
    DTP_TRY(groups_but(m, out, axis, &groups, firsts, err));
    const char *self;
    DTP_TRY(one_dim(m, node, x, axis, &groups, firsts, &self, err));
    dtp_double_print(dtp_aten_real(node, "value", 0), value);
    const char *attrs = dtp_arena_printf(m->arena, "\"value\": %s, \"dtype\": \"%s\"", value, type);
    const char *rows = dtp_group_names(m, &groups, 0, groups.n, ",");
    for (int32_t i = 0; i < 2; i++) {
        if (pad->ints[i] > 0) {
            const char *dims = dtp_arena_printf(m->arena, "%s%s" PIECE "=%" PRId64, rows,
                                                rows[0] != '\0' ? "," : "", pad->ints[i]);
            DTP_TRY(DTP_MEMORY(err, dims));
            DTP_TRY(dtp_emit(m, node, "number", "constant", 0, NULL, dims, attrs, &ids[n], err));
            n++;
        }
        if (i == 0) {
            ids[n++] = self;
        }
    }
    DTP_TRY(
        dtp_emit(m, node, "piece", "concat", n, ids, NULL, "\"dim\": \"" PIECE "\"", &all, err));
    return from_piece(m, node, all, out, axis, &groups, firsts, err);
}
