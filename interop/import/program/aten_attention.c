/* softmax(scale q.k + mask) v, written as products: scaled_dot_product_attention. */
#include <math.h>
#include <string.h>

#include "interop/import/program/aten_expand.h"
#include "interop/import/program/aten_products.h"

typedef struct scores {
    dtp_product product; /* of queries and keys */
    double scale;
    int32_t mask; /* what is added; -1 */
} scores;

static double number(const dtp_aten_node *node, int32_t i)
{
    const dtp_aten_arg *a = i < node->n_args ? &node->args[i] : NULL;
    return a != NULL && (a->kind == ATEN_INT || a->kind == ATEN_FLOAT) ? a->real : (double)NAN;
}

/* A mask of those where `condition` is `hides`: a number so low that no score matters beside it. */
static int32_t hidden(dtp_expansion *e, int32_t condition, bool hides, double low, int32_t dtype)
{
    if (condition < 0 || !(low <= -1e9)) {
        return -1;
    }
    dtp_aten_value like = e->g->values[condition];
    like.dtype = dtype;
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "condition", condition),
                                 dtp_expand_number(e, "self", hides ? low : 0),
                                 dtp_expand_number(e, "other", hides ? 0 : low)};
    return dtp_expand_node(e, "aten.where", 3, args, 1, &like);
}

/* Operand `x` of the node that makes the scores is theirs, and `mask` is added to them. */
static bool masked(scores *s, int32_t x, int32_t mask, int32_t *next, dtp_expansion *e)
{
    if (x < 0 || mask < 0 || s->scale != 1) {
        return false;
    }
    s->mask = s->mask < 0 ? mask : dtp_expand_two(e, "aten.add", mask, s->mask);
    *next = x;
    return true;
}

static bool is_scores(const dtp_expansion *e, int32_t value)
{
    static const char *const names[] = {"matmul", "bmm", "einsum", "mul", "div", "baddbmm"};
    const dtp_aten_node *node = dtp_expand_maker(e, dtp_expand_source(e, value));
    bool is = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        is = is || dtp_aten_is(node, names[i]);
    }
    return is;
}

/* From what softmax reads back to the product of queries and keys. */
static bool find_scores(dtp_expansion *e, int32_t value, scores *s)
{
    *s = (scores){.scale = 1, .mask = -1};
    for (int32_t steps = 0; steps < 8; steps++) {
        const dtp_aten_node *node = dtp_expand_maker(e, dtp_expand_source(e, value));
        if (node == NULL) {
            return false;
        }
        const dtp_aten_node of = *node; /* nodes move when more are made */
        const int32_t a = dtp_aten_input(&of, 0), b = dtp_aten_input(&of, 1);
        const int32_t dtype = e->g->values[value].dtype;
        bool goes = false;
        if ((dtp_aten_is(&of, "mul") || dtp_aten_is(&of, "div")) && a >= 0 &&
            !isnan(number(&of, 1))) {
            s->scale *= dtp_aten_is(&of, "mul") ? number(&of, 1) : 1 / number(&of, 1);
            value = a;
            goes = true;
        } else if (dtp_aten_is(&of, "add") && a >= 0 && b >= 0) {
            const bool first = is_scores(e, a);
            goes = masked(s, first ? a : b, first ? b : a, &value, e);
        } else if (dtp_aten_is(&of, "sub") && a >= 0 && b >= 0) {
            const dtp_aten_value like = e->g->values[b];
            goes = masked(s, a, dtp_expand_one(e, "aten.neg", b, &like), &value, e);
        } else if (dtp_aten_is(&of, "masked_fill")) {
            goes = masked(s, a, hidden(e, b, true, number(&of, 2), dtype), &value, e);
        } else if (dtp_aten_is(&of, "where")) {
            goes = masked(s, b, hidden(e, a, false, number(&of, 2), dtype), &value, e);
        } else {
            return dtp_product_of(e->g, &of, &s->product, NULL) == DTP_OK && s->product.n == 2 &&
                   s->product.added < 0;
        }
        if (!goes) {
            return false;
        }
    }
    return false;
}

/* ---- operands in the order of attention ---- */

/* The axis of a value that has the label; -1. */
static int32_t axis_of(const dtp_expansion *e, const dtp_product *p, int32_t factor, int32_t label)
{
    for (int32_t i = 0; i < e->g->values[p->values[factor]].rank; i++) {
        if (p->of[factor][i] == label) {
            return i;
        }
    }
    return -1;
}

static int32_t permuted(dtp_expansion *e, int32_t x, int32_t n, const int64_t *dims)
{
    const dtp_aten_node *view = dtp_expand_maker(e, x);
    const bool turned = dtp_aten_is(view, "transpose") || dtp_aten_is(view, "permute");
    const int32_t from = turned ? dtp_aten_input(view, 0) : x;
    const dtp_aten_value v = e->g->values[from];
    dtp_aten_value like = v;
    int64_t all[DTP_MAX_RANK];
    bool same = true;
    for (int32_t i = 0; i < n; i++) {
        all[i] = turned ? dtp_aten_from(e->g, view, (int32_t)dims[i]) : dims[i];
        if (all[i] < 0 || v.rank != n) {
            return -1;
        }
        like.sizes[i] = v.sizes[all[i]];
        same = same && all[i] == i;
    }
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", from),
                                 dtp_expand_ints(e, "dims", n, all)};
    return same ? from : dtp_expand_node(e, "aten.permute", 2, args, 1, &like);
}

/* A factor with the axes that `labels` name, of size 1 where it has none. */
static int32_t arranged(dtp_expansion *e, const dtp_product *p, int32_t factor, int32_t n,
                        const int32_t *labels)
{
    int64_t dims[DTP_MAX_RANK];
    int32_t kept = 0;
    dtp_aten_value like = e->g->values[p->values[factor]];
    like.rank = n;
    for (int32_t i = 0; i < n; i++) {
        const int32_t axis = axis_of(e, p, factor, labels[i]);
        like.sizes[i] = axis < 0 ? 1 : e->g->values[p->values[factor]].sizes[axis];
        if (axis >= 0) {
            dims[kept++] = axis;
        }
    }
    const int32_t x = kept != e->g->values[p->values[factor]].rank
                          ? -1
                          : permuted(e, p->values[factor], kept, dims);
    return kept == n || x < 0 ? x : dtp_expand_one(e, "aten.view", x, &like);
}

/* The mask with its axes, those of the scores from the last on, in another order. */
static int32_t arranged_mask(dtp_expansion *e, int32_t mask, int32_t n, const int64_t *order)
{
    dtp_aten_value like = e->g->values[mask];
    const int32_t more = n - like.rank;
    bool same = true;
    for (int32_t i = 0; i < n; i++) {
        same = same && order[i] == i;
    }
    if (same || more < 0) {
        return same ? mask : -1;
    }
    memmove(&like.sizes[more], like.sizes, (size_t)like.rank * sizeof like.sizes[0]);
    for (int32_t i = 0; i < more; i++) {
        like.sizes[i] = 1;
    }
    like.rank = n;
    return permuted(e, more > 0 ? dtp_expand_one(e, "aten.view", mask, &like) : mask, n, order);
}

/* Axes of the scores: `order` has those that are walked together, then queries, then keys. */
static bool order_axes(const dtp_expansion *e, const dtp_product *p, int32_t rank, int32_t keys,
                       int32_t k, int64_t *order)
{
    int32_t n = 0, queries = -1;
    const int64_t length = e->g->values[p->values[k]].sizes[axis_of(e, p, k, p->out[keys])];
    for (int32_t i = 0; i < rank; i++) {
        const int32_t axis = axis_of(e, p, 1 - k, p->out[i]);
        if (i != keys && axis >= 0 && axis_of(e, p, k, p->out[i]) < 0) {
            const bool old =
                queries >= 0 &&
                e->g->values[p->values[1 - k]].sizes[axis_of(e, p, 1 - k, p->out[queries])] ==
                    length;
            queries = old && e->g->values[p->values[1 - k]].sizes[axis] != length ? queries : i;
        }
    }
    for (int32_t i = 0; i < rank; i++) {
        if (i != keys && i != queries) {
            order[n++] = i;
        }
    }
    order[rank - 2] = queries;
    order[rank - 1] = keys;
    return queries >= 0 && n == rank - 2;
}

/* The label of a factor that no other tensor of the product has: summed, or of the result. */
static int32_t only_label(const dtp_expansion *e, const dtp_product *p, int32_t factor,
                          int32_t rank, int32_t besides)
{
    int32_t found = -1;
    for (int32_t i = 0; i < e->g->values[p->values[factor]].rank; i++) {
        const int32_t label = p->of[factor][i];
        bool other = label == besides;
        for (int32_t k = 0; k < rank; k++) {
            other = other || p->out[k] == label;
        }
        if (!other) {
            found = found >= 0 ? DTP_MOST_LABELS : label;
        }
    }
    return found == DTP_MOST_LABELS ? -1 : found;
}

/* Product `v` of the probabilities, factor `side`, and values. */
static bool rewrite(dtp_expansion *e, const dtp_product *v, int32_t side, int32_t keys, scores *s)
{
    const dtp_product *p = &s->product;
    const int32_t rank = e->g->values[v->values[side]].rank;
    const dtp_aten_value out = e->g->values[e->of->outs[0]];
    const int32_t k = axis_of(e, p, 1, p->out[keys]) >= 0 ? 1 : 0, q = 1 - k;
    const int32_t d = only_label(e, p, q, rank, -1);
    int64_t order[DTP_MAX_RANK], back[DTP_MAX_RANK];
    int32_t labels[3][DTP_MAX_RANK], values[DTP_MAX_RANK];
    if (rank < 3 || out.rank != rank || axis_of(e, p, q, p->out[keys]) >= 0 || d < 0 ||
        axis_of(e, p, k, d) < 0 || !order_axes(e, p, rank, keys, k, order)) {
        return false;
    }
    for (int32_t i = 0; i < rank; i++) {
        labels[0][i] = labels[1][i] = p->out[order[i]];
        values[i] = v->of[side][order[i]];
        const int32_t axis = axis_of(e, p, q, labels[0][i]);
        if (i < rank - 1 && (axis < 0 || e->g->values[p->values[q]].sizes[axis] !=
                                             e->g->values[v->values[side]].sizes[order[i]])) {
            return false;
        }
    }
    const int32_t label_i = values[rank - 2], label_j = values[rank - 1];
    labels[1][rank - 2] = labels[0][rank - 1];
    labels[0][rank - 1] = labels[1][rank - 1] = d;
    int32_t feature = -1, found = 0;
    for (int32_t i = 0; i < rank; i++) { /* the result has the value's feature for the keys */
        int32_t at = -1;
        for (int32_t a = 0; a < rank - 1; a++) {
            at = values[a] == v->out[i] ? a : at;
        }
        feature = at < 0 ? v->out[i] : feature;
        back[i] = at < 0 ? rank - 1 : at;
        found += at < 0 ? 1 : 0;
    }
    memcpy(labels[2], values, sizeof values);
    labels[2][rank - 2] = label_j;
    labels[2][rank - 1] = feature;
    if (found != 1 || feature == label_j || axis_of(e, v, 1 - side, label_i) >= 0 ||
        axis_of(e, v, 1 - side, label_j) < 0 || axis_of(e, v, 1 - side, feature) < 0) {
        return false;
    }
    const int32_t operands[] = {arranged(e, p, q, rank, labels[0]),
                                arranged(e, p, k, rank, labels[1]),
                                arranged(e, v, 1 - side, rank, labels[2])};
    const int32_t mask = s->mask < 0 ? -1 : arranged_mask(e, s->mask, rank, order);
    if (operands[0] < 0 || operands[1] < 0 || operands[2] < 0 || (mask < 0 && s->mask >= 0)) {
        return false;
    }
    dtp_aten_value like = out;
    for (int32_t i = 0; i < rank; i++) {
        like.sizes[back[i]] = out.sizes[i];
    }
    const dtp_aten_arg args[] = {
        dtp_expand_tensor(e, "query", operands[0]), dtp_expand_tensor(e, "key", operands[1]),
        dtp_expand_tensor(e, "value", operands[2]), dtp_expand_number(e, "scale", s->scale),
        dtp_expand_tensor(e, "attn_mask", mask < 0 ? 0 : mask)};
    const int32_t y =
        dtp_expand_node(e, "aten.scaled_dot_product_attention", mask < 0 ? 4 : 5, args, 1, &like);
    if (y >= 0) {
        dtp_expand_out(e, 0, permuted(e, y, rank, back));
    }
    return y >= 0;
}

bool dtp_expand_attention(dtp_expansion *e)
{
    dtp_product v;
    scores s;
    if (e->of->n_outs != 1 || dtp_product_of(e->g, e->of, &v, NULL) != DTP_OK || v.n != 2 ||
        v.added >= 0) {
        return false;
    }
    for (int32_t side = 0; side < 2; side++) {
        const int32_t probs = dtp_expand_source(e, v.values[side]);
        const dtp_aten_node *soft = dtp_expand_maker(e, probs);
        if (!(dtp_aten_is(soft, "softmax") || dtp_aten_is(soft, "_softmax")) || probs >= e->first ||
            e->uses[probs] != 1 || e->uses[v.values[side]] != 1) {
            continue;
        }
        const int32_t keys = dtp_aten_axis(dtp_aten_int(soft, "dim", -1), e->g->values[probs].rank);
        const int32_t x = dtp_aten_input(soft, 0);
        if (keys >= 0 && x >= 0 && find_scores(e, x, &s) && rewrite(e, &v, side, keys, &s)) {
            return true;
        }
    }
    return false;
}
