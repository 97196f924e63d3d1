/* softmax(scale q.k + mask) v, written as products: scaled_dot_product_attention. */
#include <math.h>
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"
#include "importers/program/axes/aten_products.h"

/* ---- from the softmax back to queries and keys ---- */

typedef struct scores {
    dtp_product product; /* of queries and keys */
    double scale;
    int32_t mask; /* what is added; -1 */
} scores;

static const dtp_aten_node *maker(const dtp_expansion *e, int32_t value)
{
    return dtp_expand_maker(e, dtp_expand_source(e, value));
}

static double number(const dtp_aten_node *node, int32_t i)
{
    const dtp_aten_arg *a = i < node->n_args ? &node->args[i] : NULL;
    return a != NULL && a->sympy == NULL && (a->kind == ATEN_INT || a->kind == ATEN_FLOAT)
               ? a->real
               : (double)NAN;
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

/* What the masked scores are, and the mask; -1: the node does not mask. */
static int32_t unmasked(dtp_expansion *e, const dtp_aten_node *node, int32_t *mask)
{
    const int32_t a = dtp_aten_input(node, 0), b = dtp_aten_input(node, 1);
    const int32_t dtype = e->g->values[node->outs[0]].dtype;
    *mask = -1;
    if (dtp_aten_is(node, "masked_fill")) {
        *mask = hidden(e, b, true, number(node, 2), dtype);
        return a;
    }
    if (dtp_aten_is(node, "where")) {
        *mask = hidden(e, a, false, number(node, 2), dtype);
        return b;
    }
    if (b < 0 || !(dtp_aten_is(node, "add") || dtp_aten_is(node, "sub"))) {
        return -1;
    }
    const dtp_aten_value like = e->g->values[b];
    *mask = dtp_aten_is(node, "sub") ? dtp_expand_one(e, "aten.neg", b, &like) : b;
    return a;
}

/* The condition of a mask that adds 0 where it holds and -inf elsewhere; else the mask. Where a row
 * is hidden by a condition, attention gives 0; by numbers, a mean of all values, as in PyTorch. */
static int32_t as_condition(dtp_expansion *e, int32_t mask)
{
    const dtp_aten_node *where = mask < 0 ? NULL : maker(e, mask);
    const int32_t condition = dtp_aten_is(where, "where") ? dtp_aten_input(where, 0) : -1;
    const double low = -(double)INFINITY;
    if (condition < 0) {
        return mask;
    }
    if (number(where, 1) == low && number(where, 2) == 0) {
        const dtp_aten_value like = e->g->values[condition];
        return dtp_expand_one(e, "aten.logical_not", condition, &like);
    }
    return number(where, 1) == 0 && number(where, 2) == low ? condition : mask;
}

/* scaled_dot_product_attention whose mask is such a one. */
static bool mask_is_condition(dtp_expansion *e)
{
    const int32_t mask = dtp_aten_operand(e->of, "attn_mask");
    const int32_t is =
        dtp_aten_is(e->of, "scaled_dot_product_attention") ? as_condition(e, mask) : mask;
    const dtp_aten_value out = e->g->values[e->of->outs[0]];
    dtp_aten_arg *args;
    if (is == mask || is < 0 || DTP_NEW(e->g->arena, args, e->of->n_args, e->err) != DTP_OK) {
        return false;
    }
    for (int32_t i = 0; i < e->of->n_args; i++) {
        args[i] = strcmp(e->of->args[i].name, "attn_mask") == 0
                      ? dtp_expand_tensor(e, "attn_mask", is)
                      : e->of->args[i];
    }
    dtp_expand_out(e, 0, dtp_expand_node(e, e->of->op, e->of->n_args, args, 1, &out));
    return e->status == DTP_OK;
}

/* What is multiplied by numbers, which go into the scale. */
static int32_t unscaled(const dtp_expansion *e, int32_t value, double *scale)
{
    for (const dtp_aten_node *node; (node = maker(e, value)) != NULL;) {
        if ((!dtp_aten_is(node, "mul") && !dtp_aten_is(node, "div")) || isnan(number(node, 1)) ||
            dtp_aten_input(node, 0) < 0 || dtp_aten_arg_of(node, "rounding_mode") != NULL) {
            break;
        }
        *scale *= dtp_aten_is(node, "mul") ? number(node, 1) : 1 / number(node, 1);
        value = dtp_aten_input(node, 0);
    }
    return value;
}

static bool find_scores(dtp_expansion *e, int32_t value, scores *s)
{
    *s = (scores){.scale = 1, .mask = -1};
    for (int32_t steps = 0; steps < 4 && value >= 0; steps++) {
        value = unscaled(e, value, &s->scale);
        const dtp_aten_node *made = maker(e, value);
        if (made == NULL) {
            return false;
        }
        if (dtp_product_of(e->g, made, &s->product, NULL) == DTP_OK) {
            for (int32_t i = 0; i < s->product.n; i++) {
                s->product.values[i] = unscaled(e, s->product.values[i], &s->scale);
            }
            return s->product.n == 2 && s->product.added < 0;
        }
        const dtp_aten_node node = *made; /* nodes move when more are made */
        int32_t mask = -1;
        value = s->scale != 1 ? -1 : unmasked(e, &node, &mask); /* a mask is not scaled */
        s->mask = s->mask < 0 || mask < 0 ? mask : dtp_expand_two(e, "aten.add", mask, s->mask);
        value = mask < 0 ? -1 : value;
    }
    return false;
}

/* ---- axes by those of the scores ---- */

enum { FEATURE = DTP_MAX_RANK, VALUE, NONE };

/* A tensor, and for each of its axes the one of the scores, FEATURE or VALUE. */
typedef struct operand {
    int32_t value, rank;
    int32_t axes[DTP_MAX_RANK];
    uint32_t has; /* bits of these */
} operand;

static operand operand_of(const dtp_expansion *e, int32_t value, const int8_t *labels,
                          const int8_t *of_scores, int32_t rank, int32_t other)
{
    operand o = {.value = value, .rank = e->g->values[value].rank};
    for (int32_t i = 0; i < o.rank; i++) {
        o.axes[i] = other;
        for (int32_t a = 0; a < rank; a++) {
            o.axes[i] = labels[i] == of_scores[a] ? a : o.axes[i];
        }
        o.has |= UINT32_C(1) << ((o.has >> o.axes[i] & 1) != 0 ? NONE : o.axes[i]);
    }
    return o;
}

static int32_t permuted(dtp_expansion *e, int32_t x, int32_t n, const int64_t *dims)
{
    const dtp_aten_node *view = dtp_expand_maker(e, x);
    const bool turned = dtp_aten_is(view, "transpose") || dtp_aten_is(view, "permute");
    const int32_t from = turned ? dtp_aten_input(view, 0) : x;
    dtp_aten_value like = e->g->values[from];
    int64_t all[DTP_MAX_RANK];
    bool same = true, fits = like.rank == n;
    for (int32_t i = 0; i < n && fits; i++) {
        all[i] = turned ? dtp_aten_from(e->g, view, (int32_t)dims[i]) : dims[i];
        fits = all[i] >= 0;
        like.sizes[i] = fits ? e->g->values[from].sizes[all[i]] : 0;
        same = same && all[i] == i;
    }
    if (!fits || same) {
        return fits ? from : -1;
    }
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", from),
                                 dtp_expand_ints(e, "dims", n, all)};
    return dtp_expand_node(e, "aten.permute", 2, args, 1, &like);
}

/* The tensor with its axes in another order, of size 1 where it has none; -1: it has others. */
static int32_t arranged(dtp_expansion *e, const operand *o, int32_t n, const int32_t *order)
{
    dtp_aten_value like = e->g->values[o->value];
    int64_t dims[DTP_MAX_RANK];
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
        like.sizes[i] = 1;
        for (int32_t a = 0; a < o->rank; a++) {
            if (o->axes[a] == order[i]) {
                like.sizes[i] = e->g->values[o->value].sizes[a];
                dims[kept++] = a;
            }
        }
    }
    like.rank = n;
    const int32_t x = kept != o->rank ? -1 : permuted(e, o->value, kept, dims);
    return kept == n || x < 0 ? x : dtp_expand_one(e, "aten.view", x, &like);
}

/* Axes of queries, keys, values, the result and the mask: what all walk together, then those of
 * queries, keys and features. False: these are no operands of attention. */
static bool order_axes(const dtp_expansion *e, const operand *o, const dtp_aten_value *probs,
                       int32_t keys, int32_t order[5][DTP_MAX_RANK])
{
    const uint32_t rest = ((UINT32_C(1) << probs->rank) - 1) & ~(UINT32_C(1) << keys);
    const uint32_t key = UINT32_C(1) << keys, f = UINT32_C(1) << FEATURE, v = UINT32_C(1) << VALUE;
    int32_t query = -1, n = 0;
    for (int32_t i = 0; i < o[0].rank; i++) {
        const int32_t a = o[0].axes[i];
        if (a < FEATURE && e->g->values[o[0].value].sizes[i] != probs->sizes[a]) {
            return false; /* queries are repeated */
        }
        query = a < FEATURE && ((o[1].has | o[2].has) >> a & 1) == 0 && a > query ? a : query;
    }
    if (probs->rank < 3 || query < 0 || o[0].has != (rest | f) || (o[1].has & ~rest) != (key | f) ||
        (o[2].has & ~rest) != (key | v) || o[3].has != (rest | v)) {
        return false;
    }
    const int32_t last[5][2] = {
        {query, FEATURE}, {keys, FEATURE}, {keys, VALUE}, {query, VALUE}, {query, keys}};
    for (int32_t a = 0; a < probs->rank; a++) {
        for (int32_t i = 0; i < 5 && a != query && a != keys; i++) {
            order[i][n] = a;
        }
        n += a != query && a != keys ? 1 : 0;
    }
    for (int32_t i = 0; i < 5; i++) {
        memcpy(&order[i][n], last[i], sizeof last[i]);
    }
    return true;
}

/* Product `v` of the probabilities, factor `side`, whose axis `keys` is that of keys. */
static bool rewrite(dtp_expansion *e, const dtp_product *v, int32_t side, int32_t keys,
                    const scores *s)
{
    static const char *const names[] = {"query", "key", "value", NULL, "attn_mask"};
    const dtp_product *p = &s->product;
    const dtp_aten_value probs = e->g->values[v->values[side]];
    const int8_t *labels = v->of[side], other = (int8_t)(1 - side);
    const int32_t n = probs.rank, out = e->of->outs[0], k = s->mask < 0 ? 4 : 5;
    dtp_aten_arg args[5] = {dtp_expand_number(e, "scale", s->scale)};
    int32_t order[5][DTP_MAX_RANK], n_args = 1;
    int64_t back[DTP_MAX_RANK] = {0};
    operand o[5];
    for (int32_t i = 0; i < 2; i++) {
        o[i] = operand_of(e, p->values[i], p->of[i], p->out, n, FEATURE);
    }
    if ((o[0].has >> keys & 1) != 0) { /* keys stand first */
        o[4] = o[0];
        o[0] = o[1];
        o[1] = o[4];
    }
    o[2] = operand_of(e, v->values[other], v->of[other], labels, n, VALUE);
    o[3] = operand_of(e, out, v->out, labels, n, VALUE);
    if (!order_axes(e, o, &probs, keys, order)) {
        return false;
    }
    o[4].value = as_condition(e, s->mask);
    o[4].rank = k == 4 ? 0 : e->g->values[o[4].value].rank;
    for (int32_t a = 0; a < o[4].rank; a++) { /* its axes are the last ones of the scores */
        o[4].axes[a] = a + n - o[4].rank;
    }
    dtp_aten_value like = e->g->values[out];
    for (int32_t i = 0; i < n * n; i++) {
        if (o[3].axes[i % n] == order[3][i / n]) {
            like.sizes[i / n] = e->g->values[out].sizes[i % n];
            back[i % n] = i / n;
        }
    }
    for (int32_t i = 0; i < k; i++) {
        const int32_t x = i == 3 ? 0 : arranged(e, &o[i], n, order[i]);
        if (x < 0) {
            return false;
        }
        if (i != 3) {
            args[n_args++] = dtp_expand_tensor(e, names[i], x);
        }
    }
    const int32_t y =
        dtp_expand_node(e, "aten.scaled_dot_product_attention", n_args, args, 1, &like);
    if (y >= 0) {
        dtp_expand_out(e, 0, permuted(e, y, n, back));
    }
    return true;
}

/* Values that are none of the file have other readers, perhaps. */
static int32_t uses_of(const dtp_expansion *e, int32_t value)
{
    return value < e->n_file ? e->uses[value] : 2;
}

bool dtp_expand_attention(dtp_expansion *e)
{
    dtp_product v;
    scores s;
    if (e->of->n_outs == 1 && e->of->outs[0] >= 0 && mask_is_condition(e)) {
        return true;
    }
    if (e->of->n_outs != 1 || dtp_product_of(e->g, e->of, &v, NULL) != DTP_OK || v.n != 2 ||
        v.added >= 0) {
        return false;
    }
    for (int32_t side = 0; side < 2; side++) {
        const int32_t given = dtp_expand_source(e, v.values[side]);
        const int32_t probs = dtp_expand_source(e, dtp_expand_shown(e, given));
        const dtp_aten_node *soft = dtp_expand_maker(e, probs);
        const bool is = dtp_aten_is(soft, "softmax") || dtp_aten_is(soft, "_softmax");
        const int32_t rank = e->g->values[probs].rank;
        const int32_t keys = is ? dtp_aten_axis(dtp_aten_int(soft, "dim", -1), rank) : -1;
        if (keys >= 0 && dtp_aten_input(soft, 0) >= 0 && uses_of(e, probs) == 1 &&
            uses_of(e, given) == 1 && uses_of(e, v.values[side]) == 1 &&
            find_scores(e, dtp_aten_input(soft, 0), &s) && rewrite(e, &v, side, keys, &s)) {
            return true;
        }
    }
    return false;
}
