/* The grid of a drawing, and the drawing as text. */
#include "core/layout/layout_draw_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/layout/placement_text.h"

enum { MAX_LISTED = 8 };

/* ---- the grid ----------------------------------------------------------------------------------
 */

static dtp_draw_axis axis_of(const dtp_drawing *d, int32_t axis)
{
    dtp_draw_axis a = {.axis = axis, .n = 1, .size = 1};
    int32_t splits[DTP_MAX_MESH_DIMS];
    if (axis >= 0) {
        const int32_t n = dtp_layout_axis_splits(d->layout, axis, splits);
        a.size = d->type->dims[axis].size;
        for (int32_t k = 0; k < n; k++) {
            a.n *= (int32_t)d->mesh->sizes[splits[k]];
        }
    }
    return a;
}

dtp_status dtp_drawing_check(const dtp_drawing *d, dtp_err *err)
{
    const int32_t ranks = dtp_mesh_ranks(d->mesh);
    DTP_TRY(dtp_layout_check(d->layout, d->mesh, d->type, err));
    return ranks <= DTP_DRAW_MAX_RANKS
               ? DTP_OK
               : DTP_FAIL(err, DTP_RANGE, "a mesh of %d ranks cannot be drawn, at most %d", ranks,
                          DTP_DRAW_MAX_RANKS);
}

dtp_status dtp_draw__grid(const dtp_drawing *d, dtp_draw_grid *out, dtp_err *err)
{
    const int32_t rank = d->type->rank;
    DTP_TRY(dtp_drawing_check(d, err));
    if (rank > DTP_DRAW_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID,
                        "a tensor of rank %d cannot be drawn, at most %d; its pieces can be "
                        "listed as JSON",
                        rank, DTP_DRAW_MAX_RANK);
    }
    *out = (dtp_draw_grid){.d = d,
                           .slices = axis_of(d, rank == 3 ? 0 : -1),
                           .rows = axis_of(d, rank >= 2 ? rank - 2 : -1),
                           .cols = axis_of(d, rank >= 1 ? rank - 1 : -1)};
    return DTP_OK;
}

/* Coordinates of the rank that holds piece i of an axis, 0 on the other mesh dims. */
static void coords_of(const dtp_draw_grid *g, const dtp_draw_axis *axis, int32_t i, int32_t *coords)
{
    int32_t splits[DTP_MAX_MESH_DIMS];
    const int32_t n = axis->axis < 0 ? 0 : dtp_layout_axis_splits(g->d->layout, axis->axis, splits);
    for (int32_t k = n - 1; k >= 0; k--) {
        const int32_t size = (int32_t)g->d->mesh->sizes[splits[k]];
        coords[splits[k]] = i % size;
        i /= size;
    }
}

void dtp_draw__shard(const dtp_draw_grid *g, const dtp_draw_axis *axis, int32_t i, int64_t *offset,
                     int64_t *size)
{
    int32_t coords[DTP_MAX_MESH_DIMS] = {0};
    *offset = 0;
    *size = 1;
    if (axis->axis >= 0) {
        coords_of(g, axis, i, coords);
        dtp_layout_shard(g->d->layout, g->d->mesh, axis->axis, axis->size, coords, offset, size);
    }
}

void dtp_draw__label(const dtp_draw_grid *g, const dtp_draw_axis *axis, int32_t i,
                     char out[DTP_DRAW_LABEL_BYTES])
{
    int64_t offset, size;
    char count[32] = "empty";
    out[0] = '\0';
    if (axis->axis < 0) {
        return;
    }
    dtp_draw__shard(g, axis, i, &offset, &size);
    const int64_t end = offset + size;
    if (size > 0) {
        (void)snprintf(count, sizeof count, "%lld", (long long)size);
    }
    const char *name = dtp_dims_name(g->d->dims, g->d->type->dims[axis->axis].id);
    (void)snprintf(out, DTP_DRAW_LABEL_BYTES, "%s%.80s[%lld:%lld] (%s)",
                   isdigit((unsigned char)name[0]) ? "d" : "", name, (long long)offset,
                   (long long)end, count);
}

/* ---- who holds a block -------------------------------------------------------------------------
 */

/* The mesh dims with this placement. */
static dtp_mesh_set dims_with(const dtp_draw_grid *g, dtp_placement_kind kind)
{
    dtp_mesh_set set = 0;
    for (int32_t m = 0; m < g->d->layout->n_mesh; m++) {
        set |= g->d->layout->placement[m].kind == (int8_t)kind ? 1U << m : 0U;
    }
    return set;
}

int32_t dtp_draw__holders(const dtp_draw_grid *g, int32_t slice, int32_t row, int32_t col,
                          dtp_strbuf *out)
{
    const dtp_mesh *mesh = g->d->mesh;
    const dtp_mesh_set copies = dims_with(g, DTP_REPLICATE), terms = dims_with(g, DTP_PARTIAL);
    const int32_t n_copies = dtp_mesh_set_size(mesh, copies);
    const int32_t n_terms = dtp_mesh_set_size(mesh, terms), all = n_copies * n_terms;
    int32_t coords[DTP_MAX_MESH_DIMS] = {0};
    coords_of(g, &g->slices, slice, coords);
    coords_of(g, &g->rows, row, coords);
    coords_of(g, &g->cols, col, coords);
    const int32_t first = dtp_mesh_rank(mesh, coords);
    for (int32_t i = 0; i < all; i++) {
        if (all > MAX_LISTED && i >= MAX_LISTED / 2 && i < all - 1) {
            dtp_strbuf_add(out, i == MAX_LISTED / 2 ? "..." : "");
            continue;
        }
        const int32_t copy = dtp_mesh_set_member(mesh, copies, first, i / n_terms);
        dtp_strbuf_add(out, i == 0 ? "" : i % n_terms == 0 ? ", " : "+");
        dtp_strbuf_addf(out, "%d", dtp_mesh_set_member(mesh, terms, copy, i % n_terms));
    }
    if (all > MAX_LISTED) {
        dtp_strbuf_addf(out, " (%d ranks)", all);
    }
    return first;
}

/* ---- captions ----------------------------------------------------------------------------------
 */

static void add_dims(const dtp_draw_grid *g, dtp_mesh_set set, dtp_strbuf *out)
{
    const char *between = "";
    for (int32_t m = 0; m < g->d->mesh->n_dims; m++) {
        if ((set >> m & 1U) != 0) {
            dtp_strbuf_addf(out, "%s%s", between, g->d->mesh->names[m]);
            between = ", ";
        }
    }
}

static void add_title(const dtp_draw_grid *g, dtp_strbuf *out)
{
    char type[DTP_TTYPE_TEXT_BYTES], mesh[DTP_MESH_TEXT_BYTES];
    const int32_t ranks = dtp_mesh_ranks(g->d->mesh);
    dtp_ttype_print(g->d->type, g->d->dims, type);
    dtp_mesh_print(g->d->mesh, mesh);
    if (g->d->name != NULL) {
        dtp_strbuf_addf(out, "%s: ", g->d->name);
    }
    dtp_strbuf_addf(out, "%s on mesh %s (%d rank%s)", type,
                    mesh[0] == '\0' ? "of one device" : mesh, ranks, ranks == 1 ? "" : "s");
}

static void add_layout(const dtp_draw_grid *g, dtp_strbuf *out)
{
    char ours[DTP_LAYOUT_TEXT_BYTES];
    dtp_layout_print(g->d->layout, g->d->mesh, g->d->type, g->d->dims, ours);
    dtp_strbuf_addf(out, "layout %s", ours);
    if (g->d->mesh->n_dims > 0) {
        dtp_strbuf_add(out, " = (");
        dtp_placements_print(g->d->layout, out);
        dtp_strbuf_add(out, ")");
    }
}

/* What "," and "+" stand for. */
static bool add_signs(const dtp_draw_grid *g, dtp_strbuf *out)
{
    const dtp_mesh_set copies = dims_with(g, DTP_REPLICATE), terms = dims_with(g, DTP_PARTIAL);
    if (copies != 0) {
        dtp_strbuf_add(out, "a, b: copies over ");
        add_dims(g, copies, out);
    }
    if (terms != 0) {
        dtp_strbuf_add(out, copies != 0 ? "; a+b: partial over " : "a+b: partial over ");
        add_dims(g, terms, out);
    }
    return (copies | terms) != 0;
}

bool dtp_draw__caption(const dtp_draw_grid *g, int32_t k, dtp_strbuf *out)
{
    if (k == 2) {
        return add_signs(g, out);
    }
    if (k == 0) {
        add_title(g, out);
    } else if (k == 1) {
        add_layout(g, out);
    }
    return k < 2;
}

/* ---- text --------------------------------------------------------------------------------------
 */

static void repeat(dtp_strbuf *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dtp_strbuf_add(out, text);
    }
}

static void put_padded(dtp_strbuf *out, const char *text, size_t width)
{
    const size_t n = strlen(text);
    dtp_strbuf_add(out, text);
    repeat(out, " ", n < width ? width - n : 0);
}

static size_t label_width(const dtp_draw_grid *g, const dtp_draw_axis *axis)
{
    size_t widest = 0;
    for (int32_t i = 0; i < axis->n; i++) {
        char label[DTP_DRAW_LABEL_BYTES];
        dtp_draw__label(g, axis, i, label);
        widest = strlen(label) > widest ? strlen(label) : widest;
    }
    return widest;
}

/* Width of the columns: the widest label or cell. */
static size_t cell_width(const dtp_draw_grid *g, dtp_strbuf *out)
{
    size_t widest = label_width(g, &g->cols);
    for (int32_t s = 0; s < g->slices.n; s++) {
        for (int32_t i = 0; i < g->rows.n * g->cols.n; i++) {
            dtp_strbuf cell = {0};
            (void)dtp_draw__holders(g, s, i / g->cols.n, i % g->cols.n, &cell);
            widest = cell.len > widest ? cell.len : widest;
            out->failed = out->failed || cell.failed;
            dtp_strbuf_free(&cell);
        }
    }
    return widest;
}

static void put_rule(const dtp_draw_grid *g, size_t margin, size_t width, dtp_strbuf *out)
{
    repeat(out, " ", margin);
    for (int32_t c = 0; c < g->cols.n; c++) {
        dtp_strbuf_add(out, "+");
        repeat(out, "-", width + 2);
    }
    dtp_strbuf_add(out, "+\n");
}

/* Labels of the columns; blanks at the end of the line are left out. */
static void put_head(const dtp_draw_grid *g, size_t margin, size_t width, dtp_strbuf *out)
{
    repeat(out, " ", margin);
    for (int32_t c = 0; c < g->cols.n; c++) {
        char label[DTP_DRAW_LABEL_BYTES];
        dtp_draw__label(g, &g->cols, c, label);
        dtp_strbuf_add(out, "  ");
        put_padded(out, label, c + 1 < g->cols.n ? width + 1 : 0);
    }
    dtp_strbuf_add(out, "\n");
}

static void put_slice(const dtp_draw_grid *g, int32_t slice, dtp_strbuf *out)
{
    const size_t labels = label_width(g, &g->rows), width = cell_width(g, out);
    const size_t margin = labels > 0 ? labels + 1 : 0;
    if (g->cols.axis >= 0) {
        put_head(g, margin, width, out);
    }
    put_rule(g, margin, width, out);
    for (int32_t r = 0; r < g->rows.n; r++) {
        char label[DTP_DRAW_LABEL_BYTES];
        dtp_draw__label(g, &g->rows, r, label);
        put_padded(out, label, margin);
        for (int32_t c = 0; c < g->cols.n; c++) {
            dtp_strbuf cell = {0};
            (void)dtp_draw__holders(g, slice, r, c, &cell);
            dtp_strbuf_add(out, "| ");
            put_padded(out, dtp_strbuf_text(&cell), width + 1);
            out->failed = out->failed || cell.failed;
            dtp_strbuf_free(&cell);
        }
        dtp_strbuf_add(out, "|\n");
        put_rule(g, margin, width, out);
    }
}

dtp_status dtp_layout_draw_text(const dtp_drawing *d, dtp_strbuf *out, dtp_err *err)
{
    dtp_draw_grid g;
    DTP_TRY(dtp_draw__grid(d, &g, err));
    for (int32_t k = 0; dtp_draw__caption(&g, k, out); k++) {
        dtp_strbuf_add(out, "\n");
    }
    for (int32_t s = 0; s < g.slices.n; s++) {
        dtp_strbuf_add(out, "\n");
        if (g.slices.axis >= 0) {
            char label[DTP_DRAW_LABEL_BYTES];
            dtp_draw__label(&g, &g.slices, s, label);
            dtp_strbuf_addf(out, "%s\n", label);
        }
        put_slice(&g, s, out);
    }
    return out->failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a drawing") : DTP_OK;
}
