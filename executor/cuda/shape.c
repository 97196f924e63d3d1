/* Ops that copy elements or make them from nothing: broadcast, permute, relabel, slice, pad,
 * concat, stack, roll, reorder, iota, constant, fill. Copies do not look at the element type. */
#include "executor/cuda/kernels.h"

#include "executor/cuda/kernels/shape.h"
#include "executor/device/bound/copies.h"
#include "executor/device/convert.h"

static dtp_status copy(const dtp_kernel_args *args, const dtp_bound_copy *c, dtp_err *err)
{
    return dtp_cuda_strided_copy(dtp_cuda_stream(args), c->n, c->sizes, c->strides, c->elem_bytes,
                                 c->y, c->x, err);
}

DTP_COPY_OPS(DTP_COPY_KERNEL)

static dtp_status pad_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const dtp_view *x = &args->in[0], *y = &args->out[0];
    const dtp_dim_id dim = dtp_call_dim(args->call, "dim");
    const int64_t elem = dtp_dtype_bytes(y->local.dtype), total = dtp_ttype_bytes(&y->local);
    const int64_t inner = dtp_view_stride(y, dim) * elem;
    const dtp_pad_form f = dtp_pad_form_here(args);
    const dtp_cuda_pad_rows rows = {.to = dtp_ttype_size(&y->local, dim) * inner,
                                    .from = dtp_ttype_size(&x->local, dim) * inner,
                                    .before = f.to * inner,
                                    .skip = f.from * inner,
                                    .n = f.n * inner};
    if (total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_pad(dtp_cuda_stream(args), total, &rows, (int32_t)elem, y->data,
                                       x->data));
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

const dtp_kernel dtp_cuda_shape[] = {DTP_COPY_OPS(DTP_COPY_ROW){"pad", pad_kernel, NULL, 0},
                                     {"iota", iota_kernel, NULL, 0},
                                     {"constant", constant_kernel, NULL, 0},
                                     {"fill", constant_kernel, NULL, 0},
                                     {.op = NULL}};
