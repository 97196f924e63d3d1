/* Reads an .onnx file as a program of ATen ops: every node becomes one or a few of them
 * (onnx_ops.c). */
#include "importers/onnx/onnx_read.h"

#include <string.h>

#include "importers/onnx/onnx_ops.h"

/* ---- names ---- */

/* "PATH.weight", the second of a module with the number of its node, or "matmul_3.weight" of a node
 * without a path. */
static dtp_status name_after_node(dtp_onnx_graph *o, int32_t value, const char *what, dtp_err *err)
{
    const char *path = o->path;
    const int at = (int)(o->n - o->file->nodes);
    char *name = path[0] != '\0' ? dtp_arena_printf(o->g->arena, "%s.%s", path, what)
                                 : dtp_arena_printf(o->g->arena, "%s_%d.%s", o->n->op, at, what);
    DTP_TRY(DTP_MEMORY(err, name));
    if (dtp_name_find(&o->guessed, name) >= 0) {
        name = dtp_arena_printf(o->g->arena, "%s_%d", name, at);
        DTP_TRY(DTP_MEMORY(err, name));
    }
    for (char *c = name; *c != '\0' && path[0] == '\0'; c++) {
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
    }
    o->g->values[value].source = name;
    o->g->values[value].guessed = true;
    return dtp_name_add(&o->guessed, o->g->arena, name, path[0] != '\0' ? 1 : 0, err);
}

/* The same weight under another name. */
static dtp_status own_copy(dtp_onnx_graph *o, int32_t value, int32_t *out, dtp_err *err)
{
    const dtp_shape shape = dtp_onnx_shape(o, value);
    DTP_TRY(dtp_onnx_value(o, o->g->values[value].name, ATEN_PARAM, &shape, out, err));
    const dtp_aten_value *from = &o->g->values[value];
    char *data = dtp_arena_alloc(o->g->arena, (size_t)from->bytes, 1);
    DTP_TRY(DTP_MEMORY(err, data));
    memcpy(data, from->data, (size_t)from->bytes);
    o->g->values[*out].data = data;
    o->g->values[*out].bytes = from->bytes;
    o->apart++;
    return DTP_OK;
}

/* What a node reads in the place of a weight. Exporters put one weight in the place of others with
 * the same elements: a weight of one axis that is read in several modules is one of each. */
static dtp_status read_weight(dtp_onnx_graph *o, int32_t *value, dtp_err *err)
{
    dtp_arena *arena = o->g->arena;
    const char *name = o->g->values[*value].name;
    const char *dot = strrchr(name, '.');
    const char *what = dot != NULL                                                      ? dot + 1
                       : strcmp(o->n->op, "Add") == 0 && o->g->values[*value].rank == 1 ? "bias"
                                                                                        : "weight";
    const char *key = dtp_arena_printf(arena, "%d %s", *value, o->path);
    const char *any = dtp_arena_printf(arena, "%d", *value);
    DTP_TRY(DTP_MEMORY(err, key, any));
    const int32_t there = dtp_name_find(&o->reads, key);
    if (there >= 0) {
        *value = there;
        return DTP_OK;
    }
    if (dtp_name_find(&o->reads, any) < 0) {
        DTP_TRY(dtp_name_add(&o->reads, arena, any, *value, err));
        const bool made_up = /* when an exporter put a folded weight in the place of another */
            strncmp(name, "onnx::", 6) == 0 ||
            (strncmp(name, "val_", 4) == 0 && strspn(name + 4, "0123456789") == strlen(name + 4));
        DTP_TRY(made_up ? name_after_node(o, *value, what, err) : DTP_OK);
    } else if (o->g->values[*value].rank == 1 && o->path[0] != '\0') {
        DTP_TRY(own_copy(o, *value, value, err));
        DTP_TRY(name_after_node(o, *value, what, err));
    }
    return dtp_name_add(&o->reads, arena, key, *value, err);
}

/* Names are names of ours as they are, and no two are the same: those of the file come first. */
static dtp_status settle_names(dtp_onnx_graph *o, dtp_err *err)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/";
    dtp_aten *g = o->g;
    for (int32_t i = 0; i < 2 * g->n_inputs; i++) {
        const int32_t at = g->inputs[i % g->n_inputs];
        const char *name = g->values[at].source;
        const bool guessed = g->values[at].guessed;
        const size_t n = strlen(name);
        if (g->values[at].role == ATEN_BUFFER || guessed != (i >= g->n_inputs)) {
            continue;
        }
        for (int32_t k = 2; guessed && dtp_name_find(&g->sources, name) >= 0; k++) {
            name = dtp_arena_printf(g->arena, "%s_%d", g->values[at].source, k);
            DTP_TRY(DTP_MEMORY(err, name));
        }
        if (n == 0 || n > 128 || strspn(name, good) != strlen(name)) {
            return DTP_FAIL(err, DTP_INVALID,
                            "%s: the name '%.200s' is not 1 to 128 letters, digits and _ . - /",
                            g->file, name);
        }
        if (dtp_name_find(&g->sources, name) >= 0) {
            return DTP_FAIL(err, DTP_INVALID, "%s: two inputs or weights are called '%s'", g->file,
                            name);
        }
        g->values[at].source = name;
        DTP_TRY(dtp_name_add(&g->sources, g->arena, name, at, err));
    }
    return DTP_OK;
}

/* ---- reading ---- */

/* A new name of the file. */
static dtp_status bind(dtp_onnx_graph *o, const char *name, int32_t value, dtp_err *err)
{
    return dtp_name_find(&o->names, name) < 0
               ? dtp_name_add(&o->names, o->g->arena, name, value, err)
               : DTP_FAIL(err, DTP_INVALID, "%s: tensor '%s' is made twice", o->g->file, name);
}

/* Tensors of floats are weights until a node shows that one is a constant; a single number without
 * a module is none. */
static dtp_status add_weight(dtp_onnx_graph *o, const dtp_onnx_tensor *t, dtp_err *err)
{
    const int32_t type = t->shape.dtype;
    const bool real = type == ATEN_F16 || type == ATEN_F32 || type == ATEN_F64 || type == ATEN_BF16;
    const int64_t n = dtp_shape_elements(&t->shape);
    int32_t value;
    if (!real || n == 0 || (n == 1 && strchr(t->name, '.') == NULL)) {
        DTP_TRY(dtp_onnx_constant(o, &t->shape, t->data.data, &value, err));
    } else {
        DTP_TRY(dtp_onnx_value(o, t->name, ATEN_PARAM, &t->shape, &value, err));
        o->g->values[value].data = t->data.data;
        o->g->values[value].bytes = t->data.bytes;
    }
    return bind(o, t->name, value, err);
}

/* Sizes that have names are 4, 6, 8, ..: no two of them the same, and none of them 1. */
static dtp_status add_input(dtp_onnx_graph *o, const dtp_onnx_tensor *t, dtp_err *err)
{
    dtp_shape shape = t->shape;
    int32_t value;
    for (int32_t i = 0; i < shape.rank; i++) {
        const char *symbol = t->symbols[i];
        if (symbol != NULL && dtp_name_find(&o->symbols, symbol) < 0) {
            DTP_TRY(dtp_name_add(&o->symbols, o->g->arena, symbol, 4 + 2 * o->symbols.n, err));
        }
        shape.sizes[i] = symbol != NULL ? dtp_name_find(&o->symbols, symbol) : shape.sizes[i];
    }
    DTP_TRY(dtp_err_prefixed(dtp_onnx_value(o, t->name, ATEN_INPUT, &shape, &value, err), err,
                             "%s: '%s'", o->g->file, t->name));
    memcpy(o->g->values[value].symbols, t->symbols, sizeof t->symbols);
    return bind(o, t->name, value, err);
}

static dtp_status read_operands(dtp_onnx_graph *o, dtp_err *err)
{
    const dtp_pb_texts *in = &o->n->in;
    DTP_TRY(DTP_NEW(o->g->arena, o->in, in->n + 5, err)); /* those that are left out are -1 */
    memset(o->in, -1, (size_t)(in->n + 5) * sizeof o->in[0]);
    for (int32_t i = 0; i < in->n; i++) {
        o->in[i] = dtp_name_find(&o->names, in->of[i]);
        if (in->of[i][0] == '\0' ? i < o->op->least : o->in[i] < 0) {
            return DTP_FAIL(err, DTP_INVALID, "'%s' is read before it is made", in->of[i]);
        }
        if (o->in[i] >= 0 && o->g->values[o->in[i]].role == ATEN_PARAM &&
            strcmp(o->n->op, "Identity") != 0) {
            DTP_TRY(read_weight(o, &o->in[i], err));
        }
    }
    return DTP_OK;
}

static dtp_status read_node(dtp_onnx_graph *o, dtp_err *err)
{
    const dtp_pb_texts *out = &o->n->out;
    o->op = dtp_onnx_op_find(o->n);
    DTP_TRY(dtp_onnx_check(o->n, o->op, err));
    DTP_TRY(read_operands(o, err));
    DTP_TRY(DTP_NEW(o->g->arena, o->out, out->n, err));
    memset(o->out, -1, (size_t)out->n * sizeof o->out[0]);
    o->x = dtp_onnx_shape(o, o->in[0]);
    o->s = o->x;
    DTP_TRY(o->op->read(o, err));
    for (int32_t i = 0; i < out->n; i++) {
        DTP_TRY(out->of[i][0] == '\0' || o->out[i] < 0 ? DTP_OK
                                                       : bind(o, out->of[i], o->out[i], err));
    }
    return DTP_OK;
}

/* Nodes of ops that the table lacks, as nodes and outputs of the graph: *any of them are listed as
 * those that ATen's table lacks. */
static dtp_status find_unknown(dtp_onnx_graph *o, bool *any, dtp_err *err)
{
    const dtp_shape none = {0};
    const dtp_onnx *f = o->file;
    int32_t value;
    DTP_TRY(DTP_NEW(o->g->arena, o->g->outputs, f->n_nodes + f->outputs.n + 1, err));
    for (int32_t i = 0; i < f->n_nodes; i++) {
        o->n = &f->nodes[i];
        o->path = o->n->path == NULL ? "" : o->n->path;
        if (dtp_onnx_op_find(o->n) == NULL) {
            const char *domain = o->n->domain, *dot = domain[0] == '\0' ? "" : ".";
            const char *op = dtp_arena_printf(o->g->arena, "onnx.%s%s%s", domain, dot, o->n->op);
            DTP_TRY(DTP_MEMORY(err, op));
            DTP_TRY(dtp_onnx_emit(o, op, 0, NULL, 1, &none, &value, err));
            o->g->outputs[o->g->n_outputs++] = value;
        }
    }
    *any = o->g->n_outputs > 0;
    return DTP_OK;
}

static void put_notes(const dtp_onnx_graph *o, dtp_strbuf *notes)
{
    int32_t scoped = 0;
    for (int32_t i = 0; i < o->guessed.n; i++) {
        scoped += o->guessed.names[i].index;
    }
    for (int32_t i = 0; i < o->symbols.n; i++) {
        dtp_strbuf_addf(notes, "the size '%s' is %d in the model\n", o->symbols.names[i].name,
                        o->symbols.names[i].index);
    }
    if (o->guessed.n > 0) {
        dtp_strbuf_addf(notes,
                        "%d weights have no name in the file: %d are named after the module that "
                        "reads them, %d after the node\n",
                        o->guessed.n, scoped, o->guessed.n - scoped);
    }
    if (o->apart > 0) {
        dtp_strbuf_addf(notes,
                        "%d of them are read from one that has the same elements: each is a "
                        "weight of its own\n",
                        o->apart);
    }
}

static dtp_status read_all(dtp_onnx_graph *o, dtp_err *err)
{
    const dtp_onnx *f = o->file;
    for (int32_t i = 0; i < f->weights.n; i++) {
        DTP_TRY(add_weight(o, &f->weights.of[i], err));
    }
    for (int32_t i = 0; i < f->inputs.n; i++) {
        if (dtp_name_find(&o->names, f->inputs.of[i].name) < 0) { /* else a weight's default */
            DTP_TRY(add_input(o, &f->inputs.of[i], err));
        }
    }
    for (int32_t i = 0; i < f->n_nodes; i++) {
        o->n = &f->nodes[i];
        const int32_t x = o->n->in.n == 0 ? -1 : dtp_name_find(&o->names, o->n->in.of[0]);
        const int32_t maker = x < 0 ? -1 : o->g->values[x].node;
        /* A node whose module is not said is of that which made its first operand. */
        o->path = o->n->path != NULL ? o->n->path : maker < 0 ? "" : o->g->nodes[maker].path;
        DTP_TRY(dtp_err_prefixed(read_node(o, err), err, "%s: %s '%s' in '%s'", f->file, o->n->op,
                                 o->n->name, o->path));
    }
    for (int32_t i = 0; i < f->outputs.n; i++) {
        const int32_t v = dtp_name_find(&o->names, f->outputs.of[i].name);
        if (v < 0) {
            return DTP_FAIL(err, DTP_INVALID, "%s: no node makes the output '%s'", f->file,
                            f->outputs.of[i].name);
        }
        o->g->outputs[o->g->n_outputs++] = v;
    }
    return settle_names(o, err);
}

/* It begins with the version of its form. */
bool dtp_onnx_is(const char *bytes, int64_t size)
{
    return size > 2 && bytes[0] == 0x08 && bytes[1] > 0 && bytes[1] < 0x40;
}

dtp_status dtp_onnx_read(const char *file, const char *bytes, int64_t size, dtp_arena *arena,
                         dtp_aten *out, dtp_strbuf *notes, dtp_err *err)
{
    dtp_onnx f;
    bool unknown;
    dtp_onnx_graph o = {.g = out, .file = &f, .fold = {.g = out}};
    *out = (dtp_aten){.arena = arena, .file = file};
    DTP_TRY(dtp_onnx_open(file, bytes, size, arena, &f, err));
    DTP_TRY(find_unknown(&o, &unknown, err));
    if (!unknown) {
        DTP_TRY(read_all(&o, err));
        put_notes(&o, notes);
    }
    return DTP_OK;
}
