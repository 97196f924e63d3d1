/* Elementwise ops, reductions, norms, embeddings, the loss. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "interop/import/program/aten_axes.h"
#include "interop/import/program/aten_lower.h"
#include "interop/import/program/lower.h"

static int32_t first(const dtp_aten_node *node)
{
    return node->n_args > 0 && node->args[0].kind == ATEN_VALUE ? node->args[0].values[0] : -1;
}

static const char *real_attr(dtp_importer *m, const char *key, double x)
{
    char text[32];
    dtp_double_print(x, text);
    return dtp_arena_printf(m->arena, "\"%s\": %s", key, text);
}

/* Groups of all axes of a value. */
static dtp_status groups_of(dtp_importer *m, int32_t value, dtp_groups *groups, int32_t *firsts,
                            dtp_err *err)
{
    for (int32_t i = 0; i < m->g->values[value].rank; i++) {
        DTP_TRY(dtp_groups_add(m, groups, value, i, &firsts[i], err));
    }
    return DTP_OK;
}

/* The operand with groups of its own, settled. */
static dtp_status only_operand(dtp_importer *m, const dtp_aten_node *node, dtp_groups *groups,
                               int32_t *firsts, dtp_use *use, dtp_err *err)
{
    const int32_t x = first(node);
    if (x < 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "no operand");
    }
    DTP_TRY(groups_of(m, x, groups, firsts, err));
    DTP_TRY(dtp_use_make(m, x, firsts, use, err));
    return dtp_settle(m, node, 1, use, groups, err);
}

static dtp_status unary(dtp_importer *m, const dtp_aten_node *node, const char *op,
                        const char *attrs, dtp_err *err)
{
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK];
    dtp_use use;
    DTP_TRY(only_operand(m, node, &groups, firsts, &use, err));
    return dtp_emit_value(m, node, op, 1, &use, &groups, node->outs[0], firsts, attrs, err);
}

/* Ops of ours are of floats: integers become f32 before them, and what is to be integers again is
 * made so behind them. */
dtp_status dtp_lower_unary(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                           dtp_err *err)
{
    const int32_t out = node->outs[0], x = first(node);
    const char *attrs = "\"dtype\": \"f32\"", *id;
    if (x < 0 || m->g->values[x].dtype >= ATEN_F16) {
        return unary(m, node, op->ours, "", err);
    }
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK];
    dtp_use use;
    DTP_TRY(only_operand(m, node, &groups, firsts, &use, err));
    id = use.id;
    DTP_TRY(dtp_emit(m, node, "cast", "cast", 1, &id, NULL, attrs, &use.id, err));
    if (m->g->values[out].dtype >= ATEN_F16) {
        return dtp_emit_value(m, node, op->ours, 1, &use, &groups, out, firsts, "", err);
    }
    id = use.id;
    DTP_TRY(dtp_emit(m, node, op->ours, op->ours, 1, &id, NULL, "", &use.id, err));
    attrs = dtp_arena_printf(m->arena, "\"dtype\": \"%s\"", dtp_type_name(m->g->values[out].dtype));
    return dtp_emit_value(m, node, "cast", 1, &use, &groups, out, firsts, attrs, err);
}

dtp_status dtp_lower_gelu(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                          dtp_err *err)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(node, "approximate");
    const bool tanh = strncmp(node->op, "dtp.", 4) == 0 ||
                      (a != NULL && a->text != NULL && strcmp(a->text, "tanh") == 0);
    (void)op;
    m->report->gelu++;
    return unary(m, node, tanh ? "gelu" : "gelu_erf", "", err);
}

dtp_status dtp_lower_pow(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                         dtp_err *err)
{
    const double e = dtp_aten_real(node, "exponent", (double)NAN);
    (void)op;
    if (isnan(e)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "an exponent that is a tensor");
    }
    return e == 2 ? unary(m, node, "square", "", err)
                  : unary(m, node, "pow", real_attr(m, "exponent", e), err);
}

dtp_status dtp_lower_cast(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                          dtp_err *err)
{
    const char *type = dtp_type_name(m->g->values[node->outs[0]].dtype);
    (void)op;
    if (type == NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "element type %d", m->g->values[node->outs[0]].dtype);
    }
    return unary(m, node, "cast", dtp_arena_printf(m->arena, "\"dtype\": \"%s\"", type), err);
}

dtp_status dtp_lower_dropout(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                             dtp_err *err)
{
    return unary(m, node, op->ours, real_attr(m, "rate", dtp_aten_real(node, "p", 0.5)), err);
}

/* ---- elementwise with several operands ---- */

/* Operand `name` (or number i) of an elementwise node, in the type that the op computes in. */
static dtp_status element_operand(dtp_importer *m, const dtp_aten_node *node,
                                  const dtp_aten_arg *arg, int32_t dtype, const int32_t *firsts,
                                  dtp_use *use, dtp_err *err)
{
    const int32_t out = node->outs[0];
    const char *type = dtp_type_name(dtype);
    if (type == NULL || arg == NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "element type %d, or no operand", dtype);
    }
    if (arg->kind == ATEN_VALUE) {
        const int32_t more = m->g->values[out].rank - m->g->values[arg->values[0]].rank;
        return dtp_use_make(m, arg->values[0], firsts + more, use, err);
    }
    char text[32];
    *use = (dtp_use){.value = -1};
    dtp_double_print(arg->real, text);
    return dtp_emit(m, node, "number", "constant", 0, NULL, "",
                    dtp_arena_printf(m->arena, "\"value\": %s, \"dtype\": \"%s\"", text, type),
                    &use->id, err);
}

static dtp_status cast_use(dtp_importer *m, const dtp_aten_node *node, int32_t dtype, dtp_use *use,
                           dtp_err *err)
{
    if (use->value < 0 || m->g->values[use->value].dtype == dtype) {
        return DTP_OK;
    }
    const char *in = use->id;
    return dtp_emit(m, node, "cast", "cast", 1, &in, NULL,
                    dtp_arena_printf(m->arena, "\"dtype\": \"%s\"", dtp_type_name(dtype)), &use->id,
                    err);
}

/* The operands of an elementwise node, settled; `dtype` of those from `typed` on. */
static dtp_status elements(dtp_importer *m, const dtp_aten_node *node, int32_t n,
                           const dtp_aten_arg *const *args, int32_t typed, int32_t dtype,
                           dtp_groups *groups, int32_t *firsts, dtp_use *uses, dtp_err *err)
{
    dtp_use tensors[DTP_MOST_OPERANDS];
    int32_t n_tensors = 0;
    DTP_TRY(groups_of(m, node->outs[0], groups, firsts, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(element_operand(m, node, args[i], i < typed ? ATEN_BOOL : dtype, firsts, &uses[i],
                                err));
        if (uses[i].value >= 0) {
            tensors[n_tensors++] = uses[i];
        }
    }
    DTP_TRY(dtp_settle(m, node, n_tensors, tensors, groups, err));
    n_tensors = 0;
    for (int32_t i = 0; i < n; i++) {
        if (uses[i].value >= 0) {
            uses[i] = tensors[n_tensors++];
        }
        DTP_TRY(i < typed ? DTP_OK : cast_use(m, node, dtype, &uses[i], err));
    }
    return DTP_OK;
}

static const dtp_aten_arg *arg_at(const dtp_aten_node *node, int32_t i)
{
    return i < node->n_args ? &node->args[i] : NULL;
}

/* x times a number. */
static dtp_status scale(dtp_importer *m, const dtp_aten_node *node, double by, dtp_err *err)
{
    return unary(m, node, "scale", real_attr(m, "factor", by), err);
}

dtp_status dtp_lower_binary(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                            dtp_err *err)
{
    const dtp_aten_arg *args[2] = {arg_at(node, 0), arg_at(node, 1)};
    const int32_t dtype = m->g->values[node->outs[0]].dtype;
    const bool number = args[1] != NULL && args[1]->kind != ATEN_VALUE && first(node) >= 0 &&
                        m->g->values[first(node)].dtype == dtype && dtype != ATEN_BOOL &&
                        dtype != ATEN_I64;
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK];
    dtp_use uses[2];
    if (dtp_aten_real(node, "alpha", 1) != 1 || dtp_aten_arg_of(node, "rounding_mode") != NULL ||
        (strncmp(op->ours, "logical", 7) == 0 && dtype != ATEN_BOOL)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "alpha, a mode of rounding, or bits of integers");
    }
    if (number && strcmp(op->ours, "mul") == 0) {
        return scale(m, node, args[1]->real, err);
    }
    if (number && strcmp(op->ours, "div") == 0) {
        return scale(m, node, 1 / args[1]->real, err);
    }
    DTP_TRY(elements(m, node, 2, args, 0, dtype, &groups, firsts, uses, err));
    if (strncmp(node->op, "aten.rsub", 9) == 0) {
        const dtp_use t = uses[0];
        uses[0] = uses[1];
        uses[1] = t;
    }
    return dtp_emit_value(m, node, op->ours, 2, uses, &groups, node->outs[0], firsts, "", err);
}

/* The type in which two operands are compared. */
static int32_t wider(const dtp_importer *m, const dtp_aten_node *node)
{
    int32_t dtype = m->g->values[first(node)].dtype;
    const dtp_aten_arg *b = arg_at(node, 1);
    if (b != NULL && b->kind == ATEN_VALUE) {
        const int32_t other = m->g->values[b->values[0]].dtype;
        dtype = other >= ATEN_F16 && other != ATEN_BOOL && dtype < ATEN_F16 ? other : dtype;
    }
    return dtype;
}

dtp_status dtp_lower_compare(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                             dtp_err *err)
{
    const dtp_aten_arg *args[2] = {arg_at(node, 0), arg_at(node, 1)};
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK];
    dtp_use uses[2];
    if (first(node) < 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "no operand");
    }
    DTP_TRY(elements(m, node, 2, args, 0, wider(m, node), &groups, firsts, uses, err));
    return dtp_emit_value(m, node, "compare", 2, uses, &groups, node->outs[0], firsts,
                          dtp_arena_printf(m->arena, "\"cmp\": \"%s\"", op->ours), err);
}

/* where(c, a, b); masked_fill(a, mask, value) */
dtp_status dtp_lower_select(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                            dtp_err *err)
{
    const bool fill = strncmp(node->op, "aten.masked_fill", 16) == 0;
    const dtp_aten_arg *args[3] = {arg_at(node, fill ? 1 : 0), arg_at(node, fill ? 2 : 1),
                                   arg_at(node, fill ? 0 : 2)};
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK];
    dtp_use uses[3];
    DTP_TRY(elements(m, node, 3, args, 1, m->g->values[node->outs[0]].dtype, &groups, firsts, uses,
                     err));
    return dtp_emit_value(m, node, op->ours, 3, uses, &groups, node->outs[0], firsts, "", err);
}

/* ---- rows ---- */

/* "over": ["a", "b"] of the groups of some axes. */
static const char *over_attr(dtp_importer *m, const dtp_groups *groups, const dtp_aten_value *v,
                             int32_t value, const int32_t *firsts, const bool *over)
{
    const char *text = "";
    for (int32_t i = 0; i < v->rank && text != NULL; i++) {
        const int32_t n = dtp_axis_parts(m, value, i);
        if (over[i] && n > 0) {
            text = dtp_arena_printf(m->arena, "%s%s\"%s\"", text, text[0] != '\0' ? ", " : "",
                                    dtp_group_names(m, groups, firsts[i], n, "\", \""));
        }
    }
    if (text == NULL) {
        return NULL;
    }
    const bool one = strchr(text, ',') == NULL;
    return dtp_arena_printf(m->arena, one ? "\"over\": %s" : "\"over\": [%s]", text);
}

static bool lacks(const dtp_importer *m, int32_t value, const int32_t *firsts, const bool *over,
                  const dtp_groups *groups)
{
    for (int32_t i = 0; i < m->g->values[value].rank; i++) {
        const int32_t n = dtp_axis_parts(m, value, i);
        for (int32_t k = 0; k < n && over[i]; k++) {
            if (groups->alias[firsts[i] + k] < 0) {
                return true;
            }
        }
    }
    return false;
}

/* The operand of an op over some axes, which it must have. */
static dtp_status rows(dtp_importer *m, const dtp_aten_node *node, const bool *over,
                       dtp_groups *groups, int32_t *firsts, dtp_use *use, dtp_err *err)
{
    const int32_t dtype = m->g->values[first(node)].dtype;
    if (m->g->values[node->outs[0]].dtype != dtype) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a result of another element type");
    }
    DTP_TRY(only_operand(m, node, groups, firsts, use, err));
    return lacks(m, first(node), firsts, over, groups) ? dtp_whole_use(m, node, use, groups, err)
                                                       : DTP_OK;
}

dtp_status dtp_lower_softmax(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                             dtp_err *err)
{
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK];
    dtp_use use;
    bool over[DTP_MAX_RANK] = {false};
    const int32_t x = first(node);
    const int32_t axis =
        x < 0 ? -1 : dtp_aten_axis(dtp_aten_int(node, "dim", -1), m->g->values[x].rank);
    if (axis < 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "no such axis");
    }
    over[axis] = true;
    DTP_TRY(rows(m, node, over, &groups, firsts, &use, err));
    return dtp_emit_value(m, node, op->ours, 1, &use, &groups, node->outs[0], firsts,
                          over_attr(m, &groups, &m->g->values[x], x, firsts, over), err);
}

dtp_status dtp_lower_reduce(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                            dtp_err *err)
{
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK], kept[DTP_MAX_RANK], n = 0;
    dtp_use use;
    bool over[DTP_MAX_RANK] = {false};
    const int32_t x = first(node), out = node->outs[0];
    if (x < 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "no operand");
    }
    const bool keep = m->g->values[out].rank == m->g->values[x].rank;
    for (int32_t i = 0; i < m->g->values[x].rank; i++) {
        over[i] = dtp_aten_reduces(m->g, node, i);
    }
    DTP_TRY(rows(m, node, over, &groups, firsts, &use, err));
    for (int32_t i = 0; i < m->g->values[x].rank; i++) {
        if (!over[i] || keep) {
            kept[n++] = firsts[i];
        }
    }
    const char *attrs = over_attr(m, &groups, &m->g->values[x], x, firsts, over);
    DTP_TRY(DTP_MEMORY(err, attrs));
    return dtp_emit_value(m, node, "reduce", 1, &use, &groups, out, kept,
                          dtp_arena_printf(m->arena, "\"kind\": \"%s\", %s", op->ours, attrs), err);
}

/* A weight of a norm, or ones or zeros where there is none. */
static dtp_status norm_weight(dtp_importer *m, const dtp_aten_node *node, const char *name,
                              double missing, const int32_t *firsts, const dtp_groups *groups,
                              int32_t first_group, dtp_use *use, dtp_err *err)
{
    const int32_t w = dtp_aten_operand(node, name), rank = m->g->values[first(node)].rank;
    if (w >= 0) {
        return dtp_use_make(m, w, firsts + rank - m->g->values[w].rank, use, err);
    }
    *use = (dtp_use){.value = -1};
    const char *dims = dtp_group_names(m, groups, first_group, groups->n - first_group, ",");
    return dtp_emit(m, node, missing == 0 ? "zeros" : "ones", "constant", 0, NULL, dims,
                    missing == 0 ? "\"value\": 0" : "\"value\": 1", &use->id, err);
}

static dtp_status norm(dtp_importer *m, const dtp_aten_node *node, const char *op, bool beta,
                       dtp_err *err)
{
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK], over_first;
    dtp_use uses[3];
    bool over[DTP_MAX_RANK] = {false};
    const int32_t x = first(node), out = node->outs[0];
    const dtp_aten_value *v = &m->g->values[x];
    const dtp_aten_arg *shape = dtp_aten_arg_of(node, "normalized_shape");
    const int32_t n = shape != NULL && shape->kind == ATEN_INTS ? shape->n : 1;
    if (n > v->rank || dtp_axis_parts(m, x, v->rank - n) < 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a norm over no dims");
    }
    for (int32_t i = v->rank - n; i < v->rank; i++) {
        over[i] = true;
    }
    DTP_TRY(rows(m, node, over, &groups, firsts, &uses[0], err));
    over_first = firsts[v->rank - n];
    DTP_TRY(norm_weight(m, node, "weight", 1, firsts, &groups, over_first, &uses[1], err));
    DTP_TRY(!beta ? DTP_OK
                  : norm_weight(m, node, "bias", 0, firsts, &groups, over_first, &uses[2], err));
    for (int32_t i = 1; i < (beta ? 3 : 2); i++) {
        DTP_TRY(uses[i].value < 0 ? DTP_OK : dtp_settle(m, node, 1, &uses[i], &groups, err));
    }
    const char *attrs = over_attr(m, &groups, v, x, firsts, over);
    const char *eps = real_attr(m, "eps", dtp_aten_real(node, "eps", beta ? 1e-5 : 1.1920929e-7));
    DTP_TRY(DTP_MEMORY(err, attrs, eps));
    m->report->norms++;
    return dtp_emit_value(m, node, op, beta ? 3 : 2, uses, &groups, out, firsts,
                          dtp_arena_printf(m->arena, "%s, %s", attrs, eps), err);
}

dtp_status dtp_lower_layer_norm(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                                dtp_err *err)
{
    (void)op;
    return norm(m, node, "layer_norm", true, err);
}

dtp_status dtp_lower_rms_norm(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                              dtp_err *err)
{
    (void)op;
    return norm(m, node, "rms_norm", false, err);
}

/* ---- tables ---- */

/* Integers that a table is read at are below its size: said of the input that they come from. */
static void set_below(dtp_importer *m, int32_t value, int32_t cls)
{
    while (value >= 0) {
        const dtp_aten_value *v = &m->g->values[value];
        if (v->role == ATEN_INPUT) {
            const int32_t old = m->below[value];
            m->below[value] = old < 0 || m->axes.cls[cls].size < m->axes.cls[old].size ? cls : old;
        }
        value = v->node < 0 ? -1 : first(&m->g->nodes[v->node]);
    }
}

/* Rows start .. of the table in the place of an index of them. */
static dtp_status table_slice(dtp_importer *m, const dtp_aten_node *node, const char *table,
                              const char *over, double start, int32_t ids, int32_t axis,
                              const dtp_use *w, const dtp_groups *groups, const int32_t *firsts,
                              dtp_err *err)
{
    const char *size = axis < 0 ? "1" : dtp_axis_size(m, ids, axis);
    const char *from = start == 0 ? "" : dtp_arena_printf(m->arena, "%" PRId64 "+", (int64_t)start);
    const char *attrs =
        dtp_arena_printf(m->arena, "\"dim\": \"%s\", \"start\": %" PRId64 ", \"stop\": \"%s%s\"",
                         over, (int64_t)start, from, size);
    const char *id;
    DTP_TRY(dtp_emit(m, node, "slice", "slice", 1, &table, NULL, attrs, &id, err));
    dtp_use use = *w;
    use.id = id;
    return dtp_emit_value(m, node, "relabel", 1, &use, groups, node->outs[0], firsts, "", err);
}

dtp_status dtp_lower_embedding(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                               dtp_err *err)
{
    const int32_t w = dtp_aten_operand(node, "weight"), ids = dtp_aten_operand(node, "indices");
    const int32_t rank = m->g->values[ids].rank, out = node->outs[0];
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK + 1], table[2], axis = -1;
    dtp_use uses[2];
    double start;
    (void)op;
    DTP_TRY(groups_of(m, ids, &groups, firsts, err));
    DTP_TRY(dtp_groups_add(m, &groups, w, 0, &table[0], err));
    DTP_TRY(dtp_groups_add(m, &groups, w, 1, &table[1], err));
    firsts[rank] = table[1];
    DTP_TRY(dtp_use_make(m, w, table, &uses[0], err));
    if (dtp_axis_parts(m, w, 0) != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a table whose rows are split");
    }
    if (m->g->values[ids].role == ATEN_CONST) {
        DTP_TRY(dtp_settle(m, node, 1, uses, &groups, err));
        const char *over = dtp_group_names(m, &groups, table[0], 1, "");
        if (dtp_const_is_index(&m->consts[ids], &m->g->values[ids], &axis, &start)) {
            for (int32_t k = 0; k < dtp_axis_parts(m, ids, axis); k++) {
                groups.alias[firsts[axis] + k] = 0;
            }
            return table_slice(m, node, uses[0].id, over, start, ids, axis, uses, &groups, firsts,
                               err);
        }
        if (dtp_const_is_uniform(&m->consts[ids], &m->g->values[ids], &start)) {
            return table_slice(m, node, uses[0].id, over, start, ids, -1, uses, &groups, firsts,
                               err);
        }
    }
    DTP_TRY(dtp_use_make(m, ids, firsts, &uses[1], err));
    DTP_TRY(dtp_settle(m, node, 2, uses, &groups, err));
    int32_t cls;
    (void)dtp_axis_leaves(&m->axes, 1, &m->axes.of[w][0], &cls, 1);
    set_below(m, ids, cls);
    const char *attrs = dtp_arena_printf(m->arena, "\"over\": \"%s\"",
                                         dtp_group_names(m, &groups, table[0], 1, ""));
    const int64_t padding = dtp_aten_int(node, "padding_idx", -1);
    if (padding >= 0) {
        attrs = dtp_arena_printf(m->arena, "%s, \"padding\": %" PRId64, attrs, padding);
    }
    return dtp_emit_value(m, node, "embedding", 2, uses, &groups, out, firsts, attrs, err);
}

dtp_status dtp_lower_cross_entropy(dtp_importer *m, const dtp_aten_node *node,
                                   const dtp_aten_op *op, dtp_err *err)
{
    static const char *const kinds[] = {"none", "mean", "sum"};
    const int32_t x = first(node), labels = dtp_aten_operand(node, "target");
    const int32_t over = m->g->values[x].rank > 1 ? 1 : 0, out = node->outs[0];
    const int64_t kind = dtp_aten_int(node, "reduction", 1);
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK] = {0}, rows_of[DTP_MAX_RANK] = {0}, n = 0;
    dtp_use uses[2];
    (void)op;
    if (dtp_aten_operand(node, "weight") >= 0 || kind < 0 || kind > 2 ||
        dtp_axis_parts(m, x, over) != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "class weights, or classes that are split");
    }
    DTP_TRY(groups_of(m, x, &groups, firsts, err));
    for (int32_t i = 0; i < m->g->values[x].rank; i++) {
        if (i != over) {
            rows_of[n++] = firsts[i];
        }
    }
    DTP_TRY(dtp_use_make(m, x, firsts, &uses[0], err));
    DTP_TRY(dtp_use_make(m, labels, rows_of, &uses[1], err));
    DTP_TRY(dtp_settle(m, node, 2, uses, &groups, err));
    if (m->low[x].n_dims < uses[0].n) {
        DTP_TRY(dtp_whole_use(m, node, &uses[0], &groups, err));
    }
    int32_t cls;
    (void)dtp_axis_leaves(&m->axes, 1, &m->axes.of[x][over], &cls, 1);
    set_below(m, labels, cls);
    const char *attrs =
        dtp_arena_printf(m->arena, "\"over\": \"%s\", \"reduce\": \"%s\", \"ignore\": %" PRId64,
                         dtp_group_names(m, &groups, firsts[over], 1, ""), kinds[kind],
                         dtp_aten_int(node, "ignore_index", -100));
    const double smoothing = dtp_aten_real(node, "label_smoothing", 0);
    if (smoothing != 0) {
        attrs = dtp_arena_printf(m->arena, "%s, %s", attrs, real_attr(m, "smoothing", smoothing));
    }
    return dtp_emit_value(m, node, "cross_entropy", 2, uses, &groups, out, rows_of, attrs, err);
}
