/* Operand shapes with which the bench runs each op, written as short texts. */
#include "executor/bench/recipes.h"
#include "core/graph/ops/op_table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "executor/rule_verify/op_case.h"

static int64_t at_least_1(int64_t n)
{
    return n > 0 ? n : 1;
}

/* Letters: r rows, c columns, t rows of a lookup table, h heads, s sequence, f features of a head,
 * e features of a key and its value together, p and q positions and heads for rope, y and z the one
 * and two sums of split norms, m n k of a matrix product, b of them, w places of a kernel. */
dtp_bench_sizes dtp_bench_sizes_for(int64_t elems, int64_t seq)
{
    dtp_bench_sizes s = {{0}};
    const int64_t cols = 256;
    const int64_t features = 64;
    s.of['c' - 'a'] = cols;
    s.of['r' - 'a'] = at_least_1(elems / cols);
    s.of['u' - 'a'] = at_least_1(elems / cols / 2);
    s.of['v' - 'a'] = at_least_1(elems);
    s.of['t' - 'a'] = 512;
    s.of['f' - 'a'] = features;
    s.of['e' - 'a'] = 2 * features;
    s.of['s' - 'a'] = seq > 0 ? seq : 16;
    s.of['h' - 'a'] = at_least_1(elems / features / s.of['s' - 'a']);
    s.of['p' - 'a'] = 128;
    s.of['q' - 'a'] = at_least_1(elems / features / 128);
    s.of['w' - 'a'] = 3;
    s.of['y' - 'a'] = 1;
    s.of['z' - 'a'] = 2;
    return s;
}

/* Text of an op case (executor/rule_verify/op_case.h). */
typedef struct case_text {
    char text[192];
    size_t n;
} case_text;

static void append(case_text *t, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const int n = vsnprintf(t->text + t->n, sizeof t->text - t->n, format, values);
    va_end(values);
    assert(n >= 0 && t->n + (size_t)n < sizeof t->text);
    t->n += (size_t)n;
}

/* "rc" as "r=16,c=256". */
static void append_dims(case_text *t, const dtp_bench_sizes *sizes, const char *letters, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char letter = letters[i], single[] = {letter, '\0'};
        const char *name = letter == 'y' || letter == 'z' ? "_stat" : letter == 'e' ? "f" : single;
        append(t, "%s%s=%lld", i > 0 ? "," : "", name, (long long)sizes->of[letter - 'a']);
    }
}

dtp_status dtp_bench_recipe_graph(const dtp_bench_recipe *recipe, const dtp_bench_sizes *sizes,
                                  dtp_dtype dtype, int64_t below, dtp_graph **out, dtp_err *err)
{
    case_text in[DTP_OP_CASE_MAX_IN] = {0}, attrs = {0}, dims = {0};
    dtp_op_case c = {.op = recipe->op, .attrs = attrs.text};
    int32_t n_in = 0;
    const char *p = recipe->text + strspn(recipe->text, " ");
    for (; *p != '\0' && *p != '|' && n_in < DTP_OP_CASE_MAX_IN; n_in++) {
        const size_t n = strcspn(p, " "), mark = p[0] == '#' || p[0] == '?' ? 1 : 0;
        if (p[mark] == '_') {
            append(&in[n_in], "-");
        } else {
            append_dims(&in[n_in], sizes, p + mark, n - mark);
        }
        append(&in[n_in], "%s", mark == 0 ? "" : p[0] == '#' ? " ids:1" : " bool");
        c.in[n_in] = in[n_in].text;
        p += n + strspn(p + n, " ");
    }
    for (p += strspn(p, "| "); *p != '\0';) {
        const size_t n = strcspn(p, " ");
        /* One attribute; "out" goes to the declared dims. */
        const char *value = memchr(p, '=', n);
        assert(value != NULL);
        value++;
        if (strncmp(p, "out=", 4) == 0) {
            append_dims(&dims, sizes, value, n - 4);
        } else if (*value == '@') {
            append(&attrs, "%.*s%lld; ", (int)(value - p), p, (long long)sizes->of[value[1] - 'a']);
        } else {
            append(&attrs, "%.*s; ", (int)n, p);
        }
        p += n + strspn(p + n, " ");
    }
    c.out = dims.n > 0 ? dims.text : NULL;
    attrs.text[attrs.n > 0 ? attrs.n - 2 : 0] = '\0';
    DTP_TRY(dtp_case_build_graph(&c, NULL, dtype, out, err));
    for (int32_t i = 0; i < n_in; i++) {
        dtp_graph_tensor *t = &(*out)->tensors[(*out)->nodes[0].in[i]];
        t->below = t->type.dtype == DTP_I32 ? below : 0;
    }
    return DTP_OK;
}

/* What an op without a recipe runs on, in order of preference: operands by their number, then
 * attributes. */
static const char *const FORM_OPERANDS[][5] = {{"", "rc", "rc rc", "rc rc rc", "rc rc rc rc"},
                                               {"", "?rc", "?rc ?rc", "?rc ?rc ?rc", ""}};
static const char *const FORM_ATTRS[] = {"", " | over=c", " | dim=c"};
enum {
    N_FORM_OPERANDS = sizeof FORM_OPERANDS / sizeof FORM_OPERANDS[0],
    N_FORM_ATTRS = sizeof FORM_ATTRS / sizeof FORM_ATTRS[0],
    MAX_FORM_IN = sizeof FORM_OPERANDS[0] / sizeof FORM_OPERANDS[0][0] - 1
};

/* The first form that the op's own checks accept. */
static bool find_form(const dtp_op_def *op, dtp_bench_recipe *out)
{
    const dtp_bench_sizes sizes = dtp_bench_sizes_for(1024, 0);
    const int32_t n_in = op->min_in;
    for (int32_t k = 0; k < N_FORM_OPERANDS * N_FORM_ATTRS && n_in <= MAX_FORM_IN; k++) {
        dtp_graph *g = NULL;
        out->op = op->name;
        (void)snprintf(out->text, sizeof out->text, "%s%s", FORM_OPERANDS[k / N_FORM_ATTRS][n_in],
                       FORM_ATTRS[k % N_FORM_ATTRS]);
        if (dtp_bench_recipe_graph(out, &sizes, DTP_F32, 1, &g, NULL) == DTP_OK) {
            dtp_graph_destroy(g);
            return true;
        }
    }
    return false;
}

dtp_status dtp_bench_recipes_of(const dtp_op_def *op, dtp_bench_recipe out[DTP_MAX_OP_BENCH],
                                int32_t *n, dtp_err *err)
{
    for (*n = 0; *n < DTP_MAX_OP_BENCH && op->bench[*n] != NULL; (*n)++) {
        out[*n].op = op->name;
        (void)snprintf(out[*n].text, sizeof out[*n].text, "%s", op->bench[*n]);
    }
    if (*n == 0 && (op->flags & DTP_OP_RELABEL) == 0) {
        if (!find_form(op, &out[0])) {
            return DTP_FAIL(err, DTP_INTERNAL,
                            "bench: op '%s' takes none of the usual operands; its row needs a "
                            "recipe",
                            op->name);
        }
        *n = 1;
    }
    return DTP_OK;
}
