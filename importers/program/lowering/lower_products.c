/* Products, attention, rotary positions. */
#include <math.h>
#include <string.h>

#include "importers/program/lowering/aten_ops.h"
#include "importers/program/axes/aten_products.h"
#include "importers/program/lowering/lower.h"

/* A product, then the sum with a bias, whose last axis is axis `last` of the output. */
static dtp_status product(dtp_lowering *l, int32_t bias, int32_t last, dtp_err *err)
{
    l->what = bias >= 0 ? "mm" : NULL;
    DTP_TRY(dtp_settle(l, err));
    for (int32_t i = 0; i < l->n; i++) { /* outer: in the type to which both convert */
        const int32_t to = dtp_value_of(l, l->out)->dtype;
        const char *type;
        DTP_TRY(dtp_type_attr(l->m, to, &type, err));
        DTP_TRY(dtp_value_of(l, l->uses[i].value)->dtype == to
                    ? DTP_OK
                    : dtp_emit_one(l, "cast", "cast", &l->uses[i].id, NULL, type, err));
    }
    DTP_TRY(dtp_emit_value(l, "einsum", "", err));
    if (bias < 0) {
        return DTP_OK;
    }
    l->what = NULL;
    l->n = 0;
    DTP_TRY(dtp_use_add(l, l->out, l->firsts, err));
    DTP_TRY(dtp_use_add(l, bias, l->firsts + last + 1 - dtp_value_of(l, bias)->rank, err));
    DTP_TRY(dtp_settle(l, err));
    return dtp_emit_value(l, "add", "", err);
}

/* What is summed over is a dim of an operand, be it the same along it. */
static dtp_status whole_sums(dtp_lowering *l, const dtp_product *p, const int32_t *groups,
                             dtp_err *err)
{
    DTP_TRY(dtp_settle(l, err));
    for (int32_t k = 0; k < p->labels; k++) {
        const int32_t v = p->values[p->factor[k]];
        for (int32_t i = 0; groups[k] >= 0 && i < dtp_axis_parts(l->m, v, p->axis[k]); i++) {
            if (l->groups.alias[groups[k] + i] < 0) {
                DTP_TRY(dtp_whole(l, &l->uses[p->factor[k]], err));
            }
        }
    }
    return DTP_OK;
}

dtp_status dtp_lower_product(dtp_lowering *l, dtp_err *err)
{
    dtp_product p;
    int32_t groups[DTP_MOST_LABELS], mine[DTP_MAX_RANK];
    DTP_TRY(dtp_product_of(l->m->g, l->node, &p, err));
    for (int32_t k = 0; k < p.labels; k++) {
        DTP_TRY(dtp_groups_add(l, p.values[p.factor[k]], p.axis[k], &groups[k], err));
    }
    for (int32_t i = 0; i < p.n; i++) {
        for (int32_t a = 0; a < dtp_value_of(l, p.values[i])->rank; a++) {
            mine[a] = groups[p.of[i][a]];
        }
        DTP_TRY(dtp_use_add(l, p.values[i], mine, err));
    }
    const int32_t rank = dtp_value_of(l, l->out)->rank;
    for (int32_t a = 0; a < rank; a++) {
        l->firsts[a] = groups[p.out[a]];
        groups[p.out[a]] = -1;
    }
    DTP_TRY(whole_sums(l, &p, groups, err));
    return product(l, p.added, rank - 1, err);
}

/* Pixels of every patch times the kernel, which is a weight of as many inputs. */
dtp_status dtp_lower_patches(dtp_lowering *l, dtp_err *err)
{
    const int32_t w = dtp_aten_operand(l->node, "weight");
    int32_t kernel[DTP_MAX_RANK];
    DTP_TRY(dtp_only_operand(l, err));
    DTP_TRY(dtp_whole(l, &l->uses[0], err));
    for (int32_t i = 0; i < dtp_value_of(l, l->x)->rank; i++) {
        const int32_t image = l->firsts[i];
        kernel[i] = image < 0 ? -1 : image + (i < 2 ? 0 : dtp_axis_parts(l->m, l->out, i));
    }
    DTP_TRY(dtp_groups_add(l, w, 0, &kernel[0], err));
    l->firsts[1] = kernel[0];
    DTP_TRY(dtp_use_add(l, w, kernel, err));
    return product(l, dtp_aten_operand(l->node, "bias"), 1, err);
}

/* ---- attention ---- */

typedef struct attention {
    int32_t q, k, v, mask;
    int32_t length, feature; /* axes */
    int32_t piece; /* axis, features or positions, that is several dims: one meanwhile; -1: none */
    int32_t fq[DTP_MAX_RANK], fk[DTP_MAX_RANK], fv[DTP_MAX_RANK];
} attention;

/* Axes before the last two: those of k and v are the first parts of those of q. */
static dtp_status attention_groups(dtp_lowering *l, attention *a, dtp_err *err)
{
    const int32_t r = a->length, d = a->feature;
    DTP_TRY(dtp_groups_of(l, a->q, a->fq, err));
    for (int32_t i = 0; i <= d; i++) {
        a->fk[i] = a->fv[i] = dtp_axis_parts(l->m, a->k, i) > 0 ? a->fq[i] : -1;
    }
    if (a->mask >= 0 || !dtp_same_axis(l->m, a->q, a->k, r)) {
        DTP_TRY(dtp_groups_add(l, a->k, r, &a->fk[r], err));
        a->fv[r] = a->fk[r];
    }
    return dtp_same_axis(l->m, a->q, a->v, d) ? DTP_OK : dtp_groups_add(l, a->v, d, &a->fv[d], err);
}

static dtp_status attention_operands(dtp_lowering *l, attention *a, dtp_err *err)
{
    const int32_t values[3] = {a->q, a->k, a->v}, *firsts[3] = {a->fq, a->fk, a->fv};
    dtp_use merged[3] = {{0}};
    for (int32_t i = 0; i < 3 && a->piece >= 0; i++) {
        if (dtp_axis_parts(l->m, values[i], a->piece) > 1) {
            DTP_TRY(dtp_one_dim(l, values[i], a->piece, firsts[i], &merged[i].id, err));
        }
    }
    l->n = 0;
    for (int32_t i = 0; i < 3; i++) {
        DTP_TRY(dtp_use_add(l, values[i], firsts[i], err));
        l->uses[i].id = merged[i].id;
        l->uses[i].whole = merged[i].id != NULL;
    }
    if (a->mask >= 0) {
        int32_t fm[DTP_MAX_RANK];
        const int32_t rank = dtp_value_of(l, a->mask)->rank, more = a->feature + 1 - rank;
        for (int32_t i = 0; i < rank; i++) {
            fm[i] = i + more == a->feature ? a->fk[a->length] : a->fq[i + more];
        }
        DTP_TRY(dtp_use_add(l, a->mask, fm, err));
    }
    DTP_TRY(dtp_settle(l, err));
    for (int32_t i = 0; i < 3; i++) {
        const bool lacks = !l->uses[i].whole && l->m->low[l->uses[i].value].n_dims < l->uses[i].n;
        DTP_TRY(lacks ? dtp_whole(l, &l->uses[i], err) : DTP_OK);
    }
    return DTP_OK;
}

static const char *attention_attrs(dtp_lowering *l, const attention *a)
{
    const struct {
        const char *key;
        int32_t group;
        bool written;
    } dims[] = {{"query", a->piece == a->length ? -1 : a->fq[a->length], true},
                {"feature", a->piece == a->feature ? -1 : a->fq[a->feature], true},
                {"key", a->fk[a->length], a->fk[a->length] != a->fq[a->length]},
                {"value", a->fv[a->feature], a->fv[a->feature] != a->fq[a->feature]}};
    const double scale = dtp_aten_real(l->node, "scale", (double)NAN);
    const double usual = 1 / sqrt((double)dtp_value_of(l, a->q)->sizes[a->feature]);
    const char *attrs = "";
    for (int32_t i = 0; i < 4; i++) {
        if (dims[i].written) {
            attrs = dtp_joined(
                l->m, attrs, ", ",
                dtp_arena_printf(l->m->arena, "\"%s\": \"%s\"", dims[i].key,
                                 dims[i].group < 0 ? DTP_PIECE : dtp_group_name(l, dims[i].group)));
        }
    }
    if (dtp_aten_real(l->node, "causal", 0) == 0) {
        attrs = dtp_joined(l->m, attrs, ", ", "\"causal\": false");
    }
    return !isnan(scale) && fabs(scale - usual) > 1e-12 * usual
               ? dtp_joined(l->m, attrs, ", ", dtp_real_attr(l->m, "scale", scale))
               : attrs;
}

dtp_status dtp_lower_attention(dtp_lowering *l, dtp_err *err)
{
    attention a = {.q = l->x,
                   .k = dtp_aten_operand(l->node, "key"),
                   .v = dtp_aten_operand(l->node, "value"),
                   .mask = dtp_aten_operand(l->node, "mask")};
    a.feature = dtp_value_of(l, a.q)->rank - 1;
    a.length = a.feature - 1;
    a.piece = dtp_axis_parts(l->m, a.q, a.feature) > 1  ? a.feature
              : dtp_axis_parts(l->m, a.q, a.length) > 1 ? a.length
                                                        : -1;
    bool holds;
    DTP_TRY(dtp_holds_scores(l, &holds, err));
    if (holds) {
        return dtp_lower_scores(l, err);
    }
    DTP_TRY(attention_groups(l, &a, err));
    const bool features = a.piece == a.feature && a.fv[a.feature] == a.fq[a.feature];
    if (dtp_axis_parts(l->m, a.v, a.feature) !=
        (features ? dtp_axis_parts(l->m, a.q, a.feature) : 1)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "attention over features that are split");
    }
    DTP_TRY(attention_operands(l, &a, err));
    /* the feature's place is that of the value */
    l->uses[0].group[l->uses[0].n - 1] = (int8_t)a.fv[a.feature];
    memcpy(l->firsts, a.fq, sizeof l->firsts);
    l->firsts[a.feature] = a.fv[a.feature];
    l->m->report->attention++;
    l->m->report->causal += dtp_aten_real(l->node, "causal", 0) != 0 ? 1 : 0;
    if (features || a.piece == a.length) {
        const char *in[4], *id;
        for (int32_t i = 0; i < l->n; i++) {
            in[i] = l->uses[i].id;
        }
        const dtp_out_node o = {"attention", "attention", l->n, in,
                                .attrs = attention_attrs(l, &a)};
        DTP_TRY(dtp_emit(l, &o, &id, err));
        return dtp_from_piece(l, id, a.piece, err);
    }
    return dtp_emit_value(l, "attention", attention_attrs(l, &a), err);
}

/* Where the positions or the features are of several parts, they are one dim meanwhile. */
dtp_status dtp_lower_rope(dtp_lowering *l, dtp_err *err)
{
    const int32_t last = dtp_value_of(l, l->x)->rank - 1;
    const int32_t axis = (int32_t)dtp_aten_real(l->node, "position", 0);
    const bool parts[] = {dtp_axis_parts(l->m, l->x, axis) != 1,
                          dtp_axis_parts(l->m, l->x, last) != 1};
    const int32_t piece = parts[0] ? axis : parts[1] ? last : -1;
    const char *id = NULL;
    if (parts[0] && parts[1]) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "rotary positions where positions and features are split");
    }
    DTP_TRY(piece < 0 ? dtp_only_operand(l, err) : dtp_groups_but(l, piece, err));
    DTP_TRY(piece < 0 ? DTP_OK : dtp_one_dim(l, l->x, piece, l->firsts, &id, err));
    const char *attrs =
        dtp_arena_printf(l->m->arena, "\"position\": \"%s\", \"feature\": \"%s\", %s",
                         parts[0] ? DTP_PIECE : dtp_group_name(l, l->firsts[axis]),
                         parts[1] ? DTP_PIECE : dtp_group_name(l, l->firsts[last]),
                         dtp_real_attr(l->m, "base", dtp_aten_real(l->node, "base", 10000)));
    l->m->report->rope++;
    if (piece < 0) {
        return dtp_emit_value(l, "rope", attrs, err);
    }
    DTP_TRY(dtp_emit_one(l, "rope", "rope", &id, NULL, attrs, err));
    return dtp_from_piece(l, id, piece, err);
}
