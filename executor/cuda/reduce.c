/* reduce, any and all. */
#include "executor/cuda/kernels/rows/reduce.h"

#include <string.h>

#include "executor/cuda/rows.h"

typedef struct reduce_state {
    dtp_cuda_bound_rows rows;
    dtp_cuda_fold fold;
    float factor;
    int64_t none; /* of integers: what a fold of nothing gives, the identity between ranks */
} reduce_state;

static int64_t int_identity(dtp_cuda_fold fold, dtp_dtype dtype)
{
    const int64_t low = dtype == DTP_I64 ? INT64_MIN : dtype == DTP_I32 ? INT32_MIN : 0;
    const int64_t high = dtype == DTP_I64 ? INT64_MAX : dtype == DTP_I32 ? INT32_MAX : 1;
    switch (fold) {
    case DTP_CUDA_FOLD_MAX:
        return low;
    case DTP_CUDA_FOLD_MIN:
        return high;
    case DTP_CUDA_FOLD_PROD:
        return 1;
    default:
        return 0;
    }
}

static dtp_status bind_fold(const dtp_kernel_args *args, dtp_cuda_fold fold, bool mean,
                            dtp_arena *arena, void **state, dtp_err *err)
{
    dtp_view_over over;
    reduce_state *s;
    DTP_CUDA_STATE(arena, state, s, err);
    DTP_TRY(dtp_cuda_rows_of_call(&s->rows, args, "over", err));
    dtp_cuda_rows_cut(&s->rows, args);
    dtp_view_split(args->call, "over", &args->in[0], &over);
    s->fold = fold;
    s->factor = mean ? (float)(1.0 / (double)over.global_count) : 1.0f;
    s->none = int_identity(fold, args->in[0].local.dtype);
    return DTP_OK;
}

static dtp_status reduce_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                              dtp_err *err)
{
    const char *kind = dtp_call_choice(args->call, "kind");
    const dtp_cuda_fold fold = strcmp(kind, "max") == 0    ? DTP_CUDA_FOLD_MAX
                               : strcmp(kind, "min") == 0  ? DTP_CUDA_FOLD_MIN
                               : strcmp(kind, "prod") == 0 ? DTP_CUDA_FOLD_PROD
                                                           : DTP_CUDA_FOLD_SUM;
    return bind_fold(args, fold, strcmp(kind, "mean") == 0, arena, state, err);
}

static dtp_status any_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                           dtp_err *err)
{
    return bind_fold(args, DTP_CUDA_FOLD_MAX, false, arena, state, err);
}

static dtp_status all_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                           dtp_err *err)
{
    return bind_fold(args, DTP_CUDA_FOLD_MIN, false, arena, state, err);
}

static dtp_status reduce_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    reduce_state *s = args->state;
    const cudaStream_t queue = dtp_cuda_stream(args);
    if (dtp_dtype_is_float(args->in[0].local.dtype)) {
        DTP_CUDA_TRY(
            err, dtp_cuda_reduce_floats(queue, dtp_cuda_rows_now(&s->rows), s->fold, s->factor));
    } else {
        DTP_CUDA_TRY(err,
                     dtp_cuda_reduce_ints(queue, dtp_cuda_rows_now(&s->rows), s->fold, s->none));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_reduce[] = {{"reduce", reduce_kernel, reduce_bind, DTP_CUDA_BOTH},
                                      {"any", reduce_kernel, any_bind, DTP_CUDA_INTS},
                                      {"all", reduce_kernel, all_bind, DTP_CUDA_INTS},
                                      {.op = NULL}};
