#include "interop/import/program/lower.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/json_writer.h"

const char *dtp_type_name(int32_t dtype)
{
    static const char *const names[16] = {
        [ATEN_I32] = "i32", [ATEN_I64] = "i64",   [ATEN_F16] = "f16",  [ATEN_F32] = "f32",
        [ATEN_F64] = "f64", [ATEN_BOOL] = "bool", [ATEN_BF16] = "bf16"};
    return dtype >= 0 && dtype < 16 ? names[dtype] : NULL;
}

/* ---- parts of axes ---- */

static int32_t flat(const dtp_importer *m, int32_t value, int32_t *cls)
{
    return dtp_axis_leaves(&m->axes, m->g->values[value].rank, m->axes.of[value], cls,
                           DTP_FLAT_PARTS);
}

int32_t dtp_axis_parts(const dtp_importer *m, int32_t value, int32_t axis)
{
    int32_t cls[DTP_FLAT_PARTS];
    return dtp_axis_leaves(&m->axes, 1, &m->axes.of[value][axis], cls, DTP_FLAT_PARTS);
}

const char *dtp_axis_size(dtp_importer *m, int32_t value, int32_t axis)
{
    int32_t cls[DTP_FLAT_PARTS];
    const int32_t n = dtp_axis_leaves(&m->axes, 1, &m->axes.of[value][axis], cls, DTP_FLAT_PARTS);
    const char *text = n > 0 ? dtp_class_name(m, cls[0], 0) : "1";
    for (int32_t i = 1; i < n && text != NULL; i++) {
        text = dtp_arena_printf(m->arena, "%s*%s", text, dtp_class_name(m, cls[i], 0));
    }
    return text;
}

const char *dtp_low_dims(dtp_importer *m, const dtp_low *low)
{
    const char *text = "";
    for (int32_t i = 0; i < low->n_dims && text != NULL; i++) {
        const int32_t part = low->order[i];
        text = dtp_arena_printf(m->arena, "%s%s%s", text, i > 0 ? "," : "",
                                dtp_class_name(m, low->cls[part], low->alias[part]));
    }
    return text;
}

const char *dtp_group_names(dtp_importer *m, const dtp_groups *groups, int32_t first, int32_t n,
                            const char *by)
{
    const char *text = "";
    for (int32_t i = first; i < first + n && text != NULL; i++) {
        text = dtp_arena_printf(
            m->arena, "%s%s%s", text, i > first ? by : "",
            dtp_class_name(m, groups->cls[i], groups->alias[i] < 0 ? 0 : groups->alias[i]));
    }
    return text;
}

/* ---- groups ---- */

dtp_status dtp_groups_add(dtp_importer *m, dtp_groups *groups, int32_t value, int32_t axis,
                          int32_t *first, dtp_err *err)
{
    int32_t cls[DTP_FLAT_PARTS];
    const int32_t n = dtp_axis_leaves(&m->axes, 1, &m->axes.of[value][axis], cls, DTP_FLAT_PARTS);
    if (n < 0 || groups->n + n > DTP_MOST_GROUPS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "an op over more than %d dims", DTP_MOST_GROUPS);
    }
    *first = n == 0 ? -1 : groups->n;
    for (int32_t i = 0; i < n; i++) {
        groups->cls[groups->n] = cls[i];
        groups->alias[groups->n++] = -1;
    }
    return DTP_OK;
}

dtp_status dtp_use_make(dtp_importer *m, int32_t value, const int32_t *firsts, dtp_use *out,
                        dtp_err *err)
{
    *out = (dtp_use){.value = value};
    for (int32_t i = 0; i < m->g->values[value].rank; i++) {
        const int32_t n = dtp_axis_parts(m, value, i);
        if (n < 0 || out->n + n > DTP_FLAT_PARTS || (n > 0 && firsts[i] < 0)) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "an operand of more than %d dims",
                            DTP_FLAT_PARTS);
        }
        for (int32_t k = 0; k < n; k++) {
            out->group[out->n++] = (int8_t)(firsts[i] + k);
        }
    }
    return DTP_OK;
}

static bool taken(const dtp_groups *groups, int32_t group, int8_t alias)
{
    for (int32_t i = 0; i < groups->n; i++) {
        if (i != group && groups->cls[i] == groups->cls[group] && groups->alias[i] == alias) {
            return true;
        }
    }
    return false;
}

void dtp_name_group(dtp_groups *groups, int32_t group, int8_t wanted)
{
    if (groups->alias[group] < 0) {
        groups->alias[group] = wanted;
        for (int8_t a = 0; taken(groups, group, groups->alias[group]); a++) {
            groups->alias[group] = a;
        }
    }
}

static dtp_status relabel(dtp_importer *m, const dtp_aten_node *node, dtp_use *use,
                          const dtp_low *low, const dtp_groups *groups, dtp_err *err)
{
    dtp_low to = *low;
    for (int32_t i = 0; i < low->n_dims; i++) {
        to.alias[low->order[i]] = groups->alias[use->group[low->order[i]]];
    }
    return dtp_emit(m, node, "relabel", "relabel", 1, &low->id, dtp_low_dims(m, &to), "", &use->id,
                    err);
}

dtp_status dtp_settle(dtp_importer *m, const dtp_aten_node *node, int32_t n, dtp_use *uses,
                      dtp_groups *groups, dtp_err *err)
{
    const dtp_low *low;
    for (int32_t i = 0; i < n; i++) {
        DTP_TRY(dtp_low_get(m, node, uses[i].value, &low, err));
        for (int32_t k = 0; k < low->n_dims; k++) {
            dtp_name_group(groups, uses[i].group[low->order[k]], low->alias[low->order[k]]);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        bool other = false;
        DTP_TRY(dtp_low_get(m, node, uses[i].value, &low, err));
        for (int32_t k = 0; k < low->n_dims; k++) {
            const int32_t part = low->order[k];
            other = other || low->alias[part] != groups->alias[uses[i].group[part]];
        }
        uses[i].id = low->id;
        DTP_TRY(other ? relabel(m, node, &uses[i], low, groups, err) : DTP_OK);
    }
    return DTP_OK;
}

dtp_status dtp_whole_use(dtp_importer *m, const dtp_aten_node *node, dtp_use *use,
                         dtp_groups *groups, dtp_err *err)
{
    const dtp_low *low;
    DTP_TRY(dtp_low_get(m, node, use->value, &low, err));
    bool whole = low->n_dims == use->n;
    for (int32_t i = 0; i < low->n_dims; i++) {
        whole = whole && low->order[i] == i;
    }
    use->whole = true;
    if (whole) {
        return DTP_OK;
    }
    const char *dims = "";
    for (int32_t i = 0; i < use->n; i++) {
        dtp_name_group(groups, use->group[i], 0);
        dims = dtp_arena_printf(m->arena, "%s%s%s", dims, i > 0 ? "," : "",
                                dtp_group_names(m, groups, use->group[i], 1, ""));
        DTP_TRY(DTP_MEMORY(err, dims));
    }
    const char *in = use->id, *op = low->n_dims == use->n ? "permute" : "broadcast";
    return dtp_emit(m, node, op, op, 1, &in, dims, "", &use->id, err);
}

/* ---- nodes ---- */

static bool is_id(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-' || c == '/';
}

int32_t dtp_out_find(const dtp_importer *m, const char *id)
{
    const uint32_t hash = dtp_hash_fold(dtp_hash_text(DTP_HASH_SEED, id));
    uint32_t at = hash;
    int32_t i;
    do {
        i = dtp_hash_table_next(&m->ids, hash, &at);
    } while (i >= 0 && strcmp(m->nodes[i].id, id) != 0);
    return i;
}

/* A name that no other node has. */
static dtp_status unique(dtp_importer *m, const char *base, const char **out, dtp_err *err)
{
    char *id = dtp_arena_strdup(m->arena, base);
    DTP_TRY(DTP_MEMORY(err, id));
    for (char *c = id; *c != '\0'; c++) {
        *c = is_id(*c) ? *c : '_';
    }
    base = id;
    for (int32_t k = 2;; k++) {
        if (dtp_out_find(m, id) < 0) {
            *out = id;
            return dtp_hash_table_add(&m->ids, m->arena,
                                      dtp_hash_fold(dtp_hash_text(DTP_HASH_SEED, id)), m->n, err);
        }
        id = dtp_arena_printf(m->arena, "%s_%d", base, k);
        DTP_TRY(DTP_MEMORY(err, id));
    }
}

dtp_status dtp_emit(dtp_importer *m, const dtp_aten_node *node, const char *what, const char *op,
                    int32_t n_in, const char *const *in, const char *out, const char *attrs,
                    const char **id, dtp_err *err)
{
    DTP_TRY(DTP_MEMORY(err, attrs));
    DTP_TRY(
        dtp_arena_grow(m->arena, &m->nodes, m->n, m->n + 1, &m->capacity, sizeof *m->nodes, err));
    const bool root = node->path[0] == '\0';
    const char *base = root              ? dtp_arena_strdup(m->arena, what)
                       : what[0] == '\0' ? node->path
                                         : dtp_arena_printf(m->arena, "%s.%s", node->path, what);
    DTP_TRY(DTP_MEMORY(err, base));
    dtp_out_node *o = &m->nodes[m->n];
    *o = (dtp_out_node){.op = op, .path = node->path, .n_in = n_in, .out = out, .attrs = attrs};
    DTP_TRY(unique(m, base, &o->id, err));
    DTP_TRY(DTP_NEW(m->arena, o->in, n_in + 1, err));
    for (int32_t i = 0; i < n_in; i++) {
        o->in[i] = in[i];
    }
    m->n++;
    *id = o->id;
    return DTP_OK;
}

/* "gelu" of "aten.gelu.default"; layers with weights are named by their module alone. */
static const char *what_of(dtp_importer *m, const dtp_aten_node *node)
{
    static const char *const layers[] = {"linear", "layer_norm", "rms_norm",
                                         "addmm",  "embedding",  NULL};
    const char *op = strchr(node->op, '.') + 1;
    const size_t n = strcspn(op, ".");
    if (m->what != NULL) {
        return m->what;
    }
    for (int32_t i = 0; layers[i] != NULL && node->path[0] != '\0'; i++) {
        if (strlen(layers[i]) == n && memcmp(op, layers[i], n) == 0) {
            return "";
        }
    }
    return dtp_arena_printf(m->arena, "%.*s", (int)n, op);
}

/* Ops whose result has the dims in the order that "out" says; others keep that of operand 0. */
static bool order_is_free(const char *op)
{
    static const char *const free_ops[] = {
        "einsum",    "add",         "sub",        "mul",     "div",    "max",
        "min",       "compare",     "select",     "relabel", "concat", "stack",
        "broadcast", "logical_and", "logical_or", "permute", NULL};
    for (int32_t i = 0; free_ops[i] != NULL; i++) {
        if (strcmp(free_ops[i], op) == 0) {
            return true;
        }
    }
    return false;
}

/* Parts of a result in the order of the tensor's dims: those of the operand first. */
static dtp_status order_parts(dtp_importer *m, const dtp_aten_node *node, const dtp_use *like,
                              const int8_t *groups, dtp_low *low, dtp_err *err)
{
    bool done[DTP_FLAT_PARTS] = {false};
    if (like != NULL) {
        const dtp_low *in;
        DTP_TRY(dtp_low_get(m, node, like->value, &in, err));
        for (int32_t i = 0; i < (like->whole ? like->n : in->n_dims); i++) {
            const int32_t group = like->group[like->whole ? i : in->order[i]];
            for (int32_t k = 0; k < low->n; k++) {
                if (groups[k] == group && low->alias[k] >= 0 && !done[k]) {
                    low->order[low->n_dims++] = (int8_t)k;
                    done[k] = true;
                }
            }
        }
    }
    for (int32_t k = 0; k < low->n; k++) {
        if (!done[k] && low->alias[k] >= 0) {
            low->order[low->n_dims++] = (int8_t)k;
        }
    }
    return DTP_OK;
}

dtp_status dtp_emit_value(dtp_importer *m, const dtp_aten_node *node, const char *op, int32_t n,
                          const dtp_use *uses, const dtp_groups *groups, int32_t out,
                          const int32_t *firsts, const char *attrs, dtp_err *err)
{
    const char *in[DTP_MOST_OPERANDS], *what = what_of(m, node);
    int8_t group[DTP_FLAT_PARTS] = {0};
    dtp_low low = {0};
    DTP_TRY(DTP_MEMORY(err, what));
    low.n = flat(m, out, low.cls);
    if (low.n < 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "a result of more than %d dims", DTP_FLAT_PARTS);
    }
    int32_t part = 0;
    for (int32_t i = 0; i < m->g->values[out].rank; i++) {
        const int32_t parts = dtp_axis_parts(m, out, i);
        if (parts > 0 && (firsts[i] < 0 || firsts[i] + parts > groups->n)) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "axes of the result that no operand has");
        }
        for (int32_t k = 0; k < parts; k++, part++) {
            group[part] = (int8_t)(firsts[i] + k);
            low.alias[part] = groups->alias[firsts[i] + k];
        }
    }
    const dtp_use *like = n == 0 ? NULL : &uses[strcmp(op, "embedding") == 0 ? 1 : 0];
    like = like == NULL || like->value < 0 || order_is_free(op) ? NULL : like;
    DTP_TRY(order_parts(m, node, like, group, &low, err));
    for (int32_t i = 0; i < n; i++) {
        in[i] = uses[i].id;
    }
    DTP_TRY(dtp_emit(m, node, what, op, n, in, dtp_low_dims(m, &low), attrs, &low.id, err));
    m->low[out] = low;
    return DTP_OK;
}

/* ---- values ---- */

/* The tensor has all parts; of two of one class the last has the plain name. */
static dtp_status low_whole(dtp_importer *m, int32_t value, const char *id, dtp_err *err)
{
    dtp_low *low = &m->low[value];
    low->n = flat(m, value, low->cls);
    if (low->n < 0 || low->n > DTP_MAX_RANK) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "'%s' has %d dims, at most %d", id, low->n,
                        DTP_MAX_RANK);
    }
    for (int32_t i = low->n; i-- > 0;) {
        low->alias[i] = 0;
        for (int32_t k = i + 1; k < low->n; k++) {
            low->alias[i] = (int8_t)(low->alias[i] + (low->cls[k] == low->cls[i] ? 1 : 0));
        }
        low->order[i] = (int8_t)i;
    }
    low->n_dims = low->n;
    low->id = id;
    return DTP_OK;
}

static const char *number_text(dtp_importer *m, double x)
{
    char text[32];
    x = x > 3.4028234e38 ? 3.4028234e38 : x < -3.4028234e38 ? -3.4028234e38 : x;
    dtp_double_print(x, text);
    return dtp_arena_strdup(m->arena, text);
}

static dtp_status emit_number(dtp_importer *m, const dtp_aten_node *node, double x,
                              const char *type, const char **id, dtp_err *err)
{
    return dtp_emit(
        m, node, "number", "constant", 0, NULL, "",
        dtp_arena_printf(m->arena, "\"value\": %s, \"dtype\": \"%s\"", number_text(m, x), type), id,
        err);
}

/* start + the index along an axis, which is one part. */
static dtp_status emit_index(dtp_importer *m, const dtp_aten_node *node, const char *dim,
                             double start, const char *type, const char **id, dtp_err *err)
{
    const char *in[2];
    DTP_TRY(dtp_emit(m, node, "index", "iota", 0, NULL, dim,
                     dtp_arena_printf(m->arena, "\"dim\": \"%s\", \"dtype\": \"%s\"", dim, type),
                     &in[0], err));
    if (start == 0) {
        *id = in[0];
        return DTP_OK;
    }
    DTP_TRY(emit_number(m, node, start, type, &in[1], err));
    return dtp_emit(m, node, "index", "add", 2, in, dim, "", id, err);
}

/* The place of an axis among the parts; -1: it is not one part. */
static int32_t part_of(const dtp_importer *m, int32_t value, int32_t axis)
{
    int32_t part = 0;
    for (int32_t i = 0; i < axis; i++) {
        part += dtp_axis_parts(m, value, i);
    }
    return dtp_axis_parts(m, value, axis) == 1 ? part : -1;
}

/* One value on and below a diagonal, another above it: compare(index, index), and a choice. */
static dtp_status low_step(dtp_importer *m, const dtp_aten_node *node, int32_t value,
                           const dtp_const_step *s, dtp_low *low, dtp_err *err)
{
    const dtp_aten_value *v = &m->g->values[value];
    const char *ids[3], *dims[2], *both, *test;
    for (int32_t i = 0; i < 2; i++) {
        const int32_t part = part_of(m, value, s->axis[i]);
        if (part < 0) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "the constant '%s' has dims that are split",
                            v->name);
        }
        low->order[i] = (int8_t)part;
        dims[i] = dtp_class_name(m, low->cls[part], low->alias[part]);
        DTP_TRY(DTP_MEMORY(err, dims[i]));
        DTP_TRY(emit_index(m, node, dims[i], i == 0 ? (double)s->at : 0, "i64", &ids[1 - i], err));
    }
    low->n_dims = 2;
    both = dtp_arena_printf(m->arena, "%s,%s", dims[0], dims[1]);
    DTP_TRY(DTP_MEMORY(err, both));
    const bool flipped = v->dtype == ATEN_BOOL && s->low == 0;
    DTP_TRY(dtp_emit(m, node, "mask", "compare", 2, ids, both,
                     flipped ? "\"cmp\": \"gt\"" : "\"cmp\": \"le\"", &test, err));
    low->id = test;
    if (v->dtype == ATEN_BOOL) {
        return DTP_OK;
    }
    ids[0] = test;
    DTP_TRY(emit_number(m, node, s->low, dtp_type_name(v->dtype), &ids[1], err));
    DTP_TRY(emit_number(m, node, s->high, dtp_type_name(v->dtype), &ids[2], err));
    return dtp_emit(m, node, "mask", "select", 3, ids, both, "", &low->id, err);
}

/* A constant that is one value, an index, or a step along a diagonal. */
static dtp_status low_const(dtp_importer *m, const dtp_aten_node *node, int32_t value, dtp_err *err)
{
    const dtp_aten_value *v = &m->g->values[value];
    const dtp_const *c = &m->consts[value];
    dtp_low *low = &m->low[value];
    const char *type = dtp_type_name(v->dtype);
    dtp_const_step step;
    double x;
    int32_t axis;
    DTP_TRY(low_whole(m, value, "", err));
    if (type == NULL) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "'%s': element type %d", v->name, v->dtype);
    }
    low->n_dims = 0;
    if (dtp_const_is_uniform(c, v, &x)) {
        memset(low->alias, -1, sizeof low->alias);
        return emit_number(m, node, x, type, &low->id, err);
    }
    if (dtp_const_is_step(c, v, &step)) {
        DTP_TRY(low_step(m, node, value, &step, low, err));
    } else if (dtp_const_is_index(c, v, &axis, &x) && part_of(m, value, axis) >= 0) {
        low->order[low->n_dims++] = (int8_t)part_of(m, value, axis);
        const int32_t part = low->order[0];
        DTP_TRY(emit_index(m, node, dtp_class_name(m, low->cls[part], low->alias[part]), x, type,
                           &low->id, err));
    } else {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "the constant '%s' is none that can be written",
                        v->name);
    }
    for (int32_t i = 0; i < low->n; i++) { /* the others it lacks */
        bool has = false;
        for (int32_t k = 0; k < low->n_dims; k++) {
            has = has || low->order[k] == i;
        }
        low->alias[i] = has ? low->alias[i] : -1;
    }
    return DTP_OK;
}

/* Axes of size 1 of a parameter are dims of it, and gone behind it. */
static dtp_status low_param(dtp_importer *m, const dtp_aten_node *node, int32_t value, dtp_err *err)
{
    const dtp_aten_value *v = &m->g->values[value];
    m->low[value].param = true;
    bool unit = false;
    for (int32_t i = 0; i < v->rank; i++) {
        unit = unit || v->sizes[i] == 1;
    }
    DTP_TRY(low_whole(m, value, v->source, err));
    if (!unit || v->rank == 0) {
        return DTP_OK;
    }
    const char *in = v->source;
    return dtp_emit(m, node, "relabel", "relabel", 1, &in, dtp_low_dims(m, &m->low[value]), "",
                    &m->low[value].id, err);
}

/* Axes of an input stay as they are fed: one that is split is split behind it. */
static dtp_status low_input(dtp_importer *m, const dtp_aten_node *node, int32_t value, dtp_err *err)
{
    const dtp_aten_value *v = &m->g->values[value];
    DTP_TRY(low_whole(m, value, v->source, err));
    bool split = false;
    for (int32_t i = 0; i < v->rank; i++) {
        split = split || dtp_axis_parts(m, value, i) > 1;
    }
    if (!split) {
        return DTP_OK;
    }
    const char *in = v->source;
    return dtp_emit(m, node, "relabel", "relabel", 1, &in, dtp_low_dims(m, &m->low[value]), "",
                    &m->low[value].id, err);
}

dtp_status dtp_low_get(dtp_importer *m, const dtp_aten_node *node, int32_t value,
                       const dtp_low **out, dtp_err *err)
{
    const dtp_aten_value *v = &m->g->values[value];
    *out = &m->low[value];
    if (m->low[value].id != NULL && (v->role != ATEN_CONST || m->low[value].owner == node)) {
        return DTP_OK;
    }
    switch (v->role) {
    case ATEN_CONST:
        m->low[value].owner = node;
        return low_const(m, node, value, err);
    case ATEN_INPUT:
        return low_input(m, node, value, err);
    case ATEN_PARAM:
        return low_param(m, node, value, err);
    case ATEN_BUFFER:
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "the buffer '%s' is a table of numbers that no op of ours makes",
                        v->source);
    default:
        return DTP_FAIL(err, DTP_INTERNAL, "'%s' is not there yet", v->name);
    }
}

dtp_status dtp_low_view(dtp_importer *m, const dtp_aten_node *node, int32_t value, int32_t out,
                        const int32_t *from, dtp_err *err)
{
    const dtp_low *in;
    dtp_low *low = &m->low[out];
    int32_t firsts[DTP_MAX_RANK + 1] = {0}, part = 0, place[DTP_FLAT_PARTS];
    DTP_TRY(dtp_low_get(m, node, value, &in, err));
    for (int32_t i = 0; i < m->g->values[value].rank; i++) {
        firsts[i + 1] = firsts[i] + dtp_axis_parts(m, value, i);
    }
    if (from == NULL) { /* a view: all parts in their order */
        *low = *in;
        return DTP_OK;
    }
    *low = (dtp_low){.id = in->id, .n_dims = in->n_dims};
    low->n = flat(m, out, low->cls);
    memset(low->alias, -1, sizeof low->alias);
    for (int32_t i = 0; i < m->g->values[out].rank; i++) {
        const int32_t n = dtp_axis_parts(m, out, i);
        for (int32_t k = 0; k < n; k++, part++) {
            if (from[i] >= 0) {
                place[firsts[from[i]] + k] = part;
                low->alias[part] = in->alias[firsts[from[i]] + k];
            }
        }
    }
    for (int32_t i = 0; i < in->n_dims; i++) {
        low->order[i] = (int8_t)place[in->order[i]];
    }
    return DTP_OK;
}
