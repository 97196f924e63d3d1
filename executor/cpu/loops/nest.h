/* Loop nests over the dims of several views that are matched by name. */
#ifndef DTP_EXECUTOR_CPU_LOOPS_NEST_H
#define DTP_EXECUTOR_CPU_LOOPS_NEST_H

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

/* Calls fn for pieces of rows that cover the nest, on up to `threads` threads. */
typedef void (*dtp_nest_fn)(const void *user, int64_t n, const int64_t off[DTP_NEST_VIEWS]);
void dtp_nest_each(const dtp_nest *nest, int32_t threads, dtp_nest_fn fn, const void *user);

/* dst[nest] = src[nest] for elements of 1, 2, 4 or 8 bytes; view 0 is dst, view 1 src.
 * Transpositions go in square blocks. */
void dtp_nest_copy(const dtp_nest *nest, int32_t threads, void *dst, const void *src,
                   int64_t elem_bytes);

/* dst = src over the dims of `shape`, elements of dst's type. */
void dtp_view_copy(const dtp_ttype *shape, const dtp_view *dst, const dtp_view *src,
                   int32_t threads);

/* dst (cols x rows, contiguous) = transpose of src (rows x cols, leading dim ld), on one thread. */
void dtp_transpose(int64_t rows, int64_t cols, const float *src, int64_t ld, float *dst);

#endif
