/* layer_norm and rms_norm, their gradients, and the parts that they decompose into when a dim of
 * `over` is split. The sums of a row lie along the one dim ("_stat") that x does not have: two of
 * layer_norm, one of rms_norm. */
#include "executor/cuda/kernels/rows/norm.h"

#include "executor/cuda/rows.h"

typedef struct norm_state {
    dtp_cuda_bound_rows rows;
    dtp_cuda_bound_rows columns; /* backward: one row per element of gamma */
    dtp_cuda_norm_form norm;
} norm_state;

/* Elements from the first sum of a row to the last, along the dim that x does not have. */
static int64_t last_sum(const dtp_view *sums, const dtp_view *x)
{
    for (int32_t i = 0; i < sums->local.rank; i++) {
        const dtp_tdim dim = sums->local.dims[i];
        if (dtp_ttype_find(&x->local, dim.id) < 0) {
            return (dim.size - 1) * dtp_view_stride(sums, dim.id);
        }
    }
    return 0;
}

/* A forward op: x, [moments,] gamma, [beta]; y, [mean,] rstd. */
static dtp_status bind_forward(const dtp_kernel_args *args, bool moments, dtp_arena *arena,
                               void **state, dtp_err *err)
{
    const dtp_view *in = args->in, *out = args->out, *gamma = &in[moments ? 2 : 1];
    const bool centered = args->call->n_out == 3;
    const dtp_view *sums = moments ? &in[1] : &out[1];
    const dtp_view *views[] = {[DTP_NORM_X] = &in[0],     [DTP_NORM_Y] = &out[0],
                               [DTP_NORM_GAMMA] = gamma,  [DTP_NORM_RSTD] = &out[centered ? 2 : 1],
                               [DTP_NORM_MEAN] = &out[1], [DTP_NORM_BETA] = &gamma[centered],
                               [DTP_NORM_SUMS] = sums};
    dtp_view_over split;
    norm_state *s;
    DTP_CUDA_STATE(arena, state, s, err);
    dtp_view_split(args->call, "over", &in[0], &split);
    s->norm = (dtp_cuda_norm_form){.centered = centered,
                                   .sums = moments,
                                   .eps = (float)dtp_call_float(args->call, "eps"),
                                   .count = (double)(moments ? split.global_count : split.count),
                                   .last = moments ? last_sum(sums, &in[0]) : 0};
    return dtp_cuda_rows_make(&s->rows, &split, DTP_NORM_VIEWS, views, err);
}

/* A backward op: x, gamma, [mean,] rstd, dy, ...; with `n` operands it is of layer_norm. */
static dtp_status bind_backward(const dtp_kernel_args *args, int32_t n, const dtp_view *sums,
                                dtp_arena *arena, void **state, dtp_err *err)
{
    const bool centered = args->call->n_in == n, has_dx = args->call->n_out > 1;
    const dtp_view *in = args->in, *rstd = &in[centered ? 3 : 2], *dy = &rstd[1];
    const dtp_view *views[] = {[DTP_NORM_X] = &in[0],
                               [DTP_NORM_DX] = has_dx ? &args->out[0] : &in[0],
                               [DTP_NORM_GAMMA] = &in[1],
                               [DTP_NORM_RSTD] = rstd,
                               [DTP_NORM_MEAN] = &in[2],
                               [DTP_NORM_DY] = dy,
                               [DTP_NORM_SUMS] = sums != NULL ? sums : rstd};
    dtp_view_over split;
    norm_state *s;
    DTP_CUDA_STATE(arena, state, s, err);
    dtp_view_split(args->call, "over", &in[0], &split);
    s->norm = (dtp_cuda_norm_form){.centered = centered,
                                   .sums = sums != NULL,
                                   .count = (double)split.global_count,
                                   .last = sums != NULL ? last_sum(sums, &in[0]) : 0};
    DTP_TRY(dtp_cuda_rows_make(&s->rows, &split, DTP_NORM_VIEWS, views, err));
    if (!has_dx) {
        return DTP_OK;
    }
    const dtp_view *dgamma = &args->out[1];
    const dtp_view *of_columns[] = {&in[0], dy, rstd, &in[2], dgamma, &dgamma[centered]};
    dtp_cuda_rows_flip(&split);
    DTP_TRY(dtp_cuda_rows_make(&s->columns, &split, DTP_NORM_COLUMN_VIEWS, of_columns, err));
    dtp_cuda_rows_cut(&s->columns, args);
    return DTP_OK;
}

static dtp_status forward_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                               dtp_err *err)
{
    return bind_forward(args, false, arena, state, err);
}

static dtp_status apply_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                             dtp_err *err)
{
    return bind_forward(args, true, arena, state, err);
}

static dtp_status moments_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                               dtp_err *err)
{
    norm_state *s;
    DTP_CUDA_STATE(arena, state, s, err);
    s->norm.last = last_sum(&args->out[0], &args->in[0]);
    s->norm.centered = s->norm.last > 0;
    return dtp_cuda_rows_of_call(&s->rows, args, "over", err);
}

static dtp_status grad_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                            dtp_err *err)
{
    return bind_backward(args, 5, NULL, arena, state, err);
}

static dtp_status grad_sums_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                 dtp_err *err)
{
    return bind_backward(args, 5, &args->out[0], arena, state, err);
}

/* The sums of the rows are the last operand. */
static dtp_status grad_apply_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                                  dtp_err *err)
{
    return bind_backward(args, 6, &args->in[args->call->n_in - 1], arena, state, err);
}

/* Defines NAME_kernel, which puts a launch on the queue. */
#define KERNEL(NAME, launch)                                                                       \
    static dtp_status NAME##_kernel(const dtp_kernel_args *args, dtp_err *err)                     \
    {                                                                                              \
        norm_state *s = args->state;                                                               \
        DTP_CUDA_TRY(err, launch(dtp_cuda_stream(args), dtp_cuda_rows_now(&s->rows), &s->norm));   \
        return DTP_OK;                                                                             \
    }

KERNEL(forward, dtp_cuda_norm_rows)
KERNEL(moments, dtp_cuda_norm_moments)
KERNEL(grad_sums, dtp_cuda_norm_grad_sums)

/* The sums over rows come first: dx may overwrite x or dy. */
static dtp_status grad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    norm_state *s = args->state;
    const cudaStream_t queue = dtp_cuda_stream(args);
    DTP_CUDA_TRY(err, dtp_cuda_norm_columns(queue, dtp_cuda_rows_now(&s->columns), &s->norm));
    DTP_CUDA_TRY(err, dtp_cuda_norm_dx(queue, dtp_cuda_rows_now(&s->rows), &s->norm));
    return DTP_OK;
}

#define ROW(op, kernel, bind)                                                                      \
    {                                                                                              \
#op, kernel##_kernel, bind##_bind, DTP_CUDA_FLOATS                                         \
    }

const dtp_kernel dtp_cuda_norm[] = {ROW(layer_norm, forward, forward),
                                    ROW(rms_norm, forward, forward),
                                    ROW(layer_norm_grad, grad, grad),
                                    ROW(rms_norm_grad, grad, grad),
                                    ROW(moments, moments, moments),
                                    ROW(layer_norm_apply, forward, apply),
                                    ROW(rms_norm_apply, forward, apply),
                                    ROW(layer_norm_grad_sums, grad_sums, grad_sums),
                                    ROW(rms_norm_grad_sums, grad_sums, grad_sums),
                                    ROW(layer_norm_grad_apply, grad, grad_apply),
                                    ROW(rms_norm_grad_apply, grad, grad_apply),
                                    {.op = NULL}};
