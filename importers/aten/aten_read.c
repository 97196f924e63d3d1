/* The files of a .pt2 archive: the graph and where the data of weights and buffers lies. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/safe_int.h"
#include "interop/foreign_json.h"
#include "importers/aten/aten_storage.h"
#include "importers/files/zip.h"

enum { SCHEMA_MAJOR = 8 };

/* Members of an object by key: dtp_foreign_get searches one after the other. */
typedef struct members {
    dtp_name_table keys;
    const dtp_foreign **of;
} members;

/* Where the elements of weights, or of constants, lie. */
typedef struct configs {
    const char *folder;
    dtp_foreign_doc *doc; /* NULL: none */
    members of;
} configs;

typedef struct pt2 {
    dtp_aten *g;
    dtp_zip zip;
    dtp_name_table entries; /* of the archive, by the path behind its own folder */
    dtp_foreign_doc *graph;
    configs data[2];
    members sym_ints, sym_floats;
    dtp_name_table values; /* by name of the graph */
} pt2;

static const dtp_foreign *get(const dtp_foreign *v, const char *key)
{
    return dtp_foreign_get(v, key);
}

/* Members of an object of the graph, which it must have. */
static dtp_status need(const pt2 *p, const dtp_foreign *v, const char *key, dtp_foreign_kind kind,
                       const dtp_foreign **out, dtp_err *err)
{
    return dtp_foreign_require(p->graph, v, key, kind, out, err);
}

static dtp_status need_int(const dtp_foreign_doc *doc, const dtp_foreign *v, const char *key,
                           int64_t most, int64_t *out, dtp_err *err)
{
    DTP_TRY(dtp_foreign_require(doc, v, key, DTP_FOREIGN_NUMBER, &v, err));
    return dtp_foreign_int(doc, v, 0, most, out, err);
}

static dtp_status need_text(const dtp_foreign_doc *doc, const dtp_foreign *v, const char *key,
                            const char **out, dtp_err *err)
{
    DTP_TRY(dtp_foreign_require(doc, v, key, DTP_FOREIGN_STRING, &v, err));
    return dtp_foreign_string(doc, v, out, err);
}

/* ---- archive ---- */

static dtp_status index_members(const pt2 *p, const dtp_foreign *object, members *out, dtp_err *err)
{
    if (!dtp_foreign_is(object, DTP_FOREIGN_OBJECT)) {
        return DTP_OK;
    }
    const size_t n = (size_t)dtp_foreign_size(object) + 1;
    out->of = dtp_arena_alloc(p->g->arena, n, sizeof(const dtp_foreign *));
    DTP_TRY(DTP_MEMORY(err, out->of));
    for (const dtp_foreign *v = dtp_foreign_first(object); v != NULL; v = dtp_foreign_next(v)) {
        out->of[out->keys.n] = v;
        DTP_TRY(dtp_name_add(&out->keys, p->g->arena, dtp_foreign_key(v), out->keys.n, err));
    }
    return DTP_OK;
}

static const dtp_foreign *member(const members *m, const char *key)
{
    const int32_t i = dtp_name_find(&m->keys, key);
    return i < 0 ? NULL : m->of[i];
}

static const dtp_zip_entry *find_entry(const pt2 *p, const char *path)
{
    const int32_t i = dtp_name_find(&p->entries, path);
    return i < 0 ? NULL : &p->zip.entries[i];
}

/* A JSON file of the archive; none there: *out stays NULL. */
static dtp_status parse_entry(const pt2 *p, const dtp_zip_entry *e, dtp_foreign_doc **out,
                              dtp_err *err)
{
    if (e == NULL) {
        return DTP_OK;
    }
    const char *name = dtp_arena_printf(p->g->arena, "%s: %s", p->g->file, e->name);
    DTP_TRY(DTP_MEMORY(err, name));
    return dtp_foreign_parse(name, e->data, (size_t)e->bytes, out, err);
}

static dtp_status open_documents(pt2 *p, dtp_err *err)
{
    const dtp_zip_entry *model = NULL;
    for (int32_t i = 0; i < p->zip.n; i++) {
        const dtp_zip_entry *e = &p->zip.entries[i];
        const char *at = strstr(e->name, "models/"), *slash = strchr(e->name, '/');
        DTP_TRY(slash == NULL ? DTP_OK : dtp_name_add(&p->entries, p->g->arena, slash + 1, i, err));
        const size_t n = strlen(e->name);
        if (at == NULL || (at != e->name && at[-1] != '/') || n < 5 ||
            strcmp(e->name + n - 5, ".json") != 0) {
            continue;
        }
        if (model != NULL) {
            return DTP_FAIL(err, DTP_INVALID, "%s: two graphs, '%s' and '%s'", p->g->file,
                            model->name, e->name);
        }
        model = e;
    }
    if (model == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "%s: no models/*.json: not written by torch.export",
                        p->g->file);
    }
    DTP_TRY(parse_entry(p, model, &p->graph, err));
    for (configs *c = p->data; c < p->data + 2; c++) {
        const char *file =
            dtp_arena_printf(p->g->arena, "data/%s/model_%s_config.json", c->folder, c->folder);
        DTP_TRY(DTP_MEMORY(err, file));
        DTP_TRY(parse_entry(p, find_entry(p, file), &c->doc, err));
        const dtp_foreign *root = c->doc == NULL ? NULL : dtp_foreign_root(c->doc);
        DTP_TRY(index_members(p, get(root, "config"), &c->of, err));
    }
    return DTP_OK;
}

/* ---- values ---- */

/* {"as_int": 12} or {"as_expr": {"expr_str": "Symbol('s0', ..)", "hint": {"as_int": 12}}}. */
static dtp_status read_size(const pt2 *p, const dtp_foreign *v, int64_t *out, const char **sympy,
                            dtp_err *err)
{
    const dtp_foreign *expr = get(v, "as_expr"), *hint;
    *sympy = NULL;
    if (expr == NULL) {
        return need_int(p->graph, v, "as_int", INT64_C(1) << 48, out, err);
    }
    DTP_TRY(need(p, expr, "hint", DTP_FOREIGN_OBJECT, &hint, err));
    DTP_TRY(dtp_foreign_require(p->graph, hint, "as_int", DTP_FOREIGN_NUMBER, &hint, err));
    DTP_TRY(dtp_foreign_int(p->graph, hint, -(INT64_C(1) << 48), INT64_C(1) << 48, out, err));
    DTP_TRY(need_text(p->graph, expr, "expr_str", sympy, err));
    *sympy = dtp_arena_strdup(p->g->arena, *sympy);
    return DTP_MEMORY(err, *sympy);
}

/* The name of a size that is a symbol, else its expression. */
static dtp_status read_symbol(const pt2 *p, const char *sympy, const char **symbol, dtp_err *err)
{
    *symbol = sympy;
    if (sympy != NULL && strncmp(sympy, "Symbol('", 8) == 0) {
        char *name = dtp_arena_strdup(p->g->arena, sympy + 8);
        DTP_TRY(DTP_MEMORY(err, name));
        name[strcspn(name, "'")] = '\0';
        *symbol = name;
    }
    return DTP_OK;
}

static dtp_status read_value(pt2 *p, const dtp_foreign *meta, dtp_err *err)
{
    dtp_aten *g = p->g;
    dtp_aten_value *v = &g->values[g->n_values];
    *v = (dtp_aten_value){.node = -1};
    v->name = dtp_arena_line(g->arena, dtp_foreign_key(meta));
    DTP_TRY(DTP_MEMORY(err, v->name));
    const dtp_foreign *sizes;
    int64_t type;
    DTP_TRY(need(p, meta, "sizes", DTP_FOREIGN_LIST, &sizes, err));
    DTP_TRY(need_int(p->graph, meta, "dtype", 255, &type, err));
    v->dtype = (int32_t)type;
    v->rank = dtp_foreign_size(sizes);
    if (v->rank > DTP_MAX_RANK) {
        return dtp_foreign_fail(p->graph, sizes, err, "rank %d is above %d", v->rank, DTP_MAX_RANK);
    }
    const dtp_foreign *gradient = get(meta, "requires_grad"); /* of parameters it says the truth */
    if (gradient != NULL) {
        bool wanted;
        DTP_TRY(dtp_foreign_bool(p->graph, gradient, &wanted, err));
        v->frozen = !wanted;
    }
    const dtp_foreign *size = dtp_foreign_first(sizes);
    int64_t elements = 1;
    for (int32_t i = 0; i < v->rank; i++, size = dtp_foreign_next(size)) {
        DTP_TRY(read_size(p, size, &v->sizes[i], &v->sympy[i], err));
        DTP_TRY(read_symbol(p, v->sympy[i], &v->symbols[i], err));
        if (v->sizes[i] < 0) {
            return dtp_foreign_fail(p->graph, size, err, "a size below 0");
        }
        const int64_t n = v->sizes[i] > 0 ? v->sizes[i] : 1;
        if (!dtp_mul_i64(elements, n, &elements) || elements > INT64_C(1) << 56) {
            return dtp_foreign_fail(p->graph, sizes, err, "too many elements");
        }
    }
    return dtp_name_add(&p->values, g->arena, v->name, g->n_values++, err);
}

static dtp_status read_values(pt2 *p, const dtp_foreign *graph, dtp_err *err)
{
    const dtp_foreign *values;
    DTP_TRY(need(p, graph, "tensor_values", DTP_FOREIGN_OBJECT, &values, err));
    const int32_t n = dtp_foreign_size(values);
    p->g->values_capacity = n + 1;
    DTP_TRY(DTP_NEW(p->g->arena, p->g->values, n + 1, err));
    for (const dtp_foreign *v = dtp_foreign_first(values); v != NULL; v = dtp_foreign_next(v)) {
        DTP_TRY(read_value(p, v, err));
    }
    return DTP_OK;
}

/* {"name": "x"} */
static dtp_status value_named(const pt2 *p, const dtp_foreign *tensor, int32_t *out, dtp_err *err)
{
    const char *name;
    DTP_TRY(need_text(p->graph, tensor, "name", &name, err));
    *out = dtp_name_find(&p->values, name);
    return *out >= 0 ? DTP_OK : dtp_foreign_fail(p->graph, tensor, err, "no tensor '%s'", name);
}

/* ---- arguments ---- */

/* A number, or a size: {"as_int": 2} or {"as_name": "sym_size_int"}. INT64_MAX stands for "to the
 * end", and is no exact double. */
static dtp_status read_int(const pt2 *p, const dtp_foreign *v, int64_t *out, const char **sympy,
                           dtp_err *err)
{
    const char *name, *of = NULL;
    const dtp_foreign *by_name = get(v, "as_name");
    double x;
    if (by_name != NULL) {
        DTP_TRY(dtp_foreign_string(p->graph, by_name, &name, err));
        const dtp_foreign *size = member(&p->sym_ints, name);
        if (size == NULL) {
            return dtp_foreign_fail(p->graph, by_name, err, "no size '%s'", name);
        }
        DTP_TRY(read_size(p, size, out, &of, err));
        *sympy = *sympy == NULL ? of : *sympy;
        return DTP_OK;
    }
    if (dtp_foreign_is(v, DTP_FOREIGN_OBJECT)) {
        DTP_TRY(need(p, v, "as_int", DTP_FOREIGN_NUMBER, &v, err));
    }
    DTP_TRY(dtp_foreign_double(p->graph, v, &x, err));
    *out = INT64_MAX;
    return x >= 9.2e18
               ? DTP_OK
               : dtp_foreign_int(p->graph, v, -(INT64_C(1) << 53), INT64_C(1) << 53, out, err);
}

/* {"as_float": 0.5}, or one of "sym_float_values": {"as_name": "pow_1"}. */
static dtp_status read_sym_float(const pt2 *p, const dtp_foreign *v, dtp_aten_arg *a, dtp_err *err)
{
    const dtp_foreign *by_name = get(v, "as_name"), *hint;
    const char *name;
    if (by_name != NULL) {
        DTP_TRY(dtp_foreign_string(p->graph, by_name, &name, err));
        v = member(&p->sym_floats, name);
        const dtp_foreign *expr = get(v, "as_expr");
        if (v == NULL) {
            return dtp_foreign_fail(p->graph, by_name, err, "no number '%s'", name);
        }
        if (expr != NULL) {
            DTP_TRY(need_text(p->graph, expr, "expr_str", &name, err));
            a->sympy = dtp_arena_strdup(p->g->arena, name);
            DTP_TRY(DTP_MEMORY(err, a->sympy));
            DTP_TRY(need(p, expr, "hint", DTP_FOREIGN_OBJECT, &hint, err));
            v = hint;
        }
    }
    DTP_TRY(need(p, v, "as_float", DTP_FOREIGN_NUMBER, &v, err));
    return dtp_foreign_double(p->graph, v, &a->real, err);
}

static dtp_status read_float(const pt2 *p, const dtp_foreign *v, double *out, dtp_err *err)
{
    const char *text;
    if (!dtp_foreign_is(v, DTP_FOREIGN_STRING)) {
        return dtp_foreign_double(p->graph, v, out, err);
    }
    DTP_TRY(dtp_foreign_string(p->graph, v, &text, err));
    *out = strcmp(text, "Infinity") == 0    ? (double)INFINITY
           : strcmp(text, "-Infinity") == 0 ? -(double)INFINITY
                                            : (double)NAN;
    return DTP_OK;
}

static dtp_status read_list(const pt2 *p, const dtp_foreign *list, dtp_aten_arg *a, dtp_err *err)
{
    for (const dtp_foreign *v = dtp_foreign_first(list); v != NULL; v = dtp_foreign_next(v)) {
        const dtp_foreign *inner = get(v, "as_tensor");
        a->values[a->n] = -1;
        if (a->kind == ATEN_INTS) {
            DTP_TRY(read_int(p, v, &a->ints[a->n], &a->sympy, err));
        } else if (a->kind == ATEN_REALS) {
            DTP_TRY(read_float(p, v, &a->reals[a->n], err));
        } else if (get(v, "as_none") == NULL) {
            DTP_TRY(value_named(p, inner != NULL ? inner : v, &a->values[a->n], err));
        }
        a->n++;
    }
    return DTP_OK;
}

static dtp_aten_kind kind_of(const char *key)
{
    static const struct {
        const char *key;
        dtp_aten_kind kind;
    } kinds[] = {{"as_tensor", ATEN_VALUE},  {"as_tensors", ATEN_VALUES},
                 {"as_ints", ATEN_INTS},     {"as_optional_tensors", ATEN_VALUES},
                 {"as_sym_ints", ATEN_INTS}, {"as_int", ATEN_INT},
                 {"as_sym_int", ATEN_INT},   {"as_scalar_type", ATEN_INT},
                 {"as_float", ATEN_FLOAT},   {"as_bool", ATEN_BOOLEAN},
                 {"as_string", ATEN_TEXT},   {"as_none", ATEN_NONE},
                 {"as_floats", ATEN_REALS},  {"as_sym_float", ATEN_FLOAT}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].key, key) == 0) {
            return kinds[i].kind;
        }
    }
    return ATEN_OTHER;
}

static dtp_status read_arg(const pt2 *p, const dtp_foreign *input, dtp_aten_arg *a, dtp_err *err)
{
    const dtp_foreign *arg;
    bool b = false;
    DTP_TRY(need_text(p->graph, input, "name", &a->name, err));
    DTP_TRY(need(p, input, "arg", DTP_FOREIGN_OBJECT, &arg, err));
    const dtp_foreign *v = dtp_foreign_first(arg);
    if (v == NULL) {
        return dtp_foreign_fail(p->graph, arg, err, "is empty");
    }
    a->name = dtp_arena_line(p->g->arena, a->name); /* outlives the document */
    DTP_TRY(DTP_MEMORY(err, a->name));
    const int32_t n = dtp_foreign_size(v) + 1; /* of any kind: a zero is read, at worst */
    DTP_TRY(DTP_NEW(p->g->arena, a->ints, n, err));
    DTP_TRY(DTP_NEW(p->g->arena, a->values, n, err));
    DTP_TRY(DTP_NEW(p->g->arena, a->reals, n, err));
    a->kind = kind_of(dtp_foreign_key(v));
    switch (a->kind) {
    case ATEN_VALUE:
        a->n = 1;
        return value_named(p, v, a->values, err);
    case ATEN_VALUES:
    case ATEN_INTS:
    case ATEN_REALS:
        return read_list(p, v, a, err);
    case ATEN_FLOAT:
        if (dtp_foreign_is(v, DTP_FOREIGN_OBJECT)) {
            return read_sym_float(p, v, a, err);
        }
        return read_float(p, v, &a->real, err);
    case ATEN_BOOLEAN:
        DTP_TRY(dtp_foreign_bool(p->graph, v, &b, err));
        a->ints[0] = b ? 1 : 0;
        break;
    case ATEN_INT:
        DTP_TRY(read_int(p, v, a->ints, &a->sympy, err));
        break;
    case ATEN_TEXT:
        DTP_TRY(dtp_foreign_string(p->graph, v, &a->text, err));
        a->text = dtp_arena_line(p->g->arena, a->text);
        return DTP_MEMORY(err, a->text);
    default:
        break;
    }
    a->real = (double)a->ints[0];
    return DTP_OK;
}

/* ---- nodes ---- */

/* Whether a line of a trace, 'File "PATH", line 3, ..', is of torch or of an installed package. */
static bool is_package(const char *line)
{
    static const char *const folders[] = {"site-packages/", "dist-packages/", "/torch/nn/",
                                          "/torch/_", NULL};
    const size_t n = strcspn(line, "\n");
    bool is = false;
    for (int32_t i = 0; folders[i] != NULL && !is; i++) {
        const char *at = strstr(line, folders[i]);
        is = at != NULL && (size_t)(at - line) < n;
    }
    return is;
}

/* The last line of a trace that is the user's, else the last one. */
static const char *users_line(const char *text)
{
    const char *last = text, *own = NULL;
    for (const char *at = strstr(text, "File \""); at != NULL; at = strstr(at + 1, "File \"")) {
        last = at;
        own = is_package(at) ? own : at;
    }
    return own != NULL ? own : last;
}

/* The path of the innermost module: "L__self__,,M;L__self___m,m.layers.0,N" gives "m.layers.0". */
static dtp_status read_metadata(const pt2 *p, const dtp_foreign *meta, dtp_aten_node *node,
                                dtp_err *err)
{
    const dtp_foreign *stack = get(meta, "nn_module_stack"), *trace = get(meta, "stack_trace");
    const char *text;
    node->path = node->where = "";
    if (dtp_foreign_is(stack, DTP_FOREIGN_STRING)) {
        DTP_TRY(dtp_foreign_string(p->graph, stack, &text, err));
        const char *last = strrchr(text, ';');
        last = strchr(last == NULL ? text : last, ',');
        char *path = dtp_arena_strdup(p->g->arena, last == NULL ? "" : last + 1);
        DTP_TRY(DTP_MEMORY(err, path));
        path[strcspn(path, ",@;")] = '\0';
        node->path = path;
    }
    if (dtp_foreign_is(trace, DTP_FOREIGN_STRING)) {
        DTP_TRY(dtp_foreign_string(p->graph, trace, &text, err));
        char *line = dtp_arena_line(p->g->arena, users_line(text));
        DTP_TRY(DTP_MEMORY(err, line));
        char *end = strstr(line, ", in ");
        if (end != NULL) {
            *end = '\0';
        }
        node->where = line;
    }
    return DTP_OK;
}

static dtp_status add_output(const pt2 *p, const dtp_foreign *tensor, dtp_aten_node *node,
                             dtp_err *err)
{
    int32_t v;
    DTP_TRY(value_named(p, tensor, &v, err));
    dtp_aten_value *value = &p->g->values[v];
    if (value->node >= 0 || value->role != ATEN_NODE) {
        return dtp_foreign_fail(p->graph, tensor, err, "tensor '%s' is made twice", value->name);
    }
    value->node = (int32_t)(node - p->g->nodes);
    node->outs[node->n_outs++] = v;
    return DTP_OK;
}

static dtp_status read_outputs(const pt2 *p, const dtp_foreign *outputs, dtp_aten_node *node,
                               dtp_err *err)
{
    int32_t most = 0;
    for (const dtp_foreign *o = dtp_foreign_first(outputs); o != NULL; o = dtp_foreign_next(o)) {
        most += 1 + dtp_foreign_size(get(o, "as_tensors"));
    }
    DTP_TRY(DTP_NEW(p->g->arena, node->outs, most + 1, err));
    for (const dtp_foreign *o = dtp_foreign_first(outputs); o != NULL; o = dtp_foreign_next(o)) {
        const dtp_foreign *one = get(o, "as_tensor"), *many = get(o, "as_tensors");
        if (one != NULL) {
            DTP_TRY(add_output(p, one, node, err));
        }
        for (const dtp_foreign *t = dtp_foreign_first(many); t != NULL; t = dtp_foreign_next(t)) {
            DTP_TRY(add_output(p, t, node, err));
        }
    }
    return DTP_OK;
}

/* A node may read what inputs and earlier nodes made: so a graph has no cycle. */
static dtp_status check_order(const pt2 *p, const dtp_foreign *at, const dtp_aten_node *node,
                              dtp_err *err)
{
    for (int32_t i = 0; i < node->n_args; i++) {
        const dtp_aten_arg *a = &node->args[i];
        for (int32_t k = 0; k < dtp_aten_tensors(a); k++) {
            const dtp_aten_value *v = a->values[k] < 0 ? NULL : &p->g->values[a->values[k]];
            if (v != NULL && v->node < 0 && v->role == ATEN_NODE) {
                return dtp_foreign_fail(p->graph, at, err, "'%s' is read before it is made",
                                        v->name);
            }
        }
    }
    return DTP_OK;
}

static dtp_status read_node(const pt2 *p, const dtp_foreign *n, dtp_aten_node *node, dtp_err *err)
{
    const dtp_foreign *inputs, *outputs;
    const char *op;
    DTP_TRY(need_text(p->graph, n, "target", &op, err));
    DTP_TRY(need(p, n, "inputs", DTP_FOREIGN_LIST, &inputs, err));
    DTP_TRY(need(p, n, "outputs", DTP_FOREIGN_LIST, &outputs, err));
    op += strncmp(op, "torch.ops.", 10) == 0 ? 10 : 0;
    if (strncmp(op, "dtp.", 4) == 0) { /* those that patterns make */
        return dtp_foreign_fail(p->graph, n, err, "'%s' is no op of torch", op);
    }
    node->op = dtp_arena_line(p->g->arena, op);
    DTP_TRY(DTP_MEMORY(err, node->op));
    DTP_TRY(DTP_NEW(p->g->arena, node->args, dtp_foreign_size(inputs) + 1, err));
    for (const dtp_foreign *i = dtp_foreign_first(inputs); i != NULL; i = dtp_foreign_next(i)) {
        DTP_TRY(read_arg(p, i, &node->args[node->n_args++], err));
    }
    DTP_TRY(check_order(p, n, node, err));
    DTP_TRY(read_outputs(p, outputs, node, err));
    return read_metadata(p, get(n, "metadata"), node, err);
}

/* ---- inputs and outputs ---- */

/* Where the elements of a weight or a buffer lie; none for tensors of the meta device. */
static dtp_status find_data(const pt2 *p, dtp_aten_value *v, dtp_err *err)
{
    const configs *c = member(&p->data[0].of, v->source) != NULL ? &p->data[0] : &p->data[1];
    const dtp_foreign *config = member(&c->of, v->source), *flag = get(config, "use_pickle");
    const dtp_foreign_doc *doc = c->doc;
    const char *path;
    bool pickle = false;
    if (config == NULL) {
        return DTP_OK;
    }
    DTP_TRY(flag == NULL ? DTP_OK : dtp_foreign_bool(doc, flag, &pickle, err));
    if (pickle) {
        return dtp_foreign_fail(doc, config, err, "use_pickle: pickled tensors are not read");
    }
    DTP_TRY(need_text(doc, config, "path_name", &path, err));
    const char *full = dtp_arena_printf(p->g->arena, "data/%s/%s", c->folder, path);
    DTP_TRY(DTP_MEMORY(err, full));
    const dtp_zip_entry *e = find_entry(p, full);
    if (e == NULL) {
        return dtp_foreign_fail(doc, config, err, "no entry '%s'", full);
    }
    return dtp_aten_storage(doc, config, e->data, e->bytes, p->g->arena, v, err);
}

/* Names of inputs and parameters are names of ours as they are. */
static dtp_status check_name(pt2 *p, const dtp_foreign *at, const dtp_aten_value *v, dtp_err *err)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/";
    const char *name = v->source;
    const size_t n = strlen(name);
    const size_t most = v->role == ATEN_INPUT ? 128 : 400; /* those of parameters become shorter */
    if (n == 0 || n > most || strspn(name, good) != n) {
        return dtp_foreign_fail(p->graph, at, err,
                                "the name '%.200s' is not 1 to %zu letters, digits and _ . - /",
                                name, most);
    }
    if (v->role == ATEN_BUFFER) { /* no tensor of the model */
        return DTP_OK;
    }
    if (dtp_name_find(&p->g->sources, name) >= 0) {
        return dtp_foreign_fail(p->graph, at, err, "two inputs or parameters are called '%s'",
                                name);
    }
    return dtp_name_add(&p->g->sources, p->g->arena, name, (int32_t)(v - p->g->values), err);
}

/* {"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}}, {"user_input": {"arg": ..}}. */
static dtp_status read_input(pt2 *p, const dtp_foreign *spec, dtp_err *err)
{
    static const struct {
        const char *key, *name;
        dtp_aten_role role;
    } kinds[] = {{"parameter", "parameter_name", ATEN_PARAM},
                 {"buffer", "buffer_name", ATEN_BUFFER},
                 {"tensor_constant", "tensor_constant_name", ATEN_BUFFER},
                 {"user_input", NULL, ATEN_INPUT}};
    const dtp_foreign *body = dtp_foreign_first(spec), *arg;
    size_t k = 0;
    if (dtp_foreign_is(spec, DTP_FOREIGN_OBJECT) && get(spec, "constant_input") != NULL) {
        return DTP_OK; /* a number, a flag, a text or None, which the nodes have in its place */
    }
    const bool named = dtp_foreign_is(spec, DTP_FOREIGN_OBJECT) && body != NULL;
    while (k < 4 && (!named || strcmp(dtp_foreign_key(body), kinds[k].key) != 0)) {
        k++;
    }
    if (k == 4) {
        return dtp_foreign_fail(p->graph, spec, err, "an input of unknown kind");
    }
    DTP_TRY(need(p, body, "arg", DTP_FOREIGN_OBJECT, &arg, err));
    if (kinds[k].role == ATEN_INPUT && get(arg, "as_tensor") == NULL) {
        return DTP_OK; /* a number or None that the graph was specialised to */
    }
    int32_t at;
    DTP_TRY(value_named(p, kinds[k].role == ATEN_INPUT ? get(arg, "as_tensor") : arg, &at, err));
    dtp_aten_value *v = &p->g->values[at];
    if (v->role != ATEN_NODE) {
        return dtp_foreign_fail(p->graph, body, err, "'%s' is an input twice", v->name);
    }
    v->role = kinds[k].role;
    v->frozen = v->frozen && v->role == ATEN_PARAM;
    v->source = v->name;
    p->g->inputs[p->g->n_inputs++] = at;
    if (v->role == ATEN_INPUT) {
        return check_name(p, body, v, err);
    }
    DTP_TRY(need_text(p->graph, body, kinds[k].name, &v->source, err));
    v->source = dtp_arena_line(p->g->arena, v->source);
    DTP_TRY(DTP_MEMORY(err, v->source));
    DTP_TRY(check_name(p, body, v, err));
    return find_data(p, v, err);
}

static dtp_status read_output(const pt2 *p, const dtp_foreign *spec, dtp_err *err)
{
    const dtp_foreign *user = get(spec, "user_output");
    const dtp_foreign *tensor = get(get(user, "arg"), "as_tensor");
    if (user == NULL) {
        return dtp_foreign_fail(p->graph, spec, err,
                                "an output that changes a buffer or an input is not supported");
    }
    if (tensor == NULL) {
        return DTP_OK;
    }
    int32_t v;
    DTP_TRY(value_named(p, tensor, &v, err));
    p->g->outputs[p->g->n_outputs++] = v;
    return p->g->values[v].node >= 0 || p->g->values[v].role != ATEN_NODE
               ? DTP_OK
               : dtp_foreign_fail(p->graph, tensor, err, "no node makes the output '%s'",
                                  p->g->values[v].name);
}

static dtp_status check_schema(const pt2 *p, const dtp_foreign *root, dtp_err *err)
{
    const dtp_foreign *version;
    int64_t major;
    DTP_TRY(need(p, root, "schema_version", DTP_FOREIGN_OBJECT, &version, err));
    DTP_TRY(need_int(p->graph, version, "major", INT32_MAX, &major, err));
    return major == SCHEMA_MAJOR
               ? DTP_OK
               : dtp_foreign_fail(p->graph, version, err, "schema version %" PRId64 ", not %d",
                                  major, SCHEMA_MAJOR);
}

static dtp_status read_graph(pt2 *p, dtp_err *err)
{
    dtp_aten *g = p->g;
    const dtp_foreign *root = dtp_foreign_root(p->graph), *module, *graph, *list, *ins, *outs;
    DTP_TRY(check_schema(p, root, err));
    DTP_TRY(need(p, root, "graph_module", DTP_FOREIGN_OBJECT, &module, err));
    DTP_TRY(need(p, module, "graph", DTP_FOREIGN_OBJECT, &graph, err));
    DTP_TRY(index_members(p, get(graph, "sym_int_values"), &p->sym_ints, err));
    DTP_TRY(index_members(p, get(graph, "sym_float_values"), &p->sym_floats, err));
    DTP_TRY(read_values(p, graph, err));
    DTP_TRY(need(p, module, "signature", DTP_FOREIGN_OBJECT, &module, err));
    DTP_TRY(need(p, module, "input_specs", DTP_FOREIGN_LIST, &ins, err));
    DTP_TRY(need(p, module, "output_specs", DTP_FOREIGN_LIST, &outs, err));
    DTP_TRY(DTP_NEW(g->arena, g->inputs, dtp_foreign_size(ins) + 1, err));
    DTP_TRY(DTP_NEW(g->arena, g->outputs, dtp_foreign_size(outs) + 1, err));
    for (const dtp_foreign *i = dtp_foreign_first(ins); i != NULL; i = dtp_foreign_next(i)) {
        DTP_TRY(read_input(p, i, err));
    }
    DTP_TRY(need(p, graph, "nodes", DTP_FOREIGN_LIST, &list, err));
    DTP_TRY(DTP_NEW(g->arena, g->nodes, dtp_foreign_size(list) + 1, err));
    for (const dtp_foreign *n = dtp_foreign_first(list); n != NULL; n = dtp_foreign_next(n)) {
        DTP_TRY(read_node(p, n, &g->nodes[g->n_nodes], err));
        g->n_nodes++;
    }
    for (const dtp_foreign *o = dtp_foreign_first(outs); o != NULL; o = dtp_foreign_next(o)) {
        DTP_TRY(read_output(p, o, err));
    }
    return DTP_OK;
}

dtp_status dtp_aten_read(const char *file, const char *bytes, int64_t size, dtp_arena *arena,
                         dtp_aten *out, dtp_err *err)
{
    *out = (dtp_aten){.arena = arena, .file = file};
    pt2 p = {.g = out, .data = {{.folder = "weights"}, {.folder = "constants"}}};
    DTP_TRY(dtp_zip_read(file, bytes, size, arena, &p.zip, err));
    dtp_status s = open_documents(&p, err);
    s = s == DTP_OK ? read_graph(&p, err) : s;
    dtp_foreign_destroy(p.graph);
    dtp_foreign_destroy(p.data[0].doc);
    dtp_foreign_destroy(p.data[1].doc);
    return s;
}
