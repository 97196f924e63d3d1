/* The drawing of a layout as SVG. Pieces are as wide and high as their share of the dim, but never
 * smaller than their text; empty ones are dashed. Every block has its own fill, taken from the
 * lowest rank that holds it. */
#include <stdlib.h>
#include <string.h>

#include "core/layout/layout_draw_internal.h"

enum {
    CHAR_WIDTH = 8, /* of the monospace font at FONT_SIZE, rounded up */
    FONT_SIZE = 13,
    LINE = 20,
    PAD = 8,
    FULL_WIDTH = 480, /* of a whole dim, before texts make pieces wider */
    FULL_HEIGHT = 240,
    MARGIN = 16
};

/* Positions of the pieces of an axis: n + 1 edges. */
typedef struct edges {
    int32_t n;
    int64_t *at;
} edges;

typedef struct picture {
    const dtp_draw_grid *g;
    edges cols, rows;
    int64_t left;       /* of the cells */
    int64_t top;        /* of the first slice */
    int64_t slice_high; /* distance of the slices */
    dtp_strbuf *out;
} picture;

/* ---- text --------------------------------------------------------------------------------------
 */

/* Appends text with the characters of XML escaped; what is not printable ASCII becomes "?". */
static void put_escaped(dtp_strbuf *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        const char one[2] = {*p, '\0'};
        switch (*p) {
        case '&':
            dtp_strbuf_add(out, "&amp;");
            break;
        case '<':
            dtp_strbuf_add(out, "&lt;");
            break;
        case '>':
            dtp_strbuf_add(out, "&gt;");
            break;
        case '"':
            dtp_strbuf_add(out, "&quot;");
            break;
        default:
            dtp_strbuf_add(out, *p < ' ' || *p > '~' ? "?" : one);
        }
    }
}

static void put_text(const picture *p, int64_t x, int64_t y, const char *anchor, const char *text)
{
    dtp_strbuf_addf(p->out, "<text x=\"%lld\" y=\"%lld\" text-anchor=\"%s\">", (long long)x,
                    (long long)y, anchor);
    put_escaped(p->out, text);
    dtp_strbuf_add(p->out, "</text>\n");
}

/* ---- sizes -------------------------------------------------------------------------------------
 */

static int64_t text_width(size_t characters)
{
    return (int64_t)characters * CHAR_WIDTH + 2 * PAD;
}

/* The widest text of a column: its label, its cells. */
static dtp_status column_width(const dtp_draw_grid *g, int32_t col, int64_t *out, dtp_err *err)
{
    char label[DTP_DRAW_LABEL_BYTES];
    dtp_draw__label(g, &g->cols, col, label);
    size_t widest = strlen(label);
    for (int32_t i = 0; i < g->slices.n * g->rows.n; i++) {
        dtp_strbuf cell = {0};
        (void)dtp_draw__holders(g, i / g->rows.n, i % g->rows.n, col, &cell);
        widest = cell.len > widest ? cell.len : widest;
        const bool failed = cell.failed;
        dtp_strbuf_free(&cell);
        if (failed) {
            return DTP_FAIL(err, DTP_NOMEM, "out of memory for a drawing");
        }
    }
    *out = text_width(widest);
    return DTP_OK;
}

/* Edges of an axis whose whole dim is `full` long; columns are as wide as their text at least. */
static dtp_status make_edges(const dtp_draw_grid *g, const dtp_draw_axis *axis, int64_t full,
                             edges *out, dtp_err *err)
{
    out->n = axis->n;
    out->at = calloc((size_t)axis->n + 1, sizeof *out->at);
    if (out->at == NULL) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for a drawing");
    }
    for (int32_t i = 0; i < axis->n; i++) {
        int64_t offset, size;
        dtp_draw__shard(g, axis, i, &offset, &size);
        const double share = (double)size / (double)(axis->size > 0 ? axis->size : 1);
        int64_t least = LINE + PAD;
        if (axis == &g->cols) {
            DTP_TRY(column_width(g, i, &least, err));
        }
        const int64_t length = (int64_t)(share * (double)full);
        out->at[i + 1] = out->at[i] + (length > least ? length : least);
    }
    return DTP_OK;
}

static int64_t labels_width(const dtp_draw_grid *g)
{
    size_t widest = 0;
    for (int32_t r = 0; r < g->rows.n; r++) {
        char label[DTP_DRAW_LABEL_BYTES];
        dtp_draw__label(g, &g->rows, r, label);
        widest = strlen(label) > widest ? strlen(label) : widest;
    }
    return widest > 0 ? text_width(widest) : 0;
}

/* ---- cells -------------------------------------------------------------------------------------
 */

static const char *fill_of(int32_t rank)
{
    static const char *const fills[] = {"#cfe8ff", "#ffe0c2", "#d5f2d0", "#f6d3e6",
                                        "#e4dcfa", "#fff3b8", "#cdeeea", "#f9d0cb",
                                        "#dfe5ec", "#e9f0b5", "#f0dfcf", "#d7d9ff"};
    return fills[(size_t)rank % (sizeof fills / sizeof fills[0])];
}

static bool is_empty(const dtp_draw_grid *g, const dtp_draw_axis *axis, int32_t i)
{
    int64_t offset, size;
    dtp_draw__shard(g, axis, i, &offset, &size);
    return size == 0;
}

static void put_cell(const picture *p, int32_t slice, int32_t row, int32_t col, int64_t top)
{
    const dtp_draw_grid *g = p->g;
    dtp_strbuf holders = {0};
    const int32_t rank = dtp_draw__holders(g, slice, row, col, &holders);
    const int64_t x = p->left + p->cols.at[col], wide = p->cols.at[col + 1] - p->cols.at[col];
    const int64_t y = top + p->rows.at[row], high = p->rows.at[row + 1] - p->rows.at[row];
    const bool empty =
        is_empty(g, &g->slices, slice) || is_empty(g, &g->rows, row) || is_empty(g, &g->cols, col);
    dtp_strbuf_addf(p->out,
                    "<rect x=\"%lld\" y=\"%lld\" width=\"%lld\" height=\"%lld\" fill=\"%s\" "
                    "stroke=\"#57606a\"%s/>\n",
                    (long long)x, (long long)y, (long long)wide, (long long)high,
                    empty ? "#ffffff" : fill_of(rank), empty ? " stroke-dasharray=\"4 3\"" : "");
    put_text(p, x + wide / 2, y + high / 2 + FONT_SIZE / 3, "middle", dtp_strbuf_text(&holders));
    p->out->failed = p->out->failed || holders.failed;
    dtp_strbuf_free(&holders);
}

static void put_slice(const picture *p, int32_t slice)
{
    const dtp_draw_grid *g = p->g;
    char label[DTP_DRAW_LABEL_BYTES];
    int64_t top = p->top + slice * p->slice_high;
    if (g->slices.axis >= 0) {
        dtp_draw__label(g, &g->slices, slice, label);
        put_text(p, MARGIN, top + FONT_SIZE, "start", label);
        top += LINE;
    }
    for (int32_t c = 0; c < g->cols.n && g->cols.axis >= 0; c++) {
        dtp_draw__label(g, &g->cols, c, label);
        put_text(p, p->left + (p->cols.at[c] + p->cols.at[c + 1]) / 2, top + FONT_SIZE, "middle",
                 label);
    }
    top += LINE;
    for (int32_t r = 0; r < g->rows.n; r++) {
        dtp_draw__label(g, &g->rows, r, label);
        if (label[0] != '\0') {
            put_text(p, p->left - PAD,
                     top + (p->rows.at[r] + p->rows.at[r + 1]) / 2 + FONT_SIZE / 3, "end", label);
        }
        for (int32_t c = 0; c < g->cols.n; c++) {
            put_cell(p, slice, r, c, top);
        }
    }
}

/* ---- the file ----------------------------------------------------------------------------------
 */

/* The captions, in their own buffers: returns how many, and the widest. */
static int32_t read_captions(const dtp_draw_grid *g, dtp_strbuf lines[3], int64_t *width)
{
    int32_t n = 0;
    while (n < 3 && dtp_draw__caption(g, n, &lines[n])) {
        const int64_t wide = text_width(lines[n].len);
        *width = wide > *width ? wide : *width;
        n++;
    }
    return n;
}

static void put_picture(picture *p)
{
    const dtp_draw_grid *g = p->g;
    dtp_strbuf lines[3] = {{0}, {0}, {0}};
    int64_t width = p->left + p->cols.at[p->cols.n];
    const int32_t n = read_captions(g, lines, &width);
    p->top = MARGIN + n * LINE + PAD;
    p->slice_high = (g->slices.axis >= 0 ? LINE : 0) + LINE + p->rows.at[p->rows.n] + MARGIN;
    const int64_t height = p->top + g->slices.n * p->slice_high;
    width += MARGIN;
    dtp_strbuf_addf(p->out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%lld\" height=\"%lld\" "
                    "viewBox=\"0 0 %lld %lld\">\n",
                    (long long)width, (long long)height, (long long)width, (long long)height);
    dtp_strbuf_add(p->out, "<title>");
    put_escaped(p->out, dtp_strbuf_text(&lines[0]));
    dtp_strbuf_add(p->out, "</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    dtp_strbuf_addf(p->out, "<g font-family=\"monospace\" font-size=\"%d\" fill=\"#1b1f24\">\n",
                    FONT_SIZE);
    for (int32_t k = 0; k < n; k++) {
        put_text(p, MARGIN, MARGIN + k * LINE + FONT_SIZE, "start", dtp_strbuf_text(&lines[k]));
        p->out->failed = p->out->failed || lines[k].failed;
    }
    for (int32_t k = 0; k < 3; k++) {
        dtp_strbuf_free(&lines[k]);
    }
    for (int32_t s = 0; s < g->slices.n; s++) {
        put_slice(p, s);
    }
    dtp_strbuf_add(p->out, "</g>\n</svg>\n");
}

dtp_status dtp_layout_draw_svg(const dtp_drawing *d, dtp_strbuf *out, dtp_err *err)
{
    dtp_draw_grid g;
    DTP_TRY(dtp_draw__grid(d, &g, err));
    picture p = {.g = &g, .out = out, .left = MARGIN + labels_width(&g)};
    dtp_status s = make_edges(&g, &g.cols, FULL_WIDTH, &p.cols, err);
    s = s == DTP_OK ? make_edges(&g, &g.rows, g.rows.axis < 0 ? 0 : FULL_HEIGHT, &p.rows, err) : s;
    if (s == DTP_OK) {
        put_picture(&p);
        s = out->failed ? DTP_FAIL(err, DTP_NOMEM, "out of memory for a drawing") : DTP_OK;
    }
    free(p.cols.at);
    free(p.rows.at);
    return s;
}
