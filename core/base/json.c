/* A document: the values that the scanner recorded. Strings are decoded by the scanner, numbers are
 * read from the text, integers exactly. Members are also kept sorted by key: duplicates are
 * neighbours, look-up is a binary search. */
#include "core/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_scan.h"
#include "core/base/units.h"

/* Doubles from here on may be whole numbers that do not fit. */
#define LARGEST_EXACT 9007199254740992.0

/* ---- building ---- */

void dtp_json_destroy(dtp_json_doc *doc)
{
    if (doc == NULL) {
        return;
    }
    free(doc->file);
    free(doc->text);
    free(doc->strings);
    free(doc->values);
    free(doc->children);
    free(doc->sorted);
    free(doc);
}

static char *copy_bytes(const char *text, size_t len)
{
    char *copy = malloc(len + 1);
    if (copy != NULL) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return copy;
}

static dtp_status no_memory(const char *file, dtp_err *err)
{
    return DTP_FAIL(err, DTP_NOMEM, "%s: out of memory while reading JSON", file);
}

/* Of a member of an object. */
static const char *key_of(const dtp_json *v)
{
    return v->doc->strings + v->key_offset + 1;
}

static double number_of(const dtp_json *v)
{
    return strtod(v->doc->text + v->offset, NULL);
}

static int by_key(const void *a, const void *b)
{
    const dtp_json *const *x = a;
    const dtp_json *const *y = b;
    int order = strcmp(key_of(*x), key_of(*y));
    return order != 0 ? order : (*x)->index - (*y)->index;
}

/* The lists of children; no key twice, every number finite. */
static dtp_status link_children(dtp_json_doc *doc, dtp_err *err)
{
    int32_t used = 0;
    const size_t n = (size_t)doc->n;
    doc->children = calloc(n, sizeof(const dtp_json *));
    doc->sorted = calloc(n, sizeof(const dtp_json *));
    if (doc->children == NULL || doc->sorted == NULL) {
        return no_memory(doc->file, err);
    }
    for (int32_t i = 0; i < doc->n; i++) {
        doc->values[i].first = used;
        used += doc->values[i].size;
    }
    for (int32_t i = 1; i < doc->n; i++) {
        const dtp_json *v = &doc->values[i];
        const int32_t slot = doc->values[v->parent].first + v->index;
        doc->children[slot] = v;
        doc->sorted[slot] = v;
    }
    for (int32_t i = 0; i < doc->n; i++) {
        const dtp_json *v = &doc->values[i];
        if (v->kind == DTP_JSON_NUMBER && !isfinite(number_of(v))) {
            return dtp_json_fail(v, err, "the number does not fit into a double");
        }
        if (v->kind != DTP_JSON_OBJECT || v->size < 2) {
            continue;
        }
        const dtp_json **members = &doc->sorted[v->first];
        qsort(members, (size_t)v->size, sizeof(const dtp_json *), by_key);
        for (int32_t k = 1; k < v->size; k++) {
            if (strcmp(key_of(members[k - 1]), key_of(members[k])) == 0) {
                return dtp_json_fail(members[k], err, "the key '%s' occurs twice",
                                     key_of(members[k]));
            }
        }
    }
    return DTP_OK;
}

dtp_status dtp_json_parse(const char *file, const char *text, size_t len, dtp_json_doc **out,
                          dtp_err *err)
{
    if (len > DTP_JSON_MAX_BYTES) {
        return DTP_FAIL(err, DTP_RANGE, "%s: %zu bytes of JSON, the limit is %d", file, len,
                        DTP_JSON_MAX_BYTES);
    }
    dtp_json_doc *doc = calloc(1, sizeof *doc);
    if (doc == NULL) {
        return no_memory(file, err);
    }
    doc->len = len;
    doc->file = copy_bytes(file, strlen(file));
    doc->text = copy_bytes(text, len);
    doc->strings = malloc(len + 1);
    dtp_status s = doc->file != NULL && doc->text != NULL && doc->strings != NULL
                       ? dtp_json__scan(doc, err)
                       : no_memory(file, err);
    s = s == DTP_OK ? link_children(doc, err) : s;
    if (s != DTP_OK) {
        dtp_json_destroy(doc);
        return s;
    }
    *out = doc;
    return DTP_OK;
}

/* ---- access ---- */

const dtp_json *dtp_json_root(const dtp_json_doc *doc)
{
    return &doc->values[0];
}

dtp_json_kind dtp_json_kind_of(const dtp_json *v)
{
    return v->kind;
}

int32_t dtp_json_size(const dtp_json *v)
{
    return v->size;
}

const dtp_json *dtp_json_at(const dtp_json *v, int32_t index)
{
    return index < 0 || index >= v->size ? NULL : v->doc->children[v->first + index];
}

const char *dtp_json_key(const dtp_json *v)
{
    return v->key_offset != v->offset ? key_of(v) : NULL;
}

const dtp_json *dtp_json_get(const dtp_json *v, const char *key)
{
    if (v->kind != DTP_JSON_OBJECT) {
        return NULL;
    }
    const dtp_json **members = &v->doc->sorted[v->first];
    int32_t low = 0, high = v->size;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        int order = strcmp(key_of(members[mid]), key);
        if (order == 0) {
            return members[mid];
        }
        if (order < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return NULL;
}

/* ---- messages ---- */

enum { PATH_BYTES = 320, KEY_BYTES = 80 };

/* The path is put together from its end; steps that no longer fit become "...". */
void dtp_json_place(const dtp_json *v, char *out, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    char path[PATH_BYTES] = "";
    int32_t line, col;
    for (const dtp_json *at = v; at->parent >= 0; at = &v->doc->values[at->parent]) {
        char step[KEY_BYTES + 16], joined[PATH_BYTES + KEY_BYTES + 16];
        const char *key = dtp_json_key(at);
        if (key == NULL) {
            (void)snprintf(step, sizeof step, "[%d]", at->index);
        } else if (*key != '\0' && key[strspn(key, plain)] == '\0' && strlen(key) <= KEY_BYTES) {
            (void)snprintf(step, sizeof step, "%s%s", at->parent > 0 ? "." : "", key);
        } else {
            (void)snprintf(step, sizeof step, "[\"%.*s%s\"]", KEY_BYTES, key,
                           strlen(key) > KEY_BYTES ? "..." : "");
        }
        (void)snprintf(joined, sizeof joined, "%s%s", step, path);
        if (strlen(joined) >= PATH_BYTES - 8) {
            if (strncmp(path, "...", 3) == 0) {
                continue;
            }
            (void)snprintf(joined, sizeof joined, "...%s", path);
        }
        (void)snprintf(path, PATH_BYTES, "%.*s", PATH_BYTES - 1, joined);
    }
    dtp_json__place(v->doc->text, v->key_offset, &line, &col);
    (void)snprintf(out, size, "%.400s:%d:%d%s%s", v->doc->file, line, col,
                   path[0] != '\0' ? ": " : "", path);
}

dtp_status dtp_json_fail(const dtp_json *v, dtp_err *err, const char *fmt, ...)
{
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    dtp_status s = DTP_FAIL(err, DTP_INVALID, "%s", what);
    dtp_json_prefix(v, err);
    return s;
}

void dtp_json_prefix(const dtp_json *v, dtp_err *err)
{
    char place[DTP_JSON_PLACE_BYTES];
    if (err == NULL) {
        return;
    }
    dtp_json_place(v, place, sizeof place);
    dtp_err_prefix(err, "%s", place);
}

dtp_status dtp_json_prefixed(const dtp_json *v, dtp_status s, dtp_err *err)
{
    if (s != DTP_OK) {
        dtp_json_prefix(v, err);
    }
    return s;
}

/* ---- typed reads ---- */

static const char *kind_text(dtp_json_kind kind)
{
    static const char *const texts[] = {
        [DTP_JSON_NULL] = "null",       [DTP_JSON_BOOL] = "true or false",
        [DTP_JSON_NUMBER] = "a number", [DTP_JSON_STRING] = "a string",
        [DTP_JSON_ARRAY] = "a list",    [DTP_JSON_OBJECT] = "an object",
    };
    return texts[kind];
}

dtp_status dtp_json_expect(const dtp_json *v, dtp_json_kind kind, dtp_err *err)
{
    if (v->kind != kind) {
        return dtp_json_fail(v, err, "expected %s, found %s", kind_text(kind), kind_text(v->kind));
    }
    return DTP_OK;
}

dtp_status dtp_json_int(const dtp_json *v, int64_t min, int64_t max, int64_t *out, dtp_err *err)
{
    if (v->kind != DTP_JSON_NUMBER) {
        return dtp_json_fail(v, err, "expected an integer, found %s", kind_text(v->kind));
    }
    const char *text = v->doc->text + v->offset;
    const int n = (int)strspn(text, "+-0123456789.eE");
    const char *at = text;
    int64_t value = 0;
    if (!dtp_int_read(&at, &value) && fabs(number_of(v)) < LARGEST_EXACT) {
        return dtp_json_fail(v, err, "expected an integer, found %.*s", n, text);
    }
    if (at == text || value < min || value > max) {
        return dtp_json_fail(v, err, "%.*s is not in %" PRId64 "..%" PRId64, n, text, min, max);
    }
    *out = value;
    return DTP_OK;
}

dtp_status dtp_json_bytes(const dtp_json *v, int64_t min, int64_t max, int64_t *out, dtp_err *err)
{
    if (v->kind != DTP_JSON_STRING) {
        return dtp_json_int(v, min, max, out, err);
    }
    const char *text;
    DTP_TRY(dtp_json_string(v, &text, err));
    if (!dtp_bytes_parse(text, out)) {
        return dtp_json_fail(v, err, "'%.40s' is not a size such as 80e9, \"80GB\" or \"40GiB\"",
                             text);
    }
    if (*out < min || *out > max) {
        return dtp_json_fail(v, err, "'%.40s' is not in %" PRId64 "..%" PRId64, text, min, max);
    }
    return DTP_OK;
}

dtp_status dtp_json_double(const dtp_json *v, double *out, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(v, DTP_JSON_NUMBER, err));
    *out = number_of(v);
    return DTP_OK;
}

dtp_status dtp_json_bool(const dtp_json *v, bool *out, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(v, DTP_JSON_BOOL, err));
    *out = v->doc->text[v->offset] == 't';
    return DTP_OK;
}

dtp_status dtp_json_string(const dtp_json *v, const char **out, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(v, DTP_JSON_STRING, err));
    *out = v->doc->strings + v->offset + 1;
    return DTP_OK;
}

dtp_status dtp_json_require(const dtp_json *obj, const char *key, const dtp_json **out,
                            dtp_err *err)
{
    DTP_TRY(dtp_json_expect(obj, DTP_JSON_OBJECT, err));
    *out = dtp_json_get(obj, key);
    if (*out == NULL) {
        (void)dtp_json_fail(obj, err, "the key '%s' is missing", key);
        return DTP_INVALID;
    }
    return DTP_OK;
}

dtp_status dtp_json_get_int(const dtp_json *obj, const char *key, int64_t min, int64_t max,
                            int64_t *out, dtp_err *err)
{
    const dtp_json *v;
    DTP_TRY(dtp_json_require(obj, key, &v, err));
    return dtp_json_int(v, min, max, out, err);
}

dtp_status dtp_json_get_double(const dtp_json *obj, const char *key, double *out, dtp_err *err)
{
    const dtp_json *v;
    DTP_TRY(dtp_json_require(obj, key, &v, err));
    return dtp_json_double(v, out, err);
}

dtp_status dtp_json_get_bool(const dtp_json *obj, const char *key, bool *out, dtp_err *err)
{
    const dtp_json *v;
    DTP_TRY(dtp_json_require(obj, key, &v, err));
    return dtp_json_bool(v, out, err);
}

dtp_status dtp_json_get_string(const dtp_json *obj, const char *key, const char **out, dtp_err *err)
{
    const dtp_json *v;
    DTP_TRY(dtp_json_require(obj, key, &v, err));
    return dtp_json_string(v, out, err);
}

dtp_status dtp_json_get_choice(const dtp_json *obj, const char *key, const char *const *names,
                               int32_t *out, dtp_err *err)
{
    const dtp_json *v;
    DTP_TRY(dtp_json_require(obj, key, &v, err));
    return dtp_json_choice(v, names, out, err);
}

dtp_status dtp_json_get_kind(const dtp_json *obj, const char *key, dtp_json_kind kind,
                             const dtp_json **out, dtp_err *err)
{
    DTP_TRY(dtp_json_require(obj, key, out, err));
    return dtp_json_expect(*out, kind, err);
}

dtp_status dtp_json_format(const dtp_json *root, const char *format, const char *const *keys,
                           dtp_err *err)
{
    const char *found;
    DTP_TRY(dtp_json_get_string(root, "format", &found, err));
    if (strcmp(found, format) != 0) {
        return dtp_json_fail(dtp_json_get(root, "format"), err, "expected '%s', found '%.80s'",
                             format, found);
    }
    return dtp_json_keys(root, keys, err);
}

/* Index of `text` in a NULL-terminated list, -1 when it is not there. */
static int32_t find_name(const char *const *names, const char *text)
{
    for (int32_t i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], text) == 0) {
            return i;
        }
    }
    return -1;
}

enum { NAMES_BYTES = 320 };

/* " a b c", cut where it no longer fits. */
static void join_names(const char *const *names, char out[NAMES_BYTES])
{
    size_t used = 0;
    out[0] = '\0';
    for (int32_t i = 0; names[i] != NULL && used + strlen(names[i]) + 2 < NAMES_BYTES; i++) {
        used += (size_t)snprintf(out + used, NAMES_BYTES - used, " %s", names[i]);
    }
}

dtp_status dtp_json_choice(const dtp_json *v, const char *const *names, int32_t *out, dtp_err *err)
{
    const char *text = NULL;
    char known[NAMES_BYTES];
    DTP_TRY(dtp_json_string(v, &text, err));
    *out = find_name(names, text);
    if (*out >= 0) {
        return DTP_OK;
    }
    join_names(names, known);
    return dtp_json_fail(v, err, "'%.80s' is none of:%s", text, known);
}

dtp_status dtp_json_keys(const dtp_json *obj, const char *const *allowed, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(obj, DTP_JSON_OBJECT, err));
    for (int32_t i = 0; i < obj->size; i++) {
        const dtp_json *member = dtp_json_at(obj, i);
        if (find_name(allowed, key_of(member)) < 0) {
            char known[NAMES_BYTES];
            join_names(allowed, known);
            return dtp_json_fail(member, err, "unknown key '%.80s' (known:%s)", key_of(member),
                                 known);
        }
    }
    return DTP_OK;
}
