/* Ranges of values: of a dim that its layout splits a value may hold, instead of its piece, what an
 * op reads of it by a window (core/graph/op.h). The dim's places are numbered in the order of its
 * splits: place 0 has the first piece.
 */
#ifndef DTP_SPMD_PROGRAM_RANGES_H
#define DTP_SPMD_PROGRAM_RANGES_H

#include "spmd/program/program.h"

/* Elements [from, to) of a dim. */
typedef struct dtp_extent {
    int64_t from, to;
} dtp_extent;

/* One dim of a tensor of a type, split as a layout says. */
typedef struct dtp_split_dim {
    const dtp_mesh *mesh;
    const dtp_layout *layout;
    int32_t axis;
    int64_t size;
    dtp_mesh_set set; /* the mesh dims that split it */
    bool ascending; /* they split it in mesh order: places are the members of a group over `set` */
    int64_t places;
} dtp_split_dim;

dtp_split_dim dtp_split_dim_of(const dtp_mesh *mesh, const dtp_layout *layout,
                               const dtp_ttype *type, int32_t axis);
int64_t dtp_split_dim_place(const dtp_split_dim *dim, int32_t rank);
/* The piece at a place; the range of one of a tensor with another size, split alike. A range that
 * goes round the end of the dim goes on behind its size: [8, 13) of 10 elements are 8, 9, 0, 1, 2.
 */
dtp_extent dtp_shard_at(const dtp_split_dim *dim, int64_t place);
dtp_extent dtp_range_at(const dtp_split_dim *dim, const dtp_range *range, int64_t place);
/* What a value holds of its dim at a place: its range, else its piece. */
dtp_extent dtp_value_extent(const dtp_program *p, const dtp_value *v, int32_t axis, int64_t place);

static inline int64_t dtp_extent_size(dtp_extent e)
{
    return e.to - e.from;
}
/* Empty where they have nothing in common. */
dtp_extent dtp_extent_common(dtp_extent a, dtp_extent b);
/* Whether `a` is in `b`; what is empty is. */
bool dtp_extent_in(dtp_extent a, dtp_extent b);

/* What the place `shift` before one has of its range, numbered as the range is; the first place and
 * the last one are neighbours. Shift 0: what it has itself. */
dtp_extent dtp_margin_at(const dtp_split_dim *dim, const dtp_range *range, int64_t place,
                         int32_t shift);
/* The number of such an element in the dim. */
int64_t dtp_index_of(const dtp_split_dim *dim, int64_t at);

enum { DTP_RANGE_PERMUTES = 2 };

/* From where the ranges of a dim are filled. */
typedef struct dtp_margins {
    bool there;                        /* every piece has its range */
    bool near;                         /* permutes bring what is missing, at most two */
    bool pieces;                       /* one permute, of whole pieces, brings all of every range */
    int32_t n;                         /* permutes */
    int32_t shift[DTP_RANGE_PERMUTES]; /* larger ones first; between -places / 2 and places / 2 */
    int64_t most[DTP_RANGE_PERMUTES];  /* elements that a place gets by each */
} dtp_margins;
dtp_margins dtp_margins_of(const dtp_split_dim *dim, const dtp_range *range);

#endif
