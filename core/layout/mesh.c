/* Meshes (dtp/mesh.h): in JSON, and groups of ranks over a set of mesh dims. */
#include "core/layout/mesh.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/json_writer.h"

static bool is_separator(char c)
{
    return c == ' ' || c == '\t' || c == ',' || c == '.' || c == ';';
}

/* The size of dim `name` (n characters) at *p, up to a separator; moves past it. */
static dtp_status parse_size(const char **p, const char *name, size_t n, dtp_mesh *mesh,
                             dtp_err *err)
{
    char *end;
    errno = 0;
    long long size = strtoll(*p, &end, 10);
    if (!isdigit((unsigned char)**p) || errno != 0 || size < 1 || size > INT32_MAX ||
        (*end != '\0' && strchr("|)]", *end) == NULL && !is_separator(*end))) {
        return DTP_FAIL(err, DTP_INVALID,
                        "mesh: dim '%.*s': size '%.40s' is not an integer in 1..%d", (int)n, name,
                        *p, INT32_MAX);
    }
    if (mesh->n_dims == DTP_MAX_MESH_DIMS) {
        return DTP_FAIL(err, DTP_INVALID, "mesh: more than %d dims", DTP_MAX_MESH_DIMS);
    }
    memcpy(mesh->names[mesh->n_dims], name, n);
    mesh->names[mesh->n_dims][n] = '\0';
    mesh->sizes[mesh->n_dims++] = size;
    *p = end;
    return DTP_OK;
}

static const char *skip_separators(const char *at)
{
    while (is_separator(*at)) {
        at++;
    }
    return at;
}

/* "2,3", "(2, 3)", "[2,3]": sizes of dims that get the names x, y, z, u, v, w. */
static dtp_status parse_unnamed(const char *text, dtp_mesh *mesh, dtp_err *err)
{
    static const char names[DTP_MAX_MESH_DIMS + 1][2] = {"x", "y", "z", "u", "v", "w", "?"};
    const char *at = skip_separators(text);
    const char close = *at == '(' ? ')' : *at == '[' ? ']' : '\0';
    at += close != '\0' ? 1 : 0;
    for (at = skip_separators(at); *at != '\0' && *at != close; at = skip_separators(at)) {
        if (!isdigit((unsigned char)*at)) {
            return DTP_FAIL(err, DTP_INVALID,
                            "mesh: expected a size%s at '%.40s': either all dims have a name or "
                            "none has",
                            close == ')'   ? " or ')'"
                            : close == ']' ? " or ']'"
                                           : "",
                            at);
        }
        DTP_TRY(parse_size(&at, names[mesh->n_dims], 1, mesh, err));
    }
    if (*at != close) {
        return DTP_FAIL(err, DTP_INVALID, "mesh: '%c' is missing at the end of '%.60s'", close,
                        text);
    }
    if (close != '\0' && at[1] != '\0') {
        return DTP_FAIL(err, DTP_INVALID, "mesh: '%.40s' follows the sizes", at + 1);
    }
    return mesh->n_dims > 0 ? DTP_OK
                            : DTP_FAIL(err, DTP_INVALID, "mesh: there is no size in '%.60s'", text);
}

dtp_status dtp_mesh_parse(const char *text, dtp_mesh *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, text, out));
    dtp_mesh mesh = {0};
    const char *bar = strchr(text, '|');
    const char *at = bar == NULL ? text : bar + 1;
    if (bar != NULL && strchr(at, '|') == NULL) {
        return DTP_FAIL(err, DTP_INVALID, "mesh: the second '|' is missing in '%.60s'", text);
    }
    if (bar == NULL) {
        const char *first = skip_separators(text);
        const size_t digits = strspn(first, "0123456789");
        const bool size = digits > 0 && (first[digits] == '\0' || is_separator(first[digits]));
        if (*first == '(' || *first == '[' || size) {
            DTP_TRY(parse_unnamed(text, &mesh, err));
            at = "";
        }
    }
    for (at = skip_separators(at); *at != '\0' && *at != '|'; at = skip_separators(at)) {
        /* "name:size" */
        const char *start = at;
        const char *p = start;
        while (isalnum((unsigned char)*p) || *p == '_' || *p == '-') {
            p++;
        }
        size_t n = (size_t)(p - start);
        if (n == 0 || n >= DTP_MESH_NAME_BYTES) {
            return DTP_FAIL(
                err, DTP_INVALID,
                "mesh: expected a name of 1 to %d characters (letters, digits, _ and -) at '%.40s'",
                DTP_MESH_NAME_BYTES - 1, start);
        }
        if (*p != ':' && *p != '=') {
            return DTP_FAIL(err, DTP_INVALID, "mesh: expected ':SIZE' after '%.*s' at '%.40s'",
                            (int)n, start, p);
        }
        p++;
        const int32_t m = mesh.n_dims;
        DTP_TRY(parse_size(&p, start, n, &mesh, err));
        if (dtp_mesh_find(&mesh, mesh.names[m]) < m) {
            return DTP_FAIL(err, DTP_INVALID, "mesh: dim '%s' occurs twice", mesh.names[m]);
        }
        at = p;
    }
    int64_t ranks = 1;
    for (int32_t m = 0; m < mesh.n_dims; m++) {
        ranks *= mesh.sizes[m];
        if (ranks > INT32_MAX) {
            return DTP_FAIL(err, DTP_RANGE, "mesh: '%.80s' has more than %d ranks", text,
                            INT32_MAX);
        }
    }
    *out = mesh;
    return DTP_OK;
}

void dtp_mesh_print(const dtp_mesh *mesh, char out[DTP_MESH_TEXT_BYTES])
{
    size_t used = 0;
    out[0] = '\0';
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        used += (size_t)snprintf(out + used, DTP_MESH_TEXT_BYTES - used, "%s%s:%" PRId64,
                                 m > 0 ? ";" : "", mesh->names[m], mesh->sizes[m]);
    }
}

void dtp_mesh_write(dtp_json_writer *w, const dtp_mesh *mesh)
{
    dtp_json_begin_array(w, "mesh", true);
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        dtp_json_begin_array(w, NULL, true);
        dtp_json_write_string(w, NULL, mesh->names[m]);
        dtp_json_write_int(w, NULL, mesh->sizes[m]);
        dtp_json_end_array(w);
    }
    dtp_json_end_array(w);
}

/* The names and sizes are checked as those of a text. */
dtp_status dtp_mesh_read(const dtp_json *obj, dtp_mesh *out, dtp_err *err)
{
    const dtp_json *v;
    dtp_mesh mesh = {0};
    char text[DTP_MESH_TEXT_BYTES];
    DTP_TRY(DTP_NOT_NULL(err, obj, out));
    DTP_TRY(dtp_json_get_kind(obj, "mesh", DTP_JSON_ARRAY, &v, err));
    if (dtp_json_size(v) > DTP_MAX_MESH_DIMS) {
        return dtp_json_fail(v, err, "%d mesh dims, the limit is %d", dtp_json_size(v),
                             DTP_MAX_MESH_DIMS);
    }
    for (int32_t m = 0; m < dtp_json_size(v); m++) {
        const dtp_json *pair = dtp_json_at(v, m);
        const char *name;
        DTP_TRY(dtp_json_expect(pair, DTP_JSON_ARRAY, err));
        if (dtp_json_size(pair) != 2) {
            return dtp_json_fail(pair, err, "expected [name, size]");
        }
        DTP_TRY(dtp_json_string(dtp_json_at(pair, 0), &name, err));
        DTP_TRY(dtp_json_int(dtp_json_at(pair, 1), 1, INT32_MAX, &mesh.sizes[m], err));
        if (name[0] == '\0' || strlen(name) >= DTP_MESH_NAME_BYTES || strpbrk(name, " ,.;:=\t")) {
            return dtp_json_fail(pair, err, "'%.60s' is not a name of a mesh dim", name);
        }
        memcpy(mesh.names[m], name, strlen(name) + 1);
        mesh.n_dims++;
    }
    dtp_mesh_print(&mesh, text);
    return dtp_json_prefixed(v, dtp_mesh_parse(text, out, err), err);
}

void dtp_mesh_set_print(const dtp_mesh *mesh, dtp_mesh_set set, const char *between,
                        char out[DTP_MESH_TEXT_BYTES])
{
    size_t used = 0;
    out[0] = '\0';
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        if ((set >> m & 1U) != 0) {
            used += (size_t)snprintf(out + used, DTP_MESH_TEXT_BYTES - used, "%s%s",
                                     used > 0 ? between : "", mesh->names[m]);
        }
    }
}

int32_t dtp_mesh_ranks(const dtp_mesh *mesh)
{
    int64_t n = 1;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        n *= mesh->sizes[m];
    }
    return (int32_t)n;
}

int32_t dtp_mesh_find(const dtp_mesh *mesh, const char *name)
{
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        if (strcmp(mesh->names[m], name) == 0) {
            return m;
        }
    }
    return -1;
}

void dtp_mesh_coords(const dtp_mesh *mesh, int32_t rank, int32_t coords[DTP_MAX_MESH_DIMS])
{
    for (int32_t m = mesh->n_dims - 1; m >= 0; m--) {
        coords[m] = (int32_t)(rank % mesh->sizes[m]);
        rank = (int32_t)(rank / mesh->sizes[m]);
    }
}

int32_t dtp_mesh_rank(const dtp_mesh *mesh, const int32_t coords[DTP_MAX_MESH_DIMS])
{
    int64_t rank = 0;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        rank = rank * mesh->sizes[m] + coords[m];
    }
    return (int32_t)rank;
}

const char *dtp_mesh_set_words(const dtp_mesh *mesh, dtp_mesh_set set,
                               char out[DTP_MESH_SET_TEXT_BYTES])
{
    const dtp_mesh_set known = set & (((dtp_mesh_set)1 << mesh->n_dims) - 1U);
    const bool several = (set & (set - 1U)) != 0;
    char names[DTP_MESH_TEXT_BYTES];
    dtp_mesh_set_print(mesh, known, "', '", names);
    if (set == 0) {
        (void)snprintf(out, DTP_MESH_SET_TEXT_BYTES, "no mesh dim");
    } else if (known == set) {
        (void)snprintf(out, DTP_MESH_SET_TEXT_BYTES, "mesh dim%s '%s'", several ? "s" : "", names);
    } else {
        (void)snprintf(out, DTP_MESH_SET_TEXT_BYTES, "mesh dims that are not there");
    }
    return out;
}

int32_t dtp_mesh_set_size(const dtp_mesh *mesh, dtp_mesh_set set)
{
    int64_t n = 1;
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        n *= (set >> m & 1U) != 0 ? mesh->sizes[m] : 1;
    }
    return (int32_t)n;
}

int32_t dtp_mesh_set_index(const dtp_mesh *mesh, dtp_mesh_set set, int32_t rank)
{
    int32_t coords[DTP_MAX_MESH_DIMS];
    int64_t index = 0;
    dtp_mesh_coords(mesh, rank, coords);
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        if ((set >> m & 1U) != 0) {
            index = index * mesh->sizes[m] + coords[m];
        }
    }
    return (int32_t)index;
}

int32_t dtp_mesh_set_member(const dtp_mesh *mesh, dtp_mesh_set set, int32_t rank, int32_t index)
{
    int32_t coords[DTP_MAX_MESH_DIMS];
    dtp_mesh_coords(mesh, rank, coords);
    for (int32_t m = mesh->n_dims - 1; m >= 0; m--) {
        if ((set >> m & 1U) != 0) {
            coords[m] = (int32_t)(index % mesh->sizes[m]);
            index = (int32_t)(index / mesh->sizes[m]);
        }
    }
    return dtp_mesh_rank(mesh, coords);
}
