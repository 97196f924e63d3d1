/* Messages of onnx.proto; numbers of members are those of the schema. */
#include "importers/onnx/onnx_file.h"
#include "importers/files/beside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/safe_int.h"
#include "core/files/file_map.h"

enum { OPSET_FIRST = 13, OPSET_LAST = 23 };

/* Of external data, the file that was opened last. */
typedef struct beside {
    const char *location;
    dtp_file_map *map;
} beside;

typedef struct entry {
    const char *key, *value;
} entry;

static const dtp_pb_member entry_members[] = {
    {1, PB_TEXT, offsetof(entry, key), NULL}, {2, PB_TEXT, offsetof(entry, value), NULL}, {0}};

/* ---- tensors ---- */

int32_t dtp_onnx_dtype(int64_t type)
{
    static const int8_t dtypes[17] = {
        [1] = ATEN_F32, [2] = ATEN_U8,   [3] = ATEN_I8,   [5] = ATEN_I16,  [6] = ATEN_I32,
        [7] = ATEN_I64, [9] = ATEN_BOOL, [10] = ATEN_F16, [11] = ATEN_F64, [16] = ATEN_BF16};
    return type > 0 && type < 17 ? dtypes[type] : 0;
}

int64_t dtp_shape_elements(const dtp_shape *s)
{
    int64_t n = 1;
    for (int32_t i = 0; i < s->rank; i++) {
        n *= s->sizes[i];
    }
    return n;
}

static void close_map(void *map)
{
    dtp_file_map_close(map);
}

/* A file below the model's folder. */
static dtp_status open_beside(const dtp_pb *p, const char *at, const char *location, dtp_err *err)
{
    beside *b = p->context;
    const char *slash = strrchr(p->file, '/');
    if (b->map != NULL && strcmp(b->location, location) == 0) {
        return DTP_OK;
    }
    for (const char *c = location; c != NULL; c = strchr(c, '/')) {
        c += c > location ? 1 : 0;
        if (*c == '/' || *c == '\0' || strncmp(c, "../", 3) == 0 || strcmp(c, "..") == 0) {
            return dtp_pb_fail(p, at, err, "external data in '%s', no path below the folder",
                               location);
        }
    }
    const int n = slash == NULL ? 0 : (int)(slash + 1 - p->file);
    const char *path = dtp_arena_printf(p->arena, "%.*s%s", n, p->file, location);
    const char *folder = dtp_arena_printf(p->arena, "%.*s", n, p->file);
    DTP_TRY(path == NULL ? DTP_MEMORY(err, path) : DTP_MEMORY(err, folder));
    if (!dtp_path_stays(folder, location)) {
        return dtp_pb_fail(p, at, err, "external data in '%s', a link that leaves the folder",
                           location);
    }
    b->location = location;
    DTP_TRY(DTP_NEW(p->arena, b->map, 1, err));
    b->map->fd = -1;
    DTP_TRY(dtp_err_prefixed(dtp_file_map_open(path, b->map, err), err, "%s", p->file));
    return dtp_arena_at_end(p->arena, close_map, b->map, err);
}

typedef struct tensor_message {
    const char *name, *location;
    int64_t type, external, offset, length; /* length -1: not said */
    dtp_pb_ints dims, ints;
    dtp_pb_span data;
} tensor_message;

static dtp_status read_external(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    tensor_message *t = to;
    entry e = {"", ""};
    DTP_TRY(dtp_pb_read(p, m, entry_members, &e, err));
    const bool offset = strcmp(e.key, "offset") == 0;
    if (strcmp(e.key, "location") == 0) {
        t->location = e.value;
    } else if (offset || strcmp(e.key, "length") == 0) {
        const size_t digits = strspn(e.value, "0123456789");
        if (digits == 0 || digits > 18 || e.value[digits] != '\0') {
            return dtp_pb_fail(p, m.data, err, "external data: %s '%s'", e.key, e.value);
        }
        *(offset ? &t->offset : &t->length) = strtoll(e.value, NULL, 10);
    }
    return DTP_OK;
}

static const dtp_pb_member tensor_members[] = {
    {1, PB_INTS, offsetof(tensor_message, dims), NULL},
    {2, PB_INT, offsetof(tensor_message, type), NULL},
    {4, PB_SPAN, offsetof(tensor_message, data), NULL}, /* floats as they are packed */
    {5, PB_INTS, offsetof(tensor_message, ints), NULL},
    {7, PB_INTS, offsetof(tensor_message, ints), NULL},
    {8, PB_TEXT, offsetof(tensor_message, name), NULL},
    {9, PB_SPAN, offsetof(tensor_message, data), NULL},
    {10, PB_SPAN, offsetof(tensor_message, data), NULL},
    {13, PB_MESSAGE, 0, read_external},
    {14, PB_INT, offsetof(tensor_message, external), NULL},
    {0}};

/* Where the elements lie: in the file, in one beside it, or integers that were written one by one.
 */
static dtp_status find_data(const dtp_pb *p, const char *at, tensor_message *m, int64_t size,
                            int64_t bytes, dtp_err *err)
{
    if (m->external == 1) {
        DTP_TRY(open_beside(p, at, m->location, err));
        const dtp_file_map *map = ((beside *)p->context)->map;
        if (m->offset > map->bytes || bytes > map->bytes - m->offset) {
            return dtp_pb_fail(p, at, err, "'%s' ends behind '%s'", m->name, m->location);
        }
        m->data = (dtp_pb_span){map->data + m->offset, m->length < 0 ? bytes : m->length};
    } else if (m->data.data == NULL && m->ints.n > 0) {
        char *data = dtp_arena_alloc(p->arena, (size_t)m->ints.n, (size_t)size);
        DTP_TRY(DTP_MEMORY(err, data));
        for (int32_t i = 0; i < m->ints.n; i++) { /* little-endian */
            memcpy(data + i * size, &m->ints.of[i], (size_t)size);
        }
        m->data = (dtp_pb_span){data, m->ints.n * size};
    }
    return m->data.bytes == bytes
               ? DTP_OK
               : dtp_pb_fail(p, at, err, "'%s' has %" PRId64 " bytes, not %" PRId64, m->name,
                             m->data.bytes, bytes);
}

static dtp_status read_tensor(const dtp_pb *p, dtp_pb_span m, dtp_onnx_tensor *t, dtp_err *err)
{
    tensor_message is = {.name = "", .location = "", .length = -1};
    DTP_TRY(dtp_pb_read(p, m, tensor_members, &is, err));
    *t = (dtp_onnx_tensor){.name = is.name, .shape = {dtp_onnx_dtype(is.type), is.dims.n, {0}}};
    const int64_t size = dtp_aten_bytes(t->shape.dtype);
    int64_t bytes = size, room = size;
    bool fits = is.dims.n <= DTP_MAX_RANK && size > 0;
    for (int32_t i = 0; fits && i < is.dims.n; i++) {
        const int64_t n = t->shape.sizes[i] = is.dims.of[i];
        fits = n >= 0 && dtp_mul_i64(room, n > 0 ? n : 1, &room) && room < INT64_C(1) << 50;
        bytes *= fits ? n : 0;
    }
    if (!fits) {
        return dtp_pb_fail(p, m.data, err, "'%s' has %d axes, too many elements or type %" PRId64,
                           t->name, is.dims.n, is.type);
    }
    DTP_TRY(find_data(p, m.data, &is, size, bytes, err));
    t->data = is.data;
    return DTP_OK;
}

/* ---- inputs and outputs ---- */

typedef struct dim_message {
    int64_t size;
    const char *symbol;
} dim_message;

static dtp_status read_dim(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    static const dtp_pb_member members[] = {{1, PB_INT, offsetof(dim_message, size), NULL},
                                            {2, PB_TEXT, offsetof(dim_message, symbol), NULL},
                                            {0}};
    dtp_onnx_tensor *t = to;
    dim_message dim = {-1, NULL};
    DTP_TRY(dtp_pb_read(p, m, members, &dim, err));
    if (t->shape.rank == DTP_MAX_RANK) {
        return dtp_pb_fail(p, m.data, err, "more than %d axes", DTP_MAX_RANK);
    }
    t->symbols[t->shape.rank] = dim.symbol;
    t->shape.sizes[t->shape.rank++] = dim.size;
    return DTP_OK;
}

static dtp_status read_shape(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    static const dtp_pb_member members[] = {{1, PB_MESSAGE, 0, read_dim}, {0}};
    return dtp_pb_read(p, m, members, to, err);
}

typedef struct info_message {
    dtp_onnx_tensor tensor;
    int64_t type;
} info_message;

/* TypeProto.Tensor */
static dtp_status read_tensor_type(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    static const dtp_pb_member members[] = {
        {1, PB_INT, offsetof(info_message, type), NULL}, {2, PB_MESSAGE, 0, read_shape}, {0}};
    return dtp_pb_read(p, m, members, to, err);
}

static dtp_status read_type(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    static const dtp_pb_member members[] = {{1, PB_MESSAGE, 0, read_tensor_type}, {0}};
    return dtp_pb_read(p, m, members, to, err);
}

/* ValueInfoProto of a tensor */
static dtp_status add_info(const dtp_pb *p, dtp_pb_span m, dtp_onnx_tensors *list, dtp_err *err)
{
    static const dtp_pb_member members[] = {{1, PB_TEXT, offsetof(info_message, tensor.name), NULL},
                                            {2, PB_MESSAGE, 0, read_type},
                                            {0}};
    info_message info = {.tensor = {.name = ""}};
    DTP_TRY(dtp_pb_read(p, m, members, &info, err));
    info.tensor.shape.dtype = dtp_onnx_dtype(info.type);
    if (info.tensor.shape.dtype == 0) {
        return dtp_pb_fail(p, m.data, err, "'%s' has type %" PRId64, info.tensor.name, info.type);
    }
    DTP_TRY(DTP_ONE_MORE(p->arena, list->of, list->n, list->capacity, err));
    list->of[list->n++] = info.tensor;
    return DTP_OK;
}

/* ---- nodes ---- */

static dtp_status read_attr_tensor(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    dtp_onnx_attr *a = to;
    DTP_TRY(DTP_NEW(p->arena, a->tensor, 1, err));
    return read_tensor(p, m, a->tensor, err);
}

static dtp_status read_attr(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    static const dtp_pb_member members[] = {{1, PB_TEXT, offsetof(dtp_onnx_attr, name), NULL},
                                            {2, PB_FLOAT, offsetof(dtp_onnx_attr, f), NULL},
                                            {3, PB_INT, offsetof(dtp_onnx_attr, i), NULL},
                                            {4, PB_TEXT, offsetof(dtp_onnx_attr, text), NULL},
                                            {5, PB_MESSAGE, 0, read_attr_tensor},
                                            {8, PB_INTS, offsetof(dtp_onnx_attr, ints), NULL},
                                            {0}};
    dtp_onnx_node *n = to;
    DTP_TRY(DTP_ONE_MORE(p->arena, n->attrs, n->n_attrs, n->attrs_capacity, err));
    dtp_onnx_attr *a = &n->attrs[n->n_attrs++];
    *a = (dtp_onnx_attr){.name = "", .text = ""};
    return dtp_pb_read(p, m, members, a, err);
}

/* The module is the last but one of "['', 'm', 'm.layers.0', 'linear_3']". */
static dtp_status read_scopes(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    dtp_onnx_node *n = to;
    entry e = {"", ""};
    DTP_TRY(dtp_pb_read(p, m, entry_members, &e, err));
    if (strcmp(e.key, "pkg.torch.onnx.name_scopes") != 0) {
        return DTP_OK;
    }
    const char *last = strrchr(e.value, ','), *begin = last == NULL ? "" : last;
    while (last != NULL && begin > e.value && begin[-1] != ',' && begin[-1] != '[') {
        begin--;
    }
    begin += strspn(begin, " '");
    n->path = dtp_arena_printf(p->arena, "%.*s", (int)strcspn(begin, "',"), begin);
    return DTP_MEMORY(err, n->path);
}

/* "/m/layers.0/mlp/MatMul" is of the module "m.layers.0.mlp". */
static dtp_status path_of(const dtp_pb *p, const char *name, const char **out, dtp_err *err)
{
    const char *last = strrchr(name, '/');
    if (name[0] != '/') {
        return DTP_OK;
    }
    char *path =
        dtp_arena_printf(p->arena, "%.*s", last == name ? 0 : (int)(last - name - 1), name + 1);
    DTP_TRY(DTP_MEMORY(err, path));
    *out = path;
    for (; (path = strchr(path, '/')) != NULL;) {
        *path = '.';
    }
    return DTP_OK;
}

static dtp_status read_node(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    static const dtp_pb_member members[] = {{1, PB_TEXTS, offsetof(dtp_onnx_node, in), NULL},
                                            {2, PB_TEXTS, offsetof(dtp_onnx_node, out), NULL},
                                            {3, PB_TEXT, offsetof(dtp_onnx_node, name), NULL},
                                            {4, PB_TEXT, offsetof(dtp_onnx_node, op), NULL},
                                            {5, PB_MESSAGE, 0, read_attr},
                                            {7, PB_TEXT, offsetof(dtp_onnx_node, domain), NULL},
                                            {9, PB_MESSAGE, 0, read_scopes},
                                            {0}};
    dtp_onnx *o = to;
    DTP_TRY(DTP_ONE_MORE(p->arena, o->nodes, o->n_nodes, o->nodes_capacity, err));
    dtp_onnx_node *n = &o->nodes[o->n_nodes++];
    *n = (dtp_onnx_node){.op = "", .domain = "", .name = ""};
    DTP_TRY(dtp_pb_read(p, m, members, n, err));
    return n->path != NULL ? DTP_OK : path_of(p, n->name, &n->path, err);
}

/* ---- the model ---- */

static dtp_status read_weight(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    dtp_onnx_tensors *list = &((dtp_onnx *)to)->weights;
    DTP_TRY(DTP_ONE_MORE(p->arena, list->of, list->n, list->capacity, err));
    return read_tensor(p, m, &list->of[list->n++], err);
}

static dtp_status read_input(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    return add_info(p, m, &((dtp_onnx *)to)->inputs, err);
}

static dtp_status read_output(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    return add_info(p, m, &((dtp_onnx *)to)->outputs, err);
}

static dtp_status refuse_sparse(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    (void)to;
    return dtp_pb_fail(p, m.data, err, "a weight that is sparse");
}

static dtp_status read_graph(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    static const dtp_pb_member members[] = {
        {1, PB_MESSAGE, 0, read_node},      {5, PB_MESSAGE, 0, read_weight},
        {11, PB_MESSAGE, 0, read_input},    {12, PB_MESSAGE, 0, read_output},
        {15, PB_MESSAGE, 0, refuse_sparse}, {0}};
    ((dtp_onnx *)to)->n_graphs++;
    return dtp_pb_read(p, m, members, to, err);
}

typedef struct opset_message {
    const char *domain;
    int64_t version;
} opset_message;

static dtp_status read_opset(const dtp_pb *p, dtp_pb_span m, void *to, dtp_err *err)
{
    static const dtp_pb_member members[] = {{1, PB_TEXT, offsetof(opset_message, domain), NULL},
                                            {2, PB_INT, offsetof(opset_message, version), NULL},
                                            {0}};
    opset_message opset = {"", 0};
    DTP_TRY(dtp_pb_read(p, m, members, &opset, err));
    const bool own = opset.domain[0] == '\0' || strcmp(opset.domain, "ai.onnx") == 0;
    ((dtp_onnx *)to)->opset = own ? opset.version : ((dtp_onnx *)to)->opset;
    return DTP_OK;
}

dtp_status dtp_onnx_open(const char *file, const char *bytes, int64_t size, dtp_arena *arena,
                         dtp_onnx *out, dtp_err *err)
{
    static const dtp_pb_member members[] = {
        {7, PB_MESSAGE, 0, read_graph}, {8, PB_MESSAGE, 0, read_opset}, {0}};
    beside b = {0};
    const dtp_pb p = {file, bytes, arena, &b};
    *out = (dtp_onnx){.file = file};
    DTP_TRY(dtp_pb_read(&p, (dtp_pb_span){bytes, size}, members, out, err));
    if (out->opset < OPSET_FIRST || out->opset > OPSET_LAST || out->n_graphs != 1) {
        return DTP_FAIL(err, DTP_INVALID, "%s: opset %" PRId64 ", not %d to %d, and %d graphs",
                        file, out->opset, OPSET_FIRST, OPSET_LAST, out->n_graphs);
    }
    return DTP_OK;
}
