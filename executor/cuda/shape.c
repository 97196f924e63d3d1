/* Ops that copy elements or make them from nothing: broadcast, permute, relabel, slice, pad,
 * concat, stack, roll, reorder, iota, constant, fill. Copies do not look at the element type. */
#include "executor/cuda/kernels.h"

#include <string.h>

#include "core/graph/ops/sequence.h"
#include "executor/cuda/kernels/shape.h"
#include "executor/device/convert.h"

/* Copies x into y over the dims of `shape`, from element x_at of x on and y_at of y. */
static dtp_status copy(const dtp_kernel_args *args, const dtp_view *shape, const dtp_view *y,
                       int64_t y_at, const dtp_view *x, int64_t x_at, dtp_err *err)
{
    return dtp_cuda_view_copy(dtp_cuda_stream(args), &shape->local, y, y_at, x, x_at, err);
}

static dtp_status broadcast_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return copy(args, &args->out[0], &args->out[0], 0, &args->in[0], 0, err);
}

static dtp_status permute_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return copy(args, &args->in[0], &args->out[0], 0, &args->in[0], 0, err);
}

static dtp_status stack_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *y = &args->out[0];
    const int64_t stride = dtp_view_stride(y, dtp_call_dim(args->call, "dim"));
    for (int32_t i = 0; i < args->call->n_in; i++) {
        DTP_TRY(copy(args, &args->in[i], y, i * stride, &args->in[i], 0, err));
    }
    return DTP_OK;
}

static dtp_status relabel_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    if (args->out[0].data == args->in[0].data) {
        return DTP_OK;
    }
    dtp_view x = args->in[0];
    x.local = args->out[0].local;
    return copy(args, &args->out[0], &args->out[0], 0, &x, 0, err);
}

static dtp_status slice_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *x = &args->in[0];
    const int64_t stride = dtp_view_stride(x, dtp_call_dim(args->call, "dim"));
    return copy(args, &args->out[0], &args->out[0], 0, x,
                stride * dtp_call_int(args->call, "start"), err);
}

static dtp_status pad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const int64_t elem = dtp_dtype_bytes(y->local.dtype), total = dtp_ttype_bytes(&y->local);
    const int64_t inner = dtp_view_stride(y, dim) * elem;
    if (total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_pad(dtp_cuda_stream(args), total,
                                       dtp_ttype_size(&y->local, dim) * inner,
                                       dtp_call_int(args->call, "before") * inner,
                                       dtp_ttype_size(&x->local, dim) * inner, (int32_t)elem,
                                       y->data, x->data));
    }
    return DTP_OK;
}

static dtp_status concat_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *y = &args->out[0];
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const int64_t stride = dtp_view_stride(y, dim);
    int64_t at = 0;
    for (int32_t i = 0; i < args->call->n_in; i++) {
        const dtp_view *x = &args->in[i];
        DTP_TRY(copy(args, x, y, at * stride, x, 0, err));
        at += dtp_ttype_size(&x->local, dim);
    }
    return DTP_OK;
}

/* The operand, and the result of the same shape, as `outer` parts of `size` elements of dim "dim",
 * each of `inner` elements. */
typedef struct along {
    int64_t outer, size, inner;
} along;

static along along_dim(const dtp_kernel_args *args)
{
    const dtp_ttype *x = &args->in[0].local;
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    along a = {1, dtp_ttype_size(x, dim), dtp_view_stride(&args->in[0], dim)};
    for (int32_t i = 0; x->dims[i].id != dim; i++) {
        a.outer *= x->dims[i].size;
    }
    return a;
}

/* Runs of n elements of the dim: run i of `runs` goes from `from` + i * from_step to `to` + i *
 * to_step. */
typedef struct along_runs {
    int64_t runs, n, from, from_step, to, to_step;
} along_runs;

static dtp_status copy_runs(const dtp_kernel_args *args, const along *a, const along_runs *r,
                            dtp_err *err)
{
    const int64_t bytes = dtp_dtype_bytes(args->in[0].local.dtype), row = a->size * a->inner;
    const int64_t sizes[] = {a->outer, r->runs, r->n * a->inner};
    const int64_t strides[2][DTP_NEST_DIMS] = {{row, r->to_step * a->inner, 1},
                                               {row, r->from_step * a->inner, 1}};
    return dtp_cuda_strided_copy(dtp_cuda_stream(args), 3, sizes, strides, bytes,
                                 (char *)args->out[0].data + r->to * a->inner * bytes,
                                 (const char *)args->in[0].data + r->from * a->inner * bytes, err);
}

static dtp_status roll_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const along a = along_dim(args);
    if (a.size == 0) {
        return DTP_OK;
    }
    int64_t shift = dtp_call_int(args->call, "shift") % a.size;
    shift += shift < 0 ? a.size : 0;
    DTP_TRY(copy_runs(args, &a, &(along_runs){.runs = 1, .n = a.size - shift, .to = shift}, err));
    return copy_runs(args, &a, &(along_runs){.runs = 1, .n = shift, .from = a.size - shift}, err);
}

/* Places 2r are positions r, places 2r + 1 positions 2C - 1 - r, in runs (core/graph/ops). */
static dtp_status reorder_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const along a = along_dim(args);
    const int64_t chunks = dtp_call_int(args->call, "chunks");
    const int64_t n = dtp_sequence_make(a.size, chunks).run;
    if (n == a.size) {
        return copy_runs(args, &a, &(along_runs){.runs = 1, .n = n}, err);
    }
    along_runs half[] = {
        {.runs = chunks, .n = n, .from_step = n, .to_step = 2 * n},
        {chunks, n, .from = (2 * chunks - 1) * n, .from_step = -n, .to = n, .to_step = 2 * n}};
    for (int32_t i = 0; i < 2; i++) {
        along_runs r = half[i];
        if (dtp_call_int(args->call, "inverse") != 0) {
            r.from = half[i].to;
            r.from_step = half[i].to_step;
            r.to = half[i].from;
            r.to_step = half[i].from_step;
        }
        DTP_TRY(copy_runs(args, &a, &r, err));
    }
    return DTP_OK;
}

/* ---- ops without operands ---- */

static dtp_status iota_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *y = &args->out[0];
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const int64_t n = dtp_ttype_elems(&y->local);
    if (n > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_iota(dtp_cuda_stream(args), n, dtp_view_stride(y, dim),
                                        dtp_ttype_size(&y->local, dim), dtp_view_offset(y, dim),
                                        (int32_t)y->local.dtype, y->data));
    }
    return DTP_OK;
}

static dtp_status constant_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *y = &args->out[0];
    const int64_t bytes = dtp_ttype_bytes(&y->local), elem = dtp_dtype_bytes(y->local.dtype);
    _Alignas(16) uint8_t pattern[16];
    for (int64_t i = 0; i < 16 / elem; i++) {
        dtp_element_set(y->local.dtype, pattern, i, dtp_call_float(args->call, "value"));
    }
    if (bytes > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_fill(dtp_cuda_stream(args), bytes, pattern, y->data));
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_shape[] = {{"broadcast", broadcast_kernel, NULL, 0},
                                     {"permute", permute_kernel, NULL, 0},
                                     {"stack", stack_kernel, NULL, 0},
                                     {"relabel", relabel_kernel, NULL, 0},
                                     {"slice", slice_kernel, NULL, 0},
                                     {"pad", pad_kernel, NULL, 0},
                                     {"concat", concat_kernel, NULL, 0},
                                     {"roll", roll_kernel, NULL, 0},
                                     {"reorder", reorder_kernel, NULL, 0},
                                     {"iota", iota_kernel, NULL, 0},
                                     {"constant", constant_kernel, NULL, 0},
                                     {"fill", constant_kernel, NULL, 0},
                                     {.op = NULL}};
