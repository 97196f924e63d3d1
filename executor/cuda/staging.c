/* Staging copies (executor/device/backend.h), copies between views, and what kernels share. */
#include <stdlib.h>
#include <string.h>

#include "core/base/safe_int.h"
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/copy.h"
#include "executor/cuda/kernels/elementwise/elementwise.h"

dtp_status dtp_cuda_status(cudaError_t code, const char *call, dtp_err *err)
{
    if (code == cudaSuccess) {
        return DTP_OK;
    }
    return DTP_FAIL(err, code == cudaErrorMemoryAllocation ? DTP_NOMEM : DTP_INTERNAL, "%.200s: %s",
                    call, cudaGetErrorString(code));
}

dtp_status dtp_cuda_nest_of(const dtp_nest *nest, dtp_cuda_nest *out, dtp_err *err)
{
    if (nest->rank > DTP_CUDA_DIMS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "backend cuda: a loop over %d dims that do not merge, at most %d",
                        nest->rank, DTP_CUDA_DIMS);
    }
    memset(out, 0, sizeof *out);
    out->rank = nest->rank;
    out->n_views = nest->n_views;
    out->total = dtp_nest_total(nest);
    for (int32_t i = 0; i < nest->rank; i++) {
        out->size[i] = nest->size[i];
        for (int32_t v = 0; v < nest->n_views; v++) {
            out->stride[v][i] = nest->stride[v][i];
        }
    }
    return DTP_OK;
}

/* Dims are walked in the order in which they lie in dst. */
dtp_status dtp_cuda_strided_copy(cudaStream_t queue, int32_t n_dims, const int64_t *sizes,
                                 const int64_t (*strides)[DTP_NEST_DIMS], int64_t elem_bytes,
                                 void *dst, const void *src, dtp_err *err)
{
    int64_t size[DTP_NEST_DIMS], stride[2][DTP_NEST_DIMS];
    dtp_nest nest;
    dtp_cuda_nest device;
    for (int32_t i = 0; i < n_dims; i++) {
        int32_t at = i;
        for (; at > 0 && llabs(stride[0][at - 1]) < llabs(strides[0][i]); at--) {
            size[at] = size[at - 1];
            stride[0][at] = stride[0][at - 1];
            stride[1][at] = stride[1][at - 1];
        }
        size[at] = sizes[i];
        stride[0][at] = strides[0][i];
        stride[1][at] = strides[1][i];
    }
    dtp_nest_raw(&nest, n_dims, size, 2, (const int64_t(*)[DTP_NEST_DIMS])stride);
    DTP_TRY(dtp_cuda_nest_of(&nest, &device, err));
    if (device.total > 0) {
        DTP_CUDA_TRY(err, dtp_cuda_copy(queue, &device, (int32_t)elem_bytes, dst, src));
    }
    return DTP_OK;
}

dtp_status dtp_cuda_view_copy(cudaStream_t queue, const dtp_ttype *shape, const dtp_view *dst,
                              int64_t dst_at, const dtp_view *src, int64_t src_at, dtp_err *err)
{
    const int64_t bytes = dtp_dtype_bytes(dst->local.dtype);
    int64_t sizes[DTP_MAX_RANK], strides[2][DTP_NEST_DIMS];
    for (int32_t i = 0; i < shape->rank; i++) {
        sizes[i] = shape->dims[i].size;
        strides[0][i] = dtp_view_stride(dst, shape->dims[i].id);
        strides[1][i] = dtp_view_stride(src, shape->dims[i].id);
    }
    return dtp_cuda_strided_copy(
        queue, shape->rank, sizes, (const int64_t(*)[DTP_NEST_DIMS])strides, bytes,
        (char *)dst->data + dst_at * bytes, (const char *)src->data + src_at * bytes, err);
}

/* ---- chunks of an axis ---- */

/* A view of the whole type, its axes numbered instead of named. */
static dtp_view numbered(const dtp_ttype *type, const void *data)
{
    dtp_view v = dtp_view_whole(type);
    for (int32_t i = 0; i < type->rank; i++) {
        v.local.dims[i].id = i;
    }
    memcpy(&v.data, &data, sizeof v.data);
    return v;
}

/* The parts of a staging buffer. */
typedef struct parts_of {
    void *data;
    int32_t axis, n;
    const dtp_ttype *type; /* of one */
} parts_of;

/* A tensor to its parts, the other way when `unpack`. */
static dtp_status move_parts(dtp_backend *b, const dtp_view *whole, const parts_of *parts,
                             bool unpack, dtp_err *err)
{
    const cudaStream_t queue = dtp_cuda_of(b)->compute;
    const dtp_ttype *local = &whole->local, *part = parts->type;
    const int32_t axis = parts->axis;
    const size_t bytes = (size_t)dtp_ttype_bytes(part);
    const dtp_view tensor = numbered(local, whole->data);
    const int64_t stride = local->rank > 0 ? dtp_view_stride(&tensor, axis) : 1;
    for (int32_t p = 0; p < parts->n; p++) {
        dtp_view to = numbered(part, (char *)parts->data + (size_t)p * bytes);
        dtp_ttype shape = tensor.local;
        int64_t start = 0;
        if (local->rank > 0) {
            dtp_chunk(local->dims[axis].size, parts->n, p, &start, &shape.dims[axis].size);
        }
        if (!unpack && dtp_ttype_elems(&shape) != dtp_ttype_elems(part) && bytes > 0) {
            DTP_CUDA_TRY(err, cudaMemsetAsync(to.data, 0, bytes, queue));
        }
        DTP_TRY(unpack ? dtp_cuda_view_copy(queue, &shape, &tensor, start * stride, &to, 0, err)
                       : dtp_cuda_view_copy(queue, &shape, &to, 0, &tensor, start * stride, err));
    }
    return DTP_OK;
}

dtp_status dtp_cuda_pack(dtp_backend *b, const dtp_view *src, int32_t axis, int32_t parts,
                         const dtp_ttype *part, void *staging, dtp_err *err)
{
    const parts_of list = {staging, axis, parts, part};
    return move_parts(b, src, &list, false, err);
}

dtp_status dtp_cuda_unpack(dtp_backend *b, const void *staging, int32_t axis, int32_t parts,
                           const dtp_ttype *part, const dtp_view *dst, dtp_err *err)
{
    void *from;
    memcpy(&from, &staging, sizeof from);
    const parts_of list = {from, axis, parts, part};
    return move_parts(b, dst, &list, true, err);
}

dtp_status dtp_cuda_slice(dtp_backend *b, const dtp_view *src, int32_t axis, int64_t start,
                          const dtp_view *dst, dtp_err *err)
{
    const dtp_view from = numbered(&src->local, src->data), to = numbered(&dst->local, dst->data);
    dtp_ttype shape = to.local;
    const int64_t skip = dtp_slice_common(&from.local, axis, start, &shape);
    return dtp_cuda_view_copy(dtp_cuda_of(b)->compute, &shape, &to,
                              skip * dtp_view_stride(&to, axis), &from,
                              (start + skip) * dtp_view_stride(&from, axis), err);
}

dtp_status dtp_cuda_scale(dtp_backend *b, const dtp_view *src, double factor, const dtp_view *dst,
                          dtp_err *err)
{
    const int64_t n = dtp_ttype_elems(&dst->local);
    if (!dtp_dtype_is_float(src->local.dtype)) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "scaling %s", dtp_dtype_name(src->local.dtype));
    }
    if (n > 0) {
        const int32_t dtype = (int32_t)src->local.dtype;
        const dtp_cuda_elementwise_call scale = {
            .nest = {.rank = 1, .n_views = 2, .total = n, .size = {n}, .stride = {{1}, {1}}},
            .op = DTP_CUDA_OP_scale,
            .n_in = 1,
            .dtype = {dtype, dtype},
            .a = (float)factor};
        const void *const in[DTP_CUDA_OPERANDS] = {src->data};
        DTP_CUDA_TRY(err, dtp_cuda_elementwise_run(dtp_cuda_of(b)->compute, &scale, dst->data, in));
    }
    return DTP_OK;
}
