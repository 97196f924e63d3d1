/* Nodes that change nothing, and groups of nodes that one op of ours computes. */
#include <string.h>

#include "importers/aten/arg_rules.h"
#include "importers/program/rewrites/aten_patterns.h"

enum { MOST_WORK = 1 << 30 };

/* Tables of cosines and sines: elements, places, sizes. */
typedef struct rope_tables {
    const void *data[2];
    int64_t first[2], strides[4], n, f;
} rope_tables;

/* What stands in the place of a value once nodes that change nothing are gone. */
typedef struct patterns {
    dtp_aten *g;
    const dtp_const *consts;
    dtp_strbuf *notes;
    int32_t *is;        /* by value: the one that it is the same as */
    int32_t *plain;     /* by value: the same in another floating type */
    int64_t work;       /* elements of tables that were looked at */
    rope_tables tables; /* the last ones, which all layers have, and their base */
    double base;
} patterns;

static const dtp_aten_node *maker(const patterns *p, int32_t value)
{
    return value < 0 || p->g->values[value].node < 0 ? NULL
                                                     : &p->g->nodes[p->g->values[value].node];
}

static bool is_one_of(const dtp_aten_node *node, const char *const *names)
{
    for (int32_t i = 0; names[i] != NULL; i++) {
        if (dtp_aten_is(node, names[i])) {
            return true;
        }
    }
    return false;
}

static bool is_real(const patterns *p, int32_t value)
{
    return value >= 0 && dtp_aten_real_type(p->g->values[value].dtype);
}

/* What a chain of changes of the floating type started from. */
static int32_t without_cast(const patterns *p, int32_t value)
{
    return value < 0 ? value : p->plain[value];
}

static void note_cast(const patterns *p, const dtp_aten_node *node)
{
    const int32_t x = dtp_aten_input(node, 0);
    if ((dtp_aten_is(node, "to") || dtp_aten_is(node, "_to_copy")) && node->n_outs == 1 &&
        is_real(p, x) && is_real(p, node->outs[0])) {
        p->plain[node->outs[0]] = p->plain[x];
    }
}

/* The node of `name` that makes the value, behind changes of the floating type; NULL. */
static const dtp_aten_node *made_by(const patterns *p, int32_t value, const char *name)
{
    const dtp_aten_node *node = maker(p, without_cast(p, value));
    return dtp_aten_is(node, name) ? node : NULL;
}

/* The same of argument i of a node. */
static const dtp_aten_node *operand_by(const patterns *p, const dtp_aten_node *node, int32_t i,
                                       const char *name)
{
    return made_by(p, dtp_aten_input(node, i), name);
}

static double number(const patterns *p, const dtp_aten_node *node, int32_t i)
{
    const int32_t v = dtp_aten_input(node, i);
    if (v >= 0) {
        const dtp_const *c = &p->consts[v];
        return c->kind == DTP_CONST_UNIFORM ? c->low : (double)NAN;
    }
    return i < node->n_args && node->args[i].sympy == NULL &&
                   (node->args[i].kind == ATEN_INT || node->args[i].kind == ATEN_FLOAT)
               ? node->args[i].real
               : (double)NAN;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

/* ---- rewriting ---- */

typedef struct new_arg {
    const char *name;
    int32_t value; /* -1: a number */
    double real;
} new_arg;

static dtp_status become(const patterns *p, dtp_aten_node *node, const char *op, int32_t n,
                         const new_arg *args, dtp_err *err)
{
    node->op = op;
    node->n_args = n;
    DTP_TRY(DTP_NEW(p->g->arena, node->args, n, err));
    for (int32_t i = 0; i < n; i++) {
        dtp_aten_arg *a = &node->args[i];
        *a = (dtp_aten_arg){.name = args[i].name, .kind = ATEN_FLOAT, .real = args[i].real};
        DTP_TRY(DTP_NEW(p->g->arena, a->ints, 1, err));
        DTP_TRY(DTP_NEW(p->g->arena, a->values, 1, err));
        a->values[0] = args[i].value;
        if (args[i].value >= 0) {
            a->kind = ATEN_VALUE;
            a->n = 1;
        }
    }
    return DTP_OK;
}

/* Whether the argument rule of a pattern of one op allows all arguments of a node. */
static bool allows(const patterns *p, dtp_aten_node *node, const char *rule)
{
    node->refused = node->refused != NULL ? node->refused : dtp_arg_refused(p->g, node, rule);
    return node->refused == NULL;
}

/* ---- nothing ---- */

static bool same_type(const patterns *p, int32_t a, int32_t b)
{
    const dtp_aten_value *x = &p->g->values[a];
    const dtp_aten_value *y = &p->g->values[b];
    return x->dtype == y->dtype && x->rank == y->rank &&
           memcmp(x->sizes, y->sizes, (size_t)x->rank * sizeof x->sizes[0]) == 0;
}

static bool changes_nothing(const patterns *p, const dtp_aten_node *node)
{
    static const char *const names[] = {"to",      "_to_copy",        "contiguous", "alias",
                                        "clone",   "expand",          "slice",      "view",
                                        "reshape", "lift_fresh_copy", "type_as",    NULL};
    if (node->n_outs != 1 || dtp_aten_input(node, 0) < 0 ||
        !same_type(p, dtp_aten_input(node, 0), node->outs[0])) {
        return false;
    }
    if (dtp_aten_is(node, "dropout")) {
        return dtp_aten_int(node, "train", 1) == 0 || dtp_aten_real(node, "p", 1) == 0;
    }
    return is_one_of(node, names);
}

/* ---- norms and activations ---- */

/* gamma * (x * rsqrt(mean(x^2) + eps)) */
static dtp_status find_rms_norm(patterns *p, dtp_aten_node *node, dtp_err *err)
{
    for (int32_t i = 0; i < 2 && dtp_aten_is(node, "mul"); i++) {
        const int32_t gamma = dtp_aten_input(node, i);
        const dtp_aten_node *product = operand_by(p, node, 1 - i, "mul");
        for (int32_t k = 0; k < 2 && product != NULL && gamma >= 0; k++) {
            const dtp_aten_node *root = operand_by(p, product, k, "rsqrt");
            const dtp_aten_node *sum = operand_by(p, root, 0, "add");
            const dtp_aten_node *mean = operand_by(p, sum, 0, "mean");
            const dtp_aten_node *pow = operand_by(p, mean, 0, "pow");
            const dtp_aten_arg *dim = mean == NULL ? NULL : dtp_aten_arg_of(mean, "dim");
            const int32_t x = dtp_aten_input(product, 1 - k);
            if (pow == NULL || dim == NULL || dim->n != 1 || x < 0 || number(p, pow, 1) != 2 ||
                without_cast(p, dtp_aten_input(pow, 0)) != without_cast(p, x) ||
                dtp_aten_axis(dim->ints[0], p->g->values[x].rank) != p->g->values[x].rank - 1 ||
                p->g->values[gamma].rank != 1 || isnan(number(p, sum, 1))) {
                continue;
            }
            const new_arg args[] = {{"input", without_cast(p, x), 0},
                                    {"weight", gamma, 0},
                                    {"eps", -1, number(p, sum, 1)}};
            return become(p, node, "dtp.rms_norm", 3, args, err);
        }
    }
    return DTP_OK;
}

enum { MOST_FACTORS = 4 };

typedef struct factors {
    double number;
    int32_t n, of[MOST_FACTORS];
} factors;

/* Multiplies f by a value, which is taken apart; false: too many factors. */
static bool collect(const patterns *p, int32_t value, int32_t depth, factors *f)
{
    const dtp_aten_node *mul = made_by(p, value, "mul"), *div = made_by(p, value, "div");
    const dtp_aten_node *pow = made_by(p, value, "pow"), *node = mul != NULL ? mul : div;
    const bool apart = node != NULL && depth < MOST_FACTORS && dtp_aten_input(node, 0) >= 0 &&
                       dtp_aten_arg_of(node, "rounding_mode") == NULL;
    const double second = apart ? number(p, node, 1) : (double)NAN;
    if (value >= 0 && p->consts[value].kind == DTP_CONST_UNIFORM) {
        f->number *= p->consts[value].low;
        return true;
    }
    if (apart && (mul != NULL || !isnan(second))) {
        f->number *= isnan(second) ? 1 : mul != NULL ? second : 1 / second;
        return collect(p, dtp_aten_input(node, 0), depth + 1, f) &&
               (!isnan(second) || collect(p, dtp_aten_input(node, 1), depth + 1, f));
    }
    const int32_t times = pow != NULL && number(p, pow, 1) == 3 ? 3 : 1;
    for (int32_t i = 0; i < times; i++) {
        if (f->n == MOST_FACTORS) {
            return false;
        }
        f->of[f->n++] = without_cast(p, times == 1 ? value : dtp_aten_input(pow, 0));
    }
    return true;
}

static bool is_product(const patterns *p, int32_t value, double by, int32_t n, factors *f)
{
    *f = (factors){.number = 1};
    return value >= 0 && collect(p, value, 0, f) && f->n == n && near(f->number, by);
}

/* erf(x / sqrt(2)), tanh(sqrt(2/pi) (x + 0.044715 x^3)): how gelu of x is computed; NULL. */
static const char *gelu_of(const patterns *p, const dtp_aten_node *sum, int32_t x)
{
    factors f;
    const dtp_aten_node *erf = operand_by(p, sum, 0, "erf"), *tanh = operand_by(p, sum, 0, "tanh");
    if (sum == NULL || number(p, sum, 1) != 1) {
        return NULL;
    }
    if (is_product(p, dtp_aten_input(erf, 0), 0.7071067811865476, 1, &f) && f.of[0] == x) {
        return "dtp.gelu_erf";
    }
    const bool inner = is_product(p, dtp_aten_input(tanh, 0), 0.7978845608028654, 1, &f);
    const dtp_aten_node *cubic = inner ? made_by(p, f.of[0], "add") : NULL;
    for (int32_t i = 0; i < 2 && cubic != NULL; i++) {
        if (without_cast(p, dtp_aten_input(cubic, i)) == x &&
            is_product(p, dtp_aten_input(cubic, 1 - i), 0.044715, 3, &f) && f.of[0] == x &&
            f.of[1] == x && f.of[2] == x) {
            return "dtp.gelu_tanh";
        }
    }
    return NULL;
}

/* 0.5 x (1 + tanh(..)) or (1 + erf(..)), x sigmoid(x). */
static dtp_status find_activation(patterns *p, dtp_aten_node *node, dtp_err *err)
{
    factors f = {.number = 1};
    if (!dtp_aten_is(node, "mul") || !collect(p, node->outs[0], 0, &f) || f.n != 2) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < 2; i++) {
        const int32_t x = f.of[1 - i];
        const dtp_aten_node *gate = made_by(p, f.of[i], "sigmoid");
        const char *op = near(f.number, 0.5) ? gelu_of(p, made_by(p, f.of[i], "add"), x) : NULL;
        op = gate != NULL && without_cast(p, dtp_aten_input(gate, 0)) == x && f.number == 1
                 ? "aten.silu.default"
                 : op;
        if (op != NULL) {
            const new_arg args[] = {{"self", x, 0}};
            return become(p, node, op, 1, args, err);
        }
    }
    return DTP_OK;
}

/* ---- rotary positions ---- */

/* cat([-x2, x1]) of the halves of the last axis of x; -1. */
static int32_t rotated(const patterns *p, int32_t value)
{
    const dtp_aten_node *cat = made_by(p, value, "cat");
    const dtp_aten_arg *list = cat == NULL ? NULL : dtp_aten_arg_of(cat, "tensors");
    if (list == NULL || list->n != 2) {
        return -1;
    }
    const dtp_aten_node *neg = made_by(p, list->values[0], "neg");
    const int32_t upper = dtp_aten_input(neg, 0), lower = list->values[1];
    const dtp_aten_node *b = maker(p, upper), *a = maker(p, lower);
    if (a == NULL || b == NULL) {
        return -1;
    }
    const int32_t x = dtp_aten_input(a, 0);
    const dtp_aten_value *v = x < 0 ? NULL : &p->g->values[x];
    if (v == NULL || dtp_aten_input(b, 0) != x || v->rank == 0) {
        return -1;
    }
    const int64_t half = v->sizes[v->rank - 1] / 2, last = v->rank - 1;
    if (p->g->values[upper].rank != v->rank || p->g->values[upper].sizes[last] != half ||
        p->g->values[lower].rank != v->rank || p->g->values[lower].sizes[last] != half ||
        dtp_aten_axis(dtp_aten_int(cat, "dim", 0), v->rank) != last) {
        return -1;
    }
    if (a == b && (dtp_aten_is(a, "chunk") || dtp_aten_is(a, "split"))) {
        return a->n_outs == 2 && a->outs[0] == lower ? x : -1;
    }
    return dtp_aten_is(a, "slice") && dtp_aten_is(b, "slice") && dtp_aten_int(a, "start", 0) == 0 &&
                   dtp_aten_int(b, "start", 0) == half
               ? x
               : -1;
}

/* The base of tables cos and sin of position * base^(-2j/f), twice side by side; 0 when they are
 * not such. */
static double base_of(patterns *p, int32_t cos_value, int32_t sin_value, int32_t axis)
{
    const dtp_const *c = &p->consts[cos_value], *s = &p->consts[sin_value];
    const dtp_aten_value *v = &p->g->values[cos_value];
    const int32_t last = v->rank - 1;
    const int64_t f = v->sizes[last], n = v->sizes[axis];
    const rope_tables tables = {
        {c->data, s->data},
        {c->first, s->first},
        {c->strides[axis], c->strides[last], s->strides[axis], s->strides[last]},
        n,
        f};
    if (memcmp(&tables, &p->tables, sizeof tables) == 0) {
        return p->base;
    }
    p->tables = tables;
    p->base = 0;
    if (n < 2 || f < 4 || c->strides[last] == 0 || (p->work += n * f) > MOST_WORK) {
        return 0;
    }
    const double second = atan2(dtp_const_at(s, s->strides[axis] + s->strides[last]),
                                dtp_const_at(c, c->strides[axis] + c->strides[last]));
    double base = exp(-log(second) * (double)f / 2);
    base = near(round(base), base) || fabs(round(base) - base) < 1e-3 * base ? round(base) : base;
    for (int64_t j = 0; j < f; j++) {
        const double by = pow(base, -2 * (double)(j % (f / 2)) / (double)f);
        const int64_t at_c = j * c->strides[last], at_s = j * s->strides[last];
        for (int64_t i = 0; i < n; i++) {
            const double angle = (double)i * by, most = 1e-5 + 2e-7 * (double)i;
            if (fabs(dtp_const_at(c, i * c->strides[axis] + at_c) - cos(angle)) > most ||
                fabs(dtp_const_at(s, i * s->strides[axis] + at_s) - sin(angle)) > most) {
                return 0;
            }
        }
    }
    p->base = base;
    return base;
}

/* The axis of x along which the tables vary beside the last: of positions; -1. */
static int32_t position_axis(const patterns *p, int32_t table, int32_t x)
{
    const dtp_aten_value *t = &p->g->values[table], *v = &p->g->values[x];
    int32_t found = -1;
    for (int32_t i = 0; i + 1 < t->rank; i++) {
        if (t->sizes[i] != 1 &&
            (!dtp_const_known(&p->consts[table]) || p->consts[table].strides[i] != 0)) {
            if (found >= 0) {
                return -1;
            }
            found = i;
        }
    }
    const int32_t at = found < 0 ? -1 : found + v->rank - t->rank;
    return at >= 0 && v->sizes[at] == t->sizes[found] ? at : -1;
}

/* x cos + rotated(x) sin */
static dtp_status find_rope(patterns *p, dtp_aten_node *node, dtp_err *err)
{
    for (int32_t i = 0; i < 2 && dtp_aten_is(node, "add"); i++) {
        const dtp_aten_node *a = operand_by(p, node, i, "mul");
        const dtp_aten_node *b = operand_by(p, node, 1 - i, "mul");
        for (int32_t k = 0; k < 4 && a != NULL && b != NULL; k++) {
            const int32_t x = dtp_aten_input(a, k & 1), cos_value = dtp_aten_input(a, 1 - (k & 1));
            const int32_t turned = dtp_aten_input(b, k >> 1),
                          sin_value = dtp_aten_input(b, 1 - (k >> 1));
            if (x < 0 || cos_value < 0 || sin_value < 0 || rotated(p, turned) != x ||
                !p->consts[cos_value].is || !p->consts[sin_value].is ||
                !same_type(p, cos_value, sin_value)) {
                continue;
            }
            const int32_t axis = position_axis(p, cos_value, x);
            const int32_t from = axis - p->g->values[x].rank + p->g->values[cos_value].rank;
            double base = 10000;
            if (axis < 0) {
                continue;
            }
            if (dtp_const_known(&p->consts[cos_value]) && dtp_const_known(&p->consts[sin_value])) {
                base = base_of(p, cos_value, sin_value, from);
            } else if (p->notes->len == 0) {
                dtp_strbuf_add(p->notes,
                               "the table of rotary positions has no values in the file (meta "
                               "device): base 10000 is assumed\n");
            }
            if (base > 0) {
                const new_arg args[] = {{"self", x, 0}, {"base", -1, base}, {"position", -1, axis}};
                return become(p, node, "dtp.rope", 3, args, err);
            }
        }
    }
    return DTP_OK;
}

/* ---- attention ---- */

/* k of [b, h, l, d] when the value is each of its heads several times side by side. */
static int32_t ungrouped(const patterns *p, int32_t value)
{
    const dtp_aten_node *view = maker(p, value);
    if (dtp_aten_is(view, "repeat_interleave") && dtp_aten_int(view, "dim", 0) == 1 &&
        dtp_aten_operand(view, "repeats") < 0) {
        return dtp_aten_input(view, 0);
    }
    if (!dtp_aten_is(view, "reshape") && !dtp_aten_is(view, "view")) {
        return value;
    }
    const dtp_aten_node *expand = maker(p, dtp_aten_input(view, 0));
    const dtp_aten_node *more =
        dtp_aten_is(expand, "expand") ? maker(p, dtp_aten_input(expand, 0)) : NULL;
    const int32_t k = dtp_aten_is(more, "unsqueeze") ? dtp_aten_input(more, 0) : -1;
    if (k < 0) {
        return value;
    }
    const dtp_aten_value *v = &p->g->values[k], *e = &p->g->values[dtp_aten_input(view, 0)];
    const dtp_aten_value *out = &p->g->values[value];
    return v->rank == 4 && e->rank == 5 && out->rank == 4 && e->sizes[1] == v->sizes[1] &&
                   out->sizes[1] == e->sizes[1] * e->sizes[2] && out->sizes[2] == v->sizes[2] &&
                   dtp_aten_axis(dtp_aten_int(more, "dim", 0), 5) == 2
               ? k
               : value;
}

static dtp_status find_attention(patterns *p, dtp_aten_node *node, dtp_err *err)
{
    if (!dtp_aten_is(node, "scaled_dot_product_attention") ||
        !allows(
            p, node,
            "query:t key:t value:t attn_mask:t dropout_p:n is_causal:b scale:n enable_gqa=any")) {
        return DTP_OK;
    }
    const int32_t q = dtp_aten_operand(node, "query");
    int32_t k = ungrouped(p, dtp_aten_operand(node, "key"));
    int32_t v = ungrouped(p, dtp_aten_operand(node, "value"));
    if (k >= 0 && v >= 0 && p->g->values[k].rank == 4 && p->g->values[v].rank == 4 &&
        p->g->values[k].sizes[1] != p->g->values[v].sizes[1]) { /* one of them in another way */
        k = dtp_aten_operand(node, "key");
        v = dtp_aten_operand(node, "value");
    }
    int32_t mask = dtp_aten_operand(node, "attn_mask");
    bool causal = dtp_aten_int(node, "is_causal", 0) != 0;
    const int32_t l = q < 0 || k < 0 ? -1 : p->g->values[q].rank - 2;
    if (causal && (l < 0 || p->g->values[k].rank != l + 2 ||
                   p->g->values[k].sizes[l] != p->g->values[q].sizes[l])) {
        return DTP_OK; /* PyTorch aligns queries and keys at their starts, and we at their ends */
    }
    if (q < 0 || k < 0 || v < 0) {
        return DTP_OK;
    }
    if (mask >= 0) {
        const dtp_aten_value *mv = &p->g->values[mask];
        const dtp_const *c = &p->consts[mask];
        const bool all = c->kind == DTP_CONST_UNIFORM && c->low == (mv->dtype == ATEN_BOOL ? 1 : 0);
        causal = causal || dtp_const_is_causal(c, mv);
        mask = all || dtp_const_is_causal(c, mv) ? -1 : mask;
    }
    const new_arg args[] = {{"query", q, 0},
                            {"key", k, 0},
                            {"value", v, 0},
                            {"causal", -1, causal ? 1 : 0},
                            {"scale", -1, dtp_aten_real(node, "scale", (double)NAN)},
                            {"dropout", -1, dtp_aten_real(node, "dropout_p", 0)},
                            {"mask", mask, 0}};
    return become(p, node, "dtp.attention", mask >= 0 ? 7 : 6, args, err);
}

/* ---- patches ---- */

/* A convolution whose stride, 1 if none is given, is its kernel, and whose image is whole patches
 * of it. Patches of patches would be dims of dims: behind another one it stays in windows. */
static dtp_status find_patches(patterns *p, dtp_aten_node *node, dtp_err *err)
{
    (void)err;
    const int32_t x = dtp_aten_input(node, 0), w = dtp_aten_operand(node, "weight");
    const dtp_aten_arg *stride = dtp_aten_arg_of(node, "stride");
    if (!(dtp_aten_is(node, "conv1d") || dtp_aten_is(node, "conv2d") ||
          dtp_aten_is(node, "conv3d"))) {
        return DTP_OK;
    }
    bool single = true; /* elements of the image, not windows */
    bool whole =
        dtp_arg_refused(p->g, node,
                        "input:t weight:t bias:t stride:s padding=0 dilation=1 groups=1") == NULL &&
        x >= 0 && w >= 0 && dtp_aten_all_are(node, "padding", 0) &&
        dtp_aten_all_are(node, "dilation", 1) && dtp_aten_int(node, "groups", 1) == 1;
    if (whole) {
        const dtp_aten_value *v = &p->g->values[x], *k = &p->g->values[w];
        const dtp_aten_value *out = &p->g->values[node->outs[0]];
        whole = v->rank == k->rank && out->rank == k->rank && v->rank >= 3 &&
                (stride == NULL || stride->n == 1 || stride->n == v->rank - 2);
        for (int32_t i = 2; i < v->rank && whole; i++) {
            const int64_t by = stride == NULL ? 1 : stride->ints[stride->n == 1 ? 0 : i - 2];
            whole = by == k->sizes[i] && out->sizes[i] * k->sizes[i] == v->sizes[i];
            single = single && k->sizes[i] == 1;
        }
    }
    if (whole && (single || !node->windowed)) {
        node->op = "dtp.patches";
    }
    return DTP_OK;
}

/* ---- indexing ---- */

/* x[i, j, ..] with i = 0, 1, .. along one axis, j along a later one, ..: x with axes of size 1. */
static dtp_status find_grid(patterns *p, dtp_aten_node *node, dtp_err *err)
{
    const dtp_aten_arg *list = dtp_aten_is(node, "index") ? dtp_aten_arg_of(node, "indices") : NULL;
    const int32_t x = dtp_aten_input(node, 0);
    if (list == NULL || x < 0 || list->n != p->g->values[x].rank) {
        return DTP_OK;
    }
    const dtp_aten_value *out = &p->g->values[node->outs[0]];
    int32_t before = -1;
    for (int32_t i = 0; i < list->n; i++) {
        const int32_t v = list->values[i];
        const dtp_const *c = v < 0 ? NULL : &p->consts[v];
        if (c == NULL || c->kind != DTP_CONST_INDEX || c->low != 0) {
            return DTP_OK;
        }
        const int32_t axis = c->axis[0] + out->rank - p->g->values[v].rank;
        if (axis <= before || out->sizes[axis] != p->g->values[x].sizes[i]) {
            return DTP_OK;
        }
        before = axis;
    }
    const new_arg args[] = {{"self", x, 0}};
    return become(p, node, "aten.view.default", 1, args, err);
}

/* ---- all ---- */

/* Parameters with the same bytes are one, under the first of their names. */
static dtp_status tie_weights(const patterns *p, dtp_err *err)
{
    dtp_hash_table by_data = {0};
    for (int32_t i = 0; i < p->g->n_inputs; i++) {
        const int32_t v = p->g->inputs[i];
        const char *data = p->g->values[v].data;
        const uint32_t hash = dtp_hash_fold(dtp_hash_i64(DTP_HASH_SEED, (int64_t)(intptr_t)data));
        uint32_t at = hash;
        int32_t same;
        if (p->g->values[v].role != ATEN_PARAM || data == NULL) {
            continue;
        }
        do {
            same = dtp_hash_table_next(&by_data, hash, &at);
        } while (same >= 0 && (p->g->values[same].data != data || !same_type(p, same, v)));
        if (same >= 0 && p->g->values[same].frozen != p->g->values[v].frozen) {
            const bool first = p->g->values[v].frozen;
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "%s: the parameters '%.100s' and '%.100s' share their elements, and "
                            "only '%.100s' requires a gradient: not supported",
                            p->g->file, p->g->values[same].source, p->g->values[v].source,
                            p->g->values[first ? same : v].source);
        }
        if (same >= 0) {
            p->is[v] = same;
        } else {
            DTP_TRY(dtp_hash_table_add(&by_data, p->g->arena, hash, v, err));
        }
    }
    return DTP_OK;
}

typedef dtp_status (*pattern)(patterns *p, dtp_aten_node *node, dtp_err *err);

dtp_status dtp_aten_patterns(dtp_aten *g, const dtp_const *consts, dtp_strbuf *notes, dtp_err *err)
{
    static const pattern all[] = {find_rms_norm,  find_activation, find_rope,
                                  find_attention, find_grid,       find_patches};
    patterns p = {.g = g, .consts = consts, .notes = notes};
    DTP_TRY(DTP_NEW(g->arena, p.is, g->n_values + 1, err));
    DTP_TRY(DTP_NEW(g->arena, p.plain, g->n_values + 1, err));
    for (int32_t i = 0; i < g->n_values; i++) {
        p.is[i] = p.plain[i] = i;
    }
    DTP_TRY(tie_weights(&p, err));
    for (int32_t i = 0; i < g->n_nodes; i++) {
        dtp_aten_node *node = &g->nodes[i];
        for (int32_t k = 0; k < node->n_args; k++) {
            dtp_aten_arg *a = &node->args[k];
            for (int32_t j = 0; j < dtp_aten_tensors(a); j++) {
                a->values[j] = a->values[j] < 0 ? -1 : p.is[a->values[j]];
            }
        }
        note_cast(&p, node);
        if (changes_nothing(&p, node)) {
            p.is[node->outs[0]] = dtp_aten_input(node, 0);
        }
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
            DTP_TRY(all[k](&p, node, err));
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        g->outputs[i] = p.is[g->outputs[i]];
    }
    dtp_aten_mark(g);
    return DTP_OK;
}
