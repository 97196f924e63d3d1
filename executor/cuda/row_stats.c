/* Statistics of rows: logsumexp, vector norms, variance and standard deviation; cumulative sums;
 * the gradient of a product; argmax, argmin, arg_first and topk. */
#include "executor/cuda/kernels/rows/row_stats.h"

#include "executor/cuda/rows.h"

#define FIRST dtp_view_offset(of->views[0], of->dims.over[0].id)
#define INTS (!dtp_dtype_is_float(args->in[0].local.dtype))
#define ON (of->option != 0)
#define OPS(OP)                                                                                    \
    OP(logsumexp, dtp_cuda_logsumexp(queue, rows), DTP_FLOATS)                                     \
    OP(norm, dtp_cuda_norm_of_order(queue, rows, (int32_t)of->option), DTP_FLOATS)                 \
    OP(amax, dtp_cuda_norm_of_order(queue, rows, 0), DTP_FLOATS)                                   \
    OP(var, dtp_cuda_variance(queue, rows, (double)of->option, 0), DTP_FLOATS)                     \
    OP(std, dtp_cuda_variance(queue, rows, (double)of->option, 1), DTP_FLOATS)                     \
    OP(var_finish, dtp_cuda_var_finish(queue, rows, (double)of->option, 1.0 / of->factor),         \
       DTP_FLOATS)                                                                                 \
    OP(cumsum, dtp_cuda_cumsum(queue, rows, INTS, ON), DTP_NUMBERS)                                \
    OP(prod_grad, dtp_cuda_prod_grad(queue, rows), DTP_FLOATS)                                     \
    OP(argmax, dtp_cuda_arg(queue, rows, ON), DTP_NUMBERS)                                         \
    OP(argmin, dtp_cuda_arg(queue, rows, ON), DTP_NUMBERS)                                         \
    OP(arg_first, dtp_cuda_arg_first(queue, rows, FIRST, of->none), DTP_NUMBERS)                   \
    OP(topk, dtp_cuda_topk(queue, rows, dtp_call_int(args->call, "k"), ON), DTP_NUMBERS)

OPS(DTP_CUDA_ROW_OP)

const dtp_kernel dtp_cuda_row_stats[] = {OPS(DTP_CUDA_ROW_KERNEL){.op = NULL}};
