/* Attention that holds its scores: products, a softmax and a product, where the op of ours cannot
 * be used: positions that are several dims or a single one, dropout of the probabilities, a mask
 * that is trained. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "importers/program/lowering/aten_ops.h"
#include "importers/program/lowering/lower.h"

/* A query, a key, a value and perhaps a mask over groups of their axes. */
typedef struct scores {
    int32_t q, k, v, mask;
    int32_t length, feature; /* axes */
    int32_t fq[DTP_MAX_RANK], fk[DTP_MAX_RANK], fv[DTP_MAX_RANK];
    const char *keys; /* names of the dims of keys */
    const char *dims; /* of the scores */
} scores;

static scores scores_of(const dtp_lowering *l)
{
    scores s = {.q = l->x,
                .k = dtp_aten_operand(l->node, "key"),
                .v = dtp_aten_operand(l->node, "value"),
                .mask = dtp_aten_operand(l->node, "mask")};
    s.feature = dtp_value_of(l, s.q)->rank - 1;
    s.length = s.feature - 1;
    return s;
}

/* Whether a value depends on a parameter that is trained. */
static dtp_status is_trained(const dtp_importer *m, int32_t value, bool *out, dtp_err *err)
{
    const dtp_aten *g = m->g;
    bool *need;
    *out = false;
    DTP_TRY(DTP_NEW(m->arena, need, g->n_values + 1, err));
    need[value] = true;
    *out = g->values[value].role == ATEN_PARAM && !g->values[value].frozen;
    for (int32_t i = g->values[value].node; i >= 0 && !*out; i--) {
        const dtp_aten_node *node = &g->nodes[i];
        bool reads = false;
        for (int32_t k = 0; k < node->n_outs; k++) {
            reads = reads || (node->outs[k] >= 0 && need[node->outs[k]]);
        }
        for (int32_t k = 0; k < node->n_args && reads; k++) {
            const dtp_aten_arg *a = &node->args[k];
            for (int32_t j = 0; j < dtp_aten_tensors(a); j++) {
                const dtp_aten_value *v = a->values[j] < 0 ? NULL : &g->values[a->values[j]];
                need[a->values[j] < 0 ? g->n_values : a->values[j]] = true;
                *out = *out || (v != NULL && v->role == ATEN_PARAM && !v->frozen);
            }
        }
    }
    return DTP_OK;
}

dtp_status dtp_holds_scores(const dtp_lowering *l, bool *out, dtp_err *err)
{
    const scores s = scores_of(l);
    const int32_t features = dtp_axis_parts(l->m, s.q, s.feature);
    const int32_t others = dtp_axis_parts(l->m, s.v, s.feature);
    /* positions of several dims, alike for queries and keys, are one dim meanwhile */
    const bool one =
        s.mask < 0 && features == 1 && others == 1 && dtp_same_axis(l->m, s.q, s.k, s.length);
    const bool several =
        dtp_axis_parts(l->m, s.q, s.length) != 1 || dtp_axis_parts(l->m, s.k, s.length) != 1;
    *out = (several && !one) || features < 1 || (others != 1 && others != features) ||
           dtp_aten_real(l->node, "dropout", 0) != 0;
    return *out || s.mask < 0 || l->m->loss < 0 ? DTP_OK : is_trained(l->m, s.mask, out, err);
}

static dtp_status whole_use(dtp_lowering *l, int32_t i, dtp_err *err)
{
    const dtp_low *low = &l->m->low[l->uses[i].value];
    return low->n_dims < l->uses[i].n ? dtp_whole(l, &l->uses[i], err) : DTP_OK;
}

/* q.k times the scale. */
static dtp_status products(dtp_lowering *l, scores *s, const char **id, dtp_err *err)
{
    dtp_importer *m = l->m;
    const double usual = 1 / sqrt((double)dtp_value_of(l, s->q)->sizes[s->feature]);
    const double scale = dtp_aten_real(l->node, "scale", (double)NAN);
    l->n = 0;
    DTP_TRY(dtp_use_add(l, s->q, s->fq, err));
    DTP_TRY(dtp_use_add(l, s->k, s->fk, err));
    DTP_TRY(dtp_settle(l, err));
    DTP_TRY(whole_use(l, 0, err));
    DTP_TRY(whole_use(l, 1, err));
    s->dims = "";
    for (int32_t i = 0; i <= s->length; i++) {
        const int32_t n = dtp_axis_parts(m, s->q, i);
        s->dims =
            n == 0 ? s->dims : dtp_joined(m, s->dims, ",", dtp_group_names(l, s->fq[i], n, ","));
    }
    const int32_t n = dtp_axis_parts(m, s->k, s->length);
    s->keys = n == 0 ? "" : dtp_group_names(l, s->fk[s->length], n, ",");
    s->dims = dtp_joined(m, s->dims, ",", s->keys);
    DTP_TRY(DTP_MEMORY(err, s->dims));
    const char *in[2] = {l->uses[0].id, l->uses[1].id};
    const dtp_out_node o = {"scores", "einsum", 2, in, s->dims, "", NULL, 0, NULL, -1};
    DTP_TRY(dtp_emit(l, &o, id, err));
    return dtp_emit_one(l, "scores", "scale", id, NULL,
                        dtp_real_attr(m, "factor", isnan(scale) ? usual : scale), err);
}

/* Scores where the condition holds, elsewhere a number so low that none counts beside it. */
static dtp_status chosen(dtp_lowering *l, const scores *s, const char *condition, const char **id,
                         dtp_err *err)
{
    const char *in[3] = {condition, *id};
    DTP_TRY(dtp_emit_number(l, -(double)FLT_MAX, dtp_value_of(l, s->q)->dtype, "", &in[2], err));
    const dtp_out_node o = {"masked", "select", 3, in, s->dims, "", NULL, 0, NULL, -1};
    return dtp_emit(l, &o, id, err);
}

/* Queries and keys are aligned at their ends. */
static dtp_status causal(dtp_lowering *l, const scores *s, const char **id, dtp_err *err)
{
    dtp_importer *m = l->m;
    const int64_t more =
        dtp_value_of(l, s->k)->sizes[s->length] - dtp_value_of(l, s->q)->sizes[s->length];
    const char *dims[2] = {s->keys, NULL}, *in[2];
    if (dtp_axis_parts(m, s->q, s->length) == 0) { /* the last query: it sees all keys */
        return DTP_OK;
    }
    if (dtp_axis_parts(m, s->q, s->length) != 1 || dtp_axis_parts(m, s->k, s->length) != 1 ||
        more != 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "causal attention over positions that are split");
    }
    dims[1] = dtp_group_name(l, s->fq[s->length]);
    for (int32_t i = 0; i < 2; i++) {
        const dtp_out_node o = {
            "index", "iota", .out = dims[i],
            .attrs = dtp_arena_printf(m->arena, "\"dim\": \"%s\", \"dtype\": \"i64\"", dims[i])};
        DTP_TRY(dtp_emit(l, &o, &in[i], err));
    }
    const char *out = dtp_joined(m, dims[1], ",", dims[0]);
    DTP_TRY(DTP_MEMORY(err, out));
    const dtp_out_node o = {"mask", "compare", 2, in, out, "\"cmp\": \"le\"", NULL, 0, NULL, -1};
    DTP_TRY(dtp_emit(l, &o, &in[0], err));
    return chosen(l, s, in[0], id, err);
}

static dtp_status masked(dtp_lowering *l, const scores *s, const char **id, dtp_err *err)
{
    const dtp_aten_value *mask = dtp_value_of(l, s->mask);
    const int32_t more = s->feature + 1 - mask->rank, q = dtp_value_of(l, s->q)->dtype;
    int32_t fm[DTP_MAX_RANK];
    for (int32_t i = 0; i < mask->rank; i++) {
        fm[i] = i + more == s->feature ? s->fk[s->length] : s->fq[i + more];
    }
    l->n = 0;
    DTP_TRY(dtp_use_add(l, s->mask, fm, err));
    DTP_TRY(dtp_settle(l, err));
    if (mask->dtype == ATEN_BOOL) {
        return chosen(l, s, l->uses[0].id, id, err);
    }
    const char *in[2] = {*id, l->uses[0].id}, *type;
    DTP_TRY(dtp_type_attr(l->m, q, &type, err));
    DTP_TRY(mask->dtype == q ? DTP_OK : dtp_emit_one(l, "mask", "cast", &in[1], NULL, type, err));
    const dtp_out_node o = {"masked", "add", 2, in, s->dims, "", NULL, 0, NULL, -1};
    return dtp_emit(l, &o, id, err);
}

dtp_status dtp_lower_scores(dtp_lowering *l, dtp_err *err)
{
    scores s = scores_of(l);
    const double rate = dtp_aten_real(l->node, "dropout", 0);
    const char *id;
    DTP_TRY(dtp_groups_of(l, s.q, s.fq, err));
    for (int32_t i = 0; i <= s.feature; i++) {
        s.fk[i] = s.fv[i] = dtp_axis_parts(l->m, s.k, i) > 0 ? s.fq[i] : -1;
    }
    DTP_TRY(dtp_groups_add(l, s.k, s.length, &s.fk[s.length], err));
    s.fv[s.length] = s.fk[s.length];
    DTP_TRY(dtp_groups_add(l, s.v, s.feature, &s.fv[s.feature], err));
    DTP_TRY(products(l, &s, &id, err));
    if (s.keys[0] == '\0') {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "attention over a single key");
    }
    DTP_TRY(dtp_aten_real(l->node, "causal", 0) != 0 ? causal(l, &s, &id, err) : DTP_OK);
    DTP_TRY(s.mask >= 0 ? masked(l, &s, &id, err) : DTP_OK);
    const char *keys =
        dtp_group_names(l, s.fk[s.length], dtp_axis_parts(l->m, s.k, s.length), "\", \"");
    DTP_TRY(DTP_MEMORY(err, keys));
    DTP_TRY(dtp_emit_one(l, "softmax", "softmax", &id, NULL,
                         dtp_arena_printf(l->m->arena, "\"over\": [\"%s\"]", keys), err));
    DTP_TRY(rate > 0 ? dtp_emit_one(l, "dropout", "dropout", &id, NULL,
                                    dtp_real_attr(l->m, "rate", rate), err)
                     : DTP_OK);
    l->n = 0;
    DTP_TRY(dtp_use_add(l, s.v, s.fv, err));
    DTP_TRY(dtp_settle(l, err));
    DTP_TRY(whole_use(l, 0, err));
    l->uses[1] = l->uses[0];
    l->uses[0] = (dtp_use){.value = -1, .id = id};
    l->n = 2;
    memcpy(l->firsts, s.fq, sizeof l->firsts);
    l->firsts[s.feature] = s.fv[s.feature];
    l->m->report->attention++;
    l->m->report->causal += dtp_aten_real(l->node, "causal", 0) != 0 ? 1 : 0;
    return dtp_emit_value(l, "einsum", "", err);
}
