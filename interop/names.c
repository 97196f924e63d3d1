/* Names files, dtp.names/1 (docs/formats/names.md): how another framework names and stores the
 * parameters of a model. */
#include "interop/names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/strbuf.h"
#include "core/files/file_in.h"

enum { MAX_BYTES = 1 << 24, MAX_STARS = 8, MAX_NAME = 512 };

/* Where the numbers of a pattern lie in a name. */
typedef struct numbers {
    int32_t n;
    const char *at[MAX_STARS];
    size_t len[MAX_STARS];
} numbers;

/* Whether the name is one of a pattern; '*' stands for digits, or for a '*' of the name. */
static bool matches(const char *pattern, const char *name, size_t len, numbers *out)
{
    const char *end = name + len;
    out->n = 0;
    for (; *pattern != '\0'; pattern++) {
        if (*pattern != '*') {
            if (name == end || *name++ != *pattern) {
                return false;
            }
            continue;
        }
        const char *from = name;
        if (name < end && *name == '*') {
            name++;
        }
        while (name < end && name[0] != '*' && isdigit((unsigned char)*name)) {
            name++;
        }
        if (name == from || out->n == MAX_STARS) {
            return false;
        }
        out->at[out->n] = from;
        out->len[out->n++] = (size_t)(name - from);
    }
    return name == end;
}

/* The pattern with these numbers. */
static dtp_status fill_in(const char *pattern, const numbers *with, dtp_arena *arena,
                          const char **out, dtp_err *err)
{
    dtp_strbuf text = {0};
    int32_t star = 0;
    for (; *pattern != '\0'; pattern++) {
        const bool number = *pattern == '*' && star < with->n;
        dtp_strbuf_addf(&text, "%.*s", number ? (int)with->len[star] : 1,
                        number ? with->at[star] : pattern);
        star += number ? 1 : 0;
    }
    *out = text.failed ? NULL : dtp_arena_strdup(arena, dtp_strbuf_text(&text));
    dtp_strbuf_free(&text);
    return DTP_MEMORY(err, *out);
}

/* ---- reading ---- */

static int32_t stars(const char *pattern)
{
    int32_t n = 0;
    for (; *pattern != '\0'; pattern++) {
        n += *pattern == '*' ? 1 : 0;
    }
    return n;
}

/* A pattern with as many numbers as the one that it goes with. */
static dtp_status read_pattern(const dtp_json *v, const char *ours, dtp_arena *arena,
                               const char **out, dtp_err *err)
{
    const char *text;
    DTP_TRY(dtp_json_string(v, &text, err));
    if (text[0] == '\0' || strlen(text) > MAX_NAME) {
        return dtp_json_fail(v, err, "expected a name of 1 to %d bytes", MAX_NAME);
    }
    if (stars(text) != stars(ours) || stars(ours) > MAX_STARS) {
        return dtp_json_fail(v, err,
                             "'%.100s' has %d numbers '*', but '%.100s' has %d (at most %d)", text,
                             stars(text), ours, stars(ours), MAX_STARS);
    }
    *out = dtp_arena_line(arena, text);
    return DTP_MEMORY(err, *out);
}

/* "heads*d_head", "heads*3*d_head", "d_ff*2". */
static dtp_status read_axis(const dtp_json *v, dtp_arena *arena, dtp_name_axis *out, dtp_err *err)
{
    const char *text;
    DTP_TRY(dtp_json_string(v, &text, err));
    for (const char *at = text;; at++) {
        const size_t n = strcspn(at, "*");
        const size_t digits = strspn(at, "0123456789");
        const bool last = at[n] == '\0';
        if (n > 0 && digits == n && n < 9 && *at != '0' && out->turns == 0 &&
            (!last || out->n > 0)) {
            out->turns = (int32_t)strtol(at, NULL, 10);
            out->turn_at = out->n;
            at += n;
            if (last) {
                return DTP_OK;
            }
            continue;
        }
        if (n == 0 || digits == n || out->n == DTP_MAX_RANK) {
            return dtp_json_fail(v, err, "'%.100s': expected 1 to %d dims such as 'heads*d_head'",
                                 text, DTP_MAX_RANK);
        }
        out->dims[out->n] = dtp_arena_printf(arena, "%.*s", (int)n, at);
        DTP_TRY(DTP_MEMORY(err, out->dims[out->n]));
        out->n++;
        at += n;
        if (*at == '\0') {
            return DTP_OK;
        }
    }
}

static dtp_status read_fused(const dtp_json *v, dtp_arena *arena, dtp_name_entry *out, dtp_err *err)
{
    static const char *const keys[] = {"axis", "parts", NULL};
    const dtp_json *parts;
    int64_t axis;
    bool itself = false;
    if (v == NULL) {
        return DTP_OK;
    }
    DTP_TRY(dtp_json_expect(v, DTP_JSON_OBJECT, err));
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(dtp_json_get_int(v, "axis", 0, out->n_axes - 1, &axis, err));
    DTP_TRY(dtp_json_get_kind(v, "parts", DTP_JSON_ARRAY, &parts, err));
    out->fused_axis = (int32_t)axis;
    out->n_parts = dtp_json_size(parts);
    DTP_TRY(DTP_NEW(arena, out->parts, out->n_parts, err));
    for (int32_t i = 0; i < out->n_parts; i++) {
        DTP_TRY(read_pattern(dtp_json_at(parts, i), out->ours, arena, &out->parts[i], err));
        itself = itself || strcmp(out->parts[i], out->ours) == 0;
    }
    return itself ? DTP_OK
                  : dtp_json_fail(parts, err, "'%.100s' is not among the parts", out->ours);
}

/* The name and the axes of a weight of theirs, and which of them is fused. */
static dtp_status read_weight(const dtp_json *v, dtp_arena *arena, dtp_name_entry *out,
                              dtp_err *err)
{
    const dtp_json *name, *axes;
    char place[DTP_JSON_PLACE_BYTES];
    dtp_json_place(v, place, sizeof place);
    out->fused_axis = -1;
    out->place = dtp_arena_strdup(arena, place);
    DTP_TRY(DTP_MEMORY(err, out->place));
    DTP_TRY(dtp_json_require(v, "name", &name, err));
    DTP_TRY(read_pattern(name, out->ours, arena, &out->theirs, err));
    DTP_TRY(dtp_json_get_kind(v, "axes", DTP_JSON_ARRAY, &axes, err));
    if (dtp_json_size(axes) > DTP_MAX_RANK) {
        return dtp_json_fail(axes, err, "%d axes, at most %d", dtp_json_size(axes), DTP_MAX_RANK);
    }
    for (; out->n_axes < dtp_json_size(axes); out->n_axes++) {
        DTP_TRY(read_axis(dtp_json_at(axes, out->n_axes), arena, &out->axes[out->n_axes], err));
    }
    DTP_TRY(read_fused(dtp_json_get(v, "fused"), arena, out, err));
    for (int32_t a = 0; a < out->n_axes; a++) {
        const int32_t turns = out->axes[a].turns;
        if (turns > 0 && (a != out->fused_axis || turns != out->n_parts)) {
            return dtp_json_fail(dtp_json_at(axes, a), err,
                                 "%d is no dim; of a fused axis it is the number of the parts",
                                 turns);
        }
    }
    return DTP_OK;
}

/* Where files have a weight otherwise than the module. "{dim}" in its name: a tensor for each. */
static dtp_status read_stored(const dtp_json *v, dtp_arena *arena, dtp_name_entry *out,
                              dtp_err *err)
{
    static const char *const keys[] = {"name", "axes", "fused", NULL};
    dtp_name_entry *stored;
    if (v == NULL) {
        return DTP_OK;
    }
    DTP_TRY(DTP_NEW(arena, stored, 1, err));
    out->stored = stored;
    stored->ours = out->ours;
    DTP_TRY(dtp_json_expect(v, DTP_JSON_OBJECT, err));
    DTP_TRY(dtp_json_keys(v, keys, err));
    DTP_TRY(read_weight(v, arena, stored, err));
    const char *open = strchr(stored->theirs, '{'),
               *close = open != NULL ? strchr(open, '}') : NULL;
    if (open == NULL) {
        return DTP_OK;
    }
    if (close == NULL || strchr(open + 1, '{') != NULL || strchr(close + 1, '}') != NULL) {
        return dtp_json_fail(dtp_json_get(v, "name"), err, "expected one '{dim}'");
    }
    if (out->n_tied > 0) {
        return dtp_json_fail(v, err, "'%.100s' is tied and lies in one tensor for each '{dim}'",
                             out->ours);
    }
    stored->each = dtp_arena_printf(arena, "%.*s", (int)(close - open - 1), open + 1);
    return DTP_MEMORY(err, stored->each);
}

static dtp_status read_entry(const dtp_json *v, dtp_arena *arena, dtp_name_entry *out, dtp_err *err)
{
    static const char *const keys[] = {"name",    "axes",   "fused",  "tied",
                                       "guessed", "buffer", "stored", NULL};
    const dtp_json *tied = dtp_json_get(v, "tied"), *guessed = dtp_json_get(v, "guessed");
    const dtp_json *buffer = dtp_json_get(v, "buffer");
    DTP_TRY(dtp_json_expect(v, DTP_JSON_OBJECT, err));
    DTP_TRY(dtp_json_keys(v, keys, err));
    out->ours = dtp_arena_line(arena, dtp_json_key(v));
    DTP_TRY(DTP_MEMORY(err, out->ours));
    DTP_TRY(read_weight(v, arena, out, err));
    DTP_TRY(guessed == NULL ? DTP_OK : dtp_json_get_bool(v, "guessed", &out->guessed, err));
    DTP_TRY(buffer == NULL ? DTP_OK : dtp_json_get_bool(v, "buffer", &out->buffer, err));
    if (tied != NULL) {
        DTP_TRY(dtp_json_expect(tied, DTP_JSON_ARRAY, err));
        DTP_TRY(DTP_NEW(arena, out->tied, dtp_json_size(tied), err));
        for (; out->n_tied < dtp_json_size(tied); out->n_tied++) {
            DTP_TRY(read_pattern(dtp_json_at(tied, out->n_tied), out->ours, arena,
                                 &out->tied[out->n_tied], err));
        }
    }
    return read_stored(dtp_json_get(v, "stored"), arena, out, err);
}

static dtp_status read_names(const dtp_json *root, dtp_arena *arena, dtp_names *out, dtp_err *err)
{
    static const char *const keys[] = {"format", "framework", "params", NULL};
    const dtp_json *params;
    DTP_TRY(dtp_json_format(root, "dtp.names/1", keys, err));
    DTP_TRY(dtp_json_get_string(root, "framework", &out->framework, err));
    out->framework = dtp_arena_line(arena, out->framework);
    DTP_TRY(DTP_MEMORY(err, out->framework));
    DTP_TRY(dtp_json_get_kind(root, "params", DTP_JSON_OBJECT, &params, err));
    DTP_TRY(DTP_NEW(arena, out->entries, dtp_json_size(params), err));
    for (; out->n < dtp_json_size(params); out->n++) {
        DTP_TRY(read_entry(dtp_json_at(params, out->n), arena, &out->entries[out->n], err));
    }
    return DTP_OK;
}

dtp_status dtp_names_read(const char *path, dtp_arena *arena, dtp_names *out, dtp_err *err)
{
    char *text = NULL;
    size_t len;
    dtp_json_doc *doc = NULL;
    *out = (dtp_names){.file = path};
    DTP_TRY(dtp_file_read(path, MAX_BYTES, &text, &len, err));
    dtp_status s = dtp_json_parse(path, text, len, &doc, err);
    s = s == DTP_OK ? read_names(dtp_json_root(doc), arena, out, err) : s;
    dtp_json_destroy(doc);
    free(text);
    return s;
}

/* ---- use ---- */

/* The axes together, and the dim of "{dim}", have every dim of the parameter once. */
static dtp_status check_axes(const dtp_name_entry *e, const dtp_graph *g, dtp_tensor_id param,
                             dtp_err *err)
{
    const dtp_graph_tensor *t = &g->tensors[param];
    char type[DTP_TTYPE_TEXT_BYTES];
    const int32_t each =
        e->each == NULL ? -1 : dtp_ttype_find(&t->type, dtp_dims_find(&g->dims, e->each));
    uint32_t seen = each >= 0 ? 1U << each : 0U;
    bool fits = each >= 0 || e->each == NULL;
    for (int32_t a = 0; a < e->n_axes; a++) {
        for (int32_t k = 0; k < e->axes[a].n; k++) {
            const dtp_dim_id d = dtp_dims_find(&g->dims, e->axes[a].dims[k]);
            const int32_t at = d < 0 ? -1 : dtp_ttype_find(&t->type, d);
            fits = fits && at >= 0 && (seen >> at & 1U) == 0;
            seen |= at >= 0 ? 1U << at : 0U;
        }
    }
    if (fits && seen == (1U << t->type.rank) - 1U) {
        return DTP_OK;
    }
    dtp_ttype_print(&t->type, &g->dims, type);
    return DTP_FAIL(err, DTP_INVALID,
                    "%s: axes: they have to name every dim of '%.100s' once, which is %.200s",
                    e->place, t->name, type);
}

dtp_status dtp_names_find(const dtp_names *names, const dtp_graph *g, dtp_tensor_id param,
                          dtp_arena *arena, const dtp_name_entry **entry, const char **theirs,
                          dtp_err *err)
{
    const char *ours = g->tensors[param].name;
    numbers with;
    for (int32_t i = 0; i < names->n; i++) {
        if (matches(names->entries[i].ours, ours, strlen(ours), &with)) {
            *entry = &names->entries[i];
            DTP_TRY(check_axes(*entry, g, param, err));
            if ((*entry)->stored != NULL) {
                DTP_TRY(check_axes((*entry)->stored, g, param, err));
            }
            return fill_in((*entry)->theirs, &with, arena, theirs, err);
        }
    }
    return DTP_FAIL(err, DTP_INVALID, "%s: there is no name for the parameter '%.100s' of '%.100s'",
                    names->file, ours, g->name);
}

dtp_status dtp_names_fill(const dtp_name_entry *entry, const char *ours, const char *pattern,
                          dtp_arena *arena, const char **out, dtp_err *err)
{
    numbers with;
    return matches(entry->ours, ours, strlen(ours), &with)
               ? fill_in(pattern, &with, arena, out, err)
               : DTP_FAIL(err, DTP_INTERNAL, "%s: no entry of '%.100s'", entry->place, ours);
}

size_t dtp_names_module(const char *theirs)
{
    const char *dot = strrchr(theirs, '.');
    return dot == NULL ? 0 : (size_t)(dot - theirs);
}

dtp_status dtp_names_match(const dtp_name_entry *entry, bool base, const char *key,
                           dtp_arena *arena, const char **ours, dtp_err *err)
{
    const size_t first = base ? strcspn(entry->theirs, ".") + 1 : 0;
    const size_t module_end = dtp_names_module(entry->theirs);
    const size_t n = module_end > first ? module_end - first : 0;
    const char *module = dtp_arena_printf(arena, "%.*s", (int)n, entry->theirs + first);
    numbers with;
    *ours = NULL;
    DTP_TRY(DTP_MEMORY(err, module));
    if (n == 0 || (!matches(module, key, strlen(key), &with) &&
                   !matches(entry->theirs + first, key, strlen(key), &with))) {
        return DTP_OK;
    }
    return fill_in(entry->ours, &with, arena, ours, err);
}

bool dtp_names_ties(const dtp_name_entry *entry, bool base, const char *key)
{
    bool ties = false;
    for (int32_t i = 0; i < entry->n_tied; i++) {
        const char *name = entry->tied[i];
        const size_t first = base ? strcspn(name, ".") + 1 : 0, end = dtp_names_module(name);
        char module[MAX_NAME];
        numbers with;
        if (end > first && end - first < sizeof module) {
            memcpy(module, name + first, end - first);
            module[end - first] = '\0';
            ties = ties || matches(module, key, strlen(key), &with);
        }
    }
    return ties;
}
