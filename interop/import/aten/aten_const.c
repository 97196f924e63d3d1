#include <string.h>

#include "interop/import/aten/const_elements.h"

enum { MOST_OPERANDS = 3 };

typedef struct const_op const_op;
struct const_op {
    const char *name; /* without "aten." and overload */
    /* false: not evaluated */
    bool (*run)(dtp_const_work *w, const const_op *op);
    double (*of)(const double *a);
    const char *operands[MOST_OPERANDS];
};

/* ---- sources and views ---- */

static bool run_arange(dtp_const_work *w, const const_op *op)
{
    (void)op;
    void *data;
    const double start = dtp_aten_real(w->node, "start", 0);
    const double by = dtp_aten_real(w->node, "step", 1);
    if (w->out->rank != 1 || !dtp_const_room(w, 1, &data)) {
        return false;
    }
    for (int64_t i = 0; i < w->out->sizes[0]; i++) {
        dtp_const_put(w, data, i, start + by * (double)i);
    }
    return true;
}

static bool run_fill(dtp_const_work *w, const const_op *op)
{
    void *data;
    const double zero = strstr(op->name, "zeros") != NULL ? 0 : 1;
    if (!dtp_const_room(w, 0, &data)) {
        return false;
    }
    dtp_const_put(w, data, 0,
                  dtp_aten_real(w->node, "fill_value", dtp_aten_real(w->node, "s", zero)));
    return true;
}

static bool of_same(const dtp_const_work *w, const int64_t *index, double *x)
{
    *x = dtp_const_x(w, index);
    return true;
}

static bool run_same(dtp_const_work *w, const const_op *op)
{
    (void)op;
    if (w->out->dtype == w->xv->dtype) {
        *w->to = *w->x;
        return true;
    }
    return w->out->rank == w->xv->rank &&
           dtp_const_fill(w, dtp_const_varies(w->x, w->xv->rank), of_same);
}

static bool run_expand(dtp_const_work *w, const const_op *op)
{
    (void)op;
    const int32_t more = w->out->rank - w->xv->rank;
    *w->to = *w->x;
    for (int32_t i = 0; i < w->out->rank && more >= 0; i++) {
        const bool kept = i >= more && w->xv->sizes[i - more] == w->out->sizes[i];
        w->to->strides[i] = kept ? w->x->strides[i - more] : 0;
    }
    return more >= 0;
}

/* Axes that go and come have size 1: the others keep their order. */
static bool run_squeeze(dtp_const_work *w, const const_op *op)
{
    (void)op;
    int32_t from = 0;
    *w->to = *w->x;
    for (int32_t i = 0; i < w->out->rank; i++) {
        w->to->strides[i] = 0;
        while (w->out->sizes[i] != 1 && from < w->xv->rank && w->xv->sizes[from] == 1) {
            from++;
        }
        if (w->out->sizes[i] != 1) {
            if (from >= w->xv->rank || w->xv->sizes[from] != w->out->sizes[i]) {
                return false;
            }
            w->to->strides[i] = w->x->strides[from++];
        }
    }
    return true;
}

static bool run_view(dtp_const_work *w, const const_op *op)
{
    if (run_squeeze(w, op)) {
        return true;
    }
    void *data;
    int64_t index[DTP_MAX_RANK] = {0}, at = 0;
    const uint32_t all = (UINT32_C(1) << w->xv->rank) - 1;
    if (!dtp_const_room(w, (UINT32_C(1) << w->out->rank) - 1, &data)) {
        return false;
    }
    do {
        dtp_const_put(w, data, at++, dtp_const_x(w, index));
    } while (dtp_const_step(w->xv, all, index));
    return true;
}

static bool run_transpose(dtp_const_work *w, const const_op *op)
{
    (void)op;
    const dtp_aten_arg *dims = dtp_aten_arg_of(w->node, "dims");
    *w->to = *w->x;
    if (dims != NULL) {
        for (int32_t i = 0; i < w->out->rank && i < dims->n; i++) {
            const int32_t from = dtp_aten_axis(dims->ints[i], w->out->rank);
            w->to->strides[i] = from < 0 ? 0 : w->x->strides[from];
        }
        return dims->n == w->out->rank;
    }
    const int32_t a = dtp_aten_axis(dtp_aten_int(w->node, "dim0", 0), w->out->rank);
    const int32_t b = dtp_aten_axis(dtp_aten_int(w->node, "dim1", 1), w->out->rank);
    if (a < 0 || b < 0) {
        return w->out->rank < 2;
    }
    w->to->strides[a] = w->x->strides[b];
    w->to->strides[b] = w->x->strides[a];
    return true;
}

static void advance(dtp_const *c, int64_t by)
{
    c->real = c->real == NULL ? NULL : c->real + by;
    c->truth = c->truth == NULL ? NULL : c->truth + by;
    c->extent -= by;
}

static bool run_slice(dtp_const_work *w, const const_op *op)
{
    const int32_t axis = dtp_aten_axis(dtp_aten_int(w->node, "dim", 0), w->xv->rank);
    if (axis < 0) {
        return false;
    }
    const int64_t size = w->xv->sizes[axis];
    const bool select = strcmp(op->name, "select") == 0;
    int64_t start = dtp_aten_int(w->node, select ? "index" : "start", 0);
    const int64_t by = select ? 1 : dtp_aten_int(w->node, "step", 1);
    start += start < 0 ? size : 0;
    start = start < 0 ? 0 : start > size ? size : start;
    if (start > 0 && w->x->strides[axis] > w->x->extent / start) {
        return false;
    }
    *w->to = *w->x;
    advance(w->to, start * w->x->strides[axis]);
    if (select) {
        memmove(&w->to->strides[axis], &w->to->strides[axis + 1],
                (size_t)(DTP_MAX_RANK - 1 - axis) * sizeof w->to->strides[0]);
        return start < size;
    }
    w->to->strides[axis] *= by > 0 && by <= size ? by : 0;
    return w->out->sizes[axis] > 0 && w->out->sizes[axis] <= size && by > 0 && by <= size &&
           start + (w->out->sizes[axis] - 1) * by < size;
}

/* ---- element by element ---- */

static const dtp_aten_arg *operand_arg(const dtp_const_work *w, const char *name)
{
    const dtp_aten_arg *a = dtp_aten_arg_of(w->node, name);
    return a == NULL && strcmp(name, "self") == 0 ? dtp_aten_arg_of(w->node, "input") : a;
}

/* clang-format off */
static double of_add(const double *a) { return a[0] + a[1]; }
static double of_sub(const double *a) { return a[0] - a[1]; }
static double of_rsub(const double *a) { return a[1] - a[0]; }
static double of_mul(const double *a) { return a[0] * a[1]; }
static double of_div(const double *a) { return a[0] / a[1]; }
static double of_floor_divide(const double *a) { return floor(a[0] / a[1]); }
static double of_pow(const double *a) { return pow(a[0], a[1]); }
static double of_min(const double *a) { return a[0] < a[1] ? a[0] : a[1]; }
static double of_max(const double *a) { return a[0] > a[1] ? a[0] : a[1]; }
static double of_eq(const double *a) { return a[0] == a[1]; }
static double of_ne(const double *a) { return a[0] != a[1]; }
static double of_lt(const double *a) { return a[0] < a[1]; }
static double of_le(const double *a) { return a[0] <= a[1]; }
static double of_gt(const double *a) { return a[0] > a[1]; }
static double of_ge(const double *a) { return a[0] >= a[1]; }
static double of_and(const double *a) { return a[0] != 0 && a[1] != 0; }
static double of_or(const double *a) { return a[0] != 0 || a[1] != 0; }
static double of_not(const double *a) { return a[0] == 0; }
static double of_neg(const double *a) { return -a[0]; }
static double of_cos(const double *a) { return cos(a[0]); }
static double of_sin(const double *a) { return sin(a[0]); }
static double of_exp(const double *a) { return exp(a[0]); }
static double of_log(const double *a) { return log(a[0]); }
static double of_abs(const double *a) { return fabs(a[0]); }
static double of_floor(const double *a) { return floor(a[0]); }
static double of_reciprocal(const double *a) { return 1 / a[0]; }
static double of_where(const double *a) { return a[0] != 0 ? a[1] : a[2]; }
static double of_masked_fill(const double *a) { return a[1] != 0 ? a[2] : a[0]; }
/* clang-format on */

/* Numbers and tensors, broadcast from the last axis on. */
static bool run_elements(dtp_const_work *w, const const_op *op)
{
    const dtp_const *in[MOST_OPERANDS] = {NULL};
    int64_t strides[MOST_OPERANDS][DTP_MAX_RANK] = {{0}}, index[DTP_MAX_RANK] = {0};
    double a[MOST_OPERANDS] = {0};
    int n = 0;
    uint32_t varies = 0;
    const double alpha = dtp_aten_real(w->node, "alpha", 1);
    const bool bits = op->of == of_and || op->of == of_or || op->of == of_not;
    if (dtp_aten_arg_of(w->node, "rounding_mode") != NULL || (op->of == of_rsub && alpha != 1)) {
        return false;
    }
    for (; n < MOST_OPERANDS && op->operands[n] != NULL; n++) {
        const dtp_aten_arg *arg = operand_arg(w, op->operands[n]);
        if (arg == NULL || (bits && w->out->dtype != ATEN_BOOL)) {
            return false;
        }
        if (arg->kind != ATEN_VALUE) {
            a[n] = arg->real * (n == 1 ? alpha : 1);
            continue;
        }
        in[n] = &w->f->c[arg->values[0]];
        const dtp_aten_value *v = &w->f->g->values[arg->values[0]];
        const int32_t more = w->out->rank - v->rank;
        if (more < 0) {
            return false;
        }
        for (int32_t i = 0; i < v->rank; i++) {
            strides[n][i + more] = v->sizes[i] == 1 ? 0 : in[n]->strides[i];
            varies |= strides[n][i + more] != 0 ? UINT32_C(1) << (i + more) : 0;
        }
    }
    void *data;
    if (!dtp_const_room(w, varies, &data)) {
        return false;
    }
    do {
        for (int i = 0; i < n; i++) {
            if (in[i] != NULL) {
                a[i] = dtp_const_at(in[i], dtp_const_offset(w->out->rank, strides[i], index)) *
                       (i == 1 ? alpha : 1);
            }
        }
        dtp_const_put(w, data, dtp_const_offset(w->out->rank, w->to->strides, index), op->of(a));
    } while (dtp_const_step(w->out, varies, index));
    return true;
}

/* ---- along an axis ---- */

static bool run_cat(dtp_const_work *w, const const_op *op)
{
    (void)op;
    const dtp_aten_arg *list = dtp_aten_arg_of(w->node, "tensors");
    const int32_t axis = dtp_aten_axis(dtp_aten_int(w->node, "dim", 0), w->out->rank);
    uint32_t varies = axis < 0 ? 0 : UINT32_C(1) << axis;
    for (int32_t k = 0; list != NULL && k < list->n; k++) {
        varies |= dtp_const_varies(&w->f->c[list->values[k]], w->out->rank);
    }
    void *data;
    if (list == NULL || axis < 0 || !dtp_const_room(w, varies, &data)) {
        return false;
    }
    int64_t first = 0;
    for (int32_t k = 0; k < list->n; k++) {
        const dtp_const *c = &w->f->c[list->values[k]];
        const dtp_aten_value *v = &w->f->g->values[list->values[k]];
        int64_t index[DTP_MAX_RANK] = {0};
        if (v->rank != w->out->rank || first + v->sizes[axis] > w->out->sizes[axis]) {
            return false;
        }
        do {
            dtp_const_put(w, data,
                          dtp_const_offset(v->rank, w->to->strides, index) +
                              first * w->to->strides[axis],
                          dtp_const_at(c, dtp_const_offset(v->rank, c->strides, index)));
        } while (dtp_const_step(v, varies, index));
        first += v->sizes[axis];
    }
    return first == w->out->sizes[axis];
}

/* cumsum; diff of order 1, with or without `prepend`. */
static bool of_scan(const dtp_const_work *w, const int64_t *index, double *x)
{
    const bool sum = strncmp(w->node->op, "aten.cumsum", 11) == 0;
    const int32_t axis = dtp_aten_axis(dtp_aten_int(w->node, "dim", -1), w->out->rank);
    const int32_t before = dtp_aten_operand(w->node, "prepend");
    const int64_t by = w->x->strides[axis], shift = before < 0 && !sum ? by : 0;
    const int64_t at = dtp_const_offset(w->out->rank, w->x->strides, index) + shift;
    double other = 0;
    if (sum && index[axis] > 0) {
        other = -dtp_const_at(w->to, dtp_const_offset(w->out->rank, w->to->strides, index) -
                                         w->to->strides[axis]);
    } else if (!sum && (before < 0 || index[axis] > 0)) {
        other = dtp_const_at(w->x, at - by);
    } else if (!sum) {
        const dtp_const *c = &w->f->c[before];
        other = dtp_const_at(c, dtp_const_offset(w->out->rank, c->strides, index));
    }
    *x = dtp_const_at(w->x, at) - other;
    return true;
}

static bool run_scan(dtp_const_work *w, const const_op *op)
{
    (void)op;
    const int32_t axis = dtp_aten_axis(dtp_aten_int(w->node, "dim", -1), w->out->rank);
    const int32_t before = dtp_aten_operand(w->node, "prepend");
    return axis >= 0 && w->out->rank == w->xv->rank && dtp_aten_int(w->node, "n", 1) == 1 &&
           w->out->sizes[axis] <= w->xv->sizes[axis] &&
           (before < 0 || w->f->g->values[before].sizes[axis] == 1) &&
           dtp_const_fill(w, dtp_const_varies(w->x, w->xv->rank) | UINT32_C(1) << axis, of_scan);
}

/* x[i0, i1, ..]: an index tensor for each of the first axes, broadcast against each other; the
 * other axes follow. */
static bool of_index(const dtp_const_work *w, const int64_t *index, double *x)
{
    const dtp_aten_arg *list = dtp_aten_arg_of(w->node, "indices");
    const int32_t behind = w->xv->rank - list->n, ahead = w->out->rank - behind;
    int64_t at = dtp_const_offset(behind, &w->x->strides[list->n], &index[ahead]);
    for (int32_t k = 0; k < list->n; k++) {
        const dtp_const *c = &w->f->c[list->values[k]];
        const int32_t rank = w->f->g->values[list->values[k]].rank;
        double i = dtp_const_at(c, dtp_const_offset(rank, c->strides, &index[ahead - rank]));
        i += i < 0 ? (double)w->xv->sizes[k] : 0;
        if (!(i >= 0 && i < (double)w->xv->sizes[k])) {
            return false;
        }
        at += (int64_t)i * w->x->strides[k];
    }
    *x = dtp_const_at(w->x, at);
    return true;
}

static bool run_index(dtp_const_work *w, const const_op *op)
{
    (void)op;
    const dtp_aten_arg *list = dtp_aten_arg_of(w->node, "indices");
    const int32_t behind = list == NULL ? -1 : w->xv->rank - list->n;
    const int32_t ahead = w->out->rank - behind; /* axes of the index tensors */
    uint32_t varies = 0;
    for (int32_t k = 0; behind >= 0 && k < list->n; k++) {
        const int32_t v = list->values[k];
        if (v < 0 || w->f->g->values[v].rank > ahead) {
            return false;
        }
        const int32_t rank = w->f->g->values[v].rank;
        varies |= w->x->strides[k] != 0 ? dtp_const_varies(&w->f->c[v], rank) << (ahead - rank) : 0;
    }
    for (int32_t i = 0; i < behind; i++) {
        varies |= w->x->strides[list->n + i] != 0 ? UINT32_C(1) << (ahead + i) : 0;
    }
    return behind >= 0 && ahead >= 0 && dtp_const_fill(w, varies, of_index);
}

static bool of_gather(const dtp_const_work *w, const int64_t *index, double *x)
{
    const int32_t axis = dtp_aten_axis(dtp_aten_int(w->node, "dim", 0), w->out->rank);
    const dtp_const *c = &w->f->c[dtp_aten_operand(w->node, "index")];
    int64_t at[DTP_MAX_RANK];
    memcpy(at, index, sizeof at);
    const double i = dtp_const_at(c, dtp_const_offset(w->out->rank, c->strides, index));
    if (!(i >= 0 && i < (double)w->xv->sizes[axis])) {
        return false;
    }
    at[axis] = (int64_t)i;
    *x = dtp_const_x(w, at);
    return true;
}

static bool run_gather(dtp_const_work *w, const const_op *op)
{
    (void)op;
    const int32_t ids = dtp_aten_operand(w->node, "index"), rank = w->out->rank;
    return ids >= 0 && rank == w->xv->rank && rank == w->f->g->values[ids].rank &&
           dtp_aten_axis(dtp_aten_int(w->node, "dim", 0), rank) >= 0 &&
           dtp_const_fill(w, dtp_const_varies(w->x, rank) | dtp_const_varies(&w->f->c[ids], rank),
                          of_gather);
}

static bool of_triangle(const dtp_const_work *w, const int64_t *index, double *x)
{
    const int32_t r = w->out->rank;
    const int64_t over = index[r - 1] - index[r - 2] - dtp_aten_int(w->node, "diagonal", 0);
    const bool lower = strncmp(w->node->op, "aten.tril", 9) == 0;
    *x = (lower ? over <= 0 : over >= 0) ? dtp_const_x(w, index) : 0;
    return true;
}

static bool run_triangle(dtp_const_work *w, const const_op *op)
{
    (void)op;
    const int32_t r = w->out->rank;
    return r >= 2 && r == w->xv->rank &&
           dtp_const_fill(w, dtp_const_varies(w->x, r) | UINT32_C(3) << (r - 2), of_triangle);
}

/* clang-format off */
#define UNARY(name, fn) {name, run_elements, fn, {"self"}}
#define BINARY(name, fn) {name, run_elements, fn, {"self", "other"}}
#define PLAIN(name, run) {name, run, NULL, {NULL}}
static const const_op ops[] = {
    PLAIN("arange", run_arange), PLAIN("ones", run_fill), PLAIN("zeros", run_fill),
    PLAIN("full", run_fill), PLAIN("ones_like", run_fill), PLAIN("zeros_like", run_fill),
    PLAIN("full_like", run_fill), PLAIN("new_ones", run_fill), PLAIN("new_zeros", run_fill),
    PLAIN("new_full", run_fill), PLAIN("scalar_tensor", run_fill),
    PLAIN("to", run_same), PLAIN("_to_copy", run_same), PLAIN("type_as", run_same),
    PLAIN("alias", run_same), PLAIN("contiguous", run_same), PLAIN("clone", run_same),
    PLAIN("detach", run_same), PLAIN("detach_", run_same), PLAIN("lift_fresh_copy", run_same),
    PLAIN("expand", run_expand), PLAIN("unsqueeze", run_squeeze), PLAIN("squeeze", run_squeeze),
    PLAIN("view", run_view), PLAIN("reshape", run_view), PLAIN("flatten", run_view),
    PLAIN("transpose", run_transpose), PLAIN("permute", run_transpose), PLAIN("t", run_transpose),
    PLAIN("slice", run_slice), PLAIN("select", run_slice), PLAIN("cat", run_cat),
    PLAIN("cumsum", run_scan), PLAIN("diff", run_scan), PLAIN("index", run_index),
    PLAIN("gather", run_gather), PLAIN("tril", run_triangle), PLAIN("triu", run_triangle),
    BINARY("add", of_add), BINARY("sub", of_sub), BINARY("rsub", of_rsub), BINARY("mul", of_mul),
    BINARY("div", of_div), BINARY("floor_divide", of_floor_divide), BINARY("minimum", of_min),
    BINARY("maximum", of_max), BINARY("min", of_min), BINARY("max", of_max), BINARY("eq", of_eq),
    BINARY("ne", of_ne), BINARY("lt", of_lt), BINARY("le", of_le), BINARY("gt", of_gt),
    BINARY("ge", of_ge), BINARY("__and__", of_and), BINARY("__or__", of_or),
    BINARY("bitwise_and", of_and), BINARY("bitwise_or", of_or), BINARY("logical_and", of_and),
    BINARY("logical_or", of_or), UNARY("logical_not", of_not), UNARY("bitwise_not", of_not),
    UNARY("neg", of_neg), UNARY("cos", of_cos), UNARY("sin", of_sin), UNARY("exp", of_exp),
    UNARY("log", of_log), UNARY("abs", of_abs), UNARY("floor", of_floor),
    UNARY("reciprocal", of_reciprocal),
    {"pow", run_elements, of_pow, {"self", "exponent"}},
    {"where", run_elements, of_where, {"condition", "self", "other"}},
    {"masked_fill", run_elements, of_masked_fill, {"self", "mask", "value"}},
};
/* clang-format on */

static const const_op *find_op(const char *full)
{
    if (strncmp(full, "aten.", 5) != 0) {
        return NULL;
    }
    const size_t n = strcspn(full + 5, ".");
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strlen(ops[i].name) == n && memcmp(ops[i].name, full + 5, n) == 0) {
            return &ops[i];
        }
    }
    return NULL;
}

/* ---- the graph ---- */

/* Bytes of a buffer as numbers; false for types that are not read. */
static double element(const dtp_aten_value *v, int64_t i)
{
    float f;
    double d;
    int32_t n;
    int64_t l;
    switch (v->dtype) {
    case ATEN_F32:
        memcpy(&f, v->data + i * 4, sizeof f);
        return (double)f;
    case ATEN_F64:
        memcpy(&d, v->data + i * 8, sizeof d);
        return d;
    case ATEN_I32:
        memcpy(&n, v->data + i * 4, sizeof n);
        return n;
    case ATEN_I64:
        memcpy(&l, v->data + i * 8, sizeof l);
        return (double)l;
    default:
        return (double)(unsigned char)v->data[i];
    }
}

static void read_buffer(dtp_const_folder *f, const dtp_aten_value *v, dtp_const *c)
{
    dtp_const_work w = {.f = f, .out = v, .to = c};
    void *data;
    int64_t index[DTP_MAX_RANK] = {0}, i = 0;
    const uint32_t all = (UINT32_C(1) << v->rank) - 1;
    c->is = true;
    if (v->data == NULL || v->dtype == ATEN_F16 || v->dtype == ATEN_BF16 || v->dtype == ATEN_I16 ||
        v->dtype == ATEN_I8 || !dtp_const_room(&w, all, &data)) {
        c->real = NULL;
        c->truth = NULL;
        return;
    }
    do {
        dtp_const_put(&w, data, dtp_const_offset(v->rank, c->strides, index), element(v, i++));
    } while (dtp_const_step(v, all, index));
    dtp_const_close(f, v, c);
}

/* Whether all tensors that a node reads are constants, and known ones. */
static bool operands_are(const dtp_const_folder *f, const dtp_aten_node *node, bool *known)
{
    *known = true;
    for (int32_t i = 0; i < node->n_args; i++) {
        const dtp_aten_arg *a = &node->args[i];
        for (int32_t k = 0; k < a->n && (a->kind == ATEN_VALUE || a->kind == ATEN_VALUES); k++) {
            if (a->values[k] >= 0 && !f->c[a->values[k]].is) {
                return false;
            }
            *known = *known && (a->values[k] < 0 || dtp_const_known(&f->c[a->values[k]]));
        }
    }
    return true;
}

static bool is_random(const char *op)
{
    return strstr(op, "rand") != NULL || strstr(op, "dropout") != NULL ||
           strstr(op, "bernoulli") != NULL || strstr(op, "normal_") != NULL;
}

static void fold_node(dtp_const_folder *f, const dtp_aten_node *node)
{
    bool known;
    if (node->n_outs == 0 || is_random(node->op)) {
        return;
    }
    /* ones_like(x), zeros_like(x): x is not read */
    const bool shape_only =
        strstr(node->op, "_like.") != NULL || strncmp(node->op, "aten.new_", 9) == 0;
    if (!operands_are(f, node, &known)) {
        if (!shape_only) {
            return;
        }
        known = true;
    }
    for (int32_t i = 0; i < node->n_outs; i++) {
        f->c[node->outs[i]].is = true;
    }
    const const_op *op = find_op(node->op);
    if (op == NULL || !(known || shape_only) || node->n_outs != 1) {
        return;
    }
    const int32_t x =
        node->n_args > 0 && node->args[0].kind == ATEN_VALUE ? node->args[0].values[0] : -1;
    dtp_const *to = &f->c[node->outs[0]];
    const dtp_aten_value *out = &f->g->values[node->outs[0]];
    dtp_const_work w = {f, node, out, to, x < 0 ? NULL : &f->c[x], x < 0 ? NULL : &f->g->values[x]};
    const bool reads_x = op->run != run_arange && op->run != run_fill && op->run != run_elements &&
                         op->run != run_cat;
    if ((reads_x && x < 0) || !op->run(&w, op)) {
        *to = (dtp_const){.is = true};
        return;
    }
    to->is = true;
    dtp_const_close(f, out, to);
}

dtp_status dtp_const_fold(const dtp_aten *g, dtp_const **out, dtp_err *err)
{
    dtp_const_folder f = {.g = g};
    DTP_TRY(DTP_NEW(g->arena, f.c, g->values_capacity + 1, err));
    for (int32_t i = 0; i < g->n_inputs; i++) {
        if (g->values[g->inputs[i]].role == ATEN_BUFFER) {
            read_buffer(&f, &g->values[g->inputs[i]], &f.c[g->inputs[i]]);
        }
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        fold_node(&f, &g->nodes[i]);
    }
    *out = f.c;
    return DTP_OK;
}
