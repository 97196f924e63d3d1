/* The grid that both drawings show. */
#ifndef DTP_CORE_LAYOUT_LAYOUT_DRAW_INTERNAL_H
#define DTP_CORE_LAYOUT_LAYOUT_DRAW_INTERNAL_H

#include "core/layout/layout_draw.h"

enum { DTP_DRAW_LABEL_BYTES = 160 };

/* The pieces of a tensor dim, in order of their index. A tensor of rank 0 to 2 has slices, rows and
 * columns that are no dims (axis -1, one piece). */
typedef struct dtp_draw_axis {
    int32_t axis; /* of the tensor, -1 = none */
    int32_t n;
    int64_t size; /* of the whole dim; 1 without one */
} dtp_draw_axis;

typedef struct dtp_draw_grid {
    const dtp_drawing *d;
    dtp_draw_axis slices, rows, cols;
} dtp_draw_grid;

/* Checks the drawing and lays out the grid. */
dtp_status dtp_draw__grid(const dtp_drawing *d, dtp_draw_grid *out, dtp_err *err) DTP_MUST_CHECK;
/* Piece i of an axis. */
void dtp_draw__shard(const dtp_draw_grid *g, const dtp_draw_axis *axis, int32_t i, int64_t *offset,
                     int64_t *size);
/* "d_ff[4:8] (4)", "d_ff[8:8] (empty)"; "" without a dim. A dim called "0" is written "d0". */
void dtp_draw__label(const dtp_draw_grid *g, const dtp_draw_axis *axis, int32_t i,
                     char out[DTP_DRAW_LABEL_BYTES]);
/* Appends who holds the block: "0+1, 2+3". Long lists are cut: "0, 1, 2, 3..., 63 (64
 * ranks)". Returns
 * the lowest rank. */
int32_t dtp_draw__holders(const dtp_draw_grid *g, int32_t slice, int32_t row, int32_t col,
                          dtp_strbuf *out);
/* Appends what is drawn: type, mesh and layout in our form and PyTorch's; then, when something is
 * partial or replicated, what the signs in the cells mean. One line each, at most 3, without
 * newlines: line k, false when there is none. */
bool dtp_draw__caption(const dtp_draw_grid *g, int32_t k, dtp_strbuf *out);

#endif
