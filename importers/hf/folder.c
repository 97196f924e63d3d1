/* Folders of Hugging Face's transformers: config.json and a template of its family
 * (docs/formats/template.md) make a model, dtp.model/1, and its names, dtp.names/1. */
#include "importers/hf/folder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/glob.h"
#include "core/base/safe_int.h"
#include "core/base/strbuf.h"
#include "core/graph/graph.h"
#include "dtp/model.h"
#include "importers/hf/instance.h"
#include "importers/hf/templates.h"

enum { MAX_BYTES = 1 << 24 };

typedef struct folder {
    const char *path; /* of config.json */
    const dtp_import_options *options;
    dtp_scope scope;
    dtp_foreign_doc *config;
    dtp_json_doc *doc; /* the template */
    const dtp_json *root, *family;
    dtp_scope_notes ignored;
} folder;

/* ---- the template of a family ---- */

static dtp_status find_template(folder *f, dtp_err *err)
{
    static const char *const keys[] = {"format",   "about", "families", "keys", "ignored",
                                       "switches", "model", "names",    NULL};
    const dtp_foreign *type;
    const dtp_json *families;
    dtp_strbuf known = {0};
    DTP_TRY(dtp_foreign_require(f->config, dtp_foreign_root(f->config), "model_type",
                                DTP_FOREIGN_STRING, &type, err));
    DTP_TRY(dtp_foreign_string(f->config, type, &f->scope.family, err));
    dtp_status s = DTP_OK;
    for (const dtp_template_text *t = dtp_template_texts;
         t->file != NULL && s == DTP_OK && f->family == NULL; t++) {
        dtp_json_destroy(f->doc);
        f->doc = NULL;
        s = dtp_json_parse(t->file, (const char *)t->text, t->len, &f->doc, err);
        s = s == DTP_OK ? dtp_json_format(dtp_json_root(f->doc), "dtp.template/1", keys, err) : s;
        f->root = s == DTP_OK ? dtp_json_root(f->doc) : NULL;
        s = s == DTP_OK ? dtp_json_get_kind(f->root, "families", DTP_JSON_OBJECT, &families, err)
                        : s;
        for (int32_t i = 0; s == DTP_OK && i < dtp_json_size(families); i++) {
            dtp_strbuf_addf(&known, "%s%s", known.len > 0 ? ", " : "",
                            dtp_json_key(dtp_json_at(families, i)));
        }
        f->family = s == DTP_OK ? dtp_json_get(families, f->scope.family) : NULL;
    }
    if (s == DTP_OK && f->family == NULL) {
        s = dtp_foreign_fail(f->config, type, err, "'%.80s' is no family that is known: %.300s",
                             f->scope.family, dtp_strbuf_text(&known));
    }
    dtp_strbuf_free(&known);
    return s;
}

/* ---- its names ---- */

static void add_name(dtp_scope *scope, const char *name, const dtp_json *spec,
                     const dtp_json *given)
{
    scope->names[scope->n++] = (dtp_scope_name){.name = name, .spec = spec, .given = given};
}

static void add_value(dtp_scope *scope, const char *name, dtp_scope_value value)
{
    add_name(scope, name, NULL, NULL);
    scope->names[scope->n - 1].known = true;
    scope->names[scope->n - 1].value = value;
}

/* Keys and switches with what the family says of them. */
static dtp_status read_names(folder *f, dtp_err *err)
{
    dtp_scope *scope = &f->scope;
    const dtp_json *keys, *switches;
    DTP_TRY(dtp_json_get_kind(f->root, "keys", DTP_JSON_OBJECT, &keys, err));
    DTP_TRY(dtp_json_get_kind(f->root, "switches", DTP_JSON_OBJECT, &switches, err));
    DTP_TRY(DTP_NEW(scope->arena, scope->names, dtp_json_size(keys) + dtp_json_size(switches) + 4,
                    err));
    add_value(scope, "family", (dtp_scope_value){.kind = DTP_SCOPE_TEXT, .text = scope->family});
    add_value(scope, "train",
              (dtp_scope_value){.kind = DTP_SCOPE_BOOL, .i = f->options->forward ? 0 : 1});
    add_value(scope, "approximate",
              (dtp_scope_value){.kind = DTP_SCOPE_BOOL, .i = scope->approximate ? 1 : 0});
    add_value(scope, "without", (dtp_scope_value){.kind = DTP_SCOPE_NONE});
    for (int32_t i = 0; i < dtp_json_size(keys); i++) {
        static const char *const members[] = {"kind",  "also",     "default",        "null", "only",
                                              "cycle", "left_out", "approximate_if", NULL};
        const dtp_json *spec = dtp_json_at(keys, i);
        DTP_TRY(dtp_json_keys(spec, members, err));
        add_name(scope, dtp_json_key(spec), spec, dtp_json_get(spec, "default"));
    }
    for (int32_t i = 0; i < dtp_json_size(switches); i++) {
        const dtp_json *given = dtp_json_at(switches, i);
        add_name(scope, dtp_json_key(given), NULL, given);
    }
    for (int32_t i = 0; i < dtp_json_size(f->family); i++) {
        const dtp_json *given = dtp_json_at(f->family, i);
        dtp_scope_name *name = dtp_scope_find(scope, dtp_json_key(given));
        if (strcmp(dtp_json_key(given), "about") == 0) {
            continue;
        }
        if (name == NULL) {
            return dtp_json_fail(given, err, "the template has no key or switch of this name");
        }
        name->given = given;
    }
    return DTP_OK;
}

/* ---- keys of config.json ---- */

/* How a key of the template is spelled: spelling 0 is its name. */
static const char *spelling(const dtp_scope_name *name, int32_t i)
{
    const char *text = NULL;
    const dtp_json *also = dtp_json_get(name->spec, "also");
    if (i == 0) {
        return name->name;
    }
    return also != NULL && i <= dtp_json_size(also) &&
                   dtp_json_string(dtp_json_at(also, i - 1), &text, NULL) == DTP_OK
               ? text
               : NULL;
}

typedef enum key_match { KEY_UNKNOWN, KEY_FOUND, KEY_ABOVE } key_match;

/* Whether the path is a key, or an object that may have one inside. */
static key_match match_key(folder *f, const char *path, dtp_scope_name **out)
{
    const size_t n = strlen(path);
    key_match match = KEY_UNKNOWN;
    for (int32_t i = 0; i < f->scope.n; i++) {
        dtp_scope_name *name = &f->scope.names[i];
        const char *text;
        for (int32_t k = 0; name->spec != NULL && (text = spelling(name, k)) != NULL; k++) {
            if (strcmp(text, path) == 0) {
                *out = name;
                return KEY_FOUND;
            }
            match = strncmp(text, path, n) == 0 && text[n] == '.' ? KEY_ABOVE : match;
        }
    }
    return match;
}

static bool is_ignored(const folder *f, const char *path)
{
    const dtp_json *list = dtp_json_get(f->root, "ignored");
    for (int32_t i = 0; list != NULL && i < dtp_json_size(list); i++) {
        const char *name;
        if (dtp_json_string(dtp_json_at(list, i), &name, NULL) == DTP_OK &&
            dtp_glob_match_prefix(name, path)) {
            return true;
        }
    }
    return false;
}

static dtp_status take_key(folder *f, dtp_scope_name *name, const char *path, const dtp_foreign *v,
                           dtp_err *err)
{
    if (name->found == NULL || dtp_foreign_is(name->found, DTP_FOREIGN_NULL)) {
        name->found = v;
        name->found_at = path;
        return DTP_OK;
    }
    const char *a = dtp_scope_foreign_text(name->found, f->scope.arena);
    const char *b = dtp_scope_foreign_text(v, f->scope.arena);
    DTP_TRY(DTP_MEMORY(err, a, b));
    return dtp_foreign_is(v, DTP_FOREIGN_NULL) || strcmp(a, b) == 0
               ? DTP_OK
               : dtp_foreign_fail(f->config, v, err, "%s, but %s is %s", b, name->found_at, a);
}

static dtp_status take_unknown(folder *f, const char *path, const dtp_foreign *v, dtp_err *err)
{
    const char *text = dtp_scope_foreign_text(v, f->scope.arena);
    DTP_TRY(DTP_MEMORY(err, text));
    if (dtp_foreign_is(v, DTP_FOREIGN_NULL)) {
        return dtp_scope_note(&f->scope, &f->ignored, path, err);
    }
    if (!f->scope.approximate) {
        return dtp_foreign_fail(f->config, v, err,
                                "%s is not supported: the family '%s' has no such key; "
                                "--allow-approximate goes on without it",
                                text, f->scope.family);
    }
    return dtp_scope_note(&f->scope, &f->scope.unsupported,
                          dtp_arena_printf(f->scope.arena, "%s = %s", path, text), err);
}

static dtp_status read_keys(folder *f, const dtp_foreign *object, const char *above, dtp_err *err)
{
    for (const dtp_foreign *v = dtp_foreign_first(object); v != NULL; v = dtp_foreign_next(v)) {
        const char *path = dtp_arena_printf(f->scope.arena, "%s%s%.200s", above,
                                            above[0] != '\0' ? "." : "", dtp_foreign_key(v));
        dtp_scope_name *name = NULL;
        DTP_TRY(DTP_MEMORY(err, path));
        const key_match match = match_key(f, path, &name);
        path = dtp_arena_line(f->scope.arena, path);
        DTP_TRY(DTP_MEMORY(err, path));
        if (match == KEY_FOUND) {
            DTP_TRY(take_key(f, name, path, v, err));
        } else if (match == KEY_ABOVE && dtp_foreign_is(v, DTP_FOREIGN_OBJECT)) {
            DTP_TRY(read_keys(f, v, path, err));
        } else if (is_ignored(f, path)) {
            DTP_TRY(dtp_scope_note(&f->scope, &f->ignored, path, err));
        } else {
            DTP_TRY(take_unknown(f, path, v, err));
        }
    }
    return DTP_OK;
}

/* What the report says of a key: it is never imported, or only because the caller allows it. */
static dtp_status note_key(folder *f, const dtp_scope_name *name, const dtp_scope_value *value,
                           dtp_err *err)
{
    const dtp_json *when = dtp_json_get(name->spec, "approximate_if");
    const bool left_out = dtp_json_get(name->spec, "left_out") != NULL &&
                          (value->kind == DTP_SCOPE_TEXT || value->x != 0.0 ||
                           (value->kind == DTP_SCOPE_INT && value->i != 0));
    bool holds = false;
    if (when != NULL && f->scope.approximate) {
        DTP_TRY(dtp_scope_holds(&f->scope, when, &holds, err));
    }
    if (!left_out && !holds) {
        return DTP_OK;
    }
    const char *text = dtp_scope_print(value, f->scope.arena);
    DTP_TRY(DTP_MEMORY(err, text));
    return dtp_scope_note(&f->scope, left_out ? &f->scope.left_out : &f->scope.unsupported,
                          dtp_arena_printf(f->scope.arena, "%s = %s", name->name, text), err);
}

/* The model file says what it lacks, too. */
static dtp_status set_without(folder *f, dtp_err *err)
{
    const dtp_scope_notes *notes = &f->scope.unsupported;
    dtp_scope_value v = {.kind = notes->n > 0 ? DTP_SCOPE_TEXT : DTP_SCOPE_NONE};
    for (int32_t i = 0; i < notes->n; i++) {
        v.text = dtp_arena_printf(f->scope.arena, "%s%s%s", i > 0 ? v.text : "", i > 0 ? ", " : "",
                                  notes->lines[i]);
        DTP_TRY(DTP_MEMORY(err, v.text));
    }
    dtp_scope_find(&f->scope, "without")->value = v;
    return DTP_OK;
}

static dtp_status read_config(folder *f, dtp_err *err)
{
    DTP_TRY(read_keys(f, dtp_foreign_root(f->config), "", err));
    for (int32_t i = 0; i < f->scope.n; i++) {
        dtp_scope_name *name = &f->scope.names[i];
        dtp_scope_value value;
        if (name->spec != NULL) {
            DTP_TRY(dtp_scope_get(&f->scope, name, &value, err));
            DTP_TRY(note_key(f, name, &value, err));
        }
    }
    return set_without(f, err);
}

/* ---- the model ---- */

static dtp_status count_parameters(const folder *f, const char *model, int64_t *out, dtp_err *err)
{
    dtp_model_options options = dtp_model_options_init();
    dtp_graph *g = NULL;
    options.forward_only = true;
    *out = 0;
    DTP_TRY(dtp_err_prefixed(dtp_model_parse("the model", model, strlen(model), &options, &g, err),
                             err, "%s", f->path));
    dtp_status s = DTP_OK;
    for (int32_t t = 0; t < g->n_tensors && s == DTP_OK; t++) {
        if (g->tensors[t].kind == DTP_TENSOR_PARAM &&
            !dtp_add_i64(*out, dtp_ttype_elems(&g->tensors[t].type), out)) {
            s = DTP_FAIL(err, DTP_RANGE, "%s: more than 2^63 parameters", f->path);
        }
    }
    dtp_graph_destroy(g);
    return s;
}

static dtp_status make(folder *f, dtp_import *out, dtp_err *err)
{
    const dtp_json *model, *names;
    if (!dtp_foreign_is(dtp_foreign_root(f->config), DTP_FOREIGN_OBJECT)) {
        return DTP_FAIL(err, DTP_INVALID, "%s: expected an object", f->path);
    }
    DTP_TRY(find_template(f, err));
    DTP_TRY(read_names(f, err));
    DTP_TRY(read_config(f, err));
    DTP_TRY(dtp_json_get_kind(f->root, "model", DTP_JSON_OBJECT, &model, err));
    DTP_TRY(dtp_json_get_kind(f->root, "names", DTP_JSON_OBJECT, &names, err));
    DTP_TRY(dtp_instance_write(&f->scope, model, &out->model, err));
    DTP_TRY(dtp_instance_write(&f->scope, names, &out->names, err));
    out->family = dtp_arena_strdup(f->scope.arena, f->scope.family);
    out->ignored = (dtp_import_lines){f->ignored.n, f->ignored.lines};
    out->left_out = (dtp_import_lines){f->scope.left_out.n, f->scope.left_out.lines};
    out->unsupported = (dtp_import_lines){f->scope.unsupported.n, f->scope.unsupported.lines};
    DTP_TRY(DTP_MEMORY(err, out->family));
    return count_parameters(f, out->model, &out->parameters, err);
}

static dtp_status import_document(const char *file, dtp_foreign_doc *config,
                                  const dtp_import_options *options, dtp_arena *arena,
                                  dtp_import *out, dtp_err *err)
{
    folder f = {.path = file,
                .options = options,
                .config = config,
                .scope = {.arena = arena, .config = config, .approximate = options->approximate}};
    *out = (dtp_import){0};
    const dtp_status s = make(&f, out, err);
    dtp_json_destroy(f.doc);
    dtp_foreign_destroy(config);
    return s;
}

dtp_status dtp_import_config(const char *file, const char *text, size_t len,
                             const dtp_import_options *options, dtp_arena *arena, dtp_import *out,
                             dtp_err *err)
{
    dtp_foreign_doc *config;
    DTP_TRY(dtp_foreign_parse(file, text, len, &config, err));
    return import_document(file, config, options, arena, out, err);
}

dtp_status dtp_import_folder(const char *path, const dtp_import_options *options, dtp_arena *arena,
                             dtp_import *out, dtp_err *err)
{
    struct stat st;
    dtp_foreign_doc *config;
    const bool inside = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    const char *file = dtp_arena_printf(arena, "%s%s", path, inside ? "/config.json" : "");
    DTP_TRY(DTP_MEMORY(err, file));
    DTP_TRY(dtp_foreign_read(file, MAX_BYTES, &config, err));
    return import_document(file, config, options, arena, out, err);
}
