/* softmax and log_softmax, their gradients, and the parts they decompose into. */
#include "executor/cuda/kernels/rows/softmax.h"

#include "executor/cuda/rows.h"

#define LOG (of->option != 0)
#define OPS(OP)                                                                                    \
    OP(softmax, dtp_cuda_softmax_rows(queue, rows, LOG), DTP_FLOATS)                               \
    OP(log_softmax, dtp_cuda_softmax_rows(queue, rows, LOG), DTP_FLOATS)                           \
    OP(softmax_grad, dtp_cuda_softmax_grad(queue, rows, LOG), DTP_FLOATS)                          \
    OP(log_softmax_grad, dtp_cuda_softmax_grad(queue, rows, LOG), DTP_FLOATS)                      \
    OP(sum_exp, dtp_cuda_sum_exp(queue, rows), DTP_FLOATS)                                         \
    OP(row_dot, dtp_cuda_row_dot(queue, rows), DTP_FLOATS)                                         \
    OP(softmax_apply, dtp_cuda_softmax_apply(queue, rows, LOG), DTP_FLOATS)                        \
    OP(softmax_grad_apply, dtp_cuda_softmax_grad_apply(queue, rows, LOG), DTP_FLOATS)

OPS(DTP_CUDA_ROW_OP)

const dtp_kernel dtp_cuda_softmax[] = {OPS(DTP_CUDA_ROW_KERNEL){.op = NULL}};
