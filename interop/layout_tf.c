/* TensorFlow DTensor's form of a layout, as its to_string writes it,
 *   sharding_specs:x,unsharded, mesh:NAME|x=3,y=2|GLOBAL IDS|LOCAL IDS|LOCAL DEVICES[|DEVICES]
 * one spec per tensor dim ("scalar", or nothing, for rank 0), each followed by a comma. A mesh of
 * three parts, |x=3,y=2|*CPU, has its devices numbered row-major; this is what we write. As Python
 * code and as Python prints it (the mesh is any name, a mesh text, or the repr of a mesh):
 *   Layout.from_string('sharding_specs:...')     Layout(['x', UNSHARDED], mesh)
 * Reference: Layout and Mesh in tensorflow/dtensor/cc/tensor_layout.cc, python/layout.py. */
#include <stdio.h>
#include <string.h>

#include "interop/layout_tf.h"

static const char UNSHARDED[] = "unsharded";
static const char SCALAR[] = "scalar";
static const char IDENTIFIER[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";

static bool word_is(const char *word, size_t n, const char *text)
{
    return n == strlen(text) && memcmp(word, text, n) == 0;
}

static bool word_ends(const char *word, size_t n, const char *end)
{
    const size_t m = strlen(end);
    return n >= m && memcmp(word + n - m, end, m) == 0 && (n == m || word[n - m - 1] == '.');
}

/* ---- specs and meshes ---- */

/* One spec, the n characters at `word`. */
static dtp_status add_spec(dtp_layout_reader *r, const char *word, size_t n, int32_t *axis,
                           dtp_err *err)
{
    if (word_is(word, n, "any") || word_is(word, n, "match")) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "layout: '%.*s' leaves the layout open", (int)n,
                        word);
    }
    if (word_is(word, n, SCALAR) && *axis == 0 && r->type->rank == 0) {
        return DTP_OK;
    }
    if (*axis == r->type->rank) {
        return DTP_FAIL(err, DTP_INVALID,
                        "layout: more sharding specs than the tensor's rank %d at '%.40s'",
                        r->type->rank, word);
    }
    if (!word_is(word, n, UNSHARDED)) {
        DTP_TRY(dtp_layout_reader_split(r, word, n, *axis, err));
    }
    (*axis)++;
    return DTP_OK;
}

static dtp_status check_count(const dtp_layout_reader *r, int32_t axis, dtp_err *err)
{
    return axis == r->type->rank
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID,
                          "layout: %d sharding specs for a tensor of rank %d in '%.60s'", axis,
                          r->type->rank, r->text);
}

/* The devices of a written mesh must stand in row-major order, numbered from any id on: another
 * order is another placement. */
static dtp_status check_device_order(dtp_layout_reader *r, dtp_err *err)
{
    const int32_t ranks = dtp_mesh_ranks(r->mesh);
    int64_t first = 0;
    for (int32_t i = 0; i < ranks; i++) {
        int64_t id;
        if ((i > 0 && !dtp_layout_reader_accept(r, ",")) || !dtp_layout_reader_int(r, &id)) {
            return dtp_layout_reader_fail(r, "the next global device id", err);
        }
        first = i == 0 ? id : first;
        if (id - first != i) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "layout: device %lld at place %d of the mesh; only devices in "
                            "row-major order are supported",
                            (long long)id, i);
        }
    }
    return *r->at == '|' ? DTP_OK
                         : dtp_layout_reader_fail(r, "'|' after the global device ids", err);
}

static dtp_status same_mesh(const dtp_layout_reader *r, const dtp_mesh *given, dtp_err *err)
{
    char want[DTP_MESH_TEXT_BYTES], have[DTP_MESH_TEXT_BYTES];
    dtp_mesh_print(given, have);
    dtp_mesh_print(r->mesh, want);
    return strcmp(have, want) == 0
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID, "layout: it is for the mesh '%s', not for '%s'", have,
                          want);
}

/* "NAME|x=3,y=2|..." up to `end`. */
static dtp_status check_mesh(dtp_layout_reader *r, const char *end, dtp_err *err)
{
    dtp_mesh given;
    if (strchr(r->at, '|') == NULL) {
        return dtp_layout_reader_fail(r, "a mesh such as '|x=3,y=2|'", err);
    }
    DTP_TRY(dtp_mesh_parse(r->at, &given, err));
    DTP_TRY(same_mesh(r, &given, err));
    const char *rest = strchr(strchr(r->at, '|') + 1, '|');
    if (rest != NULL && rest + 1 < end && rest[1] != '*') {
        r->at = rest + 1;
        DTP_TRY(check_device_order(r, err));
    }
    r->at = end;
    return DTP_OK;
}

/* ---- to_string ---- */

/* Up to `end`. */
static dtp_status read_string(dtp_layout_reader *r, const char *end, dtp_err *err)
{
    static const char *const kinds[][2] = {
        {"parted:", "'parted' pieces have sizes of their own"},
        {"maximal:", "'maximal' puts the whole tensor on one device"},
        {"empty_layout", "'empty_layout' is on no mesh"}};
    int32_t axis = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strncmp(r->at, kinds[i][0], strlen(kinds[i][0])) == 0) {
            return DTP_FAIL(err, DTP_UNSUPPORTED, "layout: %s", kinds[i][1]);
        }
    }
    (void)dtp_layout_reader_accept(r, "sharding_specs:");
    for (;;) {
        if (dtp_layout_reader_accept(r, "mesh:")) {
            DTP_TRY(check_count(r, axis, err));
            return check_mesh(r, end, err);
        }
        if (dtp_layout_reader_at_end(r) || r->at >= end) {
            return check_count(r, axis, err);
        }
        const size_t n = strcspn(r->at, ", \t\n'\")");
        if (n == 0) {
            return dtp_layout_reader_fail(r, "a mesh dim or 'unsharded'", err);
        }
        DTP_TRY(add_spec(r, r->at, n, &axis, err));
        r->at += n;
        (void)dtp_layout_reader_accept(r, ",");
    }
}

/* ---- Python ---- */

/* What follows the bracket of "Layout(" or "Layout.from_string(", with any modules before; NULL for
 * another text. */
static const char *python_call(const char *text, bool *from_string)
{
    const size_t n = strspn(text, IDENTIFIER);
    *from_string = word_ends(text, n, "Layout.from_string");
    return text[n] == '(' && (*from_string || word_ends(text, n, "Layout")) ? text + n + 1 : NULL;
}

bool dtp_form__looks_like_tf(const char *text)
{
    static const char *const openings[] = {
        "sharding_specs:", "parted:", "maximal:", "empty_layout"};
    bool from_string;
    for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++) {
        if (strncmp(text, openings[i], strlen(openings[i])) == 0) {
            return true;
        }
    }
    return python_call(text, &from_string) != NULL;
}

/* The place where the text ends with `closing`. */
static dtp_status find_end(dtp_layout_reader *r, const char *closing, const char **end,
                           dtp_err *err)
{
    size_t n = strlen(r->at);
    const size_t m = strlen(closing);
    while (n > 0 && strchr(" \t\n", r->at[n - 1]) != NULL) {
        n--;
    }
    if (n < m || memcmp(r->at + n - m, closing, m) != 0) {
        r->at += n;
        return dtp_layout_reader_fail(r, m > 1 ? "a quote and ')'" : "')'", err);
    }
    *end = r->at + n - m;
    return DTP_OK;
}

/* 'x' or UNSHARDED, with any modules before. */
static dtp_status read_python_spec(dtp_layout_reader *r, int32_t *axis, dtp_err *err)
{
    const char *word = r->at;
    size_t n = 0;
    if (*r->at == '\'' || *r->at == '"') {
        DTP_TRY(dtp_layout_reader_quoted(r, &word, &n, err));
        return add_spec(r, word, n, axis, err);
    }
    n = strspn(r->at, IDENTIFIER);
    if (!word_ends(r->at, n, "UNSHARDED") && !word_ends(r->at, n, "MATCH")) {
        return dtp_layout_reader_fail(r, "a quoted mesh dim or UNSHARDED", err);
    }
    word = word_ends(r->at, n, "MATCH") ? "match" : UNSHARDED;
    r->at += n;
    return add_spec(r, word, strlen(word), axis, err);
}

/* "('x', 2), ('y', 2)]" of <Mesh object with dims=[...], ...>. */
static dtp_status check_mesh_dims(dtp_layout_reader *r, dtp_err *err)
{
    char text[DTP_MESH_TEXT_BYTES] = "";
    size_t used = 0;
    dtp_mesh given;
    while (!dtp_layout_reader_accept(r, "]")) {
        const char *name = r->at;
        size_t n = 0;
        int64_t size;
        if (!dtp_layout_reader_accept(r, "(")) {
            return dtp_layout_reader_fail(r, "a mesh dim such as ('x', 2)", err);
        }
        DTP_TRY(dtp_layout_reader_quoted(r, &name, &n, err));
        if (!dtp_layout_reader_accept(r, ",") || !dtp_layout_reader_int(r, &size) ||
            !dtp_layout_reader_accept(r, ")") || used + n + 16 > sizeof text) {
            return dtp_layout_reader_fail(r, "a mesh dim such as ('x', 2)", err);
        }
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s:%lld",
                                 used > 0 ? ";" : "", (int)n, name, (long long)size);
        (void)dtp_layout_reader_accept(r, ",");
    }
    DTP_TRY(dtp_mesh_parse(text, &given, err));
    return same_mesh(r, &given, err);
}

/* The mesh of a call: a name, which may be any, a mesh text or the repr of a mesh. */
static dtp_status read_mesh_argument(dtp_layout_reader *r, dtp_err *err)
{
    const char *start = r->at, *end = start;
    if (dtp_layout_reader_accept(r, "mesh") && !dtp_layout_reader_accept(r, "=")) {
        r->at = start;
    }
    (void)dtp_layout_reader_at_end(r); /* skips blanks */
    const size_t n = strspn(r->at, IDENTIFIER);
    if (n > 0 && r->at[n] != '(' && r->at[n] != '|') {
        r->at += n;
        return DTP_OK;
    }
    DTP_TRY(find_end(r, ")", &end, err));
    const char *dims = strstr(r->at, "dims=[");
    if (dims == NULL) {
        return check_mesh(r, end, err);
    }
    r->at = dims + strlen("dims=[");
    DTP_TRY(check_mesh_dims(r, err));
    r->at = end;
    return DTP_OK;
}

/* "['x', UNSHARDED], mesh)" */
static dtp_status read_constructor(dtp_layout_reader *r, dtp_err *err)
{
    int32_t axis = 0;
    if (dtp_layout_reader_accept(r, "sharding_specs") && !dtp_layout_reader_accept(r, "=")) {
        return dtp_layout_reader_fail(r, "'='", err);
    }
    const char *close = dtp_layout_reader_accept(r, "[")   ? "]"
                        : dtp_layout_reader_accept(r, "(") ? ")"
                                                           : NULL;
    if (close == NULL) {
        return dtp_layout_reader_fail(r, "'[' and the sharding specs", err);
    }
    while (!dtp_layout_reader_accept(r, close)) {
        DTP_TRY(read_python_spec(r, &axis, err));
        if (!dtp_layout_reader_accept(r, ",")) {
            if (!dtp_layout_reader_accept(r, close)) {
                return dtp_layout_reader_fail(r, "',' or ']'", err);
            }
            break;
        }
    }
    DTP_TRY(check_count(r, axis, err));
    if (dtp_layout_reader_accept(r, ",") && !dtp_layout_reader_at_end(r) && *r->at != ')') {
        DTP_TRY(read_mesh_argument(r, err));
    }
    if (!dtp_layout_reader_accept(r, ")")) {
        return dtp_layout_reader_fail(r, "')'", err);
    }
    return dtp_layout_reader_at_end(r) ? DTP_OK : dtp_layout_reader_fail(r, "the end", err);
}

dtp_status dtp_form__read_tf(dtp_layout_reader *r, dtp_err *err)
{
    bool from_string;
    const char *inside = python_call(r->at, &from_string);
    if (inside == NULL) {
        return read_string(r, r->at + strlen(r->at), err);
    }
    r->at = inside;
    if (!from_string) {
        return read_constructor(r, err);
    }
    const char *end = r->at; /* "'sharding_specs:...')", with or without quotes */
    const char *closing = dtp_layout_reader_accept(r, "'")    ? "')"
                          : dtp_layout_reader_accept(r, "\"") ? "\")"
                                                              : ")";
    DTP_TRY(find_end(r, closing, &end, err));
    return read_string(r, end, err);
}

/* ---- writing ---- */

dtp_status dtp_form__write_tf(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_dims *dims, dtp_strbuf *out, dtp_err *err)
{
    static const char *const reserved[] = {UNSHARDED, SCALAR, "any", "match", NULL};
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        for (int32_t i = 0; reserved[i] != NULL; i++) {
            if (strcmp(mesh->names[m], reserved[i]) == 0) {
                return DTP_FAIL(err, DTP_UNSUPPORTED,
                                "layout: the mesh dim '%s' has a name that is a keyword of the "
                                "form 'tf'",
                                reserved[i]);
            }
        }
    }
    dtp_strbuf_add(out, "sharding_specs:");
    dtp_strbuf_add(out, type->rank == 0 ? "scalar," : "");
    for (int32_t axis = 0; axis < type->rank; axis++) {
        int32_t splits[DTP_MAX_MESH_DIMS];
        const int32_t n = dtp_layout_axis_splits(layout, axis, splits);
        if (n > 1) {
            return DTP_FAIL(err, DTP_UNSUPPORTED,
                            "layout: the form 'tf' splits a tensor dim over one mesh dim at most; "
                            "'%s' is split over %d",
                            dtp_dims_name(dims, type->dims[axis].id), n);
        }
        dtp_strbuf_addf(out, "%s,", n == 0 ? UNSHARDED : mesh->names[splits[0]]);
    }
    dtp_strbuf_add(out, " mesh:|");
    for (int32_t m = 0; m < mesh->n_dims; m++) {
        dtp_strbuf_addf(out, "%s%s=%lld", m > 0 ? "," : "", mesh->names[m],
                        (long long)mesh->sizes[m]);
    }
    dtp_strbuf_add(out, "|*CPU");
    return DTP_OK;
}
