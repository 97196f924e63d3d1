/* JSON that other systems write (config.json, the index of a checkpoint, the graphs in a .pt2),
 * read by cJSON, which is included in foreign_json.c alone (decision 56). */
#include "interop/foreign_json.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/strbuf.h"
#include "core/base/text.h"
#include "core/files/file_in.h"

/* Doubles up to here are exact integers. */
#define LARGEST_EXACT 9007199254740992.0

struct dtp_foreign_doc {
    char *file;
    cJSON *root;
};

/* ---- limits ---- */

/* cJSON recurses into a text, and ends a string at an escaped NUL: depth, number of values and
 * characters are looked at before it starts. */
static dtp_status check_text(const char *file, const char *text, size_t len, dtp_err *err)
{
    int32_t depth = 0, n = 1;
    bool quoted = false;
    size_t step;
    uint32_t code;
    for (size_t i = 0; i < len; i += step) {
        step = dtp_utf8_next(text + i, len - i, &code);
        if (step == 0 || code == 0 || (len - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0)) {
            return DTP_FAIL(err, DTP_INVALID, "%s: NUL or bytes that are not UTF-8 at byte %zu",
                            file, i);
        }
        if (quoted && code == '\\' && i + 1 < len && (uint8_t)text[i + 1] < 0x80) {
            step = 2;
        } else if (code == '"') {
            quoted = !quoted;
        } else if (!quoted) {
            depth += code == '{' || code == '[' ? 1 : code == '}' || code == ']' ? -1 : 0;
            n += code == ',' || code == '{' || code == '[' ? 1 : 0;
        }
        if (n > DTP_FOREIGN_MAX_VALUES || depth > DTP_FOREIGN_MAX_DEPTH) {
            return DTP_FAIL(err, DTP_RANGE,
                            "%s: more than %d values or %d levels of JSON at byte %zu", file,
                            DTP_FOREIGN_MAX_VALUES, DTP_FOREIGN_MAX_DEPTH, i);
        }
    }
    return DTP_OK;
}

static int by_key(const void *a, const void *b)
{
    const cJSON *const *x = a;
    const cJSON *const *y = b;
    return strcmp((*x)->string, (*y)->string);
}

/* cJSON takes the first of two members with one key, Python the last: such a text is refused. */
static dtp_status check_keys(const dtp_foreign_doc *doc, const cJSON *object, dtp_err *err)
{
    const size_t n = (size_t)dtp_foreign_size(object);
    if (!cJSON_IsObject(object) || n < 2) {
        return DTP_OK;
    }
    const cJSON **members = malloc(n * sizeof(const cJSON *));
    if (members == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "%s: out of memory while reading JSON", doc->file);
    }
    size_t i = 0;
    for (const cJSON *m = object->child; m != NULL; m = m->next) {
        members[i++] = m;
    }
    qsort(members, n, sizeof(const cJSON *), by_key);
    dtp_status s = DTP_OK;
    for (i = 1; i < n && s == DTP_OK; i++) {
        if (by_key(&members[i - 1], &members[i]) == 0) {
            s = dtp_foreign_fail(doc, members[i], err, "the key occurs twice");
        }
    }
    free(members);
    return s;
}

static dtp_status check_values(const dtp_foreign_doc *doc, const cJSON *v, dtp_err *err)
{
    if (cJSON_IsNumber(v) && !isfinite(v->valuedouble)) {
        return dtp_foreign_fail(doc, v, err, "the number does not fit into a double");
    }
    DTP_TRY(check_keys(doc, v, err));
    for (const cJSON *child = v->child; child != NULL; child = child->next) {
        DTP_TRY(check_values(doc, child, err));
    }
    return DTP_OK;
}

static bool only_blanks(const char *at, const char *end)
{
    while (at < end && strchr(" \t\r\n", *at) != NULL) {
        at++;
    }
    return at == end;
}

/* ---- reading ---- */

dtp_status dtp_foreign_parse(const char *file, const char *text, size_t len, dtp_foreign_doc **out,
                             dtp_err *err)
{
    DTP_TRY(check_text(file, text, len, err));
    dtp_foreign_doc *doc = calloc(1, sizeof *doc);
    const char *end = text;
    DTP_TRY(DTP_MEMORY(err, doc));
    doc->file = strdup(file);
    doc->root = doc->file != NULL ? cJSON_ParseWithLengthOpts(text, len, &end, false) : NULL;
    dtp_status s = DTP_OK;
    if (doc->file == NULL) {
        s = DTP_FAIL(err, DTP_NOMEM, "%s: out of memory while reading JSON", file);
    } else if (doc->root == NULL) {
        s = DTP_FAIL(err, DTP_INVALID, "%s: this is not JSON at byte %zu", file,
                     (size_t)(end - text));
    } else if (!only_blanks(end, text + len)) {
        s = DTP_FAIL(err, DTP_INVALID, "%s: text after the JSON value at byte %zu", file,
                     (size_t)(end - text));
    }
    s = s == DTP_OK ? check_values(doc, doc->root, err) : s;
    if (s != DTP_OK) {
        dtp_foreign_destroy(doc);
        return s;
    }
    *out = doc;
    return DTP_OK;
}

dtp_status dtp_foreign_read(const char *path, size_t most, dtp_foreign_doc **out, dtp_err *err)
{
    char *text = NULL;
    size_t len = 0;
    DTP_TRY(dtp_file_read(path, most, &text, &len, err));
    const dtp_status s = dtp_foreign_parse(path, text, len, out, err);
    free(text);
    return s;
}

void dtp_foreign_destroy(dtp_foreign_doc *doc)
{
    if (doc != NULL) {
        cJSON_Delete(doc->root);
        free(doc->file);
        free(doc);
    }
}

/* ---- access ---- */

const dtp_foreign *dtp_foreign_root(const dtp_foreign_doc *doc)
{
    return doc->root;
}

dtp_foreign_kind dtp_foreign_kind_of(const dtp_foreign *v)
{
    return cJSON_IsBool(v)     ? DTP_FOREIGN_BOOL
           : cJSON_IsNumber(v) ? DTP_FOREIGN_NUMBER
           : cJSON_IsString(v) ? DTP_FOREIGN_STRING
           : cJSON_IsArray(v)  ? DTP_FOREIGN_LIST
           : cJSON_IsObject(v) ? DTP_FOREIGN_OBJECT
                               : DTP_FOREIGN_NULL;
}

bool dtp_foreign_is(const dtp_foreign *v, dtp_foreign_kind kind)
{
    return v != NULL && dtp_foreign_kind_of(v) == kind;
}

const dtp_foreign *dtp_foreign_first(const dtp_foreign *v)
{
    return v == NULL ? NULL : v->child;
}

const dtp_foreign *dtp_foreign_next(const dtp_foreign *v)
{
    return v->next;
}

int32_t dtp_foreign_size(const dtp_foreign *v)
{
    return cJSON_GetArraySize(v);
}

const char *dtp_foreign_key(const dtp_foreign *v)
{
    return v->string;
}

const dtp_foreign *dtp_foreign_get(const dtp_foreign *v, const char *key)
{
    return cJSON_IsObject(v) ? cJSON_GetObjectItemCaseSensitive(v, key) : NULL;
}

/* ---- messages ---- */

enum { PATH_BYTES = 320 };

/* Appends the steps from `at` to v; false when v is not below it. */
static bool find_path(const cJSON *at, const cJSON *v, dtp_strbuf *path)
{
    const size_t len = path->len;
    int32_t index = 0;
    if (at == v) {
        return true;
    }
    for (const cJSON *child = at->child; child != NULL; child = child->next, index++) {
        if (child->string == NULL) {
            dtp_strbuf_addf(path, "[%d]", index);
        } else {
            dtp_strbuf_addf(path, "%s%.80s", path->len > 0 ? "." : "", child->string);
        }
        if (find_path(child, v, path)) {
            return true;
        }
        path->len = path->failed ? path->len : len;
    }
    return false;
}

dtp_status dtp_foreign_prefixed(const dtp_foreign_doc *doc, const dtp_foreign *v, dtp_status s,
                                dtp_err *err)
{
    if (s != DTP_OK && err != NULL) {
        dtp_strbuf path = {0};
        (void)find_path(doc->root, v, &path);
        dtp_err_prefix(err, "%.400s%s%.*s", doc->file, path.len > 0 ? ": " : "", PATH_BYTES,
                       dtp_strbuf_text(&path));
        dtp_strbuf_free(&path);
    }
    return s;
}

dtp_status dtp_foreign_fail(const dtp_foreign_doc *doc, const dtp_foreign *v, dtp_err *err,
                            const char *fmt, ...)
{
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return dtp_foreign_prefixed(doc, v, DTP_FAIL(err, DTP_INVALID, "%s", what), err);
}

/* ---- typed reads ---- */

static dtp_status expect(const dtp_foreign_doc *doc, const dtp_foreign *v, dtp_foreign_kind kind,
                         dtp_err *err)
{
    static const char *const texts[] = {
        [DTP_FOREIGN_NULL] = "null",       [DTP_FOREIGN_BOOL] = "true or false",
        [DTP_FOREIGN_NUMBER] = "a number", [DTP_FOREIGN_STRING] = "a string",
        [DTP_FOREIGN_LIST] = "a list",     [DTP_FOREIGN_OBJECT] = "an object",
    };
    const dtp_foreign_kind found = dtp_foreign_kind_of(v);
    return found == kind
               ? DTP_OK
               : dtp_foreign_fail(doc, v, err, "expected %s, found %s", texts[kind], texts[found]);
}

dtp_status dtp_foreign_require(const dtp_foreign_doc *doc, const dtp_foreign *object,
                               const char *key, dtp_foreign_kind kind, const dtp_foreign **out,
                               dtp_err *err)
{
    DTP_TRY(expect(doc, object, DTP_FOREIGN_OBJECT, err));
    *out = dtp_foreign_get(object, key);
    return *out != NULL ? expect(doc, *out, kind, err)
                        : dtp_foreign_fail(doc, object, err, "the key '%s' is missing", key);
}

dtp_status dtp_foreign_double(const dtp_foreign_doc *doc, const dtp_foreign *v, double *out,
                              dtp_err *err)
{
    DTP_TRY(expect(doc, v, DTP_FOREIGN_NUMBER, err));
    *out = v->valuedouble;
    return DTP_OK;
}

dtp_status dtp_foreign_int(const dtp_foreign_doc *doc, const dtp_foreign *v, int64_t min,
                           int64_t max, int64_t *out, dtp_err *err)
{
    double x = 0.0;
    DTP_TRY(dtp_foreign_double(doc, v, &x, err));
    if (fabs(x) > LARGEST_EXACT || x != floor(x)) {
        return dtp_foreign_fail(doc, v, err, "expected an integer, found %.17g", x);
    }
    *out = (int64_t)x;
    return *out >= min && *out <= max
               ? DTP_OK
               : dtp_foreign_fail(doc, v, err, "%" PRId64 " is not in %" PRId64 "..%" PRId64, *out,
                                  min, max);
}

dtp_status dtp_foreign_bool(const dtp_foreign_doc *doc, const dtp_foreign *v, bool *out,
                            dtp_err *err)
{
    DTP_TRY(expect(doc, v, DTP_FOREIGN_BOOL, err));
    *out = cJSON_IsTrue(v);
    return DTP_OK;
}

dtp_status dtp_foreign_string(const dtp_foreign_doc *doc, const dtp_foreign *v, const char **out,
                              dtp_err *err)
{
    DTP_TRY(expect(doc, v, DTP_FOREIGN_STRING, err));
    *out = v->valuestring;
    return DTP_OK;
}
