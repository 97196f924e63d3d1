/* Index loops over named dims for the reference kernels. A loop holds the coordinate of every dim
 * it knows; a view is read and written at those coordinates by dim name, whatever its dim order.
 * Elements pass through double; integers beyond 2^53 need copy, get_int and set_int.
 */
#ifndef DTP_EXECUTOR_REF_INDEX_H
#define DTP_EXECUTOR_REF_INDEX_H

#include "core/graph/op.h"

typedef struct dtp_ref_loop {
    int32_t n;
    dtp_dim_id id[DTP_MAX_OP_DIMS];
    int64_t size[DTP_MAX_OP_DIMS];
    int64_t at[DTP_MAX_OP_DIMS];
} dtp_ref_loop;

/* Adds the dims of `type` that the loop lacks, in order, at coordinate 0. */
void dtp_ref__add(dtp_ref_loop *loop, const dtp_ttype *type);
/* A loop over the dims of one type. */
dtp_ref_loop dtp_ref__over(const dtp_ttype *type);

/* Walk the coordinates of dims [from, to) in row-major order:
 *   for (bool go = dtp_ref__first(&l, a, b); go; go = dtp_ref__next(&l, a, b))
 * `first` is false when one of those dims is empty. */
bool dtp_ref__first(dtp_ref_loop *loop, int32_t from, int32_t to);
bool dtp_ref__next(dtp_ref_loop *loop, int32_t from, int32_t to);

/* Coordinate of a dim that the loop has; sets it, adding the dim when it is new. */
int64_t dtp_ref__coord(const dtp_ref_loop *loop, dtp_dim_id d);
void dtp_ref__put(dtp_ref_loop *loop, dtp_dim_id d, int64_t at);

/* Element of a view at the coordinates of the loop; every dim of the view is in the loop. */
double dtp_ref__get(const dtp_view *view, const dtp_ref_loop *loop);
void dtp_ref__set(const dtp_view *view, const dtp_ref_loop *loop, double value);
void dtp_ref__accumulate(const dtp_view *view, const dtp_ref_loop *loop, double value);
/* Strides of a view by the dims of the loop: its element is where the coordinates times them add up
 * to. For inner loops; every dim of the view is in the loop. */
void dtp_ref__strides(const dtp_view *view, const dtp_ref_loop *loop,
                      int64_t stride[DTP_MAX_OP_DIMS]);
double dtp_ref__get_at(const dtp_view *view, const dtp_ref_loop *loop,
                       const int64_t stride[DTP_MAX_OP_DIMS]);
/* The same for integers and bools, exactly; storing drops the high bits. */
int64_t dtp_ref__get_int(const dtp_view *view, const dtp_ref_loop *loop);
void dtp_ref__set_int(const dtp_view *view, const dtp_ref_loop *loop, int64_t value);
/* dst at `to` = src at `from`, bit for bit; both have one dtype. */
void dtp_ref__copy(const dtp_view *dst, const dtp_ref_loop *to, const dtp_view *src,
                   const dtp_ref_loop *from);
/* Sets every local element to 0. */
void dtp_ref__clear(const dtp_view *view);

/* Global index, offset, local size and global size of a dim of the view. */
int64_t dtp_ref__global_index(const dtp_view *view, const dtp_ref_loop *loop, dtp_dim_id d);
int64_t dtp_ref__offset(const dtp_view *view, dtp_dim_id d);
int64_t dtp_ref__local(const dtp_view *view, dtp_dim_id d);
int64_t dtp_ref__global(const dtp_view *view, dtp_dim_id d);
/* Global row-major index of the element at the coordinates. */
uint64_t dtp_ref__global_element(const dtp_view *view, const dtp_ref_loop *loop);

/* Is d in the call's `over` attribute? */
bool dtp_ref__is_over(const dtp_op_call *call, dtp_dim_id d);
/* A loop over `view` whose first *rows dims are those outside `over`. */
dtp_ref_loop dtp_ref__rows(const dtp_op_call *call, const dtp_view *view, int32_t *rows);
/* The value of the row of operand 0 at the first `rows` coordinates of `l`. Calls fn for every row
 * and stores its value in output 0. */
typedef double (*dtp_ref_row_fn)(const dtp_kernel_args *args, dtp_ref_loop *l, int32_t rows);
dtp_status dtp_ref__each_row(const dtp_kernel_args *args, dtp_ref_row_fn fn);
#define DTP_REF_ROW_KERNEL(NAME)                                                                   \
    static dtp_status run_##NAME(const dtp_kernel_args *args, dtp_err *err)                        \
    {                                                                                              \
        (void)err;                                                                                 \
        return dtp_ref__each_row(args, NAME##_row);                                                \
    }

/* The larger of two; NaN when one is. log sum exp of a row with maximum m and sum s of exp(x - m):
 * an infinite m is the answer itself, as there is no x - m. */
double dtp_ref__larger(double a, double b);
double dtp_ref__lse(double m, double s);
/* Sums of x - shift and (x - shift)^2 over the row at the first `rows` coordinates of `l`. */
void dtp_ref__sums(const dtp_view *x, dtp_ref_loop *l, int32_t rows, double shift, double sums[2]);
/* Of n elements with such sums: the mean, and the sum of the squares of what is left. */
typedef struct dtp_ref_moments {
    double mean, squares;
} dtp_ref_moments;
dtp_ref_moments dtp_ref__moments_of(double n, double shift, const double sums[2]);
/* The same of a row, all of whose n elements lie in x. */
dtp_ref_moments dtp_ref__moments(const dtp_view *x, dtp_ref_loop *l, int32_t rows, double n);
/* Product of the global sizes of the dims of `view` in `over`. */
double dtp_ref__row_count(const dtp_op_call *call, const dtp_view *view);

/* The integer that an operand holds at the coordinates; false, with the error word set to `code`,
 * unless it lies in [0, n). */
bool dtp_ref__id(const dtp_kernel_args *args, int32_t operand, const dtp_ref_loop *loop,
                 dtp_data_error code, int64_t n, int64_t *out);

#endif
