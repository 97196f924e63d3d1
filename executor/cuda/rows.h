/* Binding of kernels over rows (executor/cuda/kernels/rows/rows.h). */
#ifndef DTP_EXECUTOR_CUDA_ROWS_H
#define DTP_EXECUTOR_CUDA_ROWS_H

#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/rows/rows.h"
#include "executor/device/bound/rows.h"

/* Rows of a call as kernels take them, and what they are of. */
typedef struct dtp_cuda_bound_rows {
    dtp_bound_rows of;
    dtp_cuda_rows rows;
} dtp_cuda_bound_rows;

dtp_status dtp_cuda_rows_make(dtp_cuda_bound_rows *bound, const dtp_bound_rows *of,
                              dtp_err *err) DTP_MUST_CHECK;
/* Rows of a fold: cut into parts where there are too few of them to fill a device, as far as the
 * workspace of the call allows (spmd/target/cuda_fold.h). */
void dtp_cuda_rows_cut(dtp_cuda_bound_rows *rows, const dtp_kernel_args *args);
/* The rows at the addresses that the views have in this run. */
const dtp_cuda_rows *dtp_cuda_rows_now(dtp_cuda_bound_rows *bound);

/* Binds the call of an op over rows; the state is a dtp_cuda_bound_rows. */
dtp_status dtp_cuda_rows_bind(const dtp_kernel_args *args, dtp_row_op op, dtp_arena *arena,
                              void **state, dtp_err *err) DTP_MUST_CHECK;
/* The functions of an op whose kernel is one launch of `rows` on `queue`, for which `of` has the
 * constants, and its row in the kernel table. */
#define DTP_CUDA_ROW_OP(op, launch, dtypes)                                                        \
    DTP_BIND(op, dtp_cuda_rows_bind, DTP_ROW_##op)                                                 \
    static dtp_status op##_kernel(const dtp_kernel_args *args, dtp_err *err)                       \
    {                                                                                              \
        const cudaStream_t queue = dtp_cuda_stream(args);                                          \
        const dtp_cuda_rows *rows = dtp_cuda_rows_now(args->state);                                \
        const dtp_bound_rows *of = &((const dtp_cuda_bound_rows *)args->state)->of;                \
        (void)of;                                                                                  \
        DTP_CUDA_TRY(err, launch);                                                                 \
        return DTP_OK;                                                                             \
    }
#define DTP_CUDA_ROW_KERNEL(op, launch, dtypes) {#op, op##_kernel, op##_bind, dtypes},

#endif
