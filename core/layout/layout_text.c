/* The text form of a layout: "batch@x, d_ff@y+z, +sum(w)". */
#include <stdio.h>
#include <string.h>

#include "core/layout/layout_reader.h"

typedef struct cursor {
    char *out;
    size_t used, size;
} cursor;

static void put(cursor *c, const char *text)
{
    size_t n = strlen(text);
    if (c->used + n < c->size) {
        memcpy(c->out + c->used, text, n + 1);
        c->used += n;
    }
}

void dtp_layout_print(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                      const dtp_dims *dims, char out[DTP_LAYOUT_TEXT_BYTES])
{
    cursor c = {out, 0, DTP_LAYOUT_TEXT_BYTES};
    out[0] = '\0';
    for (int32_t i = 0; i < type->rank; i++) {
        int32_t splits[DTP_MAX_MESH_DIMS];
        int32_t n = dtp_layout_axis_splits(layout, i, splits);
        for (int32_t k = 0; k < n; k++) {
            if (k == 0) {
                put(&c, c.used > 0 ? ", " : "");
                put(&c, dtp_dims_name(dims, type->dims[i].id));
            }
            put(&c, k == 0 ? "@" : "+");
            put(&c, mesh->names[splits[k]]);
        }
    }
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_PARTIAL) {
            put(&c, c.used > 0 ? ", +" : "+");
            put(&c, dtp_reduce_op_name((dtp_reduce_op)layout->placement[m].op));
            put(&c, "(");
            put(&c, mesh->names[m]);
            put(&c, ")");
        }
    }
    if (c.used == 0) {
        put(&c, "replicated");
    }
}

/* Copies the word up to one of the stop characters (or the end), spaces trimmed; empty when it does
 * not fit. */
static const char *read_word(const char *at, const char *stops, char *out, size_t size)
{
    while (*at == ' ') {
        at++;
    }
    size_t n = strcspn(at, stops);
    size_t keep = n;
    while (keep > 0 && at[keep - 1] == ' ') {
        keep--;
    }
    if (keep >= size) {
        keep = 0;
    }
    memcpy(out, at, keep);
    out[keep] = '\0';
    return at + n;
}

/* "+sum(w)" with the plus already read. */
static dtp_status parse_partial(const char **at, const dtp_mesh *mesh, dtp_layout *layout,
                                dtp_err *err)
{
    char op[16], name[DTP_MESH_NAME_BYTES];
    const char *p = read_word(*at, "(,", op, sizeof op);
    int32_t code = 0, m;
    while (code < DTP_N_REDUCE_OPS && strcmp(op, dtp_reduce_op_name((dtp_reduce_op)code)) != 0) {
        code++;
    }
    if (code == DTP_N_REDUCE_OPS || *p != '(') {
        return DTP_FAIL(err, DTP_INVALID,
                        "layout: expected sum, avg, prod, min or max with '(MESH DIM)' at '%.40s'",
                        *at);
    }
    p = read_word(p + 1, "),", name, sizeof name);
    if (*p != ')') {
        return DTP_FAIL(err, DTP_INVALID, "layout: ')' is missing after '%s(%s'", op, name);
    }
    DTP_TRY(dtp_layout_free_mesh_dim(mesh, layout, name, &m, err));
    layout->placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = (int8_t)code};
    *at = p + 1;
    return DTP_OK;
}

/* "d_ff@y+z". */
static dtp_status parse_split(const char **at, const dtp_mesh *mesh, const dtp_ttype *type,
                              const dtp_dims *dims, dtp_layout *layout, dtp_err *err)
{
    char dim[128], name[DTP_MESH_NAME_BYTES];
    const char *p = read_word(*at, "@,", dim, sizeof dim);
    int32_t axis = dtp_ttype_find(type, dtp_dims_find(dims, dim));
    if (*p != '@' || dtp_dims_find(dims, dim) < 0 || axis < 0) {
        char known[256] = "none";
        cursor c = {known, 0, sizeof known};
        for (int32_t i = 0; i < type->rank; i++) {
            put(&c, i > 0 ? ", " : "");
            put(&c, dtp_dims_name(dims, type->dims[i].id));
        }
        return DTP_FAIL(err, DTP_INVALID,
                        "layout: expected 'DIM@MESH DIM' with a dim of the tensor (%s) at '%.40s'",
                        known, *at);
    }
    int32_t splits[DTP_MAX_MESH_DIMS];
    if (dtp_layout_axis_splits(layout, axis, splits) > 0) {
        return DTP_FAIL(err, DTP_INVALID, "layout: dim '%s' is listed twice", dim);
    }
    do {
        int32_t m;
        p = read_word(p + 1, "+,", name, sizeof name);
        DTP_TRY(dtp_layout_free_mesh_dim(mesh, layout, name, &m, err));
        dtp_layout_split(layout, m, axis);
    } while (*p == '+');
    *at = p;
    return DTP_OK;
}

dtp_status dtp_layout_parse(const char *text, const dtp_mesh *mesh, const dtp_ttype *type,
                            const dtp_dims *dims, dtp_layout *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, text, mesh, type, dims, out));
    dtp_layout layout = dtp_layout_replicated(type->rank, mesh->n_dims);
    const char *at = text;
    if (strcmp(text, "replicated") == 0) {
        *out = layout;
        return DTP_OK;
    }
    for (;;) {
        while (*at == ' ') {
            at++;
        }
        if (*at == '+') {
            at++;
            DTP_TRY(parse_partial(&at, mesh, &layout, err));
        } else {
            DTP_TRY(parse_split(&at, mesh, type, dims, &layout, err));
        }
        while (*at == ' ') {
            at++;
        }
        if (*at == '\0') {
            break;
        }
        if (*at != ',') {
            return DTP_FAIL(err, DTP_INVALID, "layout: expected ',' at '%.40s'", at);
        }
        at++;
    }
    *out = layout;
    return DTP_OK;
}
