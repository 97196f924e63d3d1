/* Loop nests over the dims of several views that are matched by name, and what kernels ask of the
 * dims of views. The loops themselves are those of the backends. */
#ifndef DTP_EXECUTOR_DEVICE_NEST_H
#define DTP_EXECUTOR_DEVICE_NEST_H

#include "core/graph/op.h"

enum { DTP_NEST_VIEWS = 8, DTP_NEST_DIMS = DTP_MAX_OP_DIMS };

/* Sizes and, per view, element strides (0 where the view lacks the dim). Dims of size 1 are dropped
 * and neighbours that every view walks as one are merged; rank >= 1 always. The last dim is
 * "inner", the others are "rows". */
typedef struct dtp_nest {
    int32_t rank, n_views;
    int64_t size[DTP_NEST_DIMS];
    int64_t stride[DTP_NEST_VIEWS][DTP_NEST_DIMS];
    int64_t rows, inner;
} dtp_nest;

/* Row-major element strides of a view. */
void dtp_view_strides(const dtp_view *view, int64_t strides[DTP_MAX_RANK]);
/* Element stride of a dim in a view, 0 when it is not there. */
int64_t dtp_view_stride(const dtp_view *view, dtp_dim_id id);

/* The nest over `dims` (local sizes) for views that each have some of them. */
void dtp_nest_make(dtp_nest *nest, int32_t n_dims, const dtp_tdim *dims, int32_t n_views,
                   const dtp_view *const *views);
/* The nest over all dims of views[0]. */
void dtp_nest_like(dtp_nest *nest, int32_t n_views, const dtp_view *const *views);
/* The nest of sizes and, per view, strides as given. */
void dtp_nest_raw(dtp_nest *nest, int32_t n_dims, const int64_t *sizes, int32_t n_views,
                  const int64_t (*strides)[DTP_NEST_DIMS]);

/* Stride of the inner dim. */
static inline int64_t dtp_nest_step(const dtp_nest *nest, int32_t view)
{
    return nest->stride[view][nest->rank - 1];
}
static inline int64_t dtp_nest_total(const dtp_nest *nest)
{
    return nest->rows * nest->inner;
}

/* Element offsets of a row's first element. */
void dtp_nest_row(const dtp_nest *nest, int64_t row, int64_t off[DTP_NEST_VIEWS]);
/* Element offsets of an element, counted row-major over all dims of the nest. */
void dtp_nest_elem(const dtp_nest *nest, int64_t index, int64_t off[DTP_NEST_VIEWS]);

/* The dims of an attribute of kind DIM or DIMS and what is left of a view's dims. */
typedef struct dtp_view_over {
    int32_t n_over, n_rows;
    dtp_tdim over[DTP_MAX_RANK]; /* in the order of the view */
    dtp_tdim rows[DTP_MAX_RANK];
    int64_t count;        /* local elements of `over` */
    int64_t global_count; /* global ones */
} dtp_view_over;

void dtp_view_split(const dtp_op_call *call, const char *key, const dtp_view *x,
                    dtp_view_over *out);

/* Index of the first element of `dim` in a view, and the global size of it. */
int64_t dtp_view_offset(const dtp_view *view, dtp_dim_id dim);
int64_t dtp_view_global(const dtp_view *view, dtp_dim_id dim);
/* Product of the global sizes of dims (those of a view). */
int64_t dtp_view_global_rows(const dtp_view *view, int32_t n, const dtp_tdim *dims);

#endif
