/* Statistics of rows: logsumexp, vector norms, variance and standard deviation; cumulative sums;
 * the gradient of a product; argmax, argmin, arg_first and topk. */
#include "executor/cuda/kernels/rows/row_stats.h"

#include <string.h>

#include "executor/cuda/rows.h"

typedef struct stats_state {
    dtp_cuda_bound_rows rows;
    int64_t option;  /* of the op */
    double divisor;  /* of var and std */
    int64_t missing; /* of arg_first */
    int32_t axis;    /* of the row in x */
} stats_state;

static dtp_status bind_rows(const dtp_kernel_args *args, const char *key, int64_t option,
                            dtp_arena *arena, void **state, dtp_err *err)
{
    stats_state *s;
    DTP_CUDA_STATE(arena, state, s, err);
    s->option = option;
    return dtp_cuda_rows_of_call(&s->rows, args, key, err);
}

static dtp_status logsumexp_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                 dtp_err *err)
{
    return bind_rows(args, "over", 0, arena, state, err);
}

static dtp_status norm_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    const char *ord = dtp_call_choice(args->call, "ord");
    const int64_t order = strcmp(ord, "1") == 0 ? 1 : strcmp(ord, "2") == 0 ? 2 : 0;
    DTP_TRY(bind_rows(args, "over", order, arena, state, err));
    dtp_cuda_rows_cut(&((stats_state *)*state)->rows, args);
    return DTP_OK;
}

/* option: whether the root. */
static dtp_status bind_variance(const dtp_kernel_args *args, bool root, dtp_arena *arena,
                                void **state, dtp_err *err)
{
    dtp_view_over over;
    DTP_TRY(bind_rows(args, "over", root, arena, state, err));
    dtp_view_split(args->call, "over", &args->in[0], &over);
    ((stats_state *)*state)->divisor =
        (double)(over.global_count - dtp_call_int(args->call, "correction"));
    return DTP_OK;
}

static dtp_status var_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                           dtp_err *err)
{
    return bind_variance(args, false, arena, state, err);
}

static dtp_status std_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                           dtp_err *err)
{
    return bind_variance(args, true, arena, state, err);
}

static dtp_status cumsum_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                              dtp_err *err)
{
    return bind_rows(args, "dim", dtp_call_int(args->call, "reverse"), arena, state, err);
}

static dtp_status prod_grad_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                 dtp_err *err)
{
    return bind_rows(args, "over", 0, arena, state, err);
}

/* Positions are kept in 32 bits. */
static dtp_status bind_positions(const dtp_kernel_args *args, int64_t option, dtp_arena *arena,
                                 void **state, dtp_err *err)
{
    const int32_t axis = dtp_ttype_find(&args->in[0].local, dtp_call_dim(args->call, "over"));
    if (args->in[0].local.dims[axis].size > INT32_MAX) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "%s: indices of a dim of more than 2^31 elements",
                        args->call->op->name);
    }
    DTP_TRY(bind_rows(args, "over", option, arena, state, err));
    ((stats_state *)*state)->axis = axis;
    return DTP_OK;
}

static dtp_status argmax_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                              dtp_err *err)
{
    return bind_positions(args, true, arena, state, err);
}

static dtp_status argmin_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                              dtp_err *err)
{
    return bind_positions(args, false, arena, state, err);
}

static dtp_status arg_first_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                 dtp_err *err)
{
    DTP_TRY(bind_positions(args, 0, arena, state, err));
    ((stats_state *)*state)->missing = args->out[0].local.dtype == DTP_I64 ? INT64_MAX : INT32_MAX;
    return DTP_OK;
}

static dtp_status topk_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    return bind_positions(args, dtp_call_int(args->call, "largest"), arena, state, err);
}

/* Defines NAME_kernel, which puts a launch on the queue. */
#define KERNEL(NAME, launch)                                                                       \
    static dtp_status NAME##_kernel(const dtp_kernel_args *args, dtp_err *err)                     \
    {                                                                                              \
        stats_state *s = args->state;                                                              \
        const cudaStream_t queue = dtp_cuda_stream(args);                                          \
        DTP_CUDA_TRY(err, launch);                                                                 \
        return DTP_OK;                                                                             \
    }

KERNEL(logsumexp, dtp_cuda_logsumexp(queue, dtp_cuda_rows_now(&s->rows)))
KERNEL(norm, dtp_cuda_norm_of_order(queue, dtp_cuda_rows_now(&s->rows), (int32_t)s->option))
KERNEL(variance, dtp_cuda_variance(queue, dtp_cuda_rows_now(&s->rows), s->divisor, s->option != 0))
KERNEL(cumsum, dtp_cuda_cumsum(queue, dtp_cuda_rows_now(&s->rows),
                               !dtp_dtype_is_float(args->in[0].local.dtype), s->option != 0))
KERNEL(prod_grad, dtp_cuda_prod_grad(queue, dtp_cuda_rows_now(&s->rows)))
KERNEL(arg, dtp_cuda_arg(queue, dtp_cuda_rows_now(&s->rows), s->option != 0))
KERNEL(arg_first, dtp_cuda_arg_first(queue, dtp_cuda_rows_now(&s->rows),
                                     args->in[0].offset[s->axis], s->missing))
KERNEL(topk, dtp_cuda_topk(queue, dtp_cuda_rows_now(&s->rows), dtp_call_int(args->call, "k"),
                           s->option != 0))

#define ROW(op, kernel, dtypes)                                                                    \
    {                                                                                              \
#op, kernel##_kernel, op##_bind, dtypes                                                    \
    }

const dtp_kernel dtp_cuda_row_stats[] = {ROW(logsumexp, logsumexp, DTP_CUDA_FLOATS),
                                         ROW(norm, norm, DTP_CUDA_FLOATS),
                                         ROW(var, variance, DTP_CUDA_FLOATS),
                                         ROW(std, variance, DTP_CUDA_FLOATS),
                                         ROW(cumsum, cumsum, DTP_CUDA_BOTH),
                                         ROW(prod_grad, prod_grad, DTP_CUDA_FLOATS),
                                         ROW(argmax, arg, DTP_CUDA_BOTH),
                                         ROW(argmin, arg, DTP_CUDA_BOTH),
                                         ROW(arg_first, arg_first, DTP_CUDA_BOTH),
                                         ROW(topk, topk, DTP_CUDA_BOTH),
                                         {.op = NULL}};
