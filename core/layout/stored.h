/* Where the parameters of a model lie in the files of another framework. */
#ifndef DTP_CORE_LAYOUT_STORED_H
#define DTP_CORE_LAYOUT_STORED_H

#include "dtp/layout.h"

/* A box of a tensor of ours as a strided view of a stored tensor, which is row-major: element
 * from + i of ours is element first + sum of i[d] * stride[d] of theirs. A transposed, merged or
 * fused parameter is one view, one that lies in several tensors has a view for each. */
typedef struct dtp_stored_view {
    const char *tensor; /* of ours, */
    dtp_dtype type;
    int32_t rank;
    int64_t global[DTP_MAX_RANK];                   /* its shape, */
    int64_t from[DTP_MAX_RANK], size[DTP_MAX_RANK]; /* and the box */
    const char *name;                               /* of theirs */
    int32_t n_tied; /* other names that it may have: of one weight they hold the same values */
    const char **tied;
    int32_t n_axes;
    int64_t axes[DTP_MAX_RANK]; /* the shape of theirs */
    int64_t first, stride[DTP_MAX_RANK];
} dtp_stored_view;

/* All of a model. */
typedef struct dtp_stored_params {
    int32_t n;
    dtp_stored_view *views;
} dtp_stored_params;

#endif
