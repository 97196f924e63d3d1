/* Products, attention, rotary positions. */
#include <math.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "interop/import/program/aten_lower.h"
#include "interop/import/program/lower.h"

/* A product, then the sum with a bias, whose last axis is axis `last` of the output. */
static dtp_status product(dtp_importer *m, const dtp_aten_node *node, dtp_use *uses,
                          dtp_groups *groups, const int32_t *firsts, int32_t bias, int32_t last,
                          dtp_err *err)
{
    const int32_t out = node->outs[0];
    m->what = bias >= 0 ? "mm" : NULL;
    dtp_status s = dtp_settle(m, node, 2, uses, groups, err);
    s = s == DTP_OK ? dtp_emit_value(m, node, "einsum", 2, uses, groups, out, firsts, "", err) : s;
    m->what = NULL;
    if (s != DTP_OK || bias < 0) {
        return s;
    }
    dtp_use sum[2];
    DTP_TRY(dtp_use_make(m, out, firsts, &sum[0], err));
    DTP_TRY(dtp_use_make(m, bias, firsts + last + 1 - m->g->values[bias].rank, &sum[1], err));
    DTP_TRY(dtp_settle(m, node, 2, sum, groups, err));
    return dtp_emit_value(m, node, "add", 2, sum, groups, out, firsts, "", err);
}

dtp_status dtp_lower_linear(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                            dtp_err *err)
{
    const int32_t x = dtp_aten_operand(node, "input"), w = dtp_aten_operand(node, "weight");
    const int32_t rank = m->g->values[x].rank;
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK], weight[2];
    dtp_use uses[2];
    (void)op;
    for (int32_t i = 0; i < rank; i++) {
        DTP_TRY(dtp_groups_add(m, &groups, x, i, &firsts[i], err));
    }
    weight[1] = firsts[rank - 1];
    DTP_TRY(dtp_groups_add(m, &groups, w, 0, &weight[0], err));
    DTP_TRY(dtp_use_make(m, x, firsts, &uses[0], err));
    DTP_TRY(dtp_use_make(m, w, weight, &uses[1], err));
    firsts[rank - 1] = weight[0];
    return product(m, node, uses, &groups, firsts, dtp_aten_operand(node, "bias"), rank - 1, err);
}

/* mm, bmm, matmul, addmm: rows, the summed axis, columns; what stands before is walked together. */
dtp_status dtp_lower_matmul(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                            dtp_err *err)
{
    const bool bias = strncmp(node->op, "aten.addmm", 10) == 0;
    const int32_t a = bias ? dtp_aten_operand(node, "mat1") : node->args[0].values[0];
    const int32_t b = bias ? dtp_aten_operand(node, "mat2") : node->args[1].values[0];
    const int32_t ra = m->g->values[a].rank, rb = m->g->values[b].rank;
    const int32_t out = node->outs[0], r = m->g->values[out].rank;
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK], fa[DTP_MAX_RANK], fb[DTP_MAX_RANK];
    dtp_use uses[2];
    (void)op;
    for (int32_t i = 0; i < r - 2; i++) {
        DTP_TRY(dtp_groups_add(m, &groups, out, i, &firsts[i], err));
        if (i >= r - ra) {
            fa[i - (r - ra)] = firsts[i];
        }
        if (i >= r - rb) {
            fb[i - (r - rb)] = firsts[i];
        }
    }
    DTP_TRY(dtp_groups_add(m, &groups, a, ra - 2, &fa[ra - 2], err));
    DTP_TRY(dtp_groups_add(m, &groups, a, ra - 1, &fa[ra - 1], err));
    DTP_TRY(dtp_groups_add(m, &groups, b, rb - 1, &fb[rb - 1], err));
    fb[rb - 2] = fa[ra - 1];
    firsts[r - 2] = fa[ra - 2];
    firsts[r - 1] = fb[rb - 1];
    DTP_TRY(dtp_use_make(m, a, fa, &uses[0], err));
    DTP_TRY(dtp_use_make(m, b, fb, &uses[1], err));
    return product(m, node, uses, &groups, firsts, bias ? node->args[0].values[0] : -1, r - 1, err);
}

/* Pixels of every patch times the kernel, which is a weight of as many inputs. */
dtp_status dtp_lower_patches(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                             dtp_err *err)
{
    const int32_t x = node->args[0].values[0], w = dtp_aten_operand(node, "weight");
    const int32_t out = node->outs[0], rank = m->g->values[x].rank;
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK], image[DTP_MAX_RANK], kernel[DTP_MAX_RANK];
    dtp_use uses[2];
    (void)op;
    for (int32_t i = 0; i < rank; i++) {
        DTP_TRY(dtp_groups_add(m, &groups, x, i, &image[i], err));
        kernel[i] = image[i] < 0 ? -1 : image[i] + (i < 2 ? 0 : dtp_axis_parts(m, out, i));
        firsts[i] = image[i];
    }
    DTP_TRY(dtp_groups_add(m, &groups, w, 0, &kernel[0], err));
    firsts[1] = kernel[0];
    DTP_TRY(dtp_use_make(m, x, image, &uses[0], err));
    DTP_TRY(dtp_use_make(m, w, kernel, &uses[1], err));
    DTP_TRY(dtp_settle(m, node, 1, uses, &groups, err));
    DTP_TRY(dtp_whole_use(m, node, uses, &groups, err));
    return product(m, node, uses, &groups, firsts, dtp_aten_operand(node, "bias"), 1, err);
}

/* ---- attention ---- */

static bool same_axis(const dtp_importer *m, int32_t a, int32_t b, int32_t axis)
{
    int32_t x, y;
    return dtp_axis_leaves(&m->axes, 1, &m->axes.of[a][axis], &x, 1) == 1 &&
           dtp_axis_leaves(&m->axes, 1, &m->axes.of[b][axis], &y, 1) == 1 && x == y;
}

typedef struct attention {
    int32_t q, k, v, rank;
    dtp_groups groups;
    int32_t fq[DTP_MAX_RANK], fk[DTP_MAX_RANK], fv[DTP_MAX_RANK];
} attention;

/* Axes before the last two: those of k and v are the first parts of those of q. */
static dtp_status attention_groups(dtp_importer *m, attention *a, bool apart, dtp_err *err)
{
    const int32_t l = a->rank - 2, d = a->rank - 1;
    for (int32_t i = 0; i < a->rank; i++) {
        DTP_TRY(dtp_groups_add(m, &a->groups, a->q, i, &a->fq[i], err));
        a->fk[i] = a->fv[i] = dtp_axis_parts(m, a->k, i) > 0 ? a->fq[i] : -1;
    }
    if (apart || !same_axis(m, a->q, a->k, l)) {
        DTP_TRY(dtp_groups_add(m, &a->groups, a->k, l, &a->fk[l], err));
        a->fv[l] = a->fk[l];
    }
    if (!same_axis(m, a->q, a->v, d)) {
        DTP_TRY(dtp_groups_add(m, &a->groups, a->v, d, &a->fv[d], err));
    }
    return DTP_OK;
}

dtp_status dtp_lower_attention(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                               dtp_err *err)
{
    const int32_t mask = dtp_aten_operand(node, "mask"), out = node->outs[0];
    attention a = {.q = dtp_aten_operand(node, "query"),
                   .k = dtp_aten_operand(node, "key"),
                   .v = dtp_aten_operand(node, "value")};
    dtp_use uses[4];
    (void)op;
    a.rank = m->g->values[a.q].rank;
    const int32_t l = a.rank - 2, d = a.rank - 1;
    DTP_TRY(attention_groups(m, &a, mask >= 0, err));
    if (dtp_axis_parts(m, a.q, l) != 1 || dtp_axis_parts(m, a.k, l) != 1 ||
        dtp_axis_parts(m, a.q, d) != 1 || dtp_axis_parts(m, a.v, d) != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "attention over positions or features that are split");
    }
    DTP_TRY(dtp_use_make(m, a.q, a.fq, &uses[0], err));
    DTP_TRY(dtp_use_make(m, a.k, a.fk, &uses[1], err));
    DTP_TRY(dtp_use_make(m, a.v, a.fv, &uses[2], err));
    int32_t n = 3, firsts[DTP_MAX_RANK], fm[DTP_MAX_RANK];
    if (mask >= 0) {
        const int32_t more = a.rank - m->g->values[mask].rank;
        for (int32_t i = 0; i < m->g->values[mask].rank; i++) {
            fm[i] = i + more == d ? a.fk[l] : a.fq[i + more];
        }
        DTP_TRY(dtp_use_make(m, mask, fm, &uses[n++], err));
    }
    DTP_TRY(dtp_settle(m, node, n, uses, &a.groups, err));
    for (int32_t i = 0; i < 3; i++) {
        const bool lacks = m->low[uses[i].value].n_dims < uses[i].n;
        DTP_TRY(lacks ? dtp_whole_use(m, node, &uses[i], &a.groups, err) : DTP_OK);
    }
    uses[0].group[uses[0].n - 1] = (int8_t)a.fv[d]; /* the feature's place is that of the value */
    memcpy(firsts, a.fq, sizeof firsts);
    firsts[d] = a.fv[d];
    const bool causal = dtp_aten_real(node, "causal", 0) != 0;
    const double scale = dtp_aten_real(node, "scale", 0);
    const double usual = 1 / sqrt((double)m->g->values[a.q].sizes[d]);
    const char *attrs = dtp_arena_printf(m->arena, "\"query\": \"%s\", \"feature\": \"%s\"",
                                         dtp_group_names(m, &a.groups, a.fq[l], 1, ""),
                                         dtp_group_names(m, &a.groups, a.fq[d], 1, ""));
    if (a.fk[l] != a.fq[l]) {
        attrs = dtp_arena_printf(m->arena, "%s, \"key\": \"%s\"", attrs,
                                 dtp_group_names(m, &a.groups, a.fk[l], 1, ""));
    }
    if (a.fv[d] != a.fq[d]) {
        attrs = dtp_arena_printf(m->arena, "%s, \"value\": \"%s\"", attrs,
                                 dtp_group_names(m, &a.groups, a.fv[d], 1, ""));
    }
    if (!causal) {
        attrs = dtp_arena_printf(m->arena, "%s, \"causal\": false", attrs);
    }
    if (scale != 0 && fabs(scale - usual) > 1e-12) {
        char text[32];
        dtp_double_print(scale, text);
        attrs = dtp_arena_printf(m->arena, "%s, \"scale\": %s", attrs, text);
    }
    m->report->attention++;
    m->report->causal += causal ? 1 : 0;
    return dtp_emit_value(m, node, "attention", n, uses, &a.groups, out, firsts, attrs, err);
}

dtp_status dtp_lower_rope(dtp_importer *m, const dtp_aten_node *node, const dtp_aten_op *op,
                          dtp_err *err)
{
    const int32_t x = dtp_aten_operand(node, "self"), rank = m->g->values[x].rank;
    const int32_t axis = (int32_t)dtp_aten_real(node, "position", 0);
    dtp_groups groups = {0};
    int32_t firsts[DTP_MAX_RANK];
    dtp_use use;
    char base[32];
    (void)op;
    if (dtp_axis_parts(m, x, axis) != 1 || dtp_axis_parts(m, x, rank - 1) != 1) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "rotary positions over dims that are split");
    }
    for (int32_t i = 0; i < rank; i++) {
        DTP_TRY(dtp_groups_add(m, &groups, x, i, &firsts[i], err));
    }
    DTP_TRY(dtp_use_make(m, x, firsts, &use, err));
    DTP_TRY(dtp_settle(m, node, 1, &use, &groups, err));
    dtp_double_print(dtp_aten_real(node, "base", 10000), base);
    m->report->rope++;
    return dtp_emit_value(
        m, node, "rope", 1, &use, &groups, node->outs[0], firsts,
        dtp_arena_printf(m->arena, "\"position\": \"%s\", \"feature\": \"%s\", \"base\": %s",
                         dtp_group_names(m, &groups, firsts[axis], 1, ""),
                         dtp_group_names(m, &groups, firsts[rank - 1], 1, ""), base),
        err);
}
