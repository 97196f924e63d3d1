/* A rule set is "DIM:PLACE;DIM:PLACE..." with PLACE a position of a mesh dim (0, 1, ...), "all"
 * (every mesh dim, in order) or "rest" (every mesh dim whose position the set does not name). */
#include "core/layout/layout_rules_file.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/strbuf.h"

enum { MAX_BYTES = 1 << 20, MAX_PAIRS = 64, MAX_NAME = 64 };

enum { PLACE_ALL = -1, PLACE_REST = -2 };

typedef struct pair {
    char dim[MAX_NAME];
    int32_t place; /* a position, PLACE_ALL or PLACE_REST */
} pair;

typedef struct rule_set {
    int32_t n;
    pair pairs[MAX_PAIRS];
    dtp_mesh_set named; /* positions that occur */
} rule_set;

static bool copy_part(const char *from, size_t n, char out[MAX_NAME])
{
    if (n == 0 || n >= MAX_NAME) {
        return false;
    }
    memcpy(out, from, n);
    out[n] = '\0';
    return true;
}

/* "all", "rest" or one digit below DTP_MAX_MESH_DIMS. */
static bool read_place(const char *text, int32_t *out)
{
    if (strcmp(text, "all") == 0) {
        *out = PLACE_ALL;
        return true;
    }
    if (strcmp(text, "rest") == 0) {
        *out = PLACE_REST;
        return true;
    }
    *out = text[0] - '0';
    return *out >= 0 && *out < DTP_MAX_MESH_DIMS && text[1] == '\0';
}

static dtp_status read_set(const dtp_json *v, rule_set *out, dtp_err *err)
{
    const char *at;
    DTP_TRY(dtp_json_string(v, &at, err));
    while (*at != '\0') {
        size_t n = strcspn(at, ";");
        size_t colon = strcspn(at, ":");
        char place[MAX_NAME];
        if (out->n == MAX_PAIRS) {
            return dtp_json_fail(v, err, "more than %d rules in one set", MAX_PAIRS);
        }
        pair *p = &out->pairs[out->n++];
        if (colon >= n || !copy_part(at, colon, p->dim) ||
            !copy_part(at + colon + 1, n - colon - 1, place) || !read_place(place, &p->place)) {
            return dtp_json_fail(v, err,
                                 "expected 'DIM:PLACE' with PLACE one of 0..%d, all, rest at "
                                 "'%.60s'",
                                 DTP_MAX_MESH_DIMS - 1, at);
        }
        if (p->place >= 0) {
            out->named |= 1U << p->place;
        }
        at += n;
        at += *at == ';' ? 1 : 0;
    }
    return DTP_OK;
}

/* Whether a mesh dim belongs to a place. */
static bool covers(const rule_set *set, int32_t place, int32_t m)
{
    if (place == PLACE_REST) {
        return (set->named >> m & 1U) == 0;
    }
    return place == PLACE_ALL || place == m;
}

/* Every place of the set stands for at least one dim of the mesh. */
static bool fits(const rule_set *set, const dtp_mesh *mesh)
{
    for (int32_t i = 0; i < set->n; i++) {
        bool any = false;
        for (int32_t m = 0; m < mesh->n_dims && !any; m++) {
            any = covers(set, set->pairs[i].place, m);
        }
        if (!any) {
            return false;
        }
    }
    return true;
}

static dtp_status print_set(const rule_set *set, const dtp_mesh *mesh, dtp_arena *arena,
                            const char **out, dtp_err *err)
{
    dtp_strbuf b = {0};
    for (int32_t i = 0; i < set->n; i++) {
        for (int32_t m = 0; m < mesh->n_dims; m++) {
            if (covers(set, set->pairs[i].place, m)) {
                dtp_strbuf_addf(&b, "%s%s:%s", b.len > 0 ? ";" : "", set->pairs[i].dim,
                                mesh->names[m]);
            }
        }
    }
    *out = b.failed ? NULL : dtp_arena_strdup(arena, dtp_strbuf_text(&b));
    dtp_strbuf_free(&b);
    return *out != NULL ? DTP_OK : DTP_FAIL(err, DTP_NOMEM, "out of memory for layout rules");
}

static dtp_status add_set(const dtp_json *v, const dtp_mesh *mesh, dtp_arena *arena,
                          dtp_layout_rules_file *out, dtp_err *err)
{
    rule_set set = {0};
    if (dtp_json_key(v)[0] == '\0') {
        return dtp_json_fail(v, err, "a rule set without a name");
    }
    DTP_TRY(read_set(v, &set, err));
    if (!fits(&set, mesh)) {
        return DTP_OK;
    }
    out->names[out->n] = dtp_arena_strdup(arena, dtp_json_key(v));
    if (out->names[out->n] == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for layout rules");
    }
    DTP_TRY(print_set(&set, mesh, arena, &out->rules[out->n], err));
    out->n++;
    return DTP_OK;
}

static dtp_status check_root(const dtp_json *root, dtp_err *err)
{
    static const char *const keys[] = {"format", "about", "rules", NULL};
    const dtp_json *format, *sets;
    const dtp_json *about = dtp_json_get(root, "about");
    const char *text;
    DTP_TRY(dtp_json_require(root, "format", &format, err));
    DTP_TRY(dtp_json_string(format, &text, err));
    if (strcmp(text, "dtp.rules/1") != 0) {
        return dtp_json_fail(format, err, "expected 'dtp.rules/1', found '%.80s'", text);
    }
    DTP_TRY(dtp_json_keys(root, keys, err));
    if (about != NULL) {
        DTP_TRY(dtp_json_expect(about, DTP_JSON_STRING, err));
    }
    DTP_TRY(dtp_json_require(root, "rules", &sets, err));
    return dtp_json_expect(sets, DTP_JSON_OBJECT, err);
}

static dtp_status read_sets(const dtp_json *root, const dtp_mesh *mesh, dtp_arena *arena,
                            dtp_layout_rules_file *out, dtp_err *err)
{
    DTP_TRY(check_root(root, err));
    const dtp_json *sets = dtp_json_get(root, "rules");
    size_t n = (size_t)dtp_json_size(sets);
    out->n = 0;
    out->names = dtp_arena_alloc(arena, n, sizeof *out->names);
    out->rules = dtp_arena_alloc(arena, n, sizeof *out->rules);
    if (out->names == NULL || out->rules == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu rule sets", n);
    }
    for (int32_t i = 0; i < dtp_json_size(sets); i++) {
        DTP_TRY(add_set(dtp_json_at(sets, i), mesh, arena, out, err));
    }
    return DTP_OK;
}

dtp_status dtp_layout_rules_file_parse(const char *file, const char *text, size_t len,
                                       const dtp_mesh *mesh, dtp_arena *arena,
                                       dtp_layout_rules_file *out, dtp_err *err)
{
    dtp_json_doc *doc = NULL;
    DTP_TRY(dtp_json_parse(file, text, len, &doc, err));
    dtp_status s = read_sets(dtp_json_root(doc), mesh, arena, out, err);
    dtp_json_destroy(doc);
    return s;
}

dtp_status dtp_layout_rules_file_read(const char *path, const dtp_mesh *mesh, dtp_arena *arena,
                                      int32_t *n, const char ***names, const char ***rules,
                                      dtp_err *err)
{
    char *text = NULL;
    size_t len;
    dtp_layout_rules_file out = {0};
    DTP_TRY(dtp_file_read(path, MAX_BYTES, &text, &len, err));
    dtp_status s = dtp_layout_rules_file_parse(path, text, len, mesh, arena, &out, err);
    free(text);
    *n = out.n;
    *names = out.names;
    *rules = out.rules;
    return s;
}
