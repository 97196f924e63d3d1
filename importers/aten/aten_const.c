/* Constants of a graph: what depends on no parameter and no input (positions, masks, tables of
 * rotary positions), evaluated at the sizes of the export. */
#include <string.h>

#include "importers/aten/aten_const.h"
#include "importers/aten/arg_rules.h"

enum { MOST_OPERANDS = 3, MOST_ELEMENTS = 1 << 26, MOST_IN_ALL = 1 << 28 };
#define MOST_LOOKED_AT (INT64_C(1) << 33)

typedef dtp_const_folder folder;
typedef struct const_op const_op;

/* A node that is evaluated. */
typedef struct work {
    folder *f;
    const dtp_aten_node *node;
    const dtp_aten_value *out; /* of the node */
    dtp_const *to;
    const dtp_const *x; /* operand 0 and its value; NULL: no tensor */
    const dtp_aten_value *xv;
    int32_t axis; /* the argument "dim" */
    const const_op *op;
    /* Operands that the op names: numbers, or tensors broadcast from the last axis on. */
    const dtp_const *in[MOST_OPERANDS];
    int64_t strides[MOST_OPERANDS][DTP_MAX_RANK];
    double number[MOST_OPERANDS], alpha;
} work;

struct const_op {
    const char *name;      /* without "aten." and overload */
    bool (*view)(work *w); /* the elements of operand 0; false: it cannot be said so */
    /* Else an element, NaN where there is none. `fits` checks what it relies on; NULL: the result
     * changes along the axes alone along which an operand does. */
    double (*at)(const work *w, const int64_t *index);
    bool (*fits)(const work *w);
    double (*of)(const double *a); /* of at_elements: by those of the operands */
    const char *operands[MOST_OPERANDS];
    const char *args; /* arg_rules.h */
};

/* ---- elements ---- */

static int64_t offset_of(int32_t rank, const int64_t *strides, const int64_t *index)
{
    int64_t at = 0;
    for (int32_t i = 0; i < rank; i++) {
        at += strides[i] * index[i];
    }
    return at;
}

/* The next index over the axes whose stride is not 0; false behind the last. */
static bool step(const dtp_aten_value *v, const int64_t *strides, int64_t *index)
{
    for (int32_t i = v->rank; i-- > 0;) {
        if (strides[i] != 0 && ++index[i] < v->sizes[i]) {
            return true;
        }
        index[i] = 0;
    }
    return false;
}

/* Room for elements along the axes whose bit is set, row by row; NULL above a limit. */
static void *room(folder *f, const dtp_aten_value *v, uint32_t varies, dtp_const *to)
{
    int64_t n = 1;
    for (int32_t i = v->rank; i-- > 0;) {
        const int64_t size = (varies >> i & 1) != 0 ? v->sizes[i] : 1;
        to->strides[i] = (varies >> i & 1) != 0 ? n : 0;
        if (size < 1 || size > MOST_ELEMENTS / n) {
            return NULL;
        }
        n *= size;
    }
    to->extent = n;
    to->truth = v->dtype == ATEN_BOOL;
    f->elements += n;
    void *data = f->elements > MOST_IN_ALL
                     ? NULL
                     : dtp_arena_alloc(f->g->arena, (size_t)n, to->truth ? 1 : sizeof(double));
    to->data = data;
    return data;
}

static void put(const dtp_aten_value *v, void *data, int64_t at, double x)
{
    if (v->dtype == ATEN_BOOL) {
        ((uint8_t *)data)[at] = x != 0 ? 1 : 0;
    } else if (v->dtype == ATEN_F32 || v->dtype == ATEN_F16 || v->dtype == ATEN_BF16) {
        ((double *)data)[at] = (double)(float)x;
    } else {
        ((double *)data)[at] = v->dtype == ATEN_F64 ? x : trunc(x);
    }
}

/* Axes along which nothing changes get the stride 0; then what the constant is. Views of large
 * constants cost no room, but time: after so many elements the others are not known. */
static void judge(folder *f, const dtp_aten_value *v, dtp_const *c)
{
    int64_t n = 1;
    for (int32_t axis = 0; axis < v->rank; axis++) {
        const int64_t size = c->strides[axis] != 0 ? v->sizes[axis] : 1;
        n = size > MOST_LOOKED_AT / (n > 0 ? n : 1) ? MOST_LOOKED_AT : n * size;
    }
    f->looked_at += n;
    if (f->looked_at >= MOST_LOOKED_AT) {
        *c = (dtp_const){.is = true};
        return;
    }
    for (int32_t axis = 0; axis < v->rank; axis++) {
        const int64_t stride = c->strides[axis];
        int64_t index[DTP_MAX_RANK] = {0};
        bool same = true;
        while (same && stride != 0 && step(v, c->strides, index)) {
            const int64_t at = offset_of(v->rank, c->strides, index);
            same = dtp_const_at(c, at) == dtp_const_at(c, at - index[axis] * stride);
        }
        c->strides[axis] = same ? 0 : stride;
    }
    dtp_const_judge(c, v);
}

/* ---- views ---- */

static bool view_same(work *w)
{
    *w->to = *w->x;
    return w->out->dtype == w->xv->dtype;
}

static bool view_moved(work *w)
{
    *w->to = *w->x;
    for (int32_t i = 0; i < w->out->rank; i++) {
        const int32_t from = dtp_aten_from(w->f->g, w->node, i);
        w->to->strides[i] = from < 0 ? 0 : w->x->strides[from];
    }
    return true;
}

/* Axes that go and come have size 1: the others keep their order. */
static bool view_squeeze(work *w)
{
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

static bool fits_view(const work *w)
{
    return w->xv != NULL;
}

static double at_view(const work *w, const int64_t *index)
{
    int64_t n = offset_of(w->out->rank, w->to->strides, index), at = 0;
    for (int32_t i = w->xv->rank; i-- > 0; n /= w->xv->sizes[i]) {
        if (w->xv->sizes[i] < 1) {
            return (double)NAN;
        }
        at += n % w->xv->sizes[i] * w->x->strides[i];
    }
    return n == 0 ? dtp_const_at(w->x, at) : (double)NAN;
}

static bool view_slice(work *w)
{
    const bool select = dtp_aten_is(w->node, "select");
    int64_t start = dtp_aten_int(w->node, select ? "index" : "start", 0);
    const int64_t by = select ? 1 : dtp_aten_int(w->node, "step", 1);
    if (w->axis < 0) {
        return false;
    }
    const int64_t size = w->xv->sizes[w->axis], stride = w->x->strides[w->axis];
    start += start < 0 ? size : 0;
    start = start < 0 ? 0 : start > size ? size : start;
    if (by < 1 || by > size || (start > 0 && stride > w->x->extent / start)) {
        return false;
    }
    *w->to = *w->x;
    w->to->first += start * stride;
    if (select) {
        memmove(&w->to->strides[w->axis], &w->to->strides[w->axis + 1],
                (size_t)(DTP_MAX_RANK - 1 - w->axis) * sizeof w->to->strides[0]);
        return start < size;
    }
    w->to->strides[w->axis] *= by;
    const int64_t kept = w->out->sizes[w->axis];
    return kept > 0 && kept <= size && start + (kept - 1) * by < size;
}

/* ---- element by element ---- */

static bool fits_arange(const work *w)
{
    return w->out->rank == 1;
}

static double at_arange(const work *w, const int64_t *index)
{
    return dtp_aten_real(w->node, "start", 0) +
           dtp_aten_real(w->node, "step", 1) * (double)index[0];
}

static double at_linspace(const work *w, const int64_t *index)
{
    const double start = dtp_aten_real(w->node, "start", 0), end = dtp_aten_real(w->node, "end", 0);
    const int64_t n = w->out->sizes[0];
    return n < 2 ? start : start + (end - start) / (double)(n - 1) * (double)index[0];
}

static bool fits_indices(const work *w)
{
    return w->out->rank == 2 && w->out->sizes[0] == 2;
}

/* tril_indices, triu_indices: rows, then columns, row by row. */
static double at_indices(const work *w, const int64_t *index)
{
    const int64_t rows = dtp_aten_int(w->node, "row", 0), cols = dtp_aten_int(w->node, "col", 0);
    const int64_t offset = dtp_aten_int(w->node, "offset", 0);
    int64_t left = index[1];
    for (int64_t r = 0; r < rows; r++) {
        int64_t first = 0, end = cols;
        if (strcmp(w->op->name, "tril_indices") == 0) {
            end = r + offset + 1 < cols ? r + offset + 1 : cols;
        } else {
            first = r + offset > 0 ? r + offset : 0;
        }
        const int64_t n = end > first ? end - first : 0;
        if (left < n) {
            return (double)(index[0] == 0 ? r : first + left);
        }
        left -= n;
    }
    return (double)NAN;
}

static double at_fill(const work *w, const int64_t *index)
{
    (void)index;
    const double usual = strstr(w->op->name, "ones") != NULL ? 1 : 0; /* of empty: any */
    return dtp_aten_real(w->node, "fill_value", dtp_aten_real(w->node, "s", usual));
}

/* clang-format off */
static double of_same(const double *a) { return a[0]; }
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
static double of_sqrt(const double *a) { return sqrt(a[0]); }
static double of_rsqrt(const double *a) { return 1 / sqrt(a[0]); }
static double of_reciprocal(const double *a) { return 1 / a[0]; }
static double of_where(const double *a) { return a[0] != 0 ? a[1] : a[2]; }
static double of_masked_fill(const double *a) { return a[1] != 0 ? a[2] : a[0]; }
/* clang-format on */

/* The operands that the op names; *varies: bits of the axes along which one of them changes. */
static bool bind_operands(work *w, uint32_t *varies)
{
    const const_op *op = w->op;
    const bool bits = op->of == of_and || op->of == of_or || op->of == of_not;
    if (bits && w->out->dtype != ATEN_BOOL) {
        return false;
    }
    for (int k = 0; k < MOST_OPERANDS && op->operands[k] != NULL; k++) {
        const dtp_aten_arg *arg = dtp_aten_arg_of(w->node, op->operands[k]);
        arg = arg == NULL && k == 0 ? dtp_aten_arg_of(w->node, "input") : arg;
        if (arg == NULL || arg->kind != ATEN_VALUE) {
            w->number[k] = arg == NULL ? (double)NAN : arg->real;
            if (arg == NULL && op->of != NULL) {
                return false;
            }
            continue;
        }
        const dtp_aten_value *v = &w->f->g->values[arg->values[0]];
        const int32_t more = w->out->rank - v->rank;
        w->in[k] = &w->f->c[arg->values[0]];
        for (int32_t i = 0; i < v->rank && more >= 0; i++) {
            w->strides[k][i + more] = v->sizes[i] == 1 ? 0 : w->in[k]->strides[i];
            *varies |= w->strides[k][i + more] != 0 ? UINT32_C(1) << (i + more) : 0;
        }
        if (more < 0) {
            return false;
        }
    }
    return true;
}

static int64_t place(const work *w, int k, const int64_t *index)
{
    return offset_of(w->out->rank, w->strides[k], index);
}

static double at_elements(const work *w, const int64_t *index)
{
    double a[MOST_OPERANDS];
    for (int k = 0; k < MOST_OPERANDS && w->op->operands[k] != NULL; k++) {
        a[k] = w->in[k] == NULL ? w->number[k] : dtp_const_at(w->in[k], place(w, k, index));
        a[k] *= k == 1 ? w->alpha : 1;
    }
    return w->op->of(a);
}

/* ---- along an axis ---- */

static bool fits_cat(const work *w)
{
    const dtp_aten_arg *list = dtp_aten_arg_of(w->node, "tensors");
    int64_t size = 0;
    for (int32_t k = 0; list != NULL && w->axis >= 0 && k < list->n; k++) {
        const dtp_aten_value *v = list->values[k] < 0 ? NULL : &w->f->g->values[list->values[k]];
        if (v == NULL || v->rank != w->out->rank) {
            return false;
        }
        size += v->sizes[w->axis];
    }
    return w->axis >= 0 && size == w->out->sizes[w->axis];
}

static double at_cat(const work *w, const int64_t *index)
{
    const int32_t *values = dtp_aten_arg_of(w->node, "tensors")->values;
    int64_t i = index[w->axis];
    for (; i >= w->f->g->values[*values].sizes[w->axis]; values++) {
        i -= w->f->g->values[*values].sizes[w->axis];
    }
    const dtp_const *c = &w->f->c[*values];
    return dtp_const_at(c, offset_of(w->out->rank, c->strides, index) +
                               (i - index[w->axis]) * c->strides[w->axis]);
}

/* Ops over the axes of the operand. */
static bool fits_same(const work *w)
{
    return w->xv != NULL && w->in[0] != NULL && w->xv->rank == w->out->rank && w->axis >= 0;
}

/* cumsum; diff of order 1, with or without `prepend`. */
static bool fits_scan(const work *w)
{
    const int32_t before = dtp_aten_operand(w->node, "prepend");
    return fits_same(w) && dtp_aten_int(w->node, "n", 1) == 1 &&
           w->out->sizes[w->axis] <= w->xv->sizes[w->axis] &&
           (before < 0 || (w->f->g->values[before].rank == w->out->rank &&
                           w->f->g->values[before].sizes[w->axis] == 1));
}

static double at_cumsum(const work *w, const int64_t *index)
{
    const double x = dtp_const_at(w->in[0], place(w, 0, index));
    const int64_t before = offset_of(w->out->rank, w->to->strides, index) - w->to->strides[w->axis];
    return index[w->axis] == 0 ? x : x + dtp_const_at(w->to, before);
}

static double at_diff(const work *w, const int64_t *index)
{
    const int64_t at = place(w, 0, index), by = w->strides[0][w->axis];
    if (w->in[1] == NULL) {
        return dtp_const_at(w->in[0], at + by) - dtp_const_at(w->in[0], at);
    }
    return dtp_const_at(w->in[0], at) - (index[w->axis] > 0
                                             ? dtp_const_at(w->in[0], at - by)
                                             : dtp_const_at(w->in[1], place(w, 1, index)));
}

/* x[i0, i1, ..]: an index tensor for each of the first axes, broadcast against each other; the
 * other axes follow. */
static bool fits_index(const work *w)
{
    const dtp_aten_arg *list = dtp_aten_arg_of(w->node, "indices");
    const int32_t behind = list == NULL || w->xv == NULL ? -1 : w->xv->rank - list->n;
    for (int32_t k = 0; behind >= 0 && k < list->n; k++) {
        const int32_t v = list->values[k];
        if (v < 0 || w->f->g->values[v].rank > w->out->rank - behind) {
            return false;
        }
    }
    return behind >= 0 && behind <= w->out->rank;
}

static double at_index(const work *w, const int64_t *index)
{
    const dtp_aten_arg *list = dtp_aten_arg_of(w->node, "indices");
    const int32_t behind = w->xv->rank - list->n, ahead = w->out->rank - behind;
    int64_t at = offset_of(behind, &w->x->strides[list->n], &index[ahead]);
    for (int32_t k = 0; k < list->n; k++) {
        const dtp_const *c = &w->f->c[list->values[k]];
        const int32_t rank = w->f->g->values[list->values[k]].rank;
        double i = dtp_const_at(c, offset_of(rank, c->strides, &index[ahead - rank]));
        i += i < 0 ? (double)w->xv->sizes[k] : 0;
        if (!(i >= 0 && i < (double)w->xv->sizes[k])) {
            return (double)NAN;
        }
        at += (int64_t)i * w->x->strides[k];
    }
    return dtp_const_at(w->x, at);
}

static double at_gather(const work *w, const int64_t *index)
{
    const double i = w->in[1] == NULL ? -1 : dtp_const_at(w->in[1], place(w, 1, index));
    return i >= 0 && i < (double)w->xv->sizes[w->axis]
               ? dtp_const_at(w->in[0], place(w, 0, index) +
                                            ((int64_t)i - index[w->axis]) * w->strides[0][w->axis])
               : (double)NAN;
}

static bool fits_triangle(const work *w)
{
    return fits_same(w) && w->out->rank >= 2;
}

static double at_triangle(const work *w, const int64_t *index)
{
    const int32_t r = w->out->rank;
    const int64_t over = index[r - 1] - index[r - 2] - dtp_aten_int(w->node, "diagonal", 0);
    const bool kept = strcmp(w->op->name, "tril") == 0 ? over <= 0 : over >= 0;
    return kept ? dtp_const_at(w->in[0], place(w, 0, index)) : 0;
}

/* A row has all seven, or it does not compile: the argument rule (arg_rules.h) is a text. */
#define ROW(name, args, view, at, fits, of, ...)                                                   \
    {                                                                                              \
        name, view, at, fits, of, {__VA_ARGS__}, "" args                                           \
    }
#define VIEW(name, view, args) ROW(name, args, view, NULL, NULL, NULL, NULL)
#define RESHAPE(name, args) ROW(name, args, view_squeeze, at_view, fits_view, NULL, NULL)
#define SAME(name, args) ROW(name, args, view_same, at_elements, NULL, of_same, "self")
#define FILL(name, args) ROW(name, args " dtype=any", NULL, at_fill, NULL, NULL, NULL)
#define UNARY(name, fn) ROW(name, "self:t", NULL, at_elements, NULL, fn, "self")
#define BINARY(name, fn) ROW(name, "self:tn other:tn", NULL, at_elements, NULL, fn, "self", "other")
#define SCALED(name, fn)                                                                           \
    ROW(name, "self:tn other:tn alpha:n", NULL, at_elements, NULL, fn, "self", "other")

/* clang-format off */
static const const_op ops[] = {
    FILL("ones", "size=any"), FILL("zeros", "size=any"), FILL("full", "size=any fill_value:n"),
    FILL("ones_like", "self=any"), FILL("zeros_like", "self=any"),
    FILL("full_like", "self=any fill_value:n"), FILL("new_ones", "self=any size=any"),
    FILL("new_zeros", "self=any size=any"), FILL("new_full", "self=any size=any fill_value:n"),
    FILL("scalar_tensor", "s:n"),
    FILL("empty", "size=any"), FILL("new_empty", "self=any size=any"),
    FILL("empty_like", "self=any"),
    SAME("to", "self:t dtype=any other=any copy=any"),
    SAME("_to_copy", "self:t dtype=any"), SAME("type_as", "self:t other=any"),
    SAME("alias", "self:t"), SAME("contiguous", "self:t"), SAME("clone", "self:t"),
    SAME("detach", "self:t"), SAME("detach_", "self:t"), SAME("lift_fresh_copy", "self:t"),
    VIEW("expand", view_moved, "self:t size=any implicit=any"),
    VIEW("transpose", view_moved, "self:t dim0:i dim1:i"),
    VIEW("permute", view_moved, "self:t dims:s"), VIEW("t", view_moved, "self:t"),
    VIEW("unsqueeze", view_squeeze, "self:t dim=any"),
    VIEW("squeeze", view_squeeze, "self:t dim=any"),
    VIEW("slice", view_slice, "self:t dim:i start:i end=any step:i"),
    VIEW("select", view_slice, "self:t dim:i index:i"),
    RESHAPE("view", "self:t size=any"), RESHAPE("reshape", "self:t shape=any"),
    RESHAPE("flatten", "self:t start_dim=any end_dim=any"),
    ROW("arange", "start:n end=any step:n dtype=any", NULL, at_arange, fits_arange, NULL, NULL),
    ROW("linspace", "start:n end:n steps=any dtype=any", NULL, at_linspace, fits_arange, NULL,
        NULL),
    ROW("tril_indices", "row:i col:i offset:i dtype=any", NULL, at_indices, fits_indices, NULL,
        NULL),
    ROW("triu_indices", "row:i col:i offset:i dtype=any", NULL, at_indices, fits_indices, NULL,
        NULL),
    ROW("cat", "tensors:l dim:i", NULL, at_cat, fits_cat, NULL, NULL),
    ROW("cumsum", "self:t dim:i dtype=same", NULL, at_cumsum, fits_scan, NULL, "self"),
    ROW("diff", "self:t n=1 dim:i prepend:t", NULL, at_diff, fits_scan, NULL, "self", "prepend"),
    ROW("index", "self:t indices:l", NULL, at_index, fits_index, NULL, NULL),
    ROW("gather", "self:t dim:i index:t sparse_grad=any", NULL, at_gather, fits_same, NULL,
        "self", "index"),
    ROW("tril", "self:t diagonal:i", NULL, at_triangle, fits_triangle, NULL, "self"),
    ROW("triu", "self:t diagonal:i", NULL, at_triangle, fits_triangle, NULL, "self"),
    ROW("pow", "self:tn exponent:tn", NULL, at_elements, NULL, of_pow, "self", "exponent"),
    ROW("where", "condition:t self:tn other:tn", NULL, at_elements, NULL, of_where, "condition",
        "self", "other"),
    ROW("masked_fill", "self:t mask:t value:tn", NULL, at_elements, NULL, of_masked_fill, "self",
        "mask", "value"),
    SCALED("add", of_add), SCALED("sub", of_sub), BINARY("rsub", of_rsub), BINARY("mul", of_mul),
    BINARY("div", of_div), BINARY("floor_divide", of_floor_divide), BINARY("minimum", of_min),
    BINARY("maximum", of_max), BINARY("min", of_min), BINARY("max", of_max), BINARY("eq", of_eq),
    BINARY("ne", of_ne), BINARY("lt", of_lt), BINARY("le", of_le), BINARY("gt", of_gt),
    BINARY("ge", of_ge), BINARY("__and__", of_and), BINARY("__or__", of_or),
    BINARY("bitwise_and", of_and), BINARY("bitwise_or", of_or), BINARY("logical_and", of_and),
    BINARY("logical_or", of_or), UNARY("logical_not", of_not), UNARY("bitwise_not", of_not),
    UNARY("neg", of_neg), UNARY("cos", of_cos), UNARY("sin", of_sin), UNARY("exp", of_exp),
    UNARY("log", of_log), UNARY("abs", of_abs), UNARY("floor", of_floor),
    UNARY("sqrt", of_sqrt), UNARY("rsqrt", of_rsqrt), UNARY("reciprocal", of_reciprocal),
};
/* clang-format on */

/* ---- the graph ---- */

static bool fill(work *w)
{
    uint32_t varies = 0;
    int64_t index[DTP_MAX_RANK] = {0};
    *w->to = (dtp_const){.is = true};
    if (!bind_operands(w, &varies) || (w->op->fits != NULL && !w->op->fits(w))) {
        return false;
    }
    varies = w->op->fits != NULL ? (UINT32_C(1) << w->out->rank) - 1 : varies;
    void *data = room(w->f, w->out, varies, w->to);
    if (data == NULL) {
        return false;
    }
    do {
        put(w->out, data, offset_of(w->out->rank, w->to->strides, index), w->op->at(w, index));
    } while (step(w->out, w->to->strides, index));
    return true;
}

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

static void read_buffer(folder *f, const dtp_aten_value *v, dtp_const *c)
{
    const bool read = v->data != NULL && v->dtype != ATEN_F16 && v->dtype != ATEN_BF16 &&
                      v->dtype != ATEN_I16 && v->dtype != ATEN_I8;
    void *data = read ? room(f, v, (UINT32_C(1) << v->rank) - 1, c) : NULL;
    if (data == NULL) {
        *c = (dtp_const){0};
    }
    c->is = true;
    for (int64_t i = 0; data != NULL && i < c->extent; i++) {
        put(v, data, i, element(v, i));
    }
    judge(f, v, c);
}

/* Whether all tensors that a node reads are constants, and known ones. */
static bool operands_are(const folder *f, const dtp_aten_node *node, bool *known)
{
    *known = true;
    for (int32_t i = 0; i < node->n_args; i++) {
        const dtp_aten_arg *a = &node->args[i];
        for (int32_t k = 0; k < dtp_aten_tensors(a); k++) {
            if (a->values[k] >= 0 && !f->c[a->values[k]].is) {
                return false;
            }
            *known = *known && (a->values[k] < 0 || dtp_const_known(&f->c[a->values[k]]));
        }
    }
    return true;
}

static void fold_node(folder *f, const dtp_aten_node *node)
{
    const bool random = strstr(node->op, "rand") != NULL || strstr(node->op, "dropout") != NULL ||
                        strstr(node->op, "bernoulli") != NULL ||
                        strstr(node->op, "normal_") != NULL;
    bool known;
    if (node->n_outs == 0 || random) {
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
    const const_op *op = ops, *end = ops + sizeof ops / sizeof ops[0];
    while (op < end && !dtp_aten_is(node, op->name)) {
        op++;
    }
    if (op == end || !known || node->n_outs != 1 || dtp_arg_refused(f->g, node, op->args) != NULL) {
        return;
    }
    const int32_t x = dtp_aten_input(node, 0);
    work w = {.f = f, .node = node, .op = op, .out = &f->g->values[node->outs[0]]};
    w.to = &f->c[node->outs[0]];
    w.x = x < 0 ? NULL : &f->c[x];
    w.xv = x < 0 ? NULL : &f->g->values[x];
    w.axis = dtp_aten_axis(dtp_aten_int(node, "dim", op->at == at_diff ? -1 : 0),
                           x < 0 ? w.out->rank : w.xv->rank);
    w.alpha = dtp_aten_real(node, "alpha", 1);
    if (!(op->view != NULL && x >= 0 && op->view(&w)) && !(op->at != NULL && fill(&w))) {
        *w.to = (dtp_const){0};
    }
    w.to->is = true;
    judge(f, w.out, w.to);
}

/* Room for all values of the graph. */
static dtp_status grow(folder *f, dtp_err *err)
{
    return dtp_arena_grow(f->g->arena, &f->c, f->capacity, f->g->n_values + 1, &f->capacity,
                          sizeof *f->c, err);
}

dtp_status dtp_const_buffer(folder *f, int32_t value, dtp_err *err)
{
    DTP_TRY(grow(f, err));
    if (f->g->values[value].role == ATEN_BUFFER && f->g->values[value].update == 0) {
        read_buffer(f, &f->g->values[value], &f->c[value]);
    }
    return DTP_OK;
}

dtp_status dtp_const_node(folder *f, const dtp_aten_node *node, dtp_err *err)
{
    DTP_TRY(grow(f, err));
    fold_node(f, node);
    return DTP_OK;
}

dtp_status dtp_const_fold(const dtp_aten *g, dtp_const **out, dtp_err *err)
{
    folder f = {.g = g};
    DTP_TRY(grow(&f, err));
    for (int32_t i = 0; i < g->n_inputs; i++) {
        DTP_TRY(dtp_const_buffer(&f, g->inputs[i], err));
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        DTP_TRY(dtp_const_node(&f, &g->nodes[i], err));
    }
    *out = f.c;
    return DTP_OK;
}
