/* layer_norm and rms_norm, their gradients and parts. */
#include "executor/cuda/kernels/rows/norm.h"

#include "executor/cuda/rows.h"

typedef struct norm_state {
    dtp_bound_norm of;
    dtp_cuda_bound_rows rows, columns;
} norm_state;

static dtp_status bind_norm(const dtp_kernel_args *args, dtp_norm_part part, dtp_arena *arena,
                            void **state, dtp_err *err)
{
    norm_state *s;
    DTP_STATE(arena, state, s, err);
    dtp_bind_norm(args, part, &s->of);
    DTP_TRY(dtp_cuda_rows_make(&s->rows, &s->of.rows, err));
    if (s->of.columns.n_views > 0) {
        DTP_TRY(dtp_cuda_rows_make(&s->columns, &s->of.columns, err));
        dtp_cuda_rows_cut(&s->columns, args);
    }
    return DTP_OK;
}

/* Sums over rows come first: dx may overwrite x or dy. */
static dtp_status norm_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    norm_state *s = args->state;
    const cudaStream_t queue = dtp_cuda_stream(args);
    const dtp_norm_numbers *numbers = &s->of.numbers;
    const dtp_cuda_rows *rows = dtp_cuda_rows_now(&s->rows);
    if (s->of.part == DTP_NORM_FORWARD || s->of.part == DTP_NORM_APPLY) {
        DTP_CUDA_TRY(err, dtp_cuda_norm_rows(queue, rows, numbers));
    } else if (s->of.part == DTP_NORM_GRAD_SUMS) {
        DTP_CUDA_TRY(err, dtp_cuda_norm_grad_sums(queue, rows, numbers));
    } else {
        DTP_CUDA_TRY(err, dtp_cuda_norm_columns(queue, dtp_cuda_rows_now(&s->columns), numbers));
        DTP_CUDA_TRY(err, dtp_cuda_norm_dx(queue, rows, numbers));
    }
    return DTP_OK;
}

#define BIND(op, part) DTP_BIND(op, bind_norm, DTP_NORM_##part)
#define KERNEL(op, part) {#op, norm_kernel, op##_bind, DTP_FLOATS},
#define MOMENTS(OP)                                                                                \
    OP(moments, dtp_cuda_norm_moments(queue, rows, args->call->n_in > 1, of->option), DTP_FLOATS)

DTP_NORM_OPS(BIND)
MOMENTS(DTP_CUDA_ROW_OP)

const dtp_kernel dtp_cuda_norm[] = {DTP_NORM_OPS(KERNEL) MOMENTS(DTP_CUDA_ROW_KERNEL){.op = NULL}};
