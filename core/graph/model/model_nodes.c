/* One node of a model file: id, op, in, out and the op's attributes as its table row says. */
#include "core/graph/model/model_internal.h"

enum { MAX_ATTRS = 24 };

/* The attributes of one node and the storage of their lists. */
typedef struct node_attrs {
    int32_t n;
    dtp_attr attrs[MAX_ATTRS];
    dtp_dim_id ids[MAX_ATTRS][DTP_MAX_RANK]; /* or integers */
} node_attrs;

/* Rejects keys that the op does not have. */
static dtp_status check_keys(const dtp_json *v, const dtp_op_def *op, dtp_err *err)
{
    const char *keys[MAX_ATTRS + 5] = {"id", "op", "in", "out"};
    int32_t n = 4;
    for (int32_t i = 0; op->attrs != NULL && op->attrs[i].key != NULL && i < MAX_ATTRS; i++) {
        if (!op->attrs[i].hidden) {
            keys[n++] = op->attrs[i].key;
        }
    }
    keys[n] = NULL;
    return dtp_json_keys(v, keys, err);
}

/* ---- attributes ---- */

/* A list of distinct dim names; one name stands for a list of one. */
static dtp_status read_dims_attr(dtp_model_reader *r, const dtp_json *v, int32_t *n,
                                 dtp_dim_id ids[DTP_MAX_RANK], dtp_err *err)
{
    if (dtp_json_kind_of(v) == DTP_JSON_STRING) {
        *n = 1;
        return dtp_model__dim(r, v, &ids[0], err);
    }
    DTP_TRY(dtp_json_expect(v, DTP_JSON_ARRAY, err));
    *n = dtp_json_size(v);
    if (*n > DTP_MAX_RANK) {
        return dtp_json_fail(v, err, "%d dims, the limit is %d", *n, DTP_MAX_RANK);
    }
    for (int32_t i = 0; i < *n; i++) {
        DTP_TRY(dtp_model__dim(r, dtp_json_at(v, i), &ids[i], err));
        for (int32_t j = 0; j < i; j++) {
            if (ids[j] == ids[i]) {
                return dtp_json_fail(dtp_json_at(v, i), err, "dim '%s' occurs twice",
                                     dtp_dims_name(&r->g->dims, ids[i]));
            }
        }
    }
    return DTP_OK;
}

/* A list of integers; one integer stands for a list of one. */
static dtp_status read_ints_attr(dtp_model_reader *r, const dtp_json *v, int32_t *n,
                                 int32_t ints[DTP_MAX_RANK], dtp_err *err)
{
    const bool is_list = dtp_json_kind_of(v) == DTP_JSON_ARRAY;
    *n = is_list ? dtp_json_size(v) : 1;
    if (*n < 1 || *n > DTP_MAX_RANK) {
        return dtp_json_fail(v, err, "%d integers, 1 to %d are possible", *n, DTP_MAX_RANK);
    }
    for (int32_t i = 0; i < *n; i++) {
        int64_t value;
        DTP_TRY(
            dtp_model__int(r, is_list ? dtp_json_at(v, i) : v, INT32_MIN, INT32_MAX, &value, err));
        ints[i] = (int32_t)value;
    }
    return DTP_OK;
}

static dtp_status read_attr(dtp_model_reader *r, const dtp_attr_spec *spec, const dtp_json *v,
                            dtp_dim_id ids[DTP_MAX_RANK], dtp_attr *out, dtp_err *err)
{
    dtp_dim_id dim;
    dtp_dtype dtype;
    int32_t choice;
    bool flag;
    *out = (dtp_attr){.key = spec->key, .kind = spec->kind};
    switch (spec->kind) {
    case DTP_ATTR_INT:
        return dtp_model__int(r, v, INT64_MIN, INT64_MAX, &out->i, err);
    case DTP_ATTR_FLOAT:
        return dtp_model__real(r, v, &out->f, err);
    case DTP_ATTR_BOOL:
        DTP_TRY(dtp_json_bool(v, &flag, err));
        out->i = flag ? 1 : 0;
        return DTP_OK;
    case DTP_ATTR_ENUM:
        DTP_TRY(dtp_json_choice(v, spec->choices, &choice, err));
        out->i = choice;
        return DTP_OK;
    case DTP_ATTR_DTYPE:
        DTP_TRY(dtp_model__dtype(r, v, &dtype, err));
        out->i = dtype;
        return DTP_OK;
    case DTP_ATTR_DIM:
        DTP_TRY(dtp_model__dim(r, v, &dim, err));
        out->i = dim;
        return DTP_OK;
    case DTP_ATTR_DIMS:
        out->ids = ids;
        return read_dims_attr(r, v, &out->n, ids, err);
    case DTP_ATTR_INTS:
        out->ints = ids;
        return read_ints_attr(r, v, &out->n, ids, err);
    }
    return dtp_json_fail(v, err, "attribute of unknown kind");
}

/* The attributes that the node gives, and those of which the option asks for another default. */
static dtp_status read_attrs(dtp_model_reader *r, const dtp_op_def *op, const dtp_json *v,
                             node_attrs *out, dtp_err *err)
{
    out->n = 0;
    for (const dtp_attr_spec *spec = op->attrs; spec != NULL && spec->key != NULL; spec++) {
        if (out->n == MAX_ATTRS) {
            return dtp_json_fail(v, err, "op '%s' has more than %d attributes", op->name,
                                 MAX_ATTRS);
        }
        const dtp_json *given = spec->hidden ? NULL : dtp_json_get(v, spec->key);
        const bool f32_default = spec->kind == DTP_ATTR_DTYPE && (int32_t)spec->def == DTP_F32;
        if (given == NULL && spec->required) {
            return dtp_json_fail(v, err, "op '%s' needs the key '%s'", op->name, spec->key);
        }
        if (given != NULL) {
            DTP_TRY(read_attr(r, spec, given, out->ids[out->n], &out->attrs[out->n], err));
            out->n++;
        } else if (f32_default && r->options->f64) {
            out->attrs[out->n++] =
                (dtp_attr){.key = spec->key, .kind = DTP_ATTR_DTYPE, .i = DTP_F64};
        }
    }
    return DTP_OK;
}

/* ---- the node ---- */

static dtp_status read_operands(const dtp_model_reader *r, const dtp_model_scope *scope,
                                const dtp_json *v, const dtp_op_def *op,
                                dtp_tensor_id in[DTP_MAX_OP_IN], int32_t *n, dtp_err *err)
{
    const dtp_json *list = dtp_json_get(v, "in");
    *n = 0;
    if (list == NULL) {
        return op->min_in == 0 ? DTP_OK : dtp_json_fail(v, err, "the key 'in' is missing");
    }
    DTP_TRY(dtp_json_expect(list, DTP_JSON_ARRAY, err));
    *n = dtp_json_size(list);
    if (*n < op->min_in || *n > op->max_in) {
        char takes[DTP_OP_TAKES_BYTES];
        return dtp_json_fail(list, err, "op '%s' takes %s, found %d", op->name,
                             dtp_op_takes(op, takes), *n);
    }
    for (int32_t i = 0; i < *n; i++) {
        DTP_TRY(dtp_model__tensor(r, scope, dtp_json_at(list, i), &in[i], err));
    }
    return DTP_OK;
}

dtp_status dtp_model__node(dtp_model_reader *r, const dtp_model_scope *scope, const dtp_json *v,
                           dtp_err *err)
{
    const dtp_json *op_name = dtp_json_get(v, "op"), *out = dtp_json_get(v, "out");
    const char *name, *id;
    char full[DTP_MODEL_MAX_FULL_NAME];
    DTP_TRY(dtp_model__count(r, v, err));
    DTP_TRY(dtp_json_get_string(v, "id", &id, err));
    DTP_TRY(dtp_json_get_string(v, "op", &name, err));
    const dtp_op_def *op = dtp_op_set_find(r->g->ops, name);
    if (op == NULL) {
        char hint[DTP_OP_HINT_BYTES];
        dtp_op_hint(r->g->ops, name, hint);
        return dtp_json_fail(op_name, err, "there is no op '%.80s'%s", name, hint);
    }
    if ((op->flags & DTP_OP_INTERNAL_USE) != 0) {
        return dtp_json_fail(op_name, err, "op '%s' is made by the training graph only", name);
    }
    DTP_TRY(check_keys(v, op, err));
    DTP_TRY(dtp_model__new_name(r, scope, dtp_json_get(v, "id"), id, full, err));
    node_attrs attrs;
    dtp_tensor_id in[DTP_MAX_OP_IN];
    dtp_node_spec spec = dtp_node_spec_init(full, op->name);
    spec.def = op;
    DTP_TRY(read_operands(r, scope, v, op, in, &spec.n_in, err));
    dtp_ttype declared;
    if (out != NULL) {
        spec.out = &declared;
        DTP_TRY(dtp_model__dim_list(r, out, &declared.rank, declared.dims, err));
    }
    DTP_TRY(read_attrs(r, op, v, &attrs, err));
    spec.in = in;
    spec.n_attrs = attrs.n;
    spec.attrs = attrs.attrs;
    spec.block = scope->site;
    spec.instance = scope->instance;
    return dtp_json_prefixed(v, dtp_graph_add_node(r->g, &spec, NULL, err), err);
}
