/* A rule set is "DIM:PLACE;DIM:PLACE..." with PLACE a position of a mesh dim (0, 1, ...), "all"
 * (every mesh dim, in order) or "rest" (every mesh dim whose position the set does not name). */
#include "core/layout/layout_rules_file.h"
#include "core/files/file_in.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/strbuf.h"

enum { MAX_BYTES = 1 << 20, MAX_PAIRS = 64, MAX_NAME = 64 };

enum { PLACE_ALL = -1, PLACE_REST = -2 };

/* The pair "DIM:PLACE" at *at, which moves behind it; DIM are the first *n characters. */
static dtp_status read_pair(const dtp_json *v, const char **at, size_t *n, int32_t *place,
                            dtp_err *err)
{
    const char *pair = *at;
    const size_t end = strcspn(pair, ";");
    *n = strcspn(pair, ":");
    const char *text = pair + *n + 1;
    const size_t length = *n < end ? end - *n - 1 : 0;
    *place = length == 3 && memcmp(text, "all", 3) == 0    ? PLACE_ALL
             : length == 4 && memcmp(text, "rest", 4) == 0 ? PLACE_REST
             : length == 1                                 ? text[0] - '0'
                                                           : DTP_MAX_MESH_DIMS;
    if (*n == 0 || *n >= MAX_NAME || *place < PLACE_REST || *place >= DTP_MAX_MESH_DIMS ||
        (length == 1 && *place < 0)) {
        return dtp_json_fail(v, err,
                             "expected 'DIM:PLACE' with PLACE one of 0..%d, all, rest at '%.60s'",
                             DTP_MAX_MESH_DIMS - 1, pair);
    }
    *at += end + (pair[end] == ';' ? 1 : 0);
    return DTP_OK;
}

/* The text of a set for this mesh; *fits: every place stands for at least one dim of the mesh. */
static dtp_status fill_in(const dtp_json *v, const dtp_mesh *mesh, dtp_strbuf *out, bool *fits,
                          dtp_err *err)
{
    const char *text, *at;
    dtp_mesh_set named = 0; /* positions that occur */
    int32_t n_pairs = 0, place;
    size_t n;
    DTP_TRY(dtp_json_string(v, &text, err));
    for (at = text; *at != '\0'; n_pairs++) {
        if (n_pairs == MAX_PAIRS) {
            return dtp_json_fail(v, err, "more than %d rules in one set", MAX_PAIRS);
        }
        DTP_TRY(read_pair(v, &at, &n, &place, err));
        named |= place >= 0 ? 1U << place : 0U;
    }
    *fits = true;
    for (at = text; *at != '\0';) {
        const char *dim = at;
        bool any = false;
        DTP_TRY(read_pair(v, &at, &n, &place, err));
        for (int32_t m = 0; m < mesh->n_dims; m++) {
            if (place == PLACE_ALL || place == m ||
                (place == PLACE_REST && (named >> m & 1U) == 0)) {
                dtp_strbuf_addf(out, "%s%.*s:%s", out->len > 0 ? ";" : "", (int)n, dim,
                                mesh->names[m]);
                any = true;
            }
        }
        *fits = *fits && any;
    }
    return DTP_OK;
}

static dtp_status read_sets(const dtp_json *root, const dtp_mesh *mesh, dtp_arena *arena,
                            dtp_layout_rules_file *out, dtp_err *err)
{
    static const char *const keys[] = {"format", "about", "rules", NULL};
    const dtp_json *sets, *about = dtp_json_get(root, "about");
    DTP_TRY(dtp_json_format(root, "dtp.rules/1", keys, err));
    DTP_TRY(about != NULL ? dtp_json_expect(about, DTP_JSON_STRING, err) : DTP_OK);
    DTP_TRY(dtp_json_get_kind(root, "rules", DTP_JSON_OBJECT, &sets, err));
    const size_t n = (size_t)dtp_json_size(sets);
    out->n = 0;
    DTP_TRY(DTP_NEW(arena, out->names, n, err));
    DTP_TRY(DTP_NEW(arena, out->rules, n, err));
    for (int32_t i = 0; i < dtp_json_size(sets); i++) {
        const dtp_json *v = dtp_json_at(sets, i);
        dtp_strbuf text = {0};
        bool fits = false;
        if (dtp_json_key(v)[0] == '\0') {
            return dtp_json_fail(v, err, "a rule set without a name");
        }
        dtp_status s = fill_in(v, mesh, &text, &fits, err);
        if (s == DTP_OK && fits) {
            out->names[out->n] = dtp_arena_line(arena, dtp_json_key(v));
            out->rules[out->n] =
                text.failed ? NULL : dtp_arena_strdup(arena, dtp_strbuf_text(&text));
            s = DTP_MEMORY(err, out->names[out->n], out->rules[out->n]);
            out->n++;
        }
        dtp_strbuf_free(&text);
        DTP_TRY(s);
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
                                      dtp_layout_rules_file *out, dtp_err *err)
{
    char *text = NULL;
    size_t len;
    *out = (dtp_layout_rules_file){0};
    DTP_TRY(dtp_file_read(path, MAX_BYTES, &text, &len, err));
    const dtp_status s = dtp_layout_rules_file_parse(path, text, len, mesh, arena, out, err);
    free(text);
    return s;
}
