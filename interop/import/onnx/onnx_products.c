/* Products, and what exporters take apart into them: gelu, silu, attention. */
#include <math.h>
#include <string.h>

#include "interop/import/onnx/onnx_ops.h"

/* Argument i of a node as one number; NaN. */
static double number(const dtp_onnx_graph *o, const dtp_aten_node *node, int32_t i)
{
    const int32_t v = dtp_aten_input(node, i);
    if (v >= 0) {
        return dtp_onnx_number(o, v);
    }
    return i < node->n_args && node->args[i].kind == ATEN_FLOAT ? node->args[i].real : (double)NAN;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-5 * fabs(b);
}

/* ---- products ---- */

enum { MOST_FACTORS = 4 };

typedef struct factors {
    double number;
    int32_t n, of[MOST_FACTORS];
} factors;

/* Multiplies f by a value, which is taken apart; false: too many factors. */
static bool collect(const dtp_onnx_graph *o, int32_t value, int32_t depth, factors *f)
{
    const dtp_aten_node *mul = dtp_onnx_maker(o, value, "mul"),
                        *div = dtp_onnx_maker(o, value, "div"),
                        *pow = dtp_onnx_maker(o, value, "pow");
    const double is = dtp_onnx_number(o, value);
    if (!isnan(is)) {
        f->number *= is;
        return true;
    }
    if (mul != NULL && depth < MOST_FACTORS) {
        const double x = number(o, mul, 1);
        f->number *= isnan(x) ? 1 : x;
        return collect(o, dtp_aten_input(mul, 0), depth + 1, f) &&
               (!isnan(x) || collect(o, dtp_aten_input(mul, 1), depth + 1, f));
    }
    if (div != NULL && !isnan(number(o, div, 1)) && depth < MOST_FACTORS) {
        f->number /= number(o, div, 1);
        return collect(o, dtp_aten_input(div, 0), depth + 1, f);
    }
    const int32_t times = pow != NULL && number(o, pow, 1) == 3 ? 3 : 1;
    for (int32_t i = 0; i < times; i++) {
        if (f->n == MOST_FACTORS) {
            return false;
        }
        f->of[f->n++] = times == 1 ? value : dtp_aten_input(pow, 0);
    }
    return true;
}

static bool is_product(const dtp_onnx_graph *o, int32_t value, double by, int32_t n, factors *f)
{
    *f = (factors){.number = 1};
    return value >= 0 && collect(o, value, 0, f) && f->n == n && near(f->number, by);
}

/* erf(x / sqrt(2)), tanh(sqrt(2/pi) (x + 0.044715 x^3)): how gelu is computed; NULL. */
static const char *gelu_of(const dtp_onnx_graph *o, int32_t value, int32_t x)
{
    factors f;
    const dtp_aten_node *erf = dtp_onnx_maker(o, value, "erf");
    const dtp_aten_node *tanh = dtp_onnx_maker(o, value, "tanh");
    if (erf != NULL) {
        return is_product(o, dtp_aten_input(erf, 0), 0.7071067811865476, 1, &f) && f.of[0] == x
                   ? "none"
                   : NULL;
    }
    if (tanh == NULL || !is_product(o, dtp_aten_input(tanh, 0), 0.7978845608028654, 1, &f)) {
        return NULL;
    }
    const dtp_aten_node *sum = dtp_onnx_maker(o, f.of[0], "add");
    for (int32_t i = 0; i < 2 && sum != NULL; i++) {
        if (dtp_aten_input(sum, i) == x &&
            is_product(o, dtp_aten_input(sum, 1 - i), 0.044715, 3, &f) && f.of[0] == x &&
            f.of[1] == x && f.of[2] == x) {
            return "tanh";
        }
    }
    return NULL;
}

/* x sigmoid(x), gelu: *out is what the product is found to be; -1. */
static dtp_status find_product(dtp_onnx_graph *o, int32_t a, int32_t b, int32_t *out, dtp_err *err)
{
    factors f = {.number = 1};
    const int32_t both[2] = {a, b};
    *out = -1;
    for (int32_t i = 0; i < 2; i++) {
        const int32_t x = both[1 - i];
        const dtp_aten_node *gate = dtp_onnx_maker(o, both[i], "sigmoid");
        if (gate != NULL && dtp_aten_input(gate, 0) == x) {
            const dtp_shape s = dtp_onnx_shape(o, x);
            return EMIT(o, "aten.silu.default", &s, out, err, ARG_T("self", x));
        }
    }
    if (!collect(o, a, 0, &f) || !collect(o, b, 0, &f) || f.n != 2 || !near(f.number, 0.5)) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < 2; i++) {
        const int32_t x = f.of[1 - i];
        const dtp_aten_node *one = dtp_onnx_maker(o, f.of[i], "add");
        const char *how =
            one != NULL && number(o, one, 1) == 1 ? gelu_of(o, dtp_aten_input(one, 0), x) : NULL;
        if (how != NULL) {
            const dtp_shape s = dtp_onnx_shape(o, x);
            return EMIT(o, "aten.gelu.default", &s, out, err, ARG_T("self", x),
                        ARG_TEXT("approximate", how));
        }
    }
    return DTP_OK;
}

dtp_status dtp_onnx__mul(dtp_onnx_graph *o, dtp_err *err)
{
    DTP_TRY(find_product(o, o->in[0], o->in[1], o->out, err));
    return o->out[0] >= 0 ? DTP_OK : dtp_onnx__elements(o, err);
}

/* ---- ops ---- */

/* x w + bias as torch has it, with a weight of as many rows as there are results. */
static dtp_status linear(dtp_onnx_graph *o, bool turned, int32_t bias, dtp_err *err)
{
    int64_t turn[2] = {1, 0};
    int32_t w = o->in[1];
    o->g->values[w].turned = !turned && o->g->values[w].guessed; /* of nn.Linear */
    DTP_TRY(turned ? DTP_OK : dtp_onnx_permute(o, w, turn, &w, err));
    const dtp_shape rows = dtp_onnx_shape(o, w);
    const int32_t last = o->s.rank - 1;
    if (last < 0 || o->s.sizes[last] != rows.sizes[1]) {
        return dtp_onnx_unsupported("a product over axes of several sizes", err);
    }
    o->s.sizes[last] = rows.sizes[0];
    return EMIT(o, "aten.linear.default", &o->s, o->out, err, ARG_T("input", o->in[0]),
                ARG_T("weight", w), ARG_T("bias", bias));
}

dtp_status dtp_onnx__matmul(dtp_onnx_graph *o, dtp_err *err)
{
    dtp_shape b = dtp_onnx_shape(o, o->in[1]);
    const int32_t m = o->x.rank, n = b.rank;
    if (o->g->values[o->in[1]].role == ATEN_PARAM && n == 2) {
        return linear(o, false, -1, err);
    }
    if (m < 2 || n < 2 || o->x.sizes[m - 1] != b.sizes[n - 2]) {
        return dtp_onnx_unsupported("a product with a vector, or of several sizes", err);
    }
    o->s.sizes[m - 1] = b.sizes[n - 2] = 1;
    DTP_TRY(dtp_onnx_broadcast(&o->s, &b, err));
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_T("other", o->in[1]));
}

dtp_status dtp_onnx__gemm(dtp_onnx_graph *o, dtp_err *err)
{
    if (dtp_onnx_real(o, "alpha", 1) != 1 || dtp_onnx_real(o, "beta", 1) != 1 ||
        dtp_onnx_int(o, "transA", 0) != 0 || dtp_onnx_shape(o, o->in[1]).rank != 2 ||
        (o->in[2] >= 0 && dtp_onnx_shape(o, o->in[2]).rank != 1)) {
        return dtp_onnx_unsupported("factors of a Gemm, or a bias that is no vector", err);
    }
    return linear(o, dtp_onnx_int(o, "transB", 0) != 0, o->in[2], err);
}

/* Queries, keys and values of four axes, as torch has them. */
dtp_status dtp_onnx__attention(dtp_onnx_graph *o, dtp_err *err)
{
    const dtp_shape v = dtp_onnx_shape(o, o->in[2]);
    if (o->s.rank != 4 || v.rank != 4 || o->n->in.n > 4 || dtp_onnx_real(o, "softcap", 0) != 0 ||
        o->n->out.n > 1) {
        return dtp_onnx_unsupported(
            "attention over heads that are not split, with a cache or a cap", err);
    }
    o->s.sizes[3] = v.sizes[3];
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("query", o->in[0]),
                ARG_T("key", o->in[1]), ARG_T("value", o->in[2]), ARG_T("attn_mask", o->in[3]),
                ARG_I("is_causal", dtp_onnx_int(o, "is_causal", 0)),
                ARG_R("scale", dtp_onnx_real(o, "scale", 0)));
}

/* Patches alone: a stride that is the kernel, no padding. */
dtp_status dtp_onnx__conv(dtp_onnx_graph *o, dtp_err *err)
{
    static const char *const ops[] = {"aten.conv1d.default", "aten.conv2d.default",
                                      "aten.conv3d.default"};
    const dtp_shape w = dtp_onnx_shape(o, o->in[1]);
    const dtp_pb_ints *strides = &dtp_onnx_attr_of(o, "strides")->ints,
                      *pads = &dtp_onnx_attr_of(o, "pads")->ints;
    const dtp_pb_ints *by = &dtp_onnx_attr_of(o, "dilations")->ints;
    const int32_t k = o->s.rank - 2;
    bool fits = k >= 1 && k <= 3 && w.rank == o->s.rank && strides->n == k &&
                dtp_onnx_int(o, "group", 1) == 1 && dtp_onnx_attr_of(o, "auto_pad")->text[0] != 'S';
    for (int32_t i = 0; fits && i < k; i++) {
        fits = strides->of[i] > 0 && strides->of[i] == w.sizes[i + 2] &&
               (by->n <= i || by->of[i] == 1);
        o->s.sizes[i + 2] /= fits ? w.sizes[i + 2] : 1;
    }
    for (int32_t i = 0; i < pads->n; i++) {
        fits = fits && pads->of[i] == 0;
    }
    if (!fits) {
        return dtp_onnx_unsupported("a convolution whose stride is not its kernel", err);
    }
    o->s.sizes[1] = w.sizes[0];
    return EMIT(o, ops[k - 1], &o->s, o->out, err, ARG_T("input", o->in[0]),
                ARG_T("weight", o->in[1]), ARG_T("bias", o->in[2]),
                ARG_L("stride", k, strides->of));
}
