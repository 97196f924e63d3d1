/* Names, attributes and nodes as texts of the model. */
#include "importers/program/lowering/lower.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/json_writer.h"
#include "importers/aten/sym_expr.h"
#include "importers/program/lowering/blocks.h"

dtp_status dtp_type_attr(dtp_importer *m, int32_t dtype, const char **out, dtp_err *err)
{
    const char *name = dtp_aten_type(dtype);
    if (name == NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "element type %d", dtype);
    }
    *out = dtp_arena_printf(m->arena, "\"dtype\": \"%s\"", name);
    return DTP_MEMORY(err, *out);
}

const char *dtp_joined(dtp_importer *m, const char *text, const char *by, const char *more)
{
    if (text == NULL || more == NULL || more[0] == '\0') {
        return more == NULL ? NULL : text;
    }
    return text[0] == '\0' ? more : dtp_arena_printf(m->arena, "%s%s%s", text, by, more);
}

const char *dtp_real_attr(dtp_importer *m, const char *key, double x)
{
    char text[32];
    const double most = (double)FLT_MAX;
    x = x > most ? most : x < -most ? -most : x;
    dtp_double_print(x, text);
    return dtp_arena_printf(m->arena, "\"%s\": %s", key, text);
}

/* ---- parts of axes ---- */

static int32_t parts_of(const dtp_importer *m, int32_t value, int32_t axis, int32_t *cls)
{
    return dtp_axis_leaves(&m->axes, 1, &m->axes.of[value][axis], cls, DTP_FLAT_PARTS);
}

int32_t dtp_axis_parts(const dtp_importer *m, int32_t value, int32_t axis)
{
    int32_t cls[DTP_FLAT_PARTS];
    return parts_of(m, value, axis, cls);
}

const char *dtp_axis_size(dtp_importer *m, int32_t value, int32_t axis)
{
    int32_t cls[DTP_FLAT_PARTS];
    const int32_t n = parts_of(m, value, axis, cls);
    const char *text = n > 0 ? "" : "1";
    for (int32_t i = 0; i < n; i++) {
        text = dtp_joined(m, text, "*", dtp_class_name(&m->axes, cls[i], 0));
    }
    return text;
}

const char *dtp_low_dims(dtp_importer *m, const dtp_low *low)
{
    const char *text = "";
    for (int32_t i = 0; i < low->n_dims; i++) {
        const int32_t part = low->order[i];
        text = dtp_joined(m, text, ",", dtp_class_name(&m->axes, low->cls[part], low->alias[part]));
    }
    return text;
}

const char *dtp_group_names(dtp_lowering *l, int32_t first, int32_t n, const char *by)
{
    const dtp_groups *g = &l->groups;
    const char *text = "";
    for (int32_t i = first; i < first + n; i++) {
        const int32_t alias = g->alias[i] < 0 ? 0 : g->alias[i];
        text = dtp_joined(l->m, text, by, dtp_class_name(&l->m->axes, g->cls[i], alias));
    }
    return text;
}

const char *dtp_group_name(dtp_lowering *l, int32_t group)
{
    return dtp_group_names(l, group, 1, "");
}

/* ---- nodes ---- */

/* "layers.0.mask" would be called "mask" in a block of the layers, which an input is. */
bool dtp_hides_input(const dtp_importer *m, const char *id)
{
    const char *tail = dtp_block_tail(id);
    return tail != NULL && dtp_name_find(&m->g->sources, tail) >= 0;
}

enum { MOST_HEAD = 40, MOST_TAIL = 60 };

/* A name of up to 128 characters: of a longer one the parts up to the first number, so that blocks
 * are found, and the end. */
char *dtp_shorter(const dtp_importer *m, const char *name)
{
    const size_t n = strlen(name);
    const char *tail = dtp_block_tail(name);
    size_t head = tail == NULL ? 0 : (size_t)(tail - name);
    head = head > MOST_HEAD ? 0 : head;
    if (n - head <= MOST_TAIL) {
        return dtp_arena_strdup(m->arena, name);
    }
    const char *end = name + n - MOST_TAIL;
    const size_t skip = strcspn(end, ".") + 1;
    end += skip < MOST_TAIL ? skip : 0;
    return dtp_arena_printf(m->arena, "%.*s%s", (int)head, name, end);
}

/* A name that no other node or input has: the base, or that with a number. */
static dtp_status unique(dtp_importer *m, const char *base, const char **out, dtp_err *err)
{
    char *id = dtp_shorter(m, base);
    DTP_TRY(DTP_MEMORY(err, id));
    for (char *c = id; *c != '\0'; c++) {
        const bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        *c = letter || strchr("0123456789_.-/", *c) != NULL ? *c : '_';
    }
    while (dtp_name_find(&m->g->sources, id) >= 0 || dtp_hides_input(m, id)) {
        id = dtp_arena_printf(m->arena, "%s_1", id);
        DTP_TRY(DTP_MEMORY(err, id));
    }
    const char *name = id;
    const int32_t first = dtp_name_find(&m->ids, id);
    while (dtp_name_find(&m->ids, name) >= 0 || dtp_name_find(&m->g->sources, name) >= 0) {
        name = dtp_arena_printf(m->arena, "%s_%d", id, m->nodes[first].next++);
        DTP_TRY(DTP_MEMORY(err, name));
    }
    *out = name;
    return dtp_name_add(&m->ids, m->arena, name, m->n, err);
}

dtp_status dtp_emit(dtp_lowering *l, const dtp_out_node *o, const char **id, dtp_err *err)
{
    dtp_importer *m = l->m;
    const char *path = l->node->path, *base = o->id, **in;
    DTP_TRY(DTP_MEMORY(err, o->attrs));
    DTP_TRY(
        dtp_arena_grow(m->arena, &m->nodes, m->n, m->n + 1, &m->capacity, sizeof *m->nodes, err));
    if (path[0] != '\0') {
        base = base[0] == '\0' ? path : dtp_arena_printf(m->arena, "%s.%s", path, base);
        DTP_TRY(DTP_MEMORY(err, base));
    }
    DTP_TRY(DTP_NEW(m->arena, in, o->n_in + 1, err));
    for (int32_t i = 0; i < o->n_in; i++) {
        in[i] = o->in[i];
        const int32_t v = dtp_name_find(&m->g->sources, in[i]);
        if (v >= 0 && m->read_by[v] < 0) {
            m->read_by[v] = m->n;
        }
    }
    dtp_out_node *to = &m->nodes[m->n];
    *to = *o;
    to->in = in;
    to->path = path;
    to->next = 2;
    to->from = l->node;
    to->below = -1;
    DTP_TRY(unique(m, base, &to->id, err));
    m->n++;
    *id = to->id;
    return DTP_OK;
}

dtp_status dtp_emit_one(dtp_lowering *l, const char *what, const char *op, const char **id,
                        const char *out, const char *attrs, dtp_err *err)
{
    const dtp_out_node o = {what, op, 1, id, out, attrs, NULL, 0, NULL, -1};
    return dtp_emit(l, &o, id, err);
}

dtp_status dtp_emit_number(dtp_lowering *l, double x, int32_t dtype, const char *dims,
                           const char **id, dtp_err *err)
{
    const char *type, *value = dtp_real_attr(l->m, "value", x);
    DTP_TRY(dtp_type_attr(l->m, dtype, &type, err));
    const dtp_out_node o = {"number", "constant", .out = dims,
                            .attrs = dtp_joined(l->m, value, ", ", type)};
    return dtp_emit(l, &o, id, err);
}

/* A symbol is a size of an input. */
static bool symbol_of(void *user, const char *name, double *value, const char **text)
{
    dtp_importer *m = user;
    for (int32_t i = 0; i < m->g->n_inputs; i++) {
        const dtp_aten_value *v = &m->g->values[m->g->inputs[i]];
        for (int32_t a = 0; a < v->rank && v->role == ATEN_INPUT; a++) {
            if (v->symbols[a] != NULL && strcmp(v->symbols[a], name) == 0) {
                *value = (double)v->sizes[a];
                *text = dtp_arena_printf(m->arena, "(%s)", dtp_axis_size(m, m->g->inputs[i], a));
                return true;
            }
        }
    }
    return false;
}

dtp_status dtp_number_attr(dtp_lowering *l, const char *key, const dtp_aten_arg *arg, bool inverse,
                           const char **out, dtp_err *err)
{
    double x = arg->real;
    const char *text = NULL;
    if (arg->sympy == NULL) {
        x = inverse ? 1 / x : x;
        *out = dtp_real_attr(l->m, key, x);
        return isfinite(x) ? DTP_OK : DTP_FAIL(err, DTP_UNSUPPORTED, "a number that is not finite");
    }
    if (!dtp_sym_expr(arg->sympy, l->m->arena, symbol_of, l->m, &x, &text)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "argument '%.60s' is '%.200s', which is not known",
                        arg->name, arg->sympy);
    }
    DTP_TRY(DTP_MEMORY(err, text));
    *out = dtp_arena_printf(l->m->arena, "\"%s\": \"%s%s\"", key, inverse ? "1/" : "", text);
    return DTP_MEMORY(err, *out);
}

dtp_status dtp_emit_argument(dtp_lowering *l, const dtp_aten_arg *arg, int32_t dtype,
                             const char **id, dtp_err *err)
{
    const char *type, *value;
    if (arg->sympy == NULL) {
        return dtp_emit_number(l, arg->real, dtype, "", id, err);
    }
    DTP_TRY(dtp_number_attr(l, "value", arg, false, &value, err));
    DTP_TRY(dtp_type_attr(l->m, dtype, &type, err));
    const dtp_out_node o = {"number", "constant", .out = "",
                            .attrs = dtp_joined(l->m, value, ", ", type)};
    return dtp_emit(l, &o, id, err);
}
