/* The "inputs" and "params" of a model. */
#include <inttypes.h>
#include <string.h>

#include "core/graph/model/model_internal.h"

dtp_status dtp_model__dtype(const dtp_model_reader *r, const dtp_json *v, dtp_dtype *out,
                            dtp_err *err)
{
    const char *name;
    DTP_TRY(dtp_json_string(v, &name, err));
    DTP_TRY(dtp_json_prefixed(v, dtp_dtype_parse(name, out, err), err));
    if (r->options->f64 && *out == DTP_F32) {
        *out = DTP_F64;
    }
    return DTP_OK;
}

/* "dims" and "dtype" (f32 when absent). */
static dtp_status read_type(dtp_model_reader *r, const dtp_json *v, dtp_ttype *out, dtp_err *err)
{
    const dtp_json *dims;
    const dtp_json *dtype = dtp_json_get(v, "dtype");
    DTP_TRY(dtp_json_require(v, "dims", &dims, err));
    DTP_TRY(dtp_model__dim_list(r, dims, &out->rank, out->dims, err));
    out->dtype = r->options->f64 ? DTP_F64 : DTP_F32;
    return dtype == NULL ? DTP_OK : dtp_model__dtype(r, dtype, &out->dtype, err);
}

static dtp_status add_tensor(dtp_model_reader *r, const dtp_json *v, const dtp_graph_tensor *spec,
                             dtp_err *err)
{
    dtp_tensor_id id;
    DTP_TRY(dtp_model__count(r, v, err));
    return dtp_json_prefixed(v, dtp_graph_add_tensor(r->g, spec, &id, err), err);
}

/* ---- inputs ---- */

dtp_status dtp_model__inputs(dtp_model_reader *r, dtp_err *err)
{
    static const char *const keys[] = {"dims", "dtype", "below", NULL};
    const dtp_json *inputs;
    dtp_model_scope scope = {.prefix = ""};
    DTP_TRY(dtp_json_get_kind(r->root, "inputs", DTP_JSON_OBJECT, &inputs, err));
    for (int32_t i = 0; i < dtp_json_size(inputs); i++) {
        const dtp_json *v = dtp_json_at(inputs, i), *below = dtp_json_get(v, "below");
        char name[DTP_MODEL_MAX_FULL_NAME];
        dtp_graph_tensor spec = {.name = name, .kind = DTP_TENSOR_INPUT};
        DTP_TRY(dtp_json_keys(v, keys, err));
        DTP_TRY(dtp_model__new_name(r, &scope, v, dtp_json_key(v), name, err));
        DTP_TRY(read_type(r, v, &spec.type, err));
        const bool i32 = spec.type.dtype == DTP_I32;
        if (below != NULL && !i32 && spec.type.dtype != DTP_I64) {
            return dtp_json_fail(below, err, "only i32 and i64 inputs have a bound, this one is %s",
                                 dtp_dtype_name(spec.type.dtype));
        }
        if (below != NULL) {
            DTP_TRY(dtp_model__int(r, below, 1, i32 ? INT32_MAX : INT64_MAX, &spec.below, err));
        }
        DTP_TRY(add_tensor(r, v, &spec, err));
    }
    return DTP_OK;
}

/* ---- params ---- */

/* A list of two numbers. */
static dtp_status read_pair(const dtp_json *v, double *a, double *b, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(v, DTP_JSON_ARRAY, err));
    if (dtp_json_size(v) != 2) {
        return dtp_json_fail(v, err, "expected two numbers, found %d", dtp_json_size(v));
    }
    DTP_TRY(dtp_json_double(dtp_json_at(v, 0), a, err));
    return dtp_json_double(dtp_json_at(v, 1), b, err);
}

static dtp_status read_init(const dtp_json *v, dtp_init *out, dtp_err *err)
{
    static const char *const keys[] = {"normal", "uniform", "constant", NULL};
    if (dtp_json_kind_of(v) == DTP_JSON_STRING) {
        const char *text;
        DTP_TRY(dtp_json_string(v, &text, err));
        if (strcmp(text, "zeros") != 0 && strcmp(text, "ones") != 0) {
            return dtp_json_fail(v, err,
                                 "expected zeros, ones, {\"normal\": ...}, {\"uniform\": ...} or "
                                 "{\"constant\": ...}, found '%.80s'",
                                 text);
        }
        out->kind = text[0] == 'z' ? DTP_INIT_ZEROS : DTP_INIT_ONES;
        return DTP_OK;
    }
    DTP_TRY(dtp_json_keys(v, keys, err));
    if (dtp_json_size(v) != 1) {
        return dtp_json_fail(v, err, "expected one of normal, uniform and constant, found %d keys",
                             dtp_json_size(v));
    }
    const dtp_json *value = dtp_json_at(v, 0);
    if (strcmp(dtp_json_key(value), "normal") == 0) {
        /* A standard deviation, or [mean, standard deviation]. */
        const bool pair = dtp_json_kind_of(value) == DTP_JSON_ARRAY;
        out->kind = DTP_INIT_NORMAL;
        DTP_TRY(pair ? read_pair(value, &out->b, &out->a, err)
                     : dtp_json_double(value, &out->a, err));
        return out->a >= 0 ? DTP_OK
                           : dtp_json_fail(value, err, "the standard deviation is %g", out->a);
    }
    if (strcmp(dtp_json_key(value), "uniform") == 0) {
        out->kind = DTP_INIT_UNIFORM;
        DTP_TRY(read_pair(value, &out->a, &out->b, err));
        return out->a < out->b
                   ? DTP_OK
                   : dtp_json_fail(value, err, "the range [%g, %g) is empty", out->a, out->b);
    }
    out->kind = DTP_INIT_CONSTANT;
    return dtp_json_double(value, &out->a, err);
}

dtp_status dtp_model__params(dtp_model_reader *r, const dtp_model_scope *scope,
                             const dtp_json *params, dtp_err *err)
{
    static const char *const keys[] = {"dims", "dtype", "init", "frozen", "update", NULL};
    DTP_TRY(dtp_json_expect(params, DTP_JSON_OBJECT, err));
    for (int32_t i = 0; i < dtp_json_size(params); i++) {
        const dtp_json *v = dtp_json_at(params, i), *init;
        char name[DTP_MODEL_MAX_FULL_NAME];
        dtp_graph_tensor spec = {.name = name, .kind = DTP_TENSOR_PARAM};
        DTP_TRY(dtp_json_keys(v, keys, err));
        DTP_TRY(dtp_model__new_name(r, scope, v, dtp_json_key(v), name, err));
        DTP_TRY(read_type(r, v, &spec.type, err));
        if (!dtp_dtype_is_float(spec.type.dtype)) {
            return dtp_json_fail(v, err, "a param has a floating-point dtype, not %s",
                                 dtp_dtype_name(spec.type.dtype));
        }
        DTP_TRY(dtp_json_require(v, "init", &init, err));
        DTP_TRY(read_init(init, &spec.init, err));
        if (dtp_json_get(v, "frozen") != NULL) {
            DTP_TRY(dtp_json_get_bool(v, "frozen", &spec.frozen, err));
        }
        if (dtp_json_get(v, "update") != NULL && dtp_json_get(v, "frozen") != NULL) {
            return dtp_json_fail(v, err, "a param has 'frozen' or 'update', not both");
        }
        spec.frozen = spec.frozen || dtp_json_get(v, "update") != NULL;
        DTP_TRY(add_tensor(r, v, &spec, err));
    }
    return DTP_OK;
}

dtp_status dtp_model__updates(dtp_model_reader *r, const dtp_model_scope *scope,
                              const dtp_json *params, dtp_err *err)
{
    for (int32_t i = 0; params != NULL && i < dtp_json_size(params); i++) {
        const dtp_json *member = dtp_json_at(params, i), *next = dtp_json_get(member, "update");
        dtp_update u;
        if (next == NULL) {
            continue;
        }
        u.target = dtp_model__find(r, scope, dtp_json_key(member));
        DTP_TRY(dtp_model__tensor(r, scope, next, &u.value, err));
        const dtp_graph_tensor *was = &r->g->tensors[u.target], *is = &r->g->tensors[u.value];
        if (is->kind != DTP_TENSOR_VALUE) {
            return dtp_json_fail(next, err, "'%s' is no result of a node", is->name);
        }
        if (!dtp_ttype_equal(&was->type, &is->type)) {
            char a[DTP_TTYPE_TEXT_BYTES], b[DTP_TTYPE_TEXT_BYTES];
            dtp_ttype_print(&was->type, &r->g->dims, a);
            dtp_ttype_print(&is->type, &r->g->dims, b);
            return dtp_json_fail(next, err, "'%s' is %.160s, its update is %.160s", was->name, a,
                                 b);
        }
        DTP_TRY(dtp_graph_add_update(r->g, u, err));
    }
    return DTP_OK;
}
