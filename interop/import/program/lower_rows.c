/* Elementwise ops, reductions, norms, embeddings, the loss. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "interop/import/program/aten_ops.h"
#include "interop/import/program/lower.h"

static dtp_status unary(dtp_lowering *l, const char *op, const char *attrs, dtp_err *err)
{
    DTP_TRY(dtp_only_operand(l, err));
    return dtp_emit_value(l, op, attrs, err);
}

static dtp_status cast_use(dtp_lowering *l, int32_t dtype, dtp_use *use, dtp_err *err)
{
    const char *type;
    if (use->value < 0 || dtp_value_of(l, use->value)->dtype == dtype) {
        return DTP_OK;
    }
    DTP_TRY(dtp_type_attr(l->m, dtype, &type, err));
    return dtp_emit_one(l, "cast", "cast", &use->id, NULL, type, err);
}

/* Ops of ours are of floats: integers become f32 before them, and what is to be integers again is
 * made so behind them. */
dtp_status dtp_lower_unary(dtp_lowering *l, dtp_err *err)
{
    const char *ours = l->op->ours, *type;
    const int32_t from = dtp_value_of(l, l->x)->dtype, to = dtp_value_of(l, l->out)->dtype;
    DTP_TRY(dtp_only_operand(l, err));
    DTP_TRY(from >= ATEN_F16 ? DTP_OK : cast_use(l, ATEN_F32, &l->uses[0], err));
    if (from >= ATEN_F16 || to >= ATEN_F16) {
        return dtp_emit_value(l, ours, "", err);
    }
    DTP_TRY(dtp_emit_one(l, ours, ours, &l->uses[0].id, NULL, "", err));
    DTP_TRY(dtp_type_attr(l->m, to, &type, err));
    return dtp_emit_value(l, "cast", type, err);
}

dtp_status dtp_lower_gelu(dtp_lowering *l, dtp_err *err)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(l->node, "approximate");
    const bool tanh = strncmp(l->node->op, "dtp.", 4) == 0 ||
                      (a != NULL && a->text != NULL && strcmp(a->text, "tanh") == 0);
    l->m->report->gelu++;
    return unary(l, tanh ? "gelu" : "gelu_erf", "", err);
}

dtp_status dtp_lower_pow(dtp_lowering *l, dtp_err *err)
{
    const double e = dtp_aten_real(l->node, "exponent", (double)NAN);
    if (isnan(e)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "an exponent that is a tensor");
    }
    return e == 2 ? unary(l, "square", "", err)
                  : unary(l, "pow", dtp_real_attr(l->m, "exponent", e), err);
}

dtp_status dtp_lower_cast(dtp_lowering *l, dtp_err *err)
{
    const char *type;
    DTP_TRY(dtp_type_attr(l->m, dtp_value_of(l, l->out)->dtype, &type, err));
    return unary(l, "cast", type, err);
}

dtp_status dtp_lower_dropout(dtp_lowering *l, dtp_err *err)
{
    return unary(l, l->op->ours, dtp_real_attr(l->m, "rate", dtp_aten_real(l->node, "p", 0.5)),
                 err);
}

/* ---- elementwise with several operands ---- */

/* Arguments `which` of the node as operands, settled: tensors and numbers, from number `typed` on
 * in the type in which the op computes. */
static dtp_status elements(dtp_lowering *l, int32_t n, const int32_t *which, int32_t typed,
                           int32_t dtype, dtp_err *err)
{
    DTP_TRY(dtp_groups_of(l, l->out, l->firsts, err));
    for (int32_t i = 0; i < n; i++) {
        const dtp_aten_arg *arg = which[i] < l->node->n_args ? &l->node->args[which[i]] : NULL;
        if (arg == NULL || (arg->kind != ATEN_VALUE && arg->kind != ATEN_INT &&
                            arg->kind != ATEN_FLOAT && arg->kind != ATEN_BOOLEAN)) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "argument %d is no tensor and no number",
                            which[i]);
        }
        if (arg->kind == ATEN_VALUE) {
            const int32_t more =
                dtp_value_of(l, l->out)->rank - dtp_value_of(l, arg->values[0])->rank;
            DTP_TRY(dtp_use_add(l, arg->values[0], l->firsts + more, err));
        } else {
            dtp_use *use = &l->uses[l->n++];
            use->value = -1;
            DTP_TRY(
                dtp_emit_number(l, arg->real, i < typed ? ATEN_BOOL : dtype, "", &use->id, err));
        }
    }
    DTP_TRY(dtp_settle(l, err));
    for (int32_t i = typed; i < n; i++) {
        DTP_TRY(cast_use(l, dtype, &l->uses[i], err));
    }
    return DTP_OK;
}

dtp_status dtp_lower_binary(dtp_lowering *l, dtp_err *err)
{
    const int32_t which[2] = {0, 1}, swapped[2] = {1, 0};
    const dtp_aten_arg *b = l->node->n_args > 1 ? &l->node->args[1] : NULL;
    const char *ours = l->op->ours;
    const int32_t dtype = dtp_value_of(l, l->out)->dtype;
    const bool number = b != NULL && b->kind != ATEN_VALUE &&
                        dtp_value_of(l, l->x)->dtype == dtype && dtype != ATEN_BOOL &&
                        dtype != ATEN_I64;
    if (dtp_aten_real(l->node, "alpha", 1) != 1 ||
        dtp_aten_arg_of(l->node, "rounding_mode") != NULL ||
        (strncmp(ours, "logical", 7) == 0 && dtype != ATEN_BOOL)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "alpha, a mode of rounding, or bits of integers");
    }
    if (number && (strcmp(ours, "mul") == 0 || strcmp(ours, "div") == 0)) {
        const double by = ours[0] == 'm' ? b->real : 1 / b->real;
        return unary(l, "scale", dtp_real_attr(l->m, "factor", by), err);
    }
    const bool turned = strncmp(l->node->op, "aten.rsub", 9) == 0;
    DTP_TRY(elements(l, 2, turned ? swapped : which, 0, dtype, err));
    return dtp_emit_value(l, ours, "", err);
}

/* In the type to which both operands convert. */
dtp_status dtp_lower_compare(dtp_lowering *l, dtp_err *err)
{
    const int32_t which[2] = {0, 1}, b = dtp_aten_input(l->node, 1);
    int32_t dtype = dtp_value_of(l, l->x)->dtype;
    if (b >= 0) {
        const int32_t other = dtp_value_of(l, b)->dtype;
        dtype = other >= ATEN_F16 && other != ATEN_BOOL && dtype < ATEN_F16 ? other : dtype;
    }
    DTP_TRY(elements(l, 2, which, 0, dtype, err));
    return dtp_emit_value(l, "compare",
                          dtp_arena_printf(l->m->arena, "\"cmp\": \"%s\"", l->op->ours), err);
}

/* where(c, a, b); masked_fill(a, mask, value) */
dtp_status dtp_lower_select(dtp_lowering *l, dtp_err *err)
{
    const int32_t where[3] = {0, 1, 2}, fill[3] = {1, 2, 0};
    const bool fills = strncmp(l->node->op, "aten.masked_fill", 16) == 0;
    DTP_TRY(elements(l, 3, fills ? fill : where, 1, dtp_value_of(l, l->out)->dtype, err));
    return dtp_emit_value(l, l->op->ours, "", err);
}

/* ---- rows ---- */

/* "over": ["a", "b"] of the groups of some axes of x, which l->firsts has. */
static const char *over_attr(dtp_lowering *l, const bool *over)
{
    const char *text = "";
    for (int32_t i = 0; i < dtp_value_of(l, l->x)->rank; i++) {
        const int32_t n = dtp_axis_parts(l->m, l->x, i);
        if (over[i] && n > 0) {
            text = dtp_joined(l->m, text, "\", \"", dtp_group_names(l, l->firsts[i], n, "\", \""));
        }
    }
    if (text == NULL) {
        return NULL;
    }
    const bool one = text[0] != '\0' && strchr(text, ',') == NULL;
    return dtp_arena_printf(l->m->arena,
                            one            ? "\"over\": \"%s\""
                            : text[0] == 0 ? "\"over\": [%s]"
                                           : "\"over\": [\"%s\"]",
                            text);
}

/* The operand of an op over some axes, which it must have. */
static dtp_status rows(dtp_lowering *l, const bool *over, dtp_err *err)
{
    bool lacks = false;
    if (dtp_value_of(l, l->out)->dtype != dtp_value_of(l, l->x)->dtype) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a result of another element type");
    }
    DTP_TRY(dtp_only_operand(l, err));
    for (int32_t i = 0; i < dtp_value_of(l, l->x)->rank; i++) {
        const int32_t n = dtp_axis_parts(l->m, l->x, i);
        for (int32_t k = 0; k < n && over[i]; k++) {
            lacks = lacks || l->groups.alias[l->firsts[i] + k] < 0;
        }
    }
    return lacks ? dtp_whole(l, &l->uses[0], err) : DTP_OK;
}

dtp_status dtp_lower_softmax(dtp_lowering *l, dtp_err *err)
{
    bool over[DTP_MAX_RANK] = {false};
    const int32_t axis =
        dtp_aten_axis(dtp_aten_int(l->node, "dim", -1), dtp_value_of(l, l->x)->rank);
    if (axis < 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "no such axis");
    }
    over[axis] = true;
    DTP_TRY(rows(l, over, err));
    return dtp_emit_value(l, l->op->ours, over_attr(l, over), err);
}

dtp_status dtp_lower_reduce(dtp_lowering *l, dtp_err *err)
{
    int32_t n = 0;
    bool over[DTP_MAX_RANK] = {false};
    const int32_t rank = dtp_value_of(l, l->x)->rank;
    const bool keep = dtp_value_of(l, l->out)->rank == rank;
    for (int32_t i = 0; i < rank; i++) {
        over[i] = dtp_aten_reduces(l->m->g, l->node, i);
    }
    DTP_TRY(rows(l, over, err));
    const char *attrs = over_attr(l, over);
    DTP_TRY(DTP_MEMORY(err, attrs));
    for (int32_t i = 0; i < rank; i++) {
        if (!over[i] || keep) {
            l->firsts[n++] = l->firsts[i];
        }
    }
    return dtp_emit_value(l, "reduce",
                          dtp_arena_printf(l->m->arena, "\"kind\": \"%s\", %s", l->op->ours, attrs),
                          err);
}

/* A weight of a norm over the groups from number `from` on; ones or zeros where there is none. */
static dtp_status norm_weight(dtp_lowering *l, const char *name, double missing, int32_t from,
                              dtp_err *err)
{
    const int32_t w = dtp_aten_operand(l->node, name);
    if (w >= 0) {
        return dtp_use_add(l, w, l->firsts + dtp_value_of(l, l->x)->rank - dtp_value_of(l, w)->rank,
                           err);
    }
    dtp_use *use = &l->uses[l->n++];
    *use = (dtp_use){.value = -1};
    return dtp_emit_number(l, missing, dtp_value_of(l, l->x)->dtype,
                           dtp_group_names(l, from, l->groups.n - from, ","), &use->id, err);
}

/* rms_norm, layer_norm */
dtp_status dtp_lower_norm(dtp_lowering *l, dtp_err *err)
{
    const bool beta = strcmp(l->op->ours, "layer_norm") == 0;
    bool over[DTP_MAX_RANK] = {false};
    const dtp_aten_arg *shape = dtp_aten_arg_of(l->node, "normalized_shape");
    const int32_t n = shape != NULL && shape->kind == ATEN_INTS ? shape->n : 1;
    const int32_t begin = dtp_value_of(l, l->x)->rank - n;
    if (begin < 0 || n < 1 || dtp_axis_parts(l->m, l->x, begin) < 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a norm over no dims");
    }
    for (int32_t i = begin; i < begin + n; i++) {
        over[i] = true;
    }
    DTP_TRY(rows(l, over, err));
    DTP_TRY(norm_weight(l, "weight", 1, l->firsts[begin], err));
    DTP_TRY(!beta ? DTP_OK : norm_weight(l, "bias", 0, l->firsts[begin], err));
    DTP_TRY(dtp_settle(l, err));
    l->m->report->norms++;
    const double eps = dtp_aten_real(l->node, "eps", beta ? 1e-5 : 1.1920929e-7);
    const char *attrs = dtp_joined(l->m, over_attr(l, over), ", ", dtp_real_attr(l->m, "eps", eps));
    return dtp_emit_value(l, l->op->ours, attrs, err);
}

/* ---- tables ---- */

/* Integers that a table is read at are below the size of axis `axis` of `table`, which is one part:
 * said of the input that they come from. */
static void set_below(dtp_importer *m, int32_t value, int32_t table, int32_t axis)
{
    const int32_t cls = dtp_axis_one(&m->axes, &m->axes.of[table][axis]);
    while (value >= 0) {
        const dtp_aten_value *v = &m->g->values[value];
        const int32_t old = m->below[value];
        if (old >= 0 && m->axes.cls[old].size <= m->axes.cls[cls].size) {
            return;
        }
        m->below[value] = cls;
        value = v->node < 0 ? -1 : dtp_aten_input(&m->g->nodes[v->node], 0);
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
    set_below(m, ids, w, 0);
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
    if (l->m->low[l->x].n_dims < l->uses[0].n) {
        DTP_TRY(dtp_whole(l, &l->uses[0], err));
    }
    set_below(l->m, labels, l->x, over);
    const char *attrs = dtp_arena_printf(
        l->m->arena, "\"over\": \"%s\", \"reduce\": \"%s\", \"ignore\": %" PRId64,
        dtp_group_name(l, firsts[over]), kinds[kind], dtp_aten_int(l->node, "ignore_index", -100));
    const double smoothing = dtp_aten_real(l->node, "label_smoothing", 0);
    if (smoothing != 0) {
        attrs = dtp_joined(l->m, attrs, ", ", dtp_real_attr(l->m, "smoothing", smoothing));
    }
    return dtp_emit_value(l, "cross_entropy", attrs, err);
}
