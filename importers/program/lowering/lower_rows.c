/* Elementwise ops, reductions, norms. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "importers/program/lowering/aten_ops.h"
#include "importers/program/lowering/lower.h"

/* One attribute after "low=min:0": of an argument, of one in its place when it is absent, or a
 * number; 'x': that text; "#" in place of "=": a text of the number. None when all are absent. */
static dtp_status attribute(dtp_lowering *l, char *text, const char **attrs, dtp_err *err)
{
    char *source = text + strcspn(text, "=#"), *next = NULL;
    const bool quoted = *source == '#';
    const char *made = NULL;
    *source++ = '\0';
    for (; source != NULL && made == NULL; source = next) {
        next = strchr(source, ':');
        if (next != NULL) {
            *next++ = '\0';
        }
        const dtp_aten_arg *a = dtp_aten_arg_of(l->node, source);
        const bool number = strspn(source, "-.0123456789") == strlen(source);
        const double x = number ? atof(source) : dtp_aten_real(l->node, source, (double)NAN);
        if (source[0] == '\'') {
            made = dtp_arena_printf(l->m->arena, "\"%s\": \"%.*s\"", text,
                                    (int)strcspn(source + 1, "'"), source + 1);
        } else if (a != NULL && isnan(x)) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "'%s' is no number", source);
        } else if (a != NULL || number) {
            made = quoted ? dtp_arena_printf(l->m->arena, "\"%s\": \"%g\"", text, x)
                          : dtp_real_attr(l->m, text, x);
        } else {
            continue;
        }
        DTP_TRY(DTP_MEMORY(err, made));
    }
    *attrs = made == NULL ? *attrs : dtp_joined(l->m, *attrs, ", ", made);
    return DTP_MEMORY(err, *attrs);
}

/* The op of ours of a row, and its attributes. */
static dtp_status ours_of(dtp_lowering *l, const char **op, const char **attrs, dtp_err *err)
{
    char *text = dtp_arena_strdup(l->m->arena, l->op->ours);
    *op = text;
    *attrs = "";
    DTP_TRY(DTP_MEMORY(err, text));
    for (text = strchr(text, ' '); text != NULL;) {
        char *one = text + 1;
        *text = '\0';
        text = strchr(one, ' ');
        if (text != NULL) {
            *text = '\0';
        }
        DTP_TRY(attribute(l, one, attrs, err));
    }
    return DTP_OK;
}

/* A lower bound above the upper one: the upper one everywhere. */
static dtp_status clamp_attrs(dtp_lowering *l, const char **attrs, dtp_err *err)
{
    double low =
        dtp_aten_real(l->node, "min", dtp_aten_real(l->node, "min_val", -(double)INFINITY));
    const double high =
        dtp_aten_real(l->node, "max", dtp_aten_real(l->node, "max_val", (double)INFINITY));
    if (low > high) {
        *attrs = dtp_joined(l->m, dtp_real_attr(l->m, "low", high), ", ",
                            dtp_real_attr(l->m, "high", high));
    }
    return DTP_MEMORY(err, *attrs);
}

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

/* Ops of ours are of floats, in the type of the result; that of truths is of these. */
dtp_status dtp_lower_unary(dtp_lowering *l, dtp_err *err)
{
    const char *ours, *attrs;
    const int32_t to = dtp_value_of(l, l->out)->dtype;
    DTP_TRY(ours_of(l, &ours, &attrs, err));
    DTP_TRY(strcmp(ours, "clamp") == 0 ? clamp_attrs(l, &attrs, err) : DTP_OK);
    if (strcmp(ours, "logical_not") == 0 ? to != ATEN_BOOL : !dtp_aten_real_type(to)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "of integers");
    }
    DTP_TRY(dtp_only_operand(l, err));
    DTP_TRY(cast_use(l, to, &l->uses[0], err));
    return dtp_emit_value(l, ours, attrs, err);
}

dtp_status dtp_lower_gelu(dtp_lowering *l, dtp_err *err)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(l->node, "approximate");
    const bool tanh = dtp_aten_is(l->node, "dtp.gelu_tanh") ||
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
            DTP_TRY(dtp_emit_argument(l, arg, i < typed ? ATEN_BOOL : dtype, &use->id, err));
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
                        dtp_value_of(l, l->x)->dtype == dtype && dtp_aten_real_type(dtype) &&
                        !dtp_aten_is(l->node, "true_divide");
    if (strncmp(ours, "logical", 7) == 0 && dtype != ATEN_BOOL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "bits of integers");
    }
    if (number && (strcmp(ours, "mul") == 0 || strcmp(ours, "div") == 0)) {
        const char *factor;
        DTP_TRY(dtp_number_attr(l, "factor", b, ours[0] == 'd', &factor, err));
        return unary(l, "scale", factor, err);
    }
    const bool turned = strncmp(l->node->op, "aten.rsub", 9) == 0;
    DTP_TRY(elements(l, 2, turned ? swapped : which, 0, dtype, err));
    return dtp_emit_value(l, ours, "", err);
}

/* The type in which PyTorch compares: tensors with axes decide, then those of one element, then
 * numbers, unless what comes later is of a higher kind (truths, integers, floats). */
static int32_t compared_in(const dtp_lowering *l)
{
    int32_t type = -1, rank[2] = {0, 0};
    for (int32_t least = 2; least >= 0; least--) {
        for (int32_t i = 0; i < 2 && i < l->node->n_args; i++) {
            const dtp_aten_arg *a = &l->node->args[i];
            const dtp_aten_value *v = a->kind == ATEN_VALUE ? dtp_value_of(l, a->values[0]) : NULL;
            const int32_t of = v != NULL                 ? v->dtype
                               : a->kind == ATEN_FLOAT   ? ATEN_F32
                               : a->kind == ATEN_BOOLEAN ? ATEN_BOOL
                                                         : ATEN_I64;
            rank[i] = v == NULL ? 0 : v->rank > 0 ? 2 : 1;
            if (rank[i] == least) {
                const bool equals = i == 1 && rank[0] == least;
                type = dtp_aten_promote(type, of, equals);
            }
        }
    }
    return type;
}

dtp_status dtp_lower_compare(dtp_lowering *l, dtp_err *err)
{
    const int32_t which[2] = {0, 1};
    DTP_TRY(elements(l, 2, which, 0, compared_in(l), err));
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

/* The operand of an op over some axes, which it must have; in the type of the result, if it is no
 * integer of another kind. */
static dtp_status rows(dtp_lowering *l, const bool *over, dtp_err *err)
{
    bool lacks = false;
    DTP_TRY(dtp_only_operand(l, err));
    for (int32_t i = 0; i < dtp_value_of(l, l->x)->rank; i++) {
        const int32_t n = dtp_axis_parts(l->m, l->x, i);
        for (int32_t k = 0; k < n && over[i]; k++) {
            lacks = lacks || l->groups.alias[l->firsts[i] + k] < 0;
        }
    }
    DTP_TRY(lacks ? dtp_whole(l, &l->uses[0], err) : DTP_OK);
    const int32_t dtype = dtp_value_of(l, l->x)->dtype, to = dtp_value_of(l, l->out)->dtype;
    const bool places = strstr(l->op->ours, "dtype=") != NULL;
    return cast_use(l,
                    !places                     ? to
                    : dtp_aten_real_type(dtype) ? dtype
                                                : ATEN_F32,
                    &l->uses[0], err);
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
    int32_t n = 0, dims = 0;
    bool over[DTP_MAX_RANK] = {false};
    const char *ours, *attrs;
    const int32_t rank = dtp_value_of(l, l->x)->rank;
    const bool keep = dtp_value_of(l, l->out)->rank == rank;
    for (int32_t i = 0; i < rank; i++) {
        over[i] = dtp_aten_reduces(l->m->g, l->node, i);
    }
    DTP_TRY(ours_of(l, &ours, &attrs, err));
    DTP_TRY(rows(l, over, err));
    for (int32_t i = 0; i < rank; i++) {
        dims += over[i] ? dtp_axis_parts(l->m, l->x, i) : 0;
    }
    if (strncmp(ours, "arg", 3) == 0 && dims != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a place along %d dims", dims);
    }
    attrs = dtp_joined(l->m, over_attr(l, over), ", ", attrs);
    DTP_TRY(DTP_MEMORY(err, attrs));
    for (int32_t i = 0; i < rank; i++) {
        if (!over[i] || keep) {
            l->firsts[n++] = l->firsts[i];
        }
    }
    return dtp_emit_value(l, ours, attrs, err);
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
