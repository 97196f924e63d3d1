/* reduce, any and all. */
#include "executor/cuda/kernels/rows/reduce.h"

#include "executor/cuda/rows.h"

#define FOLD                                                                                       \
    (dtp_dtype_is_float(args->in[0].local.dtype)                                                   \
         ? dtp_cuda_reduce_floats(queue, rows, (dtp_fold)of->option, (float)of->factor)            \
         : dtp_cuda_reduce_ints(queue, rows, (dtp_fold)of->option, of->none))
#define OPS(OP)                                                                                    \
    OP(reduce, FOLD, DTP_NUMBERS)                                                                  \
    OP(any, FOLD, DTP_INTS)                                                                        \
    OP(all, FOLD, DTP_INTS)

OPS(DTP_CUDA_ROW_OP)

const dtp_kernel dtp_cuda_reduce[] = {OPS(DTP_CUDA_ROW_KERNEL){.op = NULL}};
