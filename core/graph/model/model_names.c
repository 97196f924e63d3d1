/* Names of tensors and nodes: their form, the scopes they live in and what they mean there. */
#include <string.h>

#include "core/graph/model/model_internal.h"

/* Puts prefix and name together; false when they are too long. */
static bool join(const dtp_model_scope *scope, const char *name, char full[DTP_MODEL_MAX_FULL_NAME])
{
    const size_t before = strlen(scope->prefix), bytes = strlen(name) + 1;
    if (before + bytes > DTP_MODEL_MAX_FULL_NAME) {
        return false;
    }
    memcpy(full, scope->prefix, before);
    memcpy(full + before, name, bytes);
    return true;
}

static dtp_status check_form(const dtp_json *place, const char *name, dtp_err *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/";
    size_t n = strlen(name);
    if (n == 0 || n > DTP_MODEL_MAX_NAME || name[strspn(name, allowed)] != '\0') {
        return dtp_json_fail(place, err,
                             "'%.80s' is not a name of 1 to %d letters, digits and _ . - /", name,
                             DTP_MODEL_MAX_NAME);
    }
    if (strncmp(name, "grad.", 5) == 0 || strncmp(name, "update.", 7) == 0) {
        return dtp_json_fail(place, err,
                             "'%s': names that start with 'grad.' or 'update.' are reserved for "
                             "the training graph",
                             name);
    }
    return DTP_OK;
}

static dtp_tensor_id find_binding(const dtp_model_scope *scope, const char *name)
{
    for (int32_t i = 0; i < scope->n_bindings; i++) {
        if (strcmp(scope->bindings[i].name, name) == 0) {
            return scope->bindings[i].id;
        }
    }
    return -1;
}

dtp_tensor_id dtp_model__find(const dtp_model_reader *r, const dtp_model_scope *scope,
                              const char *name)
{
    char full[DTP_MODEL_MAX_FULL_NAME];
    dtp_tensor_id id = find_binding(scope, name);
    if (id < 0 && join(scope, name, full)) {
        id = dtp_graph_find(r->g, full);
    }
    if (id >= 0 || scope->outer == NULL) {
        return id;
    }
    id = dtp_graph_find(r->g, name);
    bool global = id >= 0 && (r->g->tensors[id].kind == DTP_TENSOR_INPUT ||
                              r->g->tensors[id].kind == DTP_TENSOR_PARAM);
    return global ? id : -1;
}

dtp_status dtp_model__new_name(const dtp_model_reader *r, const dtp_model_scope *scope,
                               const dtp_json *place, const char *name,
                               char full[DTP_MODEL_MAX_FULL_NAME], dtp_err *err)
{
    DTP_TRY(check_form(place, name, err));
    if (!join(scope, name, full)) {
        return dtp_json_fail(place, err, "the name '%.60s...%.60s' has more than %d bytes",
                             scope->prefix, name, DTP_MODEL_MAX_FULL_NAME - 1);
    }
    if (dtp_model__find(r, scope, name) >= 0) {
        return dtp_json_fail(place, err, "the name '%s' is already used", name);
    }
    return DTP_OK;
}

dtp_status dtp_model__tensor(const dtp_model_reader *r, const dtp_model_scope *scope,
                             const dtp_json *v, dtp_tensor_id *out, dtp_err *err)
{
    const char *name;
    DTP_TRY(dtp_json_string(v, &name, err));
    *out = dtp_model__find(r, scope, name);
    if (*out >= 0) {
        return DTP_OK;
    }
    for (int32_t i = 0; scope->nodes != NULL && i < dtp_json_size(scope->nodes); i++) {
        const dtp_json *id = dtp_json_get(dtp_json_at(scope->nodes, i), "id");
        const char *text;
        if (id != NULL && dtp_json_string(id, &text, NULL) == DTP_OK && strcmp(text, name) == 0) {
            return dtp_json_fail(v, err, "'%s' is used before the node that defines it", name);
        }
    }
    if (scope->outer != NULL) {
        return dtp_json_fail(v, err,
                             "there is no '%s' in block '%s' (it sees its own params and nodes, "
                             "its carry and with names, and the model's inputs and params)",
                             name, scope->block);
    }
    return dtp_json_fail(v, err, "there is no input, param or node '%s'", name);
}

dtp_status dtp_model__bind(dtp_model_scope *scope, const dtp_json *place, const char *name,
                           dtp_tensor_id id, dtp_err *err)
{
    DTP_TRY(check_form(place, name, err));
    if (find_binding(scope, name) >= 0) {
        return dtp_json_fail(place, err, "the name '%s' is already used", name);
    }
    if (scope->n_bindings == DTP_MODEL_MAX_BINDINGS) {
        return dtp_json_fail(place, err, "more than %d names from repeats in one node list",
                             DTP_MODEL_MAX_BINDINGS);
    }
    scope->bindings[scope->n_bindings++] = (dtp_model_binding){name, id};
    return DTP_OK;
}

dtp_status dtp_model__count(dtp_model_reader *r, const dtp_json *place, dtp_err *err)
{
    if (r->pieces == DTP_MODEL_MAX_PIECES) {
        return dtp_json_fail(place, err,
                             "the model has more than %d nodes, params and block instances",
                             DTP_MODEL_MAX_PIECES);
    }
    r->pieces++;
    return DTP_OK;
}
