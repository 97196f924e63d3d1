/* softmax and log_softmax, their gradients, and the parts they decompose into. */
#include "executor/cuda/kernels/rows/softmax.h"

#include "executor/cuda/rows.h"

typedef struct softmax_state {
    dtp_cuda_bound_rows rows;
    int32_t log_form;
} softmax_state;

static dtp_status bind_form(const dtp_kernel_args *args, bool log_form, dtp_arena *arena,
                            void **state, dtp_err *err)
{
    softmax_state *s;
    DTP_CUDA_STATE(arena, state, s, err);
    s->log_form = log_form;
    return dtp_cuda_rows_of_call(&s->rows, args, "over", err);
}

static dtp_status plain_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                             dtp_err *err)
{
    return bind_form(args, false, arena, state, err);
}

static dtp_status log_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                           dtp_err *err)
{
    return bind_form(args, true, arena, state, err);
}

static dtp_status apply_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                             dtp_err *err)
{
    return bind_form(args, dtp_call_int(args->call, "log") != 0, arena, state, err);
}

/* Defines NAME_kernel, which puts one launch on the queue. */
#define KERNEL(NAME, launch)                                                                       \
    static dtp_status NAME##_kernel(const dtp_kernel_args *args, dtp_err *err)                     \
    {                                                                                              \
        softmax_state *s = args->state;                                                            \
        const cudaStream_t queue = dtp_cuda_stream(args);                                          \
        DTP_CUDA_TRY(err, launch);                                                                 \
        return DTP_OK;                                                                             \
    }

KERNEL(softmax, dtp_cuda_softmax_rows(queue, dtp_cuda_rows_now(&s->rows), s->log_form))
KERNEL(softmax_grad, dtp_cuda_softmax_grad(queue, dtp_cuda_rows_now(&s->rows), s->log_form))
KERNEL(sum_exp, dtp_cuda_sum_exp(queue, dtp_cuda_rows_now(&s->rows)))
KERNEL(row_dot, dtp_cuda_row_dot(queue, dtp_cuda_rows_now(&s->rows)))
KERNEL(softmax_apply, dtp_cuda_softmax_apply(queue, dtp_cuda_rows_now(&s->rows), s->log_form))
KERNEL(softmax_grad_apply,
       dtp_cuda_softmax_grad_apply(queue, dtp_cuda_rows_now(&s->rows), s->log_form))

#define ROW(op, kernel, bind)                                                                      \
    {                                                                                              \
#op, kernel##_kernel, bind##_bind, DTP_CUDA_FLOATS                                         \
    }

const dtp_kernel dtp_cuda_softmax[] = {ROW(softmax, softmax, plain),
                                       ROW(log_softmax, softmax, log),
                                       ROW(softmax_grad, softmax_grad, plain),
                                       ROW(log_softmax_grad, softmax_grad, log),
                                       ROW(sum_exp, sum_exp, plain),
                                       ROW(row_dot, row_dot, plain),
                                       ROW(softmax_apply, softmax_apply, apply),
                                       ROW(softmax_grad_apply, softmax_grad_apply, apply),
                                       {.op = NULL}};
