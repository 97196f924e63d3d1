/* Binding of kernels over rows (executor/cuda/kernels/rows/rows.h). */
#ifndef DTP_EXECUTOR_CUDA_ROWS_H
#define DTP_EXECUTOR_CUDA_ROWS_H

#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/rows/rows.h"

/* Rows and the views that they are of, which are the caller's and stay. */
typedef struct dtp_cuda_bound_rows {
    dtp_cuda_rows rows;
    const dtp_view *views[DTP_CUDA_VIEWS];
} dtp_cuda_bound_rows;

/* Rows over split->over, one for every element of split->rows, of views that each have some of
 * these dims; the first has all. */
dtp_status dtp_cuda_rows_make(dtp_cuda_bound_rows *out, const dtp_view_over *split, int32_t n_views,
                              const dtp_view *const *views, dtp_err *err) DTP_MUST_CHECK;
/* The same of a call's operands, then outputs, split by its attribute `key`. */
dtp_status dtp_cuda_rows_of_call(dtp_cuda_bound_rows *out, const dtp_kernel_args *args,
                                 const char *key, dtp_err *err) DTP_MUST_CHECK;
/* Makes rows of what were the elements of a row, and the reverse. The counts stay. */
void dtp_cuda_rows_flip(dtp_view_over *split);
/* Rows of a fold: cut into parts where there are too few of them to fill a device, as far as the
 * workspace of the call allows (spmd/target/cuda_fold.h). */
void dtp_cuda_rows_cut(dtp_cuda_bound_rows *rows, const dtp_kernel_args *args);
/* The rows at the addresses that the views have in this run. */
const dtp_cuda_rows *dtp_cuda_rows_now(dtp_cuda_bound_rows *bound);

#endif
