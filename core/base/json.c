/* A document = the grammar pass's list of places + the tree that cJSON builds, matched in document
 * order. Strings and doubles come from cJSON, integers are read from the text because cJSON keeps
 * them as doubles. Members are also kept sorted by key: duplicates are neighbours, look-up is a
 * binary search. */
#include "core/base/json.h"

#include <cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_scan.h"

struct dtp_json {
    const dtp_json_doc *doc;
    const cJSON *node;
    dtp_json_mark mark;
    int32_t first; /* of the children, in doc->children and doc->sorted */
};

struct dtp_json_doc {
    char *file, *text;
    cJSON *tree;
    int32_t n;
    dtp_json *values;          /* document order; 0 is the root */
    const dtp_json **children; /* grouped by parent, document order */
    const dtp_json **sorted;   /* the same groups, members ordered by key */
};

/* ---- building ----------------------------------------------------------------------------------
 */

void dtp_json_destroy(dtp_json_doc *doc)
{
    if (doc == NULL) {
        return;
    }
    cJSON_Delete(doc->tree);
    free(doc->file);
    free(doc->text);
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

static int by_key(const void *a, const void *b)
{
    const dtp_json *const *x = a;
    const dtp_json *const *y = b;
    int order = strcmp((*x)->node->string, (*y)->node->string);
    return order != 0 ? order : (*x)->mark.index - (*y)->mark.index;
}

/* Fills the child lists; values must be in place. */
static void link_children(dtp_json_doc *doc)
{
    int32_t used = 0;
    for (int32_t i = 0; i < doc->n; i++) {
        doc->values[i].first = used;
        used += doc->values[i].mark.size;
    }
    for (int32_t i = 1; i < doc->n; i++) {
        const dtp_json *v = &doc->values[i];
        int32_t slot = doc->values[v->mark.parent].first + v->mark.index;
        doc->children[slot] = v;
        doc->sorted[slot] = v;
    }
}

/* Walks the cJSON tree in document order and gives every value its node. */
static bool attach_nodes(dtp_json_doc *doc)
{
    const cJSON *at = doc->tree;
    for (int32_t i = 0; i < doc->n; i++) {
        if (at == NULL) {
            return false;
        }
        doc->values[i].node = at;
        if (at->child != NULL) {
            at = at->child;
            continue;
        }
        int32_t up = i;
        while (at != NULL && at->next == NULL) {
            up = doc->values[up].mark.parent;
            at = up < 0 ? NULL : doc->values[up].node;
        }
        at = at == NULL ? NULL : at->next;
    }
    return at == NULL;
}

static dtp_status check_keys_and_numbers(dtp_json_doc *doc, dtp_err *err)
{
    for (int32_t i = 0; i < doc->n; i++) {
        const dtp_json *v = &doc->values[i];
        if (v->mark.kind == DTP_JSON_NUMBER && !isfinite(v->node->valuedouble)) {
            return dtp_json_fail(v, err, "the number does not fit into a double");
        }
        if (v->mark.kind != DTP_JSON_OBJECT || v->mark.size < 2) {
            continue;
        }
        const dtp_json **members = &doc->sorted[v->first];
        qsort(members, (size_t)v->mark.size, sizeof(const dtp_json *), by_key);
        for (int32_t k = 1; k < v->mark.size; k++) {
            if (strcmp(members[k - 1]->node->string, members[k]->node->string) == 0) {
                return dtp_json_fail(members[k], err, "the key '%s' occurs twice",
                                     members[k]->node->string);
            }
        }
    }
    return DTP_OK;
}

static dtp_status build(const char *file, const char *text, size_t len, const dtp_json_marks *marks,
                        dtp_json_doc *doc, dtp_err *err)
{
    size_t n = (size_t)marks->n;
    doc->n = marks->n;
    doc->file = copy_bytes(file, strlen(file));
    doc->text = copy_bytes(text, len);
    doc->values = calloc(n, sizeof *doc->values);
    doc->children = calloc(n, sizeof(const dtp_json *));
    doc->sorted = calloc(n, sizeof(const dtp_json *));
    if (doc->file == NULL || doc->text == NULL || doc->values == NULL || doc->children == NULL ||
        doc->sorted == NULL) {
        return no_memory(file, err);
    }
    doc->tree = cJSON_ParseWithLength(doc->text, len);
    if (doc->tree == NULL) {
        return no_memory(file, err);
    }
    for (int32_t i = 0; i < doc->n; i++) {
        doc->values[i].doc = doc;
        doc->values[i].mark = marks->marks[i];
    }
    if (!attach_nodes(doc)) {
        return DTP_FAIL(err, DTP_INTERNAL, "%s: cJSON sees other values than the scanner", file);
    }
    link_children(doc);
    return check_keys_and_numbers(doc, err);
}

dtp_status dtp_json_parse(const char *file, const char *text, size_t len, dtp_json_doc **out,
                          dtp_err *err)
{
    dtp_json_marks marks = {0};
    dtp_json_doc *doc = NULL;
    dtp_status s = dtp_json__scan(file, text, len, &marks, err);
    if (s == DTP_OK) {
        doc = calloc(1, sizeof *doc);
        s = doc == NULL ? no_memory(file, err) : build(file, text, len, &marks, doc, err);
    }
    free(marks.marks);
    if (s != DTP_OK) {
        dtp_json_destroy(doc);
        return s;
    }
    *out = doc;
    return DTP_OK;
}

/* ---- access ------------------------------------------------------------------------------------
 */

const dtp_json *dtp_json_root(const dtp_json_doc *doc)
{
    return &doc->values[0];
}

dtp_json_kind dtp_json_kind_of(const dtp_json *v)
{
    return v->mark.kind;
}

int32_t dtp_json_size(const dtp_json *v)
{
    return v->mark.size;
}

const dtp_json *dtp_json_at(const dtp_json *v, int32_t index)
{
    return index < 0 || index >= v->mark.size ? NULL : v->doc->children[v->first + index];
}

const char *dtp_json_key(const dtp_json *v)
{
    return v->node->string;
}

const dtp_json *dtp_json_get(const dtp_json *v, const char *key)
{
    if (v->mark.kind != DTP_JSON_OBJECT) {
        return NULL;
    }
    const dtp_json **members = &v->doc->sorted[v->first];
    int32_t low = 0, high = v->mark.size;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        int order = strcmp(members[mid]->node->string, key);
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

/* ---- messages ----------------------------------------------------------------------------------
 */

enum { PATH_BYTES = 320, KEY_BYTES = 80 };

static bool is_plain_key(const char *key)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return *key != '\0' && key[strspn(key, plain)] == '\0' && strlen(key) <= KEY_BYTES;
}

/* Puts one path step before the text in `path`; steps that no longer fit become "...". */
static void prepend_step(const dtp_json *v, char path[PATH_BYTES])
{
    char step[KEY_BYTES + 16], joined[PATH_BYTES + KEY_BYTES + 16];
    const char *key = v->node->string;
    bool nested = v->mark.parent > 0;
    if (key == NULL) {
        (void)snprintf(step, sizeof step, "[%d]", v->mark.index);
    } else if (is_plain_key(key)) {
        (void)snprintf(step, sizeof step, "%s%s", nested ? "." : "", key);
    } else {
        (void)snprintf(step, sizeof step, "[\"%.*s%s\"]", KEY_BYTES, key,
                       strlen(key) > KEY_BYTES ? "..." : "");
    }
    (void)snprintf(joined, sizeof joined, "%s%s", step, path);
    if (strlen(joined) < PATH_BYTES - 8) {
        (void)snprintf(path, PATH_BYTES, "%.*s", PATH_BYTES - 1, joined);
    } else if (strncmp(path, "...", 3) != 0) {
        (void)snprintf(joined, sizeof joined, "...%s", path);
        (void)snprintf(path, PATH_BYTES, "%.*s", PATH_BYTES - 1, joined);
    }
}

void dtp_json_place(const dtp_json *v, char *out, size_t size)
{
    char path[PATH_BYTES] = "";
    int32_t line, col;
    for (const dtp_json *at = v; at->mark.parent >= 0; at = &v->doc->values[at->mark.parent]) {
        prepend_step(at, path);
    }
    dtp_json__place(v->doc->text, v->mark.key_offset, &line, &col);
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

/* ---- typed reads -------------------------------------------------------------------------------
 */

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
    if (v->mark.kind != kind) {
        return dtp_json_fail(v, err, "expected %s, found %s", kind_text(kind),
                             kind_text(v->mark.kind));
    }
    return DTP_OK;
}

/* Characters of the number at `text`. */
static int number_length(const char *text)
{
    return (int)strspn(text, "+-0123456789.eE");
}

dtp_status dtp_json_int(const dtp_json *v, int64_t min, int64_t max, int64_t *out, dtp_err *err)
{
    if (v->mark.kind != DTP_JSON_NUMBER) {
        return dtp_json_fail(v, err, "expected an integer, found %s", kind_text(v->mark.kind));
    }
    const char *text = v->doc->text + v->mark.offset;
    int n = number_length(text);
    bool negative = text[0] == '-';
    int64_t value = 0;
    bool fits = true;
    for (int i = negative ? 1 : 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return dtp_json_fail(v, err, "expected an integer, found %.*s", n, text);
        }
        int64_t digit = text[i] - '0';
        fits = fits && !__builtin_mul_overflow(value, (int64_t)10, &value) &&
               !__builtin_add_overflow(value, negative ? -digit : digit, &value);
    }
    if (!fits || value < min || value > max) {
        return dtp_json_fail(v, err, "%.*s is not in %" PRId64 "..%" PRId64, n, text, min, max);
    }
    *out = value;
    return DTP_OK;
}

dtp_status dtp_json_double(const dtp_json *v, double *out, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(v, DTP_JSON_NUMBER, err));
    *out = v->node->valuedouble;
    return DTP_OK;
}

dtp_status dtp_json_bool(const dtp_json *v, bool *out, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(v, DTP_JSON_BOOL, err));
    *out = cJSON_IsTrue(v->node) != 0;
    return DTP_OK;
}

dtp_status dtp_json_string(const dtp_json *v, const char **out, dtp_err *err)
{
    DTP_TRY(dtp_json_expect(v, DTP_JSON_STRING, err));
    *out = v->node->valuestring;
    return DTP_OK;
}

dtp_status dtp_json_require(const dtp_json *obj, const char *key, const dtp_json **out,
                            dtp_err *err)
{
    DTP_TRY(dtp_json_expect(obj, DTP_JSON_OBJECT, err));
    *out = dtp_json_get(obj, key);
    return *out != NULL ? DTP_OK : dtp_json_fail(obj, err, "the key '%s' is missing", key);
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
    for (int32_t i = 0; i < obj->mark.size; i++) {
        const dtp_json *member = dtp_json_at(obj, i);
        if (find_name(allowed, member->node->string) < 0) {
            char known[NAMES_BYTES];
            join_names(allowed, known);
            return dtp_json_fail(member, err, "unknown key '%.80s' (known:%s)",
                                 member->node->string, known);
        }
    }
    return DTP_OK;
}
