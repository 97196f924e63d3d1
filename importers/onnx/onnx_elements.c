/* Elementwise ops, constants, rows. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "importers/onnx/onnx_ops.h"

/* ---- elementwise ---- */

/* The first row of a table of cosines is 1, of one of sines 0; a mask has numbers that hide. */
static bool is_table(dtp_onnx_graph *o, int32_t v)
{
    const dtp_shape s = dtp_onnx_shape(o, v);
    const int64_t n = dtp_shape_elements(&s), row = s.rank < 2 ? n : s.sizes[s.rank - 1];
    bool hides = false, ones = row > 1, zeros = row > 1;
    o->fold.looked_at += row < n ? n : 0;
    const bool look = row < n && s.dtype == ATEN_F32 && o->fold.looked_at < INT64_C(1) << 33;
    for (int64_t i = 0; i < n && look; i++) {
        float x;
        memcpy(&x, o->g->values[v].data + 4 * i, sizeof x);
        hides = hides || (double)x <= -1e9;
        ones = ones && (i >= row || x == 1.0F);
        zeros = zeros && (i >= row || x == 0.0F);
    }
    return look && (hides || (strcmp(o->n->op, "Mul") == 0 && (ones || zeros)));
}

/* Exporters write tables of positions and masks as they write weights. What meets constants alone
 * is no weight, nor is a table without a module. */
static dtp_status find_tables(dtp_onnx_graph *o, int32_t n, dtp_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = o->in[i];
        bool constant = n > 1;
        for (int32_t k = 0; k < n; k++) {
            constant = constant &&
                       (k == i || (o->fold.c[o->in[k]].is && !dtp_onnx_is_number(o, o->in[k])));
        }
        if (o->g->values[v].role == ATEN_PARAM &&
            (constant || (strchr(o->g->values[v].name, '.') == NULL && is_table(o, v)))) {
            o->g->values[v].role = ATEN_BUFFER;
            DTP_TRY(dtp_const_buffer(&o->fold, v, err));
        }
    }
    return DTP_OK;
}

dtp_status dtp_onnx__elements(dtp_onnx_graph *o, dtp_err *err)
{
    const int32_t n = o->op->least;
    const bool turns = strcmp(o->op->name, "Add") == 0 || strcmp(o->op->name, "Mul") == 0;
    dtp_aten_arg args[3];
    DTP_TRY(find_tables(o, n, err));
    if (turns && dtp_onnx_is_number(o, o->in[0])) {
        const int32_t first = o->in[0];
        o->in[0] = o->in[1];
        o->in[1] = first;
    }
    o->s = dtp_onnx_shape(o, o->in[n == 3 ? 1 : 0]);
    for (int32_t i = 0; i < n; i++) {
        const dtp_shape one = dtp_onnx_shape(o, o->in[i]);
        args[i] = (dtp_aten_arg){.name = o->op->operands[i], .kind = ATEN_VALUE, .n = 1};
        args[i].values = &o->in[i];
        const bool scalar = n == 2 ? one.rank <= o->s.rank : dtp_aten_real_type(one.dtype);
        if (i >= 1 && scalar && dtp_onnx_is_number(o, o->in[i])) {
            args[i].kind = ATEN_FLOAT;
            args[i].real = dtp_onnx_number(o, o->in[i]);
        } else if (one.dtype != o->s.dtype && (n == 2 || i == 2)) {
            return DTP_FAIL(err, DTP_INVALID, "operands of several element types");
        }
        DTP_TRY(dtp_onnx_broadcast(&o->s, &one, err));
    }
    return dtp_onnx_emit(o, o->op->aten, n, args, 1, &o->s, o->out, err);
}

dtp_status dtp_onnx__truth(dtp_onnx_graph *o, dtp_err *err)
{
    DTP_TRY(dtp_onnx__elements(o, err));
    o->g->values[o->out[0]].dtype = ATEN_BOOL;
    return dtp_const_node(&o->fold, &o->g->nodes[o->g->n_nodes - 1], err);
}

/* 1 / sqrt(x) */
dtp_status dtp_onnx__inverse(dtp_onnx_graph *o, dtp_err *err)
{
    const int32_t last = o->op->least - 1;
    const dtp_aten_node *root = dtp_onnx_maker(o, o->in[last], "sqrt");
    if (root == NULL ||
        (last == 1 && !(dtp_onnx_is_number(o, o->in[0]) && dtp_onnx_number(o, o->in[0]) == 1))) {
        return dtp_onnx__elements(o, err);
    }
    o->s = dtp_onnx_shape(o, o->in[last]);
    return EMIT(o, "aten.rsqrt.default", &o->s, o->out, err,
                ARG_T("self", dtp_aten_input(root, 0)));
}

/* A choice that is the same everywhere is none. */
dtp_status dtp_onnx__where(dtp_onnx_graph *o, dtp_err *err)
{
    const double c = dtp_onnx_number(o, o->in[0]);
    const int32_t kept = o->in[c != 0 ? 1 : 2];
    const dtp_shape is = dtp_onnx_shape(o, kept);
    dtp_shape all = is;
    for (int32_t i = 0; i < 3; i++) {
        const dtp_shape one = dtp_onnx_shape(o, o->in[i]);
        DTP_TRY(dtp_onnx_broadcast(&all, &one, err));
    }
    if (!isnan(c) && memcmp(&is, &all, sizeof all) == 0) {
        o->out[0] = kept;
        return DTP_OK;
    }
    return dtp_onnx__elements(o, err);
}

dtp_status dtp_onnx__gelu(dtp_onnx_graph *o, dtp_err *err)
{
    const char *how = dtp_onnx_attr_of(o, "approximate")->text;
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_TEXT("approximate", how[0] == '\0' ? "none" : how));
}

/* Softmax, LogSoftmax */
dtp_status dtp_onnx__softmax(dtp_onnx_graph *o, dtp_err *err)
{
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_I("dim", dtp_onnx_int(o, "axis", -1)));
}

dtp_status dtp_onnx__is_nan(dtp_onnx_graph *o, dtp_err *err)
{
    o->s.dtype = ATEN_BOOL;
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]));
}

dtp_status dtp_onnx__identity(dtp_onnx_graph *o, dtp_err *err)
{
    (void)err;
    o->out[0] = o->in[0];
    return DTP_OK;
}

/* A file that was exported in training may have dropout that is switched on. */
dtp_status dtp_onnx__dropout(dtp_onnx_graph *o, dtp_err *err)
{
    const double rate = o->in[1] < 0 ? 0.5 : dtp_onnx_number(o, o->in[1]);
    const double on = o->in[1] < 0 || o->in[2] < 0 ? 0 : dtp_onnx_number(o, o->in[2]);
    if (isnan(rate + on) || (o->n->out.n > 1 && o->n->out.of[1][0] != '\0')) {
        return dtp_onnx_unsupported("dropout of this kind", err);
    }
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("input", o->in[0]), ARG_R("p", rate),
                ARG_B("train", on != 0));
}

dtp_status dtp_onnx__cast(dtp_onnx_graph *o, dtp_err *err)
{
    o->s.dtype = dtp_onnx_dtype(dtp_onnx_int(o, "to", 0));
    o->out[0] = o->in[0];
    return o->s.dtype == 0 ? dtp_onnx_unsupported("an element type that is none of ours", err)
           : o->s.dtype == o->x.dtype
               ? DTP_OK
               : EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]));
}

/* ---- constants ---- */

dtp_status dtp_onnx__shape(dtp_onnx_graph *o, dtp_err *err)
{
    int64_t begin = dtp_onnx_int(o, "start", 0), end = dtp_onnx_int(o, "end", o->x.rank), *sizes;
    begin = begin < -o->x.rank ? 0 : begin < 0 ? begin + o->x.rank : begin;
    end = end > o->x.rank ? o->x.rank : end < 0 ? end + o->x.rank : end;
    o->s = (dtp_shape){ATEN_I64, 1, {end > begin ? end - begin : 0}};
    DTP_TRY(DTP_NEW(o->g->arena, sizes, DTP_MAX_RANK, err));
    for (int64_t i = begin; i < end; i++) {
        sizes[i - begin] = o->x.sizes[i];
    }
    return dtp_onnx_constant(o, &o->s, sizes, o->out, err);
}

dtp_status dtp_onnx__constant(dtp_onnx_graph *o, dtp_err *err)
{
    const dtp_onnx_attr *a = o->n->attrs;
    if (o->n->n_attrs == 1 && a->tensor != NULL) {
        return dtp_onnx_constant(o, &a->tensor->shape, a->tensor->data.data, o->out, err);
    }
    if (o->n->n_attrs == 1 && strcmp(a->name, "value_int") == 0) {
        o->s = (dtp_shape){ATEN_I64, 0, {0}};
        return dtp_onnx_constant(o, &o->s, &a->i, o->out, err);
    }
    if (o->n->n_attrs == 1 && strcmp(a->name, "value_ints") == 0) {
        o->s = (dtp_shape){ATEN_I64, 1, {a->ints.n}};
        return dtp_onnx_constant(o, &o->s, a->ints.of, o->out, err);
    }
    if (o->n->n_attrs == 1 && strcmp(a->name, "value_float") == 0) {
        o->s = (dtp_shape){ATEN_F64, 0, {0}};
        DTP_TRY(dtp_onnx_constant(o, &o->s, &a->f, o->out, err));
        o->s.dtype = ATEN_F32;
        return EMIT(o, "aten.to.dtype", &o->s, o->out, err, ARG_T("self", o->out[0]));
    }
    return dtp_onnx_unsupported("a constant of this kind", err);
}

dtp_status dtp_onnx__filled(dtp_onnx_graph *o, dtp_err *err)
{
    const dtp_onnx_tensor *t = dtp_onnx_attr_of(o, "value")->tensor;
    int32_t value = -1;
    DTP_TRY(t == NULL ? DTP_OK : dtp_onnx_constant(o, &t->shape, t->data.data, &value, err));
    DTP_TRY(dtp_onnx_sizes(o, 0, err));
    o->s.dtype = t == NULL ? ATEN_F32 : t->shape.dtype;
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_L("size", o->s.rank, o->s.sizes),
                ARG_R("fill_value", value < 0 ? 0 : dtp_onnx_number(o, value)));
}

dtp_status dtp_onnx__range(dtp_onnx_graph *o, dtp_err *err)
{
    const double start = dtp_onnx_number(o, o->in[0]), by = dtp_onnx_number(o, o->in[2]);
    const double n = ceil((dtp_onnx_number(o, o->in[1]) - start) / by);
    if (!(fabs(n) < 1e9)) {
        return dtp_onnx_unsupported("a range whose ends are not known", err);
    }
    o->s = (dtp_shape){o->x.dtype, 1, {n > 0 ? (int64_t)n : 0}};
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_R("start", start), ARG_R("step", by));
}

/* tril, triu, cumsum: of constants alone. */
dtp_status dtp_onnx__along(dtp_onnx_graph *o, dtp_err *err)
{
    int32_t n;
    int64_t *at, zero = 0;
    const bool sums = o->op->least == 2;
    DTP_TRY(dtp_onnx_ints(o, 1, "", &n, &at, err));
    if (n > 1 || dtp_onnx_int(o, "exclusive", 0) != 0 || dtp_onnx_int(o, "reverse", 0) != 0) {
        return dtp_onnx_unsupported("a sum of this kind", err);
    }
    const char *op = sums || dtp_onnx_int(o, "upper", 1) != 0 ? o->op->aten : "aten.tril.default";
    return EMIT(o, op, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_I(sums ? "dim" : "diagonal", n == 1 ? at[0] : zero));
}

/* ---- rows ---- */

dtp_status dtp_onnx__reduce(dtp_onnx_graph *o, dtp_err *err)
{
    int32_t n;
    int64_t *axes;
    uint32_t set;
    const bool keep = dtp_onnx_int(o, "keepdims", 1) != 0;
    DTP_TRY(dtp_onnx_ints(o, 1, "axes", &n, &axes, err));
    DTP_TRY(dtp_onnx_axes(o, o->x.rank, &set, err));
    if (n <= 0 && dtp_onnx_int(o, "noop_with_empty_axes", 0) != 0) {
        return dtp_onnx__identity(o, err);
    }
    o->s.rank = 0;
    for (int32_t i = 0; i < o->x.rank; i++) {
        const bool gone = n <= 0 || (set >> i & 1) != 0;
        if (keep || !gone) {
            o->s.sizes[o->s.rank++] = gone ? 1 : o->x.sizes[i];
        }
    }
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_L("dim", n < 0 ? 0 : n, axes), ARG_B("keepdim", keep));
}

dtp_status dtp_onnx__norm(dtp_onnx_graph *o, dtp_err *err)
{
    int32_t axis;
    DTP_TRY(dtp_onnx_axis(dtp_onnx_int(o, "axis", -1), o->s.rank, &axis, err));
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("input", o->in[0]),
                ARG_L("normalized_shape", o->s.rank - axis, &o->s.sizes[axis]),
                ARG_T("weight", o->in[1]), ARG_T("bias", o->in[2]),
                ARG_R("eps", dtp_onnx_real(o, "epsilon", 1e-5)));
}

dtp_status dtp_onnx__loss(dtp_onnx_graph *o, dtp_err *err)
{
    const char *how = dtp_onnx_attr_of(o, "reduction")->text;
    const int64_t kind = strcmp(how, "none") == 0 ? 0 : strcmp(how, "sum") == 0 ? 2 : 1;
    o->s = dtp_onnx_shape(o, o->in[1]);
    o->s.dtype = o->x.dtype;
    o->s.rank = kind == 0 ? o->s.rank : 0;
    return EMIT(o, o->op->aten, &o->s, o->out, err, ARG_T("self", o->in[0]),
                ARG_T("target", o->in[1]), ARG_T("weight", o->in[2]), ARG_I("reduction", kind),
                ARG_I("ignore_index", dtp_onnx_int(o, "ignore_index", -100)));
}
