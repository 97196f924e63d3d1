/* The grid of a drawing; the drawing as text and as SVG. In the SVG shards are as wide and high as
 * their share of the dim, but never smaller than their text; empty ones are dashed. Every block has
 * its own fill, by the lowest rank that holds it. */
#include "core/layout/layout_draw.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "core/layout/placement_text.h"

enum { MAX_LISTED = 8, LABEL_BYTES = 160, CAPTIONS = 4 };

/* The shards of a tensor dim, in order of their index. A tensor of rank 0 to 2 has slices, rows and
 * columns that are no dims (axis -1, one shard). */
typedef struct draw_axis {
    int32_t axis; /* of the tensor, -1 = none */
    int32_t n;
    int64_t size; /* of the whole dim; 1 without one */
} draw_axis;

typedef struct draw_grid {
    const dtp_drawing *d;
    draw_axis slices, rows, cols;
    dtp_strbuf *out;
} draw_grid;

/* ---- the grid ---- */

static draw_axis axis_of(const dtp_drawing *d, int32_t axis)
{
    draw_axis a = {.axis = axis, .n = 1, .size = 1};
    if (axis >= 0) {
        int32_t splits[DTP_MAX_MESH_DIMS];
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

static dtp_status make_grid(const dtp_drawing *d, dtp_strbuf *out, draw_grid *g, dtp_err *err)
{
    const int32_t rank = d->type->rank;
    DTP_TRY(dtp_drawing_check(d, err));
    if (rank > DTP_DRAW_MAX_RANK) {
        return DTP_FAIL(err, DTP_INVALID,
                        "a tensor of rank %d cannot be drawn, at most %d; its pieces can be "
                        "listed as JSON",
                        rank, DTP_DRAW_MAX_RANK);
    }
    *g = (draw_grid){.d = d,
                     .slices = axis_of(d, rank == 3 ? 0 : -1),
                     .rows = axis_of(d, rank >= 2 ? rank - 2 : -1),
                     .cols = axis_of(d, rank >= 1 ? rank - 1 : -1),
                     .out = out};
    return DTP_OK;
}

/* Coordinates of the rank that holds shard i of an axis, 0 on the other mesh dims. */
static void coords_of(const draw_grid *g, const draw_axis *axis, int32_t i, int32_t *coords)
{
    int32_t splits[DTP_MAX_MESH_DIMS];
    const int32_t n = axis->axis < 0 ? 0 : dtp_layout_axis_splits(g->d->layout, axis->axis, splits);
    for (int32_t k = n - 1; k >= 0; k--) {
        const int32_t size = (int32_t)g->d->mesh->sizes[splits[k]];
        coords[splits[k]] = i % size;
        i /= size;
    }
}

/* Size of shard i of an axis. */
static int64_t shard_of(const draw_grid *g, const draw_axis *axis, int32_t i, int64_t *offset)
{
    int32_t coords[DTP_MAX_MESH_DIMS] = {0};
    int64_t size = 1;
    *offset = 0;
    if (axis->axis >= 0) {
        coords_of(g, axis, i, coords);
        dtp_layout_shard(g->d->layout, g->d->mesh, axis->axis, axis->size, coords, offset, &size);
    }
    return size;
}

/* "d_ff[4:8] (4)", "d_ff[8:8] (empty)"; "" without a dim. A dim called "0" is written "d0". Returns
 * the length. */
static size_t label_of(const draw_grid *g, const draw_axis *axis, int32_t i, char out[LABEL_BYTES])
{
    int64_t offset;
    char count[32] = "empty";
    out[0] = '\0';
    if (axis->axis < 0) {
        return 0;
    }
    const int64_t size = shard_of(g, axis, i, &offset);
    const int64_t end = offset + size;
    if (size > 0) {
        (void)snprintf(count, sizeof count, "%lld", (long long)size);
    }
    const char *name = dtp_dims_name(g->d->dims, g->d->type->dims[axis->axis].id);
    (void)snprintf(out, LABEL_BYTES, "%s%.80s[%lld:%lld] (%s)",
                   isdigit((unsigned char)name[0]) ? "d" : "", name, (long long)offset,
                   (long long)end, count);
    return strlen(out);
}

static size_t widest_label(const draw_grid *g, const draw_axis *axis)
{
    char label[LABEL_BYTES];
    size_t widest = 0;
    for (int32_t i = 0; i < axis->n; i++) {
        const size_t n = label_of(g, axis, i, label);
        widest = n > widest ? n : widest;
    }
    return widest;
}

/* The mesh dims with this placement. */
static dtp_mesh_set dims_with(const draw_grid *g, dtp_placement_kind kind)
{
    dtp_mesh_set set = 0;
    for (int32_t m = 0; m < g->d->layout->n_mesh; m++) {
        set |= g->d->layout->placement[m].kind == (int8_t)kind ? 1U << m : 0U;
    }
    return set;
}

/* The ranks that hold the block: "0+1, 2+3". Long lists are cut: "0, 1, 2, 3..., 63 (64 ranks)".
 * Returns the lowest rank. The caller ends the cell with end_cell. */
static int32_t cell_of(const draw_grid *g, int32_t slice, int32_t row, int32_t col,
                       dtp_strbuf *cell)
{
    const dtp_mesh *mesh = g->d->mesh;
    const dtp_mesh_set copies = dims_with(g, DTP_REPLICATE), terms = dims_with(g, DTP_PARTIAL);
    const int32_t n_terms = dtp_mesh_set_size(mesh, terms);
    const int32_t all = dtp_mesh_set_size(mesh, copies) * n_terms;
    int32_t coords[DTP_MAX_MESH_DIMS] = {0};
    *cell = (dtp_strbuf){0};
    coords_of(g, &g->slices, slice, coords);
    coords_of(g, &g->rows, row, coords);
    coords_of(g, &g->cols, col, coords);
    const int32_t first = dtp_mesh_rank(mesh, coords);
    for (int32_t i = 0; i < all; i++) {
        if (all > MAX_LISTED && i >= MAX_LISTED / 2 && i < all - 1) {
            dtp_strbuf_add(cell, i == MAX_LISTED / 2 ? "..." : "");
            continue;
        }
        const int32_t copy = dtp_mesh_set_member(mesh, copies, first, i / n_terms);
        dtp_strbuf_add(cell, i == 0 ? "" : i % n_terms == 0 ? ", " : "+");
        dtp_strbuf_addf(cell, "%d",
                        g->d->first_rank + dtp_mesh_set_member(mesh, terms, copy, i % n_terms));
    }
    if (all > MAX_LISTED) {
        dtp_strbuf_addf(cell, " (%d ranks)", all);
    }
    return first;
}

static void end_cell(const draw_grid *g, dtp_strbuf *cell)
{
    g->out->failed = g->out->failed || cell->failed;
    dtp_strbuf_free(cell);
}

/* The widest cell or label of columns col..end - 1, in all slices. */
static size_t column_width(const draw_grid *g, int32_t col, int32_t end)
{
    size_t widest = 0;
    for (; col < end; col++) {
        char label[LABEL_BYTES];
        const size_t n = label_of(g, &g->cols, col, label);
        widest = n > widest ? n : widest;
        for (int32_t i = 0; i < g->slices.n * g->rows.n; i++) {
            dtp_strbuf cell;
            (void)cell_of(g, i / g->rows.n, i % g->rows.n, col, &cell);
            widest = cell.len > widest ? cell.len : widest;
            end_cell(g, &cell);
        }
    }
    return widest;
}

/* ---- captions ---- */

/* "a, b: copies over x, y" of the mesh dims of a set, which may be empty. */
static void add_sign(const draw_grid *g, const char *sign, dtp_mesh_set set, dtp_strbuf *out)
{
    for (int32_t m = 0; m < g->d->mesh->n_dims; m++) {
        if ((set >> m & 1U) != 0) {
            dtp_strbuf_addf(out, "%s%s", sign, g->d->mesh->names[m]);
            sign = ", ";
        }
    }
}

/* What is drawn: type and mesh; the layout in our form and PyTorch's; when something is partial or
 * replicated, what the signs in the cells mean; the note. Returns how many lines, which the caller
 * frees. */
static int32_t make_captions(const draw_grid *g, dtp_strbuf lines[CAPTIONS])
{
    const dtp_drawing *d = g->d;
    char type[DTP_TTYPE_TEXT_BYTES], mesh[DTP_MESH_TEXT_BYTES], ours[DTP_LAYOUT_TEXT_BYTES];
    const int32_t ranks = dtp_mesh_ranks(d->mesh);
    const dtp_mesh_set copies = dims_with(g, DTP_REPLICATE), terms = dims_with(g, DTP_PARTIAL);
    memset(lines, 0, CAPTIONS * sizeof *lines);
    dtp_ttype_print(d->type, d->dims, type);
    dtp_mesh_print(d->mesh, mesh);
    dtp_strbuf_addf(&lines[0], "%s%s%s on mesh %s (%d rank%s)", d->name != NULL ? d->name : "",
                    d->name != NULL ? ": " : "", type, mesh[0] == '\0' ? "of one device" : mesh,
                    ranks, ranks == 1 ? "" : "s");
    dtp_layout_print(d->layout, d->mesh, d->type, d->dims, ours);
    dtp_strbuf_addf(&lines[1], "layout %s", ours);
    if (d->mesh->n_dims > 0) {
        dtp_strbuf_add(&lines[1], " = (");
        dtp_placements_print(d->layout, &lines[1]);
        dtp_strbuf_add(&lines[1], ")");
    }
    add_sign(g, "a, b: copies over ", copies, &lines[2]);
    add_sign(g, copies != 0 ? "; a+b: partial over " : "a+b: partial over ", terms, &lines[2]);
    const int32_t n = (copies | terms) != 0 ? 3 : 2;
    dtp_strbuf_add(&lines[n], d->note != NULL ? d->note : "");
    return d->note != NULL ? n + 1 : n;
}

/* ---- text ---- */

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

static void put_rule(const draw_grid *g, size_t margin, size_t width)
{
    repeat(g->out, " ", margin);
    for (int32_t c = 0; c < g->cols.n; c++) {
        dtp_strbuf_add(g->out, "+");
        repeat(g->out, "-", width + 2);
    }
    dtp_strbuf_add(g->out, "+\n");
}

dtp_status dtp_layout_draw_text(const dtp_drawing *d, dtp_strbuf *out, dtp_err *err)
{
    draw_grid g;
    dtp_strbuf captions[CAPTIONS];
    DTP_TRY(make_grid(d, out, &g, err));
    const int32_t n = make_captions(&g, captions);
    for (int32_t k = 0; k < CAPTIONS; k++) {
        dtp_strbuf_join(out, &captions[k]);
        dtp_strbuf_add(out, k < n ? "\n" : "");
    }
    const size_t width = column_width(&g, 0, g.cols.n);
    for (int32_t s = 0; s < g.slices.n; s++) {
        dtp_strbuf_add(out, "\n");
        if (g.slices.axis >= 0) {
            char label[LABEL_BYTES];
            (void)label_of(&g, &g.slices, s, label);
            dtp_strbuf_addf(out, "%s\n", label);
        }
        const size_t labels = widest_label(&g, &g.rows), margin = labels > 0 ? labels + 1 : 0;
        char label[LABEL_BYTES];
        if (g.cols.axis >= 0) { /* blanks at the end of the line are left out */
            repeat(g.out, " ", margin);
            for (int32_t c = 0; c < g.cols.n; c++) {
                (void)label_of(&g, &g.cols, c, label);
                dtp_strbuf_add(g.out, "  ");
                put_padded(g.out, label, c + 1 < g.cols.n ? width + 1 : 0);
            }
            dtp_strbuf_add(g.out, "\n");
        }
        put_rule(&g, margin, width);
        for (int32_t r = 0; r < g.rows.n; r++) {
            (void)label_of(&g, &g.rows, r, label);
            put_padded(g.out, label, margin);
            for (int32_t c = 0; c < g.cols.n; c++) {
                dtp_strbuf cell;
                (void)cell_of(&g, s, r, c, &cell);
                dtp_strbuf_add(g.out, "| ");
                put_padded(g.out, dtp_strbuf_text(&cell), width + 1);
                end_cell(&g, &cell);
            }
            dtp_strbuf_add(g.out, "|\n");
            put_rule(&g, margin, width);
        }
    }
    return out->failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a drawing") : DTP_OK;
}

/* ---- SVG ---- */

enum {
    CHAR_WIDTH = 8, /* of the monospace font at FONT_SIZE, rounded up */
    FONT_SIZE = 13,
    LINE = 20,
    PAD = 8,
    FULL_WIDTH = 480, /* of a whole dim, before texts make shards wider */
    FULL_HEIGHT = 240,
    MARGIN = 16
};

typedef struct picture {
    const draw_grid *g;
    int64_t cols[DTP_DRAW_MAX_RANKS + 1], rows[DTP_DRAW_MAX_RANKS + 1]; /* edges of the shards */
    int64_t left;                                                       /* of the cells */
} picture;

/* Appends text with the characters of XML escaped; what is not printable ASCII becomes "?". */
static void put_escaped(dtp_strbuf *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        const char one[2] = {*p, '\0'};
        dtp_strbuf_add(out, *p == '&'              ? "&amp;"
                            : *p == '<'            ? "&lt;"
                            : *p == '>'            ? "&gt;"
                            : *p == '"'            ? "&quot;"
                            : *p < ' ' || *p > '~' ? "?"
                                                   : one);
    }
}

static void put_text(dtp_strbuf *out, int64_t x, int64_t y, const char *anchor, const char *text)
{
    dtp_strbuf_addf(out, "<text x=\"%lld\" y=\"%lld\" text-anchor=\"%s\">", (long long)x,
                    (long long)y, anchor);
    put_escaped(out, text);
    dtp_strbuf_add(out, "</text>\n");
}

static int64_t text_width(size_t characters)
{
    return (int64_t)characters * CHAR_WIDTH + 2 * PAD;
}

/* Edges of an axis whose whole dim is `full` long; columns are as wide as their text at least. */
static void make_edges(const draw_grid *g, const draw_axis *axis, int64_t full, int64_t *edges)
{
    edges[0] = 0;
    for (int32_t i = 0; i < axis->n; i++) {
        int64_t offset;
        const double share =
            (double)shard_of(g, axis, i, &offset) / (double)(axis->size > 0 ? axis->size : 1);
        const int64_t length = (int64_t)(share * (double)full);
        const int64_t least = axis == &g->cols ? text_width(column_width(g, i, i + 1)) : LINE + PAD;
        edges[i + 1] = edges[i] + (length > least ? length : least);
    }
}

static void put_svg_slice(const picture *p, int32_t slice, int64_t top)
{
    const draw_grid *g = p->g;
    char label[LABEL_BYTES];
    if (g->slices.axis >= 0) {
        (void)label_of(g, &g->slices, slice, label);
        put_text(g->out, MARGIN, top + FONT_SIZE, "start", label);
        top += LINE;
    }
    for (int32_t c = 0; c < g->cols.n && g->cols.axis >= 0; c++) {
        (void)label_of(g, &g->cols, c, label);
        put_text(g->out, p->left + (p->cols[c] + p->cols[c + 1]) / 2, top + FONT_SIZE, "middle",
                 label);
    }
    top += LINE;
    for (int32_t r = 0; r < g->rows.n; r++) {
        if (label_of(g, &g->rows, r, label) > 0) {
            put_text(g->out, p->left - PAD, top + (p->rows[r] + p->rows[r + 1]) / 2 + FONT_SIZE / 3,
                     "end", label);
        }
        for (int32_t c = 0; c < g->cols.n; c++) {
            static const char *const fills[] = {"#cfe8ff", "#ffe0c2", "#d5f2d0", "#f6d3e6",
                                                "#e4dcfa", "#fff3b8", "#cdeeea", "#f9d0cb",
                                                "#dfe5ec", "#e9f0b5", "#f0dfcf", "#d7d9ff"};
            dtp_strbuf holders;
            const int32_t rank = cell_of(g, slice, r, c, &holders);
            const int64_t x = p->left + p->cols[c], wide = p->cols[c + 1] - p->cols[c];
            const int64_t y = top + p->rows[r], high = p->rows[r + 1] - p->rows[r];
            int64_t offset;
            const bool empty = shard_of(g, &g->slices, slice, &offset) == 0 ||
                               shard_of(g, &g->rows, r, &offset) == 0 ||
                               shard_of(g, &g->cols, c, &offset) == 0;
            dtp_strbuf_addf(
                g->out,
                "<rect x=\"%lld\" y=\"%lld\" width=\"%lld\" height=\"%lld\" fill=\"%s\" "
                "stroke=\"#57606a\"%s/>\n",
                (long long)x, (long long)y, (long long)wide, (long long)high,
                empty ? "#ffffff" : fills[(size_t)rank % (sizeof fills / sizeof fills[0])],
                empty ? " stroke-dasharray=\"4 3\"" : "");
            put_text(g->out, x + wide / 2, y + high / 2 + FONT_SIZE / 3, "middle",
                     dtp_strbuf_text(&holders));
            end_cell(g, &holders);
        }
    }
}

dtp_status dtp_layout_draw_svg(const dtp_drawing *d, dtp_strbuf *out, dtp_err *err)
{
    draw_grid g;
    dtp_strbuf captions[CAPTIONS];
    DTP_TRY(make_grid(d, out, &g, err));
    const size_t labels = widest_label(&g, &g.rows);
    picture p = {.g = &g, .left = MARGIN + (labels > 0 ? text_width(labels) : 0)};
    make_edges(&g, &g.cols, FULL_WIDTH, p.cols);
    make_edges(&g, &g.rows, g.rows.axis < 0 ? 0 : FULL_HEIGHT, p.rows);
    const int32_t n = make_captions(&g, captions);
    int64_t width = p.left + p.cols[g.cols.n];
    for (int32_t k = 0; k < n; k++) {
        width = text_width(captions[k].len) > width ? text_width(captions[k].len) : width;
    }
    width += MARGIN;
    const int64_t top = MARGIN + n * LINE + PAD; /* of the first slice */
    const int64_t slice = (g.slices.axis >= 0 ? LINE : 0) + LINE + p.rows[g.rows.n] + MARGIN;
    const int64_t height = top + g.slices.n * slice;
    dtp_strbuf_addf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%lld\" height=\"%lld\" "
                    "viewBox=\"0 0 %lld %lld\">\n",
                    (long long)width, (long long)height, (long long)width, (long long)height);
    dtp_strbuf_add(out, "<title>");
    put_escaped(out, dtp_strbuf_text(&captions[0]));
    dtp_strbuf_add(out, "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    dtp_strbuf_addf(out, "<g font-family=\"monospace\" font-size=\"%d\" fill=\"#1b1f24\">\n",
                    FONT_SIZE);
    for (int32_t k = 0; k < CAPTIONS; k++) {
        if (k < n) {
            put_text(out, MARGIN, MARGIN + k * LINE + FONT_SIZE, "start",
                     dtp_strbuf_text(&captions[k]));
        }
        end_cell(&g, &captions[k]);
    }
    for (int32_t s = 0; s < g.slices.n; s++) {
        put_svg_slice(&p, s, top + s * slice);
    }
    dtp_strbuf_add(out, "</g>\n</svg>\n");
    return out->failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a drawing") : DTP_OK;
}
