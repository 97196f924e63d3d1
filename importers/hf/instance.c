/* Parts of a template, written with the values of a scope. */
#include "importers/hf/instance.h"

#include <string.h>

#include "core/base/json_writer.h"

typedef struct instance {
    dtp_scope *scope;
    dtp_json_writer w;
} instance;

static dtp_status write_value(instance *in, const dtp_json *v, const char *key, int32_t depth,
                              dtp_err *err);

/* Levels of objects in v. */
static int32_t height(const dtp_json *v)
{
    int32_t most = 0;
    for (int32_t i = 0; i < dtp_json_size(v); i++) {
        const int32_t h = height(dtp_json_at(v, i));
        most = h > most ? h : most;
    }
    return most + (dtp_json_kind_of(v) == DTP_JSON_OBJECT ? 1 : 0);
}

static dtp_status write_scalar(instance *in, const dtp_json *v, const char *key, dtp_err *err)
{
    dtp_scope_value value;
    const char *text;
    DTP_TRY(dtp_scope_eval(in->scope, v, &value, err));
    switch (value.kind) {
    case DTP_SCOPE_NONE:
        text = dtp_json_string(v, &text, NULL) == DTP_OK ? text : "it";
        return dtp_foreign_fail(in->scope->config, dtp_foreign_root(in->scope->config), err,
                                "'%s' of the model has no value: %s is null or not there",
                                key != NULL ? key : "", text);
    case DTP_SCOPE_BOOL:
        dtp_json_write_bool(&in->w, key, value.i != 0);
        break;
    case DTP_SCOPE_INT:
        dtp_json_write_int(&in->w, key, value.i);
        break;
    case DTP_SCOPE_REAL:
        dtp_json_write_double(&in->w, key, value.x);
        break;
    case DTP_SCOPE_TEXT:
        dtp_json_write_string(&in->w, key, value.text);
        break;
    }
    return DTP_OK;
}

static dtp_status write_object(instance *in, const dtp_json *v, const char *key, int32_t depth,
                               dtp_err *err)
{
    /* Nodes, parameters and what is as small stand on one line. */
    if (depth >= 2 && (key == NULL || height(v) <= 2)) {
        dtp_json_begin_line(&in->w, key);
    } else {
        dtp_json_begin_object(&in->w, key);
    }
    for (int32_t i = 0; i < dtp_json_size(v); i++) {
        const dtp_json *m = dtp_json_at(v, i);
        const char *name = dtp_json_key(m);
        DTP_TRY(dtp_scope_choose(in->scope, &m, err));
        if (m != NULL && strcmp(name, "if") != 0) {
            DTP_TRY(write_value(in, m, name, depth + 1, err));
        }
    }
    dtp_json_end_object(&in->w);
    return DTP_OK;
}

static dtp_status write_elements(instance *in, const dtp_json *v, int32_t depth, dtp_err *err)
{
    for (int32_t i = 0; i < dtp_json_size(v); i++) {
        const dtp_json *e = dtp_json_at(v, i);
        DTP_TRY(dtp_scope_choose(in->scope, &e, err));
        if (e == NULL) {
            continue;
        }
        /* A choice of elements: they stand in the list themselves. */
        DTP_TRY(dtp_json_kind_of(e) == DTP_JSON_ARRAY ? write_elements(in, e, depth, err)
                                                      : write_value(in, e, NULL, depth + 1, err));
    }
    return DTP_OK;
}

static dtp_status write_value(instance *in, const dtp_json *v, const char *key, int32_t depth,
                              dtp_err *err)
{
    switch (dtp_json_kind_of(v)) {
    case DTP_JSON_ARRAY:
        dtp_json_begin_array(&in->w, key, height(v) == 0);
        DTP_TRY(write_elements(in, v, depth, err));
        dtp_json_end_array(&in->w);
        return DTP_OK;
    case DTP_JSON_OBJECT:
        return dtp_scope_is_function(v) ? write_scalar(in, v, key, err)
                                        : write_object(in, v, key, depth, err);
    default:
        return write_scalar(in, v, key, err);
    }
}

dtp_status dtp_instance_write(dtp_scope *scope, const dtp_json *v, const char **out, dtp_err *err)
{
    instance in = {.scope = scope};
    dtp_status s = write_value(&in, v, NULL, 0, err);
    dtp_strbuf_add(&in.w.buf, "\n");
    *out = s == DTP_OK && !in.w.buf.failed
               ? dtp_arena_strdup(scope->arena, dtp_strbuf_text(&in.w.buf))
               : NULL;
    s = s == DTP_OK ? DTP_MEMORY(err, *out) : s;
    dtp_strbuf_free(&in.w.buf);
    return s;
}
