/* Views, pieces and tables. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/safe_int.h"
#include "importers/onnx/onnx_ops.h"

/* ---- views ---- */

/* Operand 0 with the sizes of o->s. */
static dtp_status view(dtp_onnx_graph *o, dtp_err *err)
{
    int64_t n = 1;
    bool fits = true;
    for (int32_t i = 0; i < o->s.rank && fits; i++) {
        fits = o->s.sizes[i] >= 0 && dtp_mul_i64(n, o->s.sizes[i], &n);
    }
    if (!fits || n != dtp_shape_elements(&o->x)) {
        return DTP_FAIL(err, DTP_INVALID, "a view of another number of elements");
    }
    return EMIT(o, "aten.view.default", &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_L("size", o->s.rank, o->s.sizes));
}

/* So exporters turn keys: reshaped to three axes, of which the last two are exchanged, and reshaped
 * again, so that the last two axes of the operand are exchanged. The operand; -1. */
static int32_t turned_through_three(const dtp_onnx_graph *o)
{
    const dtp_aten_node *turn = dtp_onnx_maker(o, o->in[0], "permute");
    const int32_t from = dtp_aten_input(dtp_onnx_maker(o, dtp_aten_input(turn, 0), "view"), 0);
    const int32_t n = o->s.rank;
    if (from < 0 || n < 2 || o->x.rank != 3 || turn->args[1].ints[1] != 2 ||
        turn->args[1].ints[2] != 1) {
        return -1;
    }
    dtp_shape is = dtp_onnx_shape(o, from);
    const int64_t last[2] = {is.sizes[n - 1], is.sizes[n - 2]};
    memcpy(&is.sizes[n - 2], last, sizeof last);
    return memcmp(&is, &o->s, sizeof is) == 0 && memcmp(&o->x.sizes[1], last, sizeof last) == 0
               ? from
               : -1;
}

/* Sizes: 0 is that of the operand, -1 what is left. */
dtp_status dtp_onnx__reshape(dtp_onnx_graph *o, dtp_err *err)
{
    int64_t known = 1;
    int32_t open = -1;
    DTP_TRY(dtp_onnx_sizes(o, 1, err));
    for (int32_t i = 0; i < o->s.rank; i++) {
        if (i < o->x.rank && o->s.sizes[i] == 0 && dtp_onnx_int(o, "allowzero", 0) == 0) {
            o->s.sizes[i] = o->x.sizes[i];
        }
        if (o->s.sizes[i] == -1) {
            open = i;
        } else if (!dtp_mul_i64(known, o->s.sizes[i], &known)) {
            return dtp_onnx_unsupported("sizes beyond 2^63", err);
        }
    }
    if (open >= 0) {
        o->s.sizes[open] = known > 0 ? dtp_shape_elements(&o->x) / known : 0;
    }
    const int32_t from = turned_through_three(o);
    if (from >= 0) {
        return EMIT(o, "aten.transpose.int", &o->s, o->out, err, ARG_T("self", from),
                    ARG_I("dim0", -2), ARG_I("dim1", -1));
    }
    return view(o, err);
}

dtp_status dtp_onnx__flatten(dtp_onnx_graph *o, dtp_err *err)
{
    const int64_t axis = dtp_onnx_int(o, "axis", 1);
    o->s = (dtp_shape){o->x.dtype, 2, {1, 1}};
    for (int32_t i = 0; i < o->x.rank; i++) {
        o->s.sizes[i < axis + (axis < 0 ? o->x.rank : 0) ? 0 : 1] *= o->x.sizes[i];
    }
    return view(o, err);
}

dtp_status dtp_onnx__squeeze(dtp_onnx_graph *o, dtp_err *err)
{
    uint32_t set;
    int32_t n;
    int64_t *axes;
    DTP_TRY(dtp_onnx_ints(o, 1, "axes", &n, &axes, err));
    DTP_TRY(dtp_onnx_axes(o, o->x.rank, &set, err));
    o->s.rank = 0;
    for (int32_t i = 0; i < o->x.rank; i++) {
        if (n < 0 ? o->x.sizes[i] != 1 : (set >> i & 1) == 0) {
            o->s.sizes[o->s.rank++] = o->x.sizes[i];
        }
    }
    return view(o, err);
}

dtp_status dtp_onnx__unsqueeze(dtp_onnx_graph *o, dtp_err *err)
{
    uint32_t set;
    int32_t n, from = 0;
    int64_t *axes;
    DTP_TRY(dtp_onnx_ints(o, 1, "", &n, &axes, err));
    o->s.rank = o->x.rank + n;
    if (o->s.rank > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a tensor of %d axes", o->s.rank);
    }
    DTP_TRY(dtp_onnx_axes(o, o->s.rank, &set, err));
    for (int32_t i = 0; i < o->s.rank; i++) {
        o->s.sizes[i] = (set >> i & 1) != 0 || from == o->x.rank ? 1 : o->x.sizes[from++];
    }
    return n != 1 ? view(o, err)
                  : EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                         ARG_I("dim", axes[0]));
}

dtp_status dtp_onnx_permute(dtp_onnx_graph *o, int32_t x, int64_t *perm, int32_t *out, dtp_err *err)
{
    const dtp_shape from = dtp_onnx_shape(o, x);
    dtp_shape s = from;
    for (int32_t i = 0; i < s.rank; i++) {
        if (perm[i] < 0 || perm[i] >= s.rank) {
            return DTP_FAIL(err, DTP_INVALID, "axis %" PRId64 " of %d", perm[i], s.rank);
        }
        s.sizes[i] = from.sizes[perm[i]];
    }
    return EMIT(o, "aten.permute.default", &s, out, err, ARG_T("self", x),
                ARG_L("dims", s.rank, perm));
}

dtp_status dtp_onnx__transpose(dtp_onnx_graph *o, dtp_err *err)
{
    int32_t n;
    int64_t *perm, turned[DTP_MAX_RANK] = {0};
    DTP_TRY(dtp_onnx_ints(o, -1, "perm", &n, &perm, err));
    for (int32_t i = 0; i < o->x.rank; i++) {
        turned[i] = o->x.rank - 1 - i;
    }
    return n >= 0 && n != o->x.rank
               ? DTP_FAIL(err, DTP_INVALID, "%d axes of %d", n, o->x.rank)
               : dtp_onnx_permute(o, o->in[0], n < 0 ? turned : perm, o->out, err);
}

dtp_status dtp_onnx__expand(dtp_onnx_graph *o, dtp_err *err)
{
    DTP_TRY(dtp_onnx_sizes(o, 1, err));
    DTP_TRY(dtp_onnx_broadcast(&o->s, &o->x, err));
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_L("size", o->s.rank, o->s.sizes));
}

dtp_status dtp_onnx__tile(dtp_onnx_graph *o, dtp_err *err)
{
    int64_t by[DTP_MAX_RANK];
    DTP_TRY(dtp_onnx_sizes(o, 1, err));
    if (o->s.rank != o->x.rank) {
        return DTP_FAIL(err, DTP_INVALID, "%d repeats of %d axes", o->s.rank, o->x.rank);
    }
    for (int32_t i = 0; i < o->x.rank; i++) {
        by[i] = o->s.sizes[i];
        if (by[i] < 1 || o->x.sizes[i] > (INT64_C(1) << 48) / by[i]) {
            return DTP_FAIL(err, DTP_INVALID, "axis %d is repeated %" PRId64 " times", i, by[i]);
        }
        o->s.sizes[i] = by[i] * o->x.sizes[i];
    }
    o->s.dtype = o->x.dtype;
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_L("repeats", o->x.rank, by));
}

/* ---- pieces ---- */

dtp_status dtp_onnx__concat(dtp_onnx_graph *o, dtp_err *err)
{
    int32_t axis;
    const int32_t n = o->n->in.n;
    DTP_TRY(dtp_onnx_axis(dtp_onnx_int(o, "axis", 0), o->s.rank, &axis, err));
    for (int32_t i = 1; i < n; i++) {
        dtp_shape one = dtp_onnx_shape(o, o->in[i]);
        const int64_t more = one.sizes[axis];
        one.sizes[axis] = o->s.sizes[axis];
        if (memcmp(&one, &o->s, sizeof one) != 0 || o->s.sizes[axis] > INT64_C(1) << 48) {
            return DTP_FAIL(err, DTP_INVALID, "operands of several sizes or types");
        }
        o->s.sizes[axis] += more;
    }
    o->out[0] = o->in[0];
    return n == 1 ? DTP_OK
                  : EMIT(o, o->op->aten, &o->s, o->out, err, ARG_VALUES("tensors", n, o->in),
                         ARG_I("dim", axis));
}

dtp_status dtp_onnx__split(dtp_onnx_graph *o, dtp_err *err)
{
    int32_t axis, n;
    const int32_t n_out = o->n->out.n;
    int64_t *sizes, left;
    dtp_shape *shapes;
    DTP_TRY(dtp_onnx_ints(o, 1, "split", &n, &sizes, err));
    DTP_TRY(dtp_onnx_axis(dtp_onnx_int(o, "axis", 0), o->x.rank, &axis, err));
    DTP_TRY(DTP_NEW(o->g->arena, shapes, n_out, err));
    left = o->x.sizes[axis];
    const int64_t each = (left + n_out - 1) / n_out;
    for (int32_t i = 0; i < n_out; i++) {
        const int64_t size = n == n_out ? sizes[i] : each < left ? each : left;
        shapes[i] = o->x;
        shapes[i].sizes[axis] = size;
        if (size < 0 || size > left) {
            break;
        }
        left -= size;
    }
    const dtp_aten_arg args[] = {ARG_T("self", o->in[0]), ARG_I("dim", axis)};
    return left != 0 ? DTP_FAIL(err, DTP_INVALID, "pieces that are not the axis together")
                     : dtp_onnx_emit(o, o->op->aten, 2, args, n_out, shapes, o->out, err);
}

static dtp_status slice(dtp_onnx_graph *o, int32_t x, int32_t axis, int64_t start, int64_t end,
                        int64_t step, int32_t *out, dtp_err *err)
{
    dtp_shape s = dtp_onnx_shape(o, x);
    const int64_t size = s.sizes[axis];
    start = start < -size ? 0 : start > size ? size : start;
    end = end < -size ? 0 : end;
    const int64_t first = start < 0 ? start + size : start;
    const int64_t last = end < 0 ? end + size : end > size ? size : end;
    if (step < 1) {
        return dtp_onnx_unsupported("a slice that goes back", err);
    }
    s.sizes[axis] = last > first ? (last - first - 1) / step + 1 : 0;
    return EMIT(o, "aten.slice.Tensor", &s, out, err, ARG_T("self", x), ARG_I("dim", axis),
                ARG_I("start", start), ARG_I("end", end), ARG_I("step", step));
}

dtp_status dtp_onnx__slice(dtp_onnx_graph *o, dtp_err *err)
{
    int32_t n[4], axis;
    int64_t *of[4];
    for (int32_t i = 0; i < 4; i++) {
        DTP_TRY(dtp_onnx_ints(o, i + 1, "", &n[i], &of[i], err));
        if (n[i] != n[0] && n[i] >= 0) {
            return DTP_FAIL(err, DTP_INVALID, "%d starts and %d of another kind", n[0], n[i]);
        }
    }
    o->out[0] = o->in[0];
    for (int32_t i = 0; i < n[0]; i++) {
        DTP_TRY(dtp_onnx_axis(n[2] < 0 ? i : of[2][i], o->x.rank, &axis, err));
        DTP_TRY(
            slice(o, o->out[0], axis, of[0][i], of[1][i], n[3] < 0 ? 1 : of[3][i], o->out, err));
    }
    return DTP_OK;
}

/* Numbers around axes; fewer elements where they are negative. */
dtp_status dtp_onnx__pad(dtp_onnx_graph *o, dtp_err *err)
{
    int32_t n;
    int64_t *pads, by[2 * DTP_MAX_RANK];
    const int32_t rank = o->x.rank;
    DTP_TRY(dtp_onnx_ints(o, 1, "", &n, &pads, err));
    const double value = o->in[2] < 0 ? 0 : dtp_onnx_number(o, o->in[2]);
    const char *mode = dtp_onnx_attr_of(o, "mode")->text;
    bool fits = n == 2 * rank && rank > 0 && o->in[3] < 0 && !isnan(value) &&
                (mode[0] == '\0' || strcmp(mode, "constant") == 0);
    for (int32_t i = 0; i < n && fits; i++) { /* the last axis first */
        fits = pads[i] > -(1 << 30) && pads[i] < 1 << 30;
        by[2 * (rank - 1 - i % rank) + i / rank] = pads[i];
        o->s.sizes[i % rank] += fits ? pads[i] : 0;
    }
    for (int32_t i = 0; i < rank && fits; i++) {
        fits = o->s.sizes[i] > 0;
    }
    if (!fits) {
        return dtp_onnx_unsupported("padding of some axes, not by a constant, or of nothing", err);
    }
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_L("pad", 2 * rank, by), ARG_R("value", value));
}

/* ---- tables ---- */

static dtp_status select_one(dtp_onnx_graph *o, int32_t x, int32_t axis, double at, int32_t *out,
                             dtp_err *err)
{
    dtp_shape s = dtp_onnx_shape(o, x);
    const double size = (double)s.sizes[axis];
    if (!(at >= -size && at < size)) {
        return DTP_FAIL(err, DTP_INVALID, "element %g of %g", at, size);
    }
    memmove(&s.sizes[axis], &s.sizes[axis + 1], (size_t)(s.rank - 1 - axis) * sizeof s.sizes[0]);
    s.sizes[--s.rank] = 0;
    return EMIT(o, "aten.select.int", &s, out, err, ARG_T("self", x), ARG_I("dim", axis),
                ARG_I("index", (int64_t)at));
}

/* x[i0, i1, ..]: o->s of the indices and the other axes of x. */
static dtp_status index_by(dtp_onnx_graph *o, int32_t n, int32_t *indices, dtp_err *err)
{
    o->s.dtype = o->x.dtype;
    if (n > o->x.rank || o->s.rank + o->x.rank - n > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID, "%d indices of %d axes", n, o->x.rank);
    }
    for (int32_t i = n; i < o->x.rank; i++) {
        o->s.sizes[o->s.rank++] = o->x.sizes[i];
    }
    return indices == NULL ? DTP_OK
                           : EMIT(o, "aten.index.Tensor", &o->s, o->out, err,
                                  ARG_T("self", o->in[0]), ARG_VALUES("indices", n, indices));
}

/* Indices 0, 1, .. of all rows in their order are a view. */
static bool counts_rows(const dtp_onnx_graph *o, const dtp_shape *s)
{
    const dtp_const *c = &o->fold.c[o->in[1]];
    bool all = dtp_const_known(c) && dtp_shape_elements(s) == o->x.sizes[0];
    for (int64_t i = 0; i < o->x.sizes[0] && all; i++) {
        int64_t at = 0, left = i;
        for (int32_t a = s->rank; a-- > 0; left /= s->sizes[a]) {
            at += left % s->sizes[a] * c->strides[a];
        }
        all = dtp_const_at(c, at) == (double)i;
    }
    return all;
}

/* Rows along an axis behind the first: x[:, .., ids]. */
static dtp_status rows_behind(dtp_onnx_graph *o, int32_t axis, const dtp_shape *at, dtp_err *err)
{
    int32_t list[DTP_MAX_RANK];
    dtp_shape out = o->x;
    if (o->x.rank - 1 + at->rank > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a tensor of %d axes", o->x.rank - 1 + at->rank);
    }
    out.rank = axis;
    for (int32_t i = 0; i < at->rank; i++) {
        out.sizes[out.rank++] = at->sizes[i];
    }
    for (int32_t i = axis + 1; i < o->x.rank; i++) {
        out.sizes[out.rank++] = o->x.sizes[i];
    }
    for (int32_t i = 0; i <= axis; i++) {
        list[i] = i < axis ? -1 : o->in[1];
    }
    return EMIT(o, "aten.index.Tensor", &out, o->out, err, ARG_T("self", o->in[0]),
                ARG_VALUES("indices", axis + 1, list));
}

dtp_status dtp_onnx__gather(dtp_onnx_graph *o, dtp_err *err)
{
    int32_t axis;
    const dtp_shape at = dtp_onnx_shape(o, o->in[1]);
    const bool constant = o->fold.c[o->in[0]].is;
    DTP_TRY(dtp_onnx_axis(dtp_onnx_int(o, "axis", 0), o->x.rank, &axis, err));
    if (dtp_onnx_is_number(o, o->in[1]) && at.rank <= 1) {
        const double i = dtp_onnx_number(o, o->in[1]);
        return at.rank == 0        ? select_one(o, o->in[0], axis, i, o->out, err)
               : !(fabs(i) < 9e15) ? dtp_onnx_unsupported("such a row", err)
                                   : slice(o, o->in[0], axis, (int64_t)i,
                                           i == -1 ? INT64_MAX : (int64_t)i + 1, 1, o->out, err);
    }
    if (axis > 0) {
        return rows_behind(o, axis, &at, err);
    }
    o->s = at;
    if (constant || (o->x.rank != 2 && !counts_rows(o, &at))) {
        return index_by(o, 1, &o->in[1], err);
    }
    DTP_TRY(index_by(o, 1, NULL, err));
    return counts_rows(o, &at) ? view(o, err)
                               : EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("weight", o->in[0]),
                                      ARG_T("indices", o->in[1]));
}

/* The last axis of the indices has one for each of the first axes. */
dtp_status dtp_onnx__gather_nd(dtp_onnx_graph *o, dtp_err *err)
{
    int32_t at[DTP_MAX_RANK];
    const dtp_shape i = dtp_onnx_shape(o, o->in[1]);
    const int64_t n = i.rank > 0 ? i.sizes[i.rank - 1] : 0;
    if (n < 1 || n > DTP_MAX_RANK || dtp_onnx_int(o, "batch_dims", 0) != 0) {
        return dtp_onnx_unsupported("indices of this kind", err);
    }
    for (int32_t k = 0; k < n; k++) {
        DTP_TRY(select_one(o, o->in[1], i.rank - 1, k, &at[k], err));
    }
    o->s = dtp_onnx_shape(o, at[0]);
    return index_by(o, (int32_t)n, at, err);
}

dtp_status dtp_onnx__gather_elements(dtp_onnx_graph *o, dtp_err *err)
{
    o->s = dtp_onnx_shape(o, o->in[1]);
    o->s.dtype = o->x.dtype;
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_I("dim", dtp_onnx_int(o, "axis", 0)), ARG_T("index", o->in[1]));
}
