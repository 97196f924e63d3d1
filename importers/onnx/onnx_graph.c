/* A program of ATen ops that is made node by node from an .onnx file. */
#include "importers/onnx/onnx_graph.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/safe_int.h"

/* ---- values ---- */

dtp_shape dtp_onnx_shape(const dtp_onnx_graph *o, int32_t value)
{
    dtp_shape s = {0};
    if (value >= 0) {
        const dtp_aten_value *v = &o->g->values[value];
        s.dtype = v->dtype;
        s.rank = v->rank;
        memcpy(s.sizes, v->sizes, sizeof s.sizes);
    }
    return s;
}

const dtp_aten_node *dtp_onnx_maker(const dtp_onnx_graph *o, int32_t value, const char *op)
{
    const int32_t node = value < 0 ? -1 : o->g->values[value].node;
    return node >= 0 && dtp_aten_is(&o->g->nodes[node], op) ? &o->g->nodes[node] : NULL;
}

dtp_status dtp_onnx_value(dtp_onnx_graph *o, const char *name, dtp_aten_role role,
                          const dtp_shape *shape, int32_t *out, dtp_err *err)
{
    dtp_aten *g = o->g;
    int64_t elements = 1;
    for (int32_t i = 0; i < shape->rank; i++) {
        const int64_t n = shape->sizes[i];
        if (n < 0 || !dtp_mul_i64(elements, n > 0 ? n : 1, &elements) ||
            elements > INT64_C(1) << 48) {
            return DTP_FAIL(err, DTP_INVALID, "a size of %" PRId64 ", or too many elements", n);
        }
    }
    DTP_TRY(DTP_ONE_MORE(g->arena, g->values, g->n_values, g->values_capacity, err));
    dtp_aten_value *v = &g->values[g->n_values];
    *v = (dtp_aten_value){.name = name,
                          .source = name,
                          .role = role,
                          .dtype = shape->dtype,
                          .rank = shape->rank,
                          .node = -1};
    memcpy(v->sizes, shape->sizes, (size_t)shape->rank * sizeof v->sizes[0]);
    *out = g->n_values++;
    if (role != ATEN_NODE) {
        DTP_TRY(DTP_ONE_MORE(g->arena, g->inputs, g->n_inputs, o->inputs_capacity, err));
        g->inputs[g->n_inputs++] = *out;
    }
    return role == ATEN_BUFFER ? DTP_OK : dtp_const_buffer(&o->fold, *out, err);
}

dtp_status dtp_onnx_constant(dtp_onnx_graph *o, const dtp_shape *shape, const void *data,
                             int32_t *out, dtp_err *err)
{
    DTP_TRY(dtp_onnx_value(o, "constant", ATEN_BUFFER, shape, out, err));
    o->g->values[*out].data = data;
    o->g->values[*out].bytes = dtp_shape_elements(shape) * dtp_aten_bytes(shape->dtype);
    return dtp_const_buffer(&o->fold, *out, err);
}

/* ---- nodes ---- */

static dtp_status copy_arg(dtp_arena *arena, const dtp_aten_arg *from, dtp_aten_arg *to,
                           dtp_err *err)
{
    const int32_t n = from->n > 0 ? from->n : 1;
    *to = *from;
    DTP_TRY(DTP_NEW(arena, to->values, n, err));
    DTP_TRY(DTP_NEW(arena, to->ints, n, err));
    for (int32_t i = 0; i < from->n; i++) {
        to->values[i] = from->values == NULL ? -1 : from->values[i];
        to->ints[i] = from->ints == NULL ? 0 : from->ints[i];
    }
    to->real = from->kind == ATEN_INT ? (double)to->ints[0] : from->real;
    return DTP_OK;
}

dtp_status dtp_onnx_emit(dtp_onnx_graph *o, const char *op, int32_t n, const dtp_aten_arg *args,
                         int32_t n_out, const dtp_shape *shapes, int32_t *out, dtp_err *err)
{
    dtp_aten *g = o->g;
    dtp_aten_node node = {.op = op, .n_args = n, .n_outs = n_out, .path = o->path};
    node.where = o->n->name;
    DTP_TRY(DTP_NEW(g->arena, node.args, n, err));
    DTP_TRY(DTP_NEW(g->arena, node.outs, n_out, err));
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(copy_arg(g->arena, &args[i], &node.args[i], err));
    }
    for (int32_t i = 0; i < n_out; i++) {
        const char *name = i < o->n->out.n ? o->n->out.of[i] : o->n->name;
        DTP_TRY(dtp_onnx_value(o, name, ATEN_NODE, &shapes[i], &node.outs[i], err));
        g->values[node.outs[i]].node = g->n_nodes;
        out[i] = node.outs[i];
    }
    DTP_TRY(DTP_ONE_MORE(g->arena, g->nodes, g->n_nodes, o->nodes_capacity, err));
    g->nodes[g->n_nodes] = node;
    return dtp_const_node(&o->fold, &g->nodes[g->n_nodes++], err);
}

/* ---- what a node says ---- */

const dtp_onnx_attr *dtp_onnx_attr_of(const dtp_onnx_graph *o, const char *name)
{
    static const dtp_onnx_attr none = {.text = ""};
    for (int32_t i = 0; i < o->n->n_attrs; i++) {
        if (strcmp(o->n->attrs[i].name, name) == 0) {
            return &o->n->attrs[i];
        }
    }
    return &none;
}

int64_t dtp_onnx_int(const dtp_onnx_graph *o, const char *name, int64_t fallback)
{
    return dtp_onnx_attr_of(o, name)->name == NULL ? fallback : dtp_onnx_attr_of(o, name)->i;
}

double dtp_onnx_real(const dtp_onnx_graph *o, const char *name, double fallback)
{
    return dtp_onnx_attr_of(o, name)->name == NULL ? fallback : dtp_onnx_attr_of(o, name)->f;
}

dtp_status dtp_onnx_ints(const dtp_onnx_graph *o, int32_t i, const char *name, int32_t *n,
                         int64_t **out, dtp_err *err)
{
    const dtp_onnx_attr *a = dtp_onnx_attr_of(o, name);
    const int32_t v = i >= 0 && i < o->n->in.n ? o->in[i] : -1;
    *n = a->name == NULL ? -1 : a->ints.n;
    *out = a->ints.of;
    if (v < 0) {
        return DTP_OK;
    }
    const dtp_const *c = &o->fold.c[v];
    const dtp_shape s = dtp_onnx_shape(o, v);
    const int64_t count = dtp_shape_elements(&s);
    if (s.rank > 1 || count > 1024 || (count > 0 && !dtp_const_known(c))) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "operand %d is no list of known integers", i);
    }
    *n = (int32_t)count;
    DTP_TRY(DTP_NEW(o->g->arena, *out, count, err));
    for (int32_t k = 0; k < *n; k++) {
        const double x = dtp_const_at(c, s.rank == 0 ? 0 : k * c->strides[0]);
        (*out)[k] = x >= 9.2e18 ? INT64_MAX : x > -9.2e18 ? (int64_t)x : -INT64_MAX;
    }
    return DTP_OK;
}

dtp_status dtp_onnx_axis(int64_t axis, int32_t rank, int32_t *out, dtp_err *err)
{
    *out = axis < -rank || axis >= rank ? -1 : dtp_aten_axis(axis, rank);
    return *out >= 0 ? DTP_OK : DTP_FAIL(err, DTP_INVALID, "axis %" PRId64 " of %d", axis, rank);
}

dtp_status dtp_onnx_axes(const dtp_onnx_graph *o, int32_t rank, uint32_t *set, dtp_err *err)
{
    int32_t n, axis;
    int64_t *axes;
    DTP_TRY(dtp_onnx_ints(o, 1, "axes", &n, &axes, err));
    *set = 0;
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(dtp_onnx_axis(axes[i], rank, &axis, err));
        *set |= UINT32_C(1) << axis;
    }
    return DTP_OK;
}

bool dtp_onnx_is_number(const dtp_onnx_graph *o, int32_t v)
{
    const dtp_shape s = dtp_onnx_shape(o, v);
    return !isnan(dtp_onnx_number(o, v)) && dtp_shape_elements(&s) == 1;
}

dtp_status dtp_onnx_broadcast(dtp_shape *s, const dtp_shape *b, dtp_err *err)
{
    const dtp_shape a = *s;
    s->rank = a.rank > b->rank ? a.rank : b->rank;
    for (int32_t i = 1; i <= s->rank; i++) {
        const int64_t m = i <= a.rank ? a.sizes[a.rank - i] : 1;
        const int64_t n = i <= b->rank ? b->sizes[b->rank - i] : 1;
        if (m != n && m != 1 && n != 1) {
            return DTP_FAIL(err, DTP_INVALID, "sizes %" PRId64 " and %" PRId64 " meet", m, n);
        }
        s->sizes[s->rank - i] = m == 1 ? n : m;
    }
    return DTP_OK;
}

dtp_status dtp_onnx_sizes(dtp_onnx_graph *o, int32_t i, dtp_err *err)
{
    int64_t *sizes;
    DTP_TRY(dtp_onnx_ints(o, i, "", &o->s.rank, &sizes, err));
    if (o->s.rank > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a tensor of %d axes", o->s.rank);
    }
    for (int32_t k = 0; k < o->s.rank; k++) {
        o->s.sizes[k] = sizes[k];
    }
    return DTP_OK;
}
