/* Drawing a tensor on its mesh: a grid with the ranks that hold each shard, as text and as SVG.
 *
 * Along every tensor dim stand the shards in order, short and empty ones too, with their range and
 * size. A cell lists who holds the block: copies are separated by commas, "0, 2"; ranks whose
 * partial values make up one copy are joined by plus signs, "0+1". A tensor of rank 3 is drawn as
 * slices, one per shard of its first dim.
 */
#ifndef DTP_CORE_LAYOUT_LAYOUT_DRAW_H
#define DTP_CORE_LAYOUT_LAYOUT_DRAW_H

#include "core/layout/layout.h"
#include "core/base/strbuf.h"

enum { DTP_DRAW_MAX_RANK = 3, DTP_DRAW_MAX_RANKS = 1024 };

/* What to draw; borrowed. */
typedef struct dtp_drawing {
    const char *name; /* of the tensor; NULL: none */
    const dtp_mesh *mesh;
    const dtp_ttype *type;
    const dtp_dims *dims;
    const dtp_layout *layout;
    int32_t first_rank; /* the number of rank 0 of the mesh */
    const char *note;   /* another line of caption; NULL: none */
} dtp_drawing;

/* What both check first: DTP_INVALID when the layout does not fit, DTP_RANGE on more than
 * DTP_DRAW_MAX_RANKS ranks. */
dtp_status dtp_drawing_check(const dtp_drawing *d, dtp_err *err) DTP_MUST_CHECK;

/* Both append to `out`. DTP_INVALID when the layout does not fit or the tensor has more than
 * DTP_DRAW_MAX_RANK dims; DTP_RANGE on more than DTP_DRAW_MAX_RANKS ranks. */
dtp_status dtp_layout_draw_text(const dtp_drawing *d, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;
/* One SVG file: no scripts, no styles outside it, generic monospace font. */
dtp_status dtp_layout_draw_svg(const dtp_drawing *d, dtp_strbuf *out, dtp_err *err) DTP_MUST_CHECK;

#endif
