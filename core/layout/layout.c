/* Layouts (dtp/layout.h): splits, shards, checks, and our text form. */
#include "core/layout/layout.h"

#include <string.h>

#include "core/base/safe_int.h"

const char *dtp_reduce_op_name(dtp_reduce_op op)
{
    static const char *const names[DTP_N_REDUCE_OPS] = {"sum", "avg", "prod", "min", "max"};
    return names[op];
}

dtp_layout dtp_layout_replicated(int32_t rank, int32_t n_mesh)
{
    dtp_layout layout;
    memset(&layout, 0, sizeof layout);
    layout.rank = (int8_t)rank;
    layout.n_mesh = (int8_t)n_mesh;
    return layout;
}

bool dtp_layout_equal(const dtp_layout *a, const dtp_layout *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

void dtp_layout_split(dtp_layout *layout, int32_t m, int32_t axis)
{
    int32_t splits[DTP_MAX_MESH_DIMS];
    int32_t depth = dtp_layout_axis_splits(layout, axis, splits);
    layout->placement[m] =
        (dtp_placement){.kind = DTP_SHARD, .axis = (int8_t)axis, .order = (int8_t)depth};
}

bool dtp_layout_has_partial(const dtp_layout *layout)
{
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_PARTIAL) {
            return true;
        }
    }
    return false;
}

dtp_layout dtp_layout_without_partial(const dtp_layout *layout)
{
    dtp_layout whole = *layout;
    for (int32_t m = 0; m < whole.n_mesh; m++) {
        if (whole.placement[m].kind == DTP_PARTIAL) {
            whole.placement[m] = (dtp_placement){0};
        }
    }
    return whole;
}

int32_t dtp_layout_axis_splits(const dtp_layout *layout, int32_t axis,
                               int32_t mesh_dims[DTP_MAX_MESH_DIMS])
{
    int32_t n = 0;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_SHARD && layout->placement[m].axis == axis) {
            mesh_dims[layout->placement[m].order] = m;
            n++;
        }
    }
    return n;
}

int64_t dtp_layout_shards(const dtp_layout *layout, const dtp_mesh *mesh)
{
    int64_t n = 1;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        n *= layout->placement[m].kind == DTP_SHARD ? mesh->sizes[m] : 1;
    }
    return n;
}

void dtp_chunk(int64_t n, int64_t k, int64_t index, int64_t *offset, int64_t *size)
{
    int64_t chunk = n / k + (n % k != 0 ? 1 : 0);
    int64_t start = chunk * index < n ? chunk * index : n;
    int64_t stop = start + chunk < n ? start + chunk : n;
    *offset = start;
    *size = stop - start;
}

void dtp_layout_shard(const dtp_layout *layout, const dtp_mesh *mesh, int32_t axis, int64_t n,
                      const int32_t coords[DTP_MAX_MESH_DIMS], int64_t *offset, int64_t *size)
{
    int32_t splits[DTP_MAX_MESH_DIMS];
    int32_t depth = dtp_layout_axis_splits(layout, axis, splits);
    int64_t at = 0, left = n;
    for (int32_t i = 0; i < depth; i++) {
        int64_t start, len;
        dtp_chunk(left, mesh->sizes[splits[i]], coords[splits[i]], &start, &len);
        at += start;
        left = len;
    }
    *offset = left == 0 ? n : at;
    *size = left;
}

void dtp_layout_local(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                      int32_t rank, dtp_ttype *local, int64_t offsets[DTP_MAX_RANK])
{
    int32_t coords[DTP_MAX_MESH_DIMS];
    dtp_mesh_coords(mesh, rank, coords);
    *local = *type;
    for (int32_t i = 0; i < type->rank; i++) {
        int64_t offset;
        dtp_layout_shard(layout, mesh, i, type->dims[i].size, coords, &offset,
                         &local->dims[i].size);
        if (offsets != NULL) {
            offsets[i] = offset;
        }
    }
}

/* Into how many shards each tensor dim is split. */
static void count_parts(const dtp_layout *layout, const dtp_mesh *mesh, int32_t rank,
                        int64_t parts[DTP_MAX_RANK])
{
    for (int32_t i = 0; i < rank; i++) {
        parts[i] = 1;
    }
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_SHARD) {
            parts[layout->placement[m].axis] *= mesh->sizes[m];
        }
    }
}

/* Rank 0 has the first chunk of every split; ceil(ceil(n / a) / b) = ceil(n / (a b)), so the order
 * of the splits does not matter. */
void dtp_layout_local_max(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                          dtp_ttype *local)
{
    int64_t parts[DTP_MAX_RANK];
    count_parts(layout, mesh, type->rank, parts);
    *local = *type;
    for (int32_t i = 0; i < type->rank; i++) {
        if (parts[i] > 1) {
            local->dims[i].size = dtp_ceil_div(type->dims[i].size, parts[i]);
        }
    }
}

bool dtp_layout_is_even(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type)
{
    return dtp_layout_may_hold(layout, mesh, type, false);
}

bool dtp_layout_may_hold(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                         bool uneven)
{
    int64_t parts[DTP_MAX_RANK];
    count_parts(layout, mesh, type->rank, parts);
    for (int32_t i = 0; i < type->rank; i++) {
        const int64_t size = type->dims[i].size;
        if (parts[i] > 1 && (uneven ? size < parts[i] : size % parts[i] != 0)) {
            return false;
        }
    }
    return true;
}

bool dtp_layout_is_even_over(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                             dtp_mesh_set set)
{
    int64_t parts[DTP_MAX_RANK];
    count_parts(layout, mesh, type->rank, parts);
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *at = &layout->placement[m];
        if ((set >> m & 1U) != 0 && at->kind == DTP_SHARD &&
            type->dims[at->axis].size % parts[at->axis] != 0) {
            return false;
        }
    }
    return true;
}

dtp_status dtp_layout_check(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                            dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, layout, mesh, type));
    if (layout->rank != type->rank || layout->n_mesh != mesh->n_dims) {
        return DTP_FAIL(
            err, DTP_INVALID,
            "layout of rank %d on %d mesh dims, but the tensor has rank %d and the mesh %d dims",
            layout->rank, layout->n_mesh, type->rank, mesh->n_dims);
    }
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        const dtp_placement *p = &layout->placement[m];
        if (p->kind == DTP_SHARD && (p->axis < 0 || p->axis >= type->rank)) {
            return DTP_FAIL(err, DTP_INVALID, "mesh dim '%s' splits axis %d of a tensor of rank %d",
                            mesh->names[m], p->axis, type->rank);
        }
        if (p->kind < DTP_REPLICATE || p->kind > DTP_PARTIAL ||
            (p->kind == DTP_PARTIAL && (p->op < 0 || p->op >= DTP_N_REDUCE_OPS))) {
            return DTP_FAIL(err, DTP_INVALID, "mesh dim '%s': unknown placement %d(%d)",
                            mesh->names[m], p->kind, p->op);
        }
    }
    for (int32_t i = 0; i < type->rank; i++) {
        uint32_t seen = 0, n = 0;
        for (int32_t m = 0; m < layout->n_mesh; m++) {
            const dtp_placement *p = &layout->placement[m];
            if (p->kind == DTP_SHARD && p->axis == i) {
                seen |= p->order >= 0 && p->order < DTP_MAX_MESH_DIMS ? 1U << p->order : 0U;
                n++;
            }
        }
        if (seen != (1U << n) - 1U) {
            return DTP_FAIL(err, DTP_INVALID, "the splits of axis %d are not ordered 0, 1, ...", i);
        }
    }
    return DTP_OK;
}

/* ---- text ---- */

/* Appends a text unless there is no room for all of it. */
static size_t put(char *out, size_t used, size_t size, const char *text)
{
    const size_t n = strlen(text);
    if (used + n >= size) {
        return used;
    }
    memcpy(out + used, text, n + 1);
    return used + n;
}

void dtp_layout_print(const dtp_layout *layout, const dtp_mesh *mesh, const dtp_ttype *type,
                      const dtp_dims *dims, char out[DTP_LAYOUT_TEXT_BYTES])
{
    const size_t size = DTP_LAYOUT_TEXT_BYTES;
    size_t used = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < type->rank; i++) {
        int32_t splits[DTP_MAX_MESH_DIMS];
        const int32_t n = dtp_layout_axis_splits(layout, i, splits);
        for (int32_t k = 0; k < n; k++) {
            if (k == 0) {
                used = put(out, used, size, used > 0 ? ", " : "");
                used = put(out, used, size, dtp_dims_name(dims, type->dims[i].id));
            }
            used = put(out, used, size, k == 0 ? "@" : "+");
            used = put(out, used, size, mesh->names[splits[k]]);
        }
    }
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        if (layout->placement[m].kind == DTP_PARTIAL) {
            used = put(out, used, size, used > 0 ? ", +" : "+");
            used = put(out, used, size, dtp_reduce_op_name((dtp_reduce_op)layout->placement[m].op));
            used = put(out, used, size, "(");
            used = put(out, used, size, mesh->names[m]);
            used = put(out, used, size, ")");
        }
    }
    if (used == 0) {
        (void)put(out, used, size, "replicated");
    }
}

dtp_status dtp_layout_free_mesh_dim(const dtp_mesh *mesh, const dtp_layout *layout,
                                    const char *name, int32_t *m, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, mesh, layout, name, m));
    *m = dtp_mesh_find(mesh, name);
    if (*m < 0) {
        char text[DTP_MESH_TEXT_BYTES];
        dtp_mesh_print(mesh, text);
        return DTP_FAIL(err, DTP_INVALID, "layout: mesh dim '%s' is not in the mesh '%s'", name,
                        text);
    }
    if (layout->placement[*m].kind != DTP_REPLICATE) {
        return DTP_FAIL(err, DTP_INVALID, "layout: mesh dim '%s' is used twice", name);
    }
    return DTP_OK;
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
        size_t used = 0;
        for (int32_t i = 0; i < type->rank; i++) {
            used = put(known, used, sizeof known, i > 0 ? ", " : "");
            used = put(known, used, sizeof known, dtp_dims_name(dims, type->dims[i].id));
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
