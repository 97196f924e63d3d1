/* Ops that are views, pieces and reductions of others. */
#include <string.h>

#include "importers/program/rewrites/aten_expand.h"

enum { MOST_ARGS = 8 }; /* of rows with a rule */

static dtp_aten_value out_of(const dtp_expansion *e, int32_t k)
{
    return e->g->values[e->of->outs[k]];
}

/* The n elements start .. end of an axis; an end below 0 is counted from that of the axis. */
static int32_t slice(dtp_expansion *e, int32_t x, int32_t axis, int64_t start, int64_t n,
                     int64_t end)
{
    dtp_aten_value like = e->g->values[x];
    like.sizes[axis] = n;
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x), dtp_expand_number(e, "dim", axis),
                                 dtp_expand_number(e, "start", (double)start),
                                 dtp_expand_number(e, "end", (double)end)};
    return dtp_expand_node(e, "aten.slice", 4, args, 1, &like);
}

/* One element of an axis, which is gone. */
static int32_t pick(dtp_expansion *e, int32_t x, int32_t axis, int64_t index)
{
    dtp_aten_value like = e->g->values[x];
    like.rank--;
    memmove(&like.sizes[axis], &like.sizes[axis + 1],
            (size_t)(like.rank - axis) * sizeof like.sizes[0]);
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x), dtp_expand_number(e, "dim", axis),
                                 dtp_expand_number(e, "index", (double)index)};
    return dtp_expand_node(e, "aten.select", 3, args, 1, &like);
}

/* The tensor of which x is what is left when elements at the ends of an axis are left out that
 * padding does not make zeros; these added to `by`. x itself when it is something else. */
static int32_t uncut(const dtp_expansion *e, int32_t x, int32_t axis, int64_t by[2])
{
    const dtp_aten_node *node = dtp_expand_maker(e, x);
    const dtp_aten_value *v = &e->g->values[x];
    const int32_t from = node != NULL && node->outs[0] == x && dtp_aten_is(node, "slice")
                             ? dtp_aten_input(node, 0)
                             : -1;
    if (from < 0 || dtp_aten_int(node, "step", 1) != 1 ||
        dtp_aten_axis(dtp_aten_int(node, "dim", 0), v->rank) != axis) {
        return x;
    }
    const int64_t size = e->g->values[from].sizes[axis], start = dtp_aten_int(node, "start", 0);
    const int64_t left = size - start - v->sizes[axis];
    if (start < 0 || left < 0 || (left > 0 && dtp_aten_int(node, "end", size) != -left) ||
        (start > 0 && by[0] > 0) || (left > 0 && by[1] > 0)) {
        return x;
    }
    by[0] -= start;
    by[1] -= left;
    return from;
}

static bool pads_zeros(const dtp_expansion *e)
{
    const dtp_aten_arg *value = dtp_aten_arg_of(e->of, "value");
    return value == NULL || value->kind == ATEN_NONE || dtp_aten_real(e->of, "value", 0) == 0;
}

/* Numbers before and behind an axis; fewer elements where they are negative. With zeros that is one
 * op: a shift, say. */
static int32_t pad(dtp_expansion *e, int32_t x, int32_t axis, const int64_t *numbers)
{
    const dtp_aten_arg *value = dtp_aten_arg_of(e->of, "value");
    int64_t by[2] = {numbers[0], numbers[1]};
    const bool zeros = pads_zeros(e) && (by[0] > 0 || by[1] > 0);
    x = zeros ? uncut(e, x, axis, by) : x;
    dtp_aten_value like = e->g->values[x];
    if (!zeros && (by[0] < 0 || by[1] < 0)) {
        const int64_t from = by[0] < 0 ? -by[0] : 0;
        const int64_t n = like.sizes[axis] - from + (by[1] < 0 ? by[1] : 0);
        x = n < 1 ? -1 : slice(e, x, axis, from, n, by[1] < 0 ? by[1] : from + n);
        like.sizes[axis] = n;
        by[0] = by[0] > 0 ? by[0] : 0;
        by[1] = by[1] > 0 ? by[1] : 0;
    }
    if (x < 0 || (by[0] == 0 && by[1] == 0)) {
        return x;
    }
    like.sizes[axis] += by[0] + by[1];
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x), dtp_expand_ints(e, "pad", 2, by),
                                 dtp_expand_number(e, "dim", axis),
                                 value != NULL ? *value : dtp_expand_number(e, "value", 0)};
    return like.sizes[axis] < 1 ? -1
                                : dtp_expand_node(e, "aten.constant_pad_nd", 4, args, 1, &like);
}

/* ---- ops with several outputs ---- */

/* var_mean, max along a dim: an op for each output. */
static bool outputs_apart(dtp_expansion *e, int32_t x)
{
    static const char *const ops[][3] = {{"var_mean", "aten.var", "aten.mean"},
                                         {"std_mean", "aten.std", "aten.mean"},
                                         {"max", "aten.amax", "aten.argmax"},
                                         {"min", "aten.amin", "aten.argmin"}};
    const dtp_aten_node *node = e->of;
    (void)x;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        const int32_t n = i < 2 || node->n_outs == 2 ? 2 : node->n_args == 1 ? 1 : 0;
        if (!dtp_aten_is(node, ops[i][0]) || n == 0 || node->n_outs != n) {
            continue;
        }
        int32_t n_args[2] = {0, 0};
        dtp_aten_arg args[2][MOST_ARGS];
        for (int32_t j = 0; j < node->n_args; j++) { /* the mean has no correction */
            const char *name = node->args[j].name;
            const bool both = strcmp(name, "correction") != 0 && strcmp(name, "unbiased") != 0;
            for (int32_t k = 0; k < (both ? 2 : 1) && n_args[k] < MOST_ARGS; k++) {
                args[k][n_args[k]++] = node->args[j];
            }
        }
        for (int32_t k = 0; k < n; k++) {
            const dtp_aten_value like = out_of(e, k);
            dtp_expand_out(e, k, dtp_expand_node(e, ops[i][1 + k], n_args[k], args[k], 1, &like));
        }
        return true;
    }
    return false;
}

/* An op that computes in another type: of its operand in that type. */
static bool in_type(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value out = out_of(e, 0);
    const dtp_aten_node *node = e->of;
    const int64_t dtype = dtp_aten_int(node, "dtype", e->g->values[x].dtype);
    dtp_aten_arg args[MOST_ARGS];
    int32_t n = 0;
    if (node->n_outs != 1 || dtype == e->g->values[x].dtype || dtype != out.dtype) {
        return false;
    }
    for (int32_t i = 1; i < node->n_args && n + 1 < MOST_ARGS; i++) {
        if (strcmp(node->args[i].name, "dtype") != 0) {
            args[++n] = node->args[i];
        }
    }
    dtp_aten_value like = e->g->values[x];
    like.dtype = out.dtype;
    args[0] = dtp_expand_tensor(e, node->args[0].name, dtp_expand_one(e, "aten.to", x, &like));
    dtp_expand_out(e, 0, dtp_expand_node(e, node->op, n + 1, args, 1, &out));
    return e->status == DTP_OK;
}

static bool unbind(dtp_expansion *e, int32_t x)
{
    const int32_t axis = dtp_aten_axis(dtp_aten_int(e->of, "dim", 0), e->g->values[x].rank);
    if (axis < 0 || e->of->n_outs != e->g->values[x].sizes[axis]) {
        return false;
    }
    for (int32_t k = 0; k < e->of->n_outs; k++) {
        dtp_expand_out(e, k, pick(e, x, axis, k));
    }
    return true;
}

/* broadcast_tensors, meshgrid: operand k is axis k of the result, or has its last axes. */
static bool expand_all(dtp_expansion *e, int32_t none)
{
    const dtp_aten_arg *list = &e->of->args[0], *order = dtp_aten_arg_of(e->of, "indexing");
    const bool grid = dtp_aten_is(e->of, "meshgrid");
    (void)none;
    if (list->kind != ATEN_VALUES || list->n != e->of->n_outs ||
        (order != NULL && (order->text == NULL || strcmp(order->text, "ij") != 0))) {
        return false;
    }
    for (int32_t k = 0; k < list->n; k++) {
        const dtp_aten_value to = out_of(e, k);
        dtp_aten_value like = to;
        int32_t x = list->values[k];
        for (int32_t i = 0; grid && i < to.rank; i++) {
            like.sizes[i] = i == k ? to.sizes[i] : 1;
        }
        if (x < 0) {
            return false;
        }
        x = grid ? dtp_expand_one(e, "aten.view", x, &like) : x;
        dtp_expand_out(e, k, dtp_expand_one(e, "aten.expand", x, &to));
    }
    return true;
}

/* ---- views ---- */

static bool movedim(dtp_expansion *e, int32_t x)
{
    const dtp_aten_arg *from = dtp_aten_arg_of(e->of, "source");
    const dtp_aten_arg *to = dtp_aten_arg_of(e->of, "destination");
    const int32_t rank = e->g->values[x].rank;
    int64_t dims[DTP_MAX_RANK], next = 0;
    uint32_t moved = 0;
    const int32_t n = from == NULL ? 0 : from->kind == ATEN_INT ? 1 : from->n;
    if (n < 1 || to == NULL || from->kind != to->kind || (to->kind == ATEN_INTS && to->n != n)) {
        return false;
    }
    memset(dims, -1, sizeof dims);
    for (int32_t i = 0; i < n; i++) {
        const int32_t a = dtp_aten_axis(from->ints[i], rank), b = dtp_aten_axis(to->ints[i], rank);
        if (a < 0 || b < 0) {
            return false;
        }
        dims[b] = a;
        moved |= UINT32_C(1) << a;
    }
    for (int32_t i = 0; i < rank; i++) {
        for (; dims[i] < 0 && (moved >> next & 1) != 0; next++) {
        }
        dims[i] = dims[i] < 0 ? next++ : dims[i];
    }
    const dtp_aten_value like = out_of(e, 0);
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x),
                                 dtp_expand_ints(e, "dims", rank, dims)};
    dtp_expand_out(e, 0, dtp_expand_node(e, "aten.permute", 2, args, 1, &like));
    return true;
}

static bool narrow(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value v = e->g->values[x];
    const int32_t axis = dtp_aten_axis(dtp_aten_int(e->of, "dim", 0), v.rank);
    const int64_t start = dtp_aten_int(e->of, "start", -1);
    const int64_t n = dtp_aten_int(e->of, "length", -1);
    if (axis < 0 || start < 0 || n < 1 || start > v.sizes[axis] - n) {
        return false;
    }
    dtp_expand_out(e, 0, slice(e, x, axis, start, n, start + n));
    return true;
}

/* x[start::step]: the axis as so many times `step` elements, of which one is kept. */
static bool slice_by_steps(dtp_expansion *e, int32_t x)
{
    dtp_aten_value v = e->g->values[x];
    const int32_t axis = dtp_aten_axis(dtp_aten_int(e->of, "dim", 0), v.rank);
    const int64_t step = dtp_aten_int(e->of, "step", 1);
    int64_t start = dtp_aten_int(e->of, "start", 0);
    if (step < 2 || axis < 0 || v.rank == DTP_MAX_RANK || out_of(e, 0).rank != v.rank) {
        return false;
    }
    const int64_t n = out_of(e, 0).sizes[axis], size = v.sizes[axis];
    start += start < 0 ? size : 0;
    start = start < 0 ? 0 : start;
    if (n < 1 || step > size || n > size || start > size - 1 - (n - 1) * step) {
        return false;
    }
    if (size != n * step || start >= step) {
        const int64_t left = size - start, by[2] = {0, n * step - left};
        x = start > 0 ? slice(e, x, axis, start, left, size) : x;
        x = pad(e, x, axis, by);
        start = 0;
    }
    if (x < 0) {
        return false;
    }
    v.rank++;
    memmove(&v.sizes[axis + 1], &v.sizes[axis], (size_t)(v.rank - 1 - axis) * sizeof v.sizes[0]);
    v.sizes[axis] = n;
    v.sizes[axis + 1] = step;
    x = dtp_expand_one(e, "aten.view", x, &v);
    if (x >= 0) {
        dtp_expand_out(e, 0, pick(e, x, axis + 1, start));
    }
    return true;
}

/* Of several axes, the last one first; or of fewer elements. */
static bool pad_axes(dtp_expansion *e, int32_t x)
{
    const dtp_aten_arg *by = dtp_aten_arg_of(e->of, "pad"), *mode = dtp_aten_arg_of(e->of, "mode");
    const int32_t rank = e->g->values[x].rank;
    int64_t last[2] = {by != NULL && by->n == 2 ? by->ints[0] : -1,
                       by != NULL && by->n == 2 ? by->ints[1] : -1};
    if (by == NULL || by->kind != ATEN_INTS || by->n % 2 != 0 || by->n > 2 * rank ||
        (last[0] >= 0 && last[1] >= 0 && (!pads_zeros(e) || uncut(e, x, rank - 1, last) == x)) ||
        (mode != NULL && (mode->text == NULL || strcmp(mode->text, "constant") != 0))) {
        return false;
    }
    for (int32_t i = 0; i < by->n && x >= 0; i += 2) {
        x = pad(e, x, rank - 1 - i / 2, &by->ints[i]);
    }
    if (x >= 0) {
        dtp_expand_out(e, 0, x);
    }
    return x >= 0;
}

/* Of several axes, one after the other. */
static bool roll_axes(dtp_expansion *e, int32_t x)
{
    const dtp_aten_arg *by = dtp_aten_arg_of(e->of, "shifts"),
                       *dims = dtp_aten_arg_of(e->of, "dims");
    if (by == NULL || dims == NULL || by->kind != ATEN_INTS || dims->kind != ATEN_INTS ||
        dims->n < 2 || by->n != dims->n) {
        return false;
    }
    const dtp_aten_value like = e->g->values[x];
    for (int32_t i = 0; i < dims->n; i++) {
        const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", x),
                                     dtp_expand_ints(e, "shifts", 1, &by->ints[i]),
                                     dtp_expand_ints(e, "dims", 1, &dims->ints[i])};
        x = dtp_expand_node(e, "aten.roll", 3, args, 1, &like);
    }
    dtp_expand_out(e, 0, x);
    return true;
}

/* ---- groups of an axis ---- */

static bool glu(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value like = out_of(e, 0);
    const dtp_aten_arg args[] = {
        dtp_expand_tensor(e, "self", x), dtp_expand_number(e, "chunks", 2),
        dtp_expand_number(e, "dim", (double)dtp_aten_int(e->of, "dim", -1))};
    const int32_t a = dtp_expand_node(e, "aten.chunk", 3, args, 2, &like);
    const int32_t b = a < 0 ? -1 : dtp_expand_one(e, "aten.sigmoid", a + 1, &like);
    if (b >= 0) {
        dtp_expand_out(e, 0, dtp_expand_two(e, "aten.mul", a, b));
    }
    return true;
}

/* Windows that lie side by side: an axis as so many windows, a mean or maximum over each. Behind
 * other windows only those that are all of the image. */
static bool pool(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value v = e->g->values[x], out = out_of(e, 0);
    const dtp_aten_arg *kernel = dtp_aten_arg_of(e->of, "kernel_size");
    const dtp_aten_arg *stride = dtp_aten_arg_of(e->of, "stride");
    const bool adaptive = strncmp(e->of->op, "aten.adaptive_avg", 17) == 0;
    const bool max = strncmp(e->of->op, "aten.max", 8) == 0;
    const int32_t n = strstr(e->of->op, "1d") != NULL ? 1 : strstr(e->of->op, "2d") != NULL ? 2 : 3;
    int64_t dims[DTP_MAX_RANK];
    dtp_aten_value like = v;
    if (e->of->n_outs != 1 || out.rank != v.rank || v.rank + n > DTP_MAX_RANK || v.rank < n ||
        (!adaptive && (kernel == NULL || kernel->kind != ATEN_INTS))) {
        return false;
    }
    like.rank = v.rank - n;
    for (int32_t i = 0; i < n; i++) {
        const int32_t a = v.rank - n + i;
        const int64_t k = out.sizes[a] < 1 ? 0 : v.sizes[a] / out.sizes[a];
        const int64_t is = adaptive ? k : kernel->ints[kernel->n == n ? i : 0];
        const int64_t by =
            adaptive || stride == NULL || stride->n == 0 ? k : stride->ints[stride->n == n ? i : 0];
        if (k < 1 || (e->of->windowed && !adaptive && out.sizes[a] > 1) ||
            k * out.sizes[a] != v.sizes[a] || is != k || by != k) {
            return false;
        }
        like.sizes[like.rank++] = out.sizes[a];
        dims[i] = like.rank;
        like.sizes[like.rank++] = k;
    }
    const int32_t windows = dtp_expand_one(e, "aten.view", x, &like);
    const dtp_aten_arg args[] = {dtp_expand_tensor(e, "self", windows),
                                 dtp_expand_ints(e, "dim", n, dims)};
    dtp_expand_out(e, 0, dtp_expand_node(e, max ? "aten.amax" : "aten.mean", 2, args, 1, &out));
    return true;
}

/* Behind windows the axes of an image that is doubled are dims of their own: the image that it is
 * joined to would have their parts. */
static bool of_own_axes(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value out = out_of(e, 0);
    if (!e->of->windowed || out.rank < 3 || out.rank != e->g->values[x].rank) {
        return false;
    }
    const int32_t more = dtp_expand_node(e, e->of->op, e->of->n_args, e->of->args, 1, &out);
    dtp_expand_out(e, 0, more < 0 ? -1 : dtp_expand_one(e, "dtp.image", more, &out));
    return more >= 0;
}

/* Up-sampling to the size that there is. */
static bool same_size(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value v = e->g->values[x], out = out_of(e, 0);
    bool same = e->of->n_outs == 1 && v.rank == out.rank;
    for (int32_t i = 0; i < v.rank && same; i++) {
        same = v.sizes[i] == out.sizes[i];
    }
    if (same) {
        dtp_expand_out(e, 0, dtp_expand_one(e, "aten.alias", x, &out));
    }
    return same;
}

/* Between pixels, or to the size that there is. */
static bool linear_image(dtp_expansion *e, int32_t x)
{
    return same_size(e, x) || dtp_expand_linear_image(e, x);
}

/* max_pool2d_with_indices, whose indices nothing reads. */
static bool without_indices(dtp_expansion *e, int32_t x)
{
    const dtp_aten_node *node = e->of;
    const dtp_aten_value like = out_of(e, 0);
    (void)x;
    if (node->n_outs != 2 || node->outs[1] >= e->n_file || e->uses[node->outs[1]] != 0) {
        return false;
    }
    dtp_expand_out(
        e, 0, dtp_expand_node(e, "aten.max_pool2d.default", node->n_args, node->args, 1, &like));
    return true;
}

/* ---- integers and truths ---- */

/* clamp of integers, whose bounds count one after the other: the upper one last. */
static bool clamp_integers(dtp_expansion *e, int32_t x)
{
    static const char *const names[] = {"min", "max"};
    const dtp_aten_value like = out_of(e, 0);
    if (dtp_aten_real_type(e->g->values[x].dtype)) {
        return false;
    }
    for (int32_t i = 0; i < 2; i++) {
        const dtp_aten_arg *bound = dtp_aten_arg_of(e->of, names[i]);
        if (bound != NULL && bound->kind != ATEN_INT && bound->kind != ATEN_FLOAT &&
            bound->kind != ATEN_BOOLEAN) {
            return false;
        }
        x = bound == NULL ? x
                          : dtp_expand_with(e, i == 0 ? "aten.maximum" : "aten.minimum", x,
                                            bound->real, &like);
    }
    if (x >= 0) {
        dtp_expand_out(e, 0, x);
    }
    return x >= 0;
}

/* neg, abs, sign, relu and square of integers; floor of them. */
static bool of_integers(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value like = out_of(e, 0), v = e->g->values[x];
    if (dtp_aten_real_type(v.dtype) || v.dtype == ATEN_BOOL || like.dtype != v.dtype) {
        return false;
    }
    const bool negates = dtp_aten_is(e->of, "neg") || dtp_aten_is(e->of, "abs");
    const int32_t low =
        dtp_aten_is(e->of, "sign") ? dtp_expand_with(e, "aten.maximum", x, -1, &like) : -1;
    int32_t y = low >= 0                       ? dtp_expand_with(e, "aten.minimum", low, 1, &like)
                : negates                      ? dtp_expand_with(e, "aten.mul", x, -1, &like)
                : dtp_aten_is(e->of, "relu")   ? dtp_expand_with(e, "aten.maximum", x, 0, &like)
                : dtp_aten_is(e->of, "square") ? dtp_expand_two(e, "aten.mul", x, x)
                                               : x;
    y = dtp_aten_is(e->of, "abs") && y >= 0 ? dtp_expand_two(e, "aten.maximum", x, y) : y;
    if (y >= 0) {
        dtp_expand_out(e, 0, y);
    }
    return y >= 0;
}

/* Whether a number is none of 0. */
static bool not_zero(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value like = out_of(e, 0);
    if (e->g->values[x].dtype == ATEN_BOOL || like.dtype != ATEN_BOOL) {
        return false;
    }
    const int32_t y = dtp_expand_with(e, "aten.eq", x, 0, &like);
    if (y >= 0) {
        dtp_expand_out(e, 0, y);
    }
    return y >= 0;
}

/* The first tensors of a longer list as one, until no more are left than a node takes. */
static void join_first(dtp_expansion *e, int32_t axis, dtp_aten_arg *list)
{
    enum { MOST = 16 };
    while (list->n > MOST && e->status == DTP_OK) {
        dtp_aten_value like = e->g->values[list->values[0]];
        const dtp_aten_arg args[2] = {dtp_expand_list(e, "tensors", MOST, list->values),
                                      dtp_expand_number(e, "dim", axis)};
        for (int32_t i = 1; i < MOST; i++) {
            like.sizes[axis] += e->g->values[list->values[i]].sizes[axis];
        }
        like.symbols[axis] = like.sympy[axis] = NULL;
        list->n -= MOST - 1;
        memmove(list->values + 1, list->values + MOST,
                (size_t)(list->n - 1) * sizeof *list->values);
        list->values[0] = dtp_expand_node(e, "aten.cat", 2, args, 1, &like);
    }
}

/* A list of tensors without those that have no element along the axis. */
static bool cat_all(dtp_expansion *e, int32_t none)
{
    const dtp_aten_arg *list = &e->of->args[0];
    const dtp_aten_value out = out_of(e, 0);
    const int32_t axis = dtp_aten_axis(dtp_aten_int(e->of, "dim", 0), out.rank);
    dtp_aten_arg kept = dtp_expand_tensor(e, "tensors", -1);
    dtp_aten_arg args[2] = {kept, dtp_expand_number(e, "dim", axis)};
    (void)none;
    if (list->kind != ATEN_VALUES || axis < 0 ||
        DTP_NEW(e->g->arena, kept.values, list->n + 1, e->err) != DTP_OK) {
        return false;
    }
    kept.kind = ATEN_VALUES;
    kept.n = 0;
    for (int32_t i = 0; i < list->n; i++) {
        const dtp_aten_value *v = list->values[i] < 0 ? NULL : &e->g->values[list->values[i]];
        const bool empty = v != NULL && (v->rank == out.rank ? v->sizes[axis] == 0
                                                             : v->rank == 1 && v->sizes[0] == 0);
        if (!empty) {
            kept.values[kept.n++] = list->values[i];
        }
    }
    const bool all = kept.n == list->n;
    join_first(e, axis, &kept);
    if ((all && kept.n == list->n) || kept.n == 0 || kept.values[0] < 0) {
        return false;
    }
    args[0] = kept;
    dtp_expand_out(e, 0,
                   kept.n == 1 ? dtp_expand_one(e, "aten.alias", kept.values[0], &out)
                               : dtp_expand_node(e, "aten.cat", 2, args, 1, &out));
    return e->status == DTP_OK;
}

/* ---- losses and NaN ---- */

/* The negative log likelihood of a log_softmax, perhaps with its rows in one axis. */
static bool nll_loss(dtp_expansion *e, int32_t x)
{
    const dtp_aten_value v = e->g->values[x], like = out_of(e, 0);
    const dtp_aten_node *soft = dtp_expand_maker(e, x);
    dtp_aten_arg args[8];
    const bool view =
        dtp_aten_is(soft, "flatten") || dtp_aten_is(soft, "view") || dtp_aten_is(soft, "reshape");
    soft = view ? dtp_expand_maker(e, dtp_aten_input(soft, 0)) : soft;
    const int32_t logits = dtp_aten_input(soft, 0);
    if (!dtp_aten_is(soft, "log_softmax") || e->of->n_args > 8 || logits < 0) {
        return false;
    }
    const dtp_aten_value of = e->g->values[logits];
    const int32_t axis = dtp_aten_axis(dtp_aten_int(soft, "dim", 0), of.rank);
    if (axis < 0) {
        return false;
    }
    if (view ? v.rank != 2 || axis != of.rank - 1 || of.sizes[axis] != v.sizes[1]
             : axis != (v.rank > 1 ? 1 : 0)) {
        return false;
    }
    memcpy(args, e->of->args, (size_t)e->of->n_args * sizeof args[0]);
    const int32_t rows = view ? dtp_expand_one(e, "aten.view", logits, &v) : logits;
    if (rows >= 0 && dtp_expand_cross_entropy(e, rows, e->of)) {
        return true;
    }
    args[0] = dtp_expand_tensor(e, "self", rows);
    dtp_expand_out(e, 0,
                   dtp_expand_node(e, "aten.cross_entropy_loss", e->of->n_args, args, 1, &like));
    return true;
}

static bool cross_entropy(dtp_expansion *e, int32_t x)
{
    return dtp_expand_cross_entropy(e, x, e->of);
}

/* A row has all three, or it does not compile: the argument rule (arg_rules.h) is a text. */
#define REWRITE(op, rewrite, args)                                                                 \
    {                                                                                              \
        op, rewrite, "" args                                                                       \
    }
#define AVG_POOL                                                                                   \
    "self:t kernel_size:s stride:s padding=0 ceil_mode=0 count_include_pad=any "                   \
    "divisor_override=none"
#define MAX_POOL "self:t kernel_size:s stride:s padding=0 dilation=1 ceil_mode=0"
#define BATCH_NORM "input:t weight:t bias:t running_mean:t running_var:t momentum:n eps:n"
#define UPSAMPLE                                                                                   \
    "self:t input:t output_size=any align_corners=any scale_factors=any scales=any scales_d=any "  \
    "scales_h=any scales_w=any"
#define NLL "self:t target:t weight:t reduction=0|1|2 ignore_index:i"

static const struct {
    const char *op;
    bool (*rewrite)(dtp_expansion *e, int32_t x);
    const char *args;
} all[] = {
    REWRITE("clamp", clamp_integers, "self:t min:n max:n"),
    REWRITE("clamp_min", clamp_integers, "self:t min:n"),
    REWRITE("clamp_max", clamp_integers, "self:t max:n"),
    REWRITE("neg", of_integers, "self:t"),
    REWRITE("abs", of_integers, "self:t"),
    REWRITE("sign", of_integers, "self:t"),
    REWRITE("relu", of_integers, "self:t"),
    REWRITE("square", of_integers, "self:t"),
    REWRITE("floor", of_integers, "self:t"),
    REWRITE("ceil", of_integers, "self:t"),
    REWRITE("logical_not", not_zero, "self:t"),
    REWRITE("cat", cat_all, "tensors:l dim:i"),
    REWRITE("broadcast_tensors", expand_all, "tensors:l"),
    REWRITE("meshgrid", expand_all, "tensors:l indexing=ij"),
    REWRITE("unbind", unbind, "self:t dim:i"),
    REWRITE("movedim", movedim, "self:t source:is destination:is"),
    REWRITE("moveaxis", movedim, "self:t source:is destination:is"),
    REWRITE("narrow", narrow, "self:t dim:i start:i length:ie"),
    REWRITE("slice", slice_by_steps, "self:t dim:i start:i end:ie step:i"),
    REWRITE("pad", pad_axes, "self:t pad:s mode=constant value:n"),
    REWRITE("constant_pad_nd", pad_axes, "self:t pad:s value:n"),
    REWRITE("roll", roll_axes, "self:t shifts:s dims:s"),
    REWRITE("glu", glu, "self:t dim:i"),
    REWRITE("group_norm", dtp_expand_group_norm,
            "input:t num_groups:i weight:t bias:t eps:n cudnn_enabled=any"),
    REWRITE("instance_norm", dtp_expand_group_norm,
            "input:t weight:t bias:t use_input_stats=1 momentum=any eps:n cudnn_enabled=any"),
    REWRITE("batch_norm", dtp_expand_batch_norm, BATCH_NORM " training:b cudnn_enabled=any"),
    REWRITE("native_batch_norm", dtp_expand_batch_norm, BATCH_NORM " training:b"),
    REWRITE("_native_batch_norm_legit", dtp_expand_batch_norm, BATCH_NORM " training:b"),
    REWRITE("_native_batch_norm_legit_no_training", dtp_expand_batch_norm, BATCH_NORM),
    REWRITE("avg_pool1d", pool, AVG_POOL),
    REWRITE("avg_pool2d", pool, AVG_POOL),
    REWRITE("avg_pool3d", pool, AVG_POOL),
    REWRITE("max_pool1d", pool, MAX_POOL),
    REWRITE("max_pool2d", pool, MAX_POOL),
    REWRITE("max_pool3d", pool, MAX_POOL),
    REWRITE("max_pool2d_with_indices", without_indices,
            "self:t kernel_size:s stride:s padding:s dilation:s ceil_mode:b"),
    REWRITE("_weight_norm", dtp_expand_weight_norm, "v:t g:t dim:i"),
    REWRITE("upsample_nearest1d", of_own_axes, UPSAMPLE),
    REWRITE("upsample_nearest2d", of_own_axes, UPSAMPLE),
    REWRITE("upsample_nearest3d", of_own_axes, UPSAMPLE),
    REWRITE("upsample_linear1d", linear_image, UPSAMPLE),
    REWRITE("upsample_bilinear2d", linear_image, UPSAMPLE),
    REWRITE("upsample_bicubic2d", same_size, UPSAMPLE),
    REWRITE("upsample_trilinear3d", linear_image, UPSAMPLE),
    REWRITE("adaptive_avg_pool1d", pool, "self:t output_size=any"),
    REWRITE("adaptive_avg_pool2d", pool, "self:t output_size=any"),
    REWRITE("adaptive_avg_pool3d", pool, "self:t output_size=any"),
    REWRITE("nll_loss_nd", nll_loss, NLL),
    REWRITE("nll_loss", nll_loss, NLL),
    REWRITE("nan_to_num", dtp_expand_no_nan, "self:t nan:n posinf=any neginf=any"),
    REWRITE("where", dtp_expand_no_nan, "condition:t self:tne other:tne"),
    REWRITE("masked_fill", dtp_expand_no_nan, "self:t mask:t value:tne"),
    REWRITE("cross_entropy_loss", cross_entropy, NLL " label_smoothing:n"),
    REWRITE("index", dtp_expand_index, "self:t indices:l"),
    REWRITE("topk", dtp_expand_unordered, "self:t k:i dim:i largest:b sorted:b"),
    REWRITE("diff", dtp_expand_diff, "self:t n=1 dim:i prepend:t append:t"),
    REWRITE("floor_divide", dtp_expand_quotient, "self:t other:tn"),
    REWRITE("div", dtp_expand_quotient, "self:t other:tn rounding_mode:x"),
    REWRITE("copy", dtp_expand_copy, "self=any src:t non_blocking=any"),
    REWRITE("fill", dtp_expand_copy, "self:t value:tn"),
    REWRITE("zero", dtp_expand_copy, "self:t"),
    REWRITE("index_put", dtp_expand_index_put, "self:t indices:l values:t accumulate:b"),
    REWRITE("index_add", dtp_expand_index_rows, "self:t dim:i index:t source:t alpha=1"),
    REWRITE("index_copy", dtp_expand_index_rows, "self:t dim:i index:t source:t"),
    REWRITE("index_fill", dtp_expand_index_rows, "self:t dim:i index:t value:tn"),
    REWRITE("scatter", dtp_expand_scatter, "self:t dim:i index:t src:t value:n"),
    REWRITE("scatter_add", dtp_expand_scatter, "self:t dim:i index:t src:t"),
    REWRITE("sum", in_type, "self:t dim:is keepdim:b dtype:i"),
    REWRITE("mean", in_type, "self:t dim:is keepdim:b dtype:i"),
    REWRITE("prod", in_type, "self:t dim:i keepdim:b dtype:i"),
    REWRITE("linalg_vector_norm", in_type, "self:t ord:n dim:is keepdim:b dtype:i"),
    REWRITE("cumsum", in_type, "self:t dim:i dtype:i"),
    REWRITE("softmax", in_type, "self:t dim:i dtype:i"),
    REWRITE("log_softmax", in_type, "self:t dim:i dtype:i"),
    REWRITE("var_mean", outputs_apart, "self:t dim:is correction:n unbiased:b keepdim:b"),
    REWRITE("std_mean", outputs_apart, "self:t dim:is correction:n unbiased:b keepdim:b"),
    REWRITE("max", outputs_apart, "self:t dim:i keepdim:b"),
    REWRITE("min", outputs_apart, "self:t dim:i keepdim:b"),
};

bool dtp_expand_views(dtp_expansion *e)
{
    const int32_t x = dtp_aten_input(e->of, 0);
    for (int32_t k = 0; k < e->of->n_outs; k++) {
        if (e->of->outs[k] < 0) {
            return false;
        }
    }
    if (e->of->n_outs < 1 || e->of->n_args < 1) {
        return false;
    }
    if (dtp_aten_is(e->of, "eye")) {
        return dtp_expand_eye(e);
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const bool list = all[i].rewrite == expand_all || all[i].rewrite == cat_all;
        if ((x >= 0 || list) && dtp_aten_is(e->of, all[i].op)) {
            return dtp_expand_allows(e, all[i].args) && all[i].rewrite(e, x);
        }
    }
    return false;
}
