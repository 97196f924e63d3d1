/* Memory, kernel lists and staging copies of backends whose memory is host memory. */
#include "executor/device/host_memory.h"

#include <stdlib.h>
#include <string.h>

#include "executor/device/convert.h"

enum { ALIGNMENT = 64 };

const dtp_kernel *dtp_host_kernel(const dtp_kernel *const *lists, size_t n, const char *op,
                                  int32_t i)
{
    for (size_t l = 0; l < n; l++) {
        for (const dtp_kernel *k = lists[l]; k->op != NULL; k++) {
            if (strcmp(k->op, op) == 0 && i-- == 0) {
                return k;
            }
        }
    }
    return NULL;
}

void dtp_host_destroy(dtp_backend *b)
{
    dtp_scratch_free(&b->scratch);
    free(b);
}

void dtp_host_count(dtp_backend *b, int64_t bytes)
{
    b->allocated_bytes += bytes;
    if (b->allocated_bytes > b->peak_allocated_bytes) {
        b->peak_allocated_bytes = b->allocated_bytes;
    }
}

dtp_status dtp_host_alloc(dtp_backend *b, size_t bytes, void **out, dtp_err *err)
{
    if (bytes > SIZE_MAX / 2) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu bytes", bytes);
    }
    size_t rounded = bytes == 0 ? ALIGNMENT : (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *p = aligned_alloc(ALIGNMENT, rounded);
    DTP_TRY(DTP_MEMORY(err, p));
    dtp_host_count(b, (int64_t)bytes);
    *out = p;
    return DTP_OK;
}

void dtp_host_free(dtp_backend *b, void *ptr, size_t bytes)
{
    if (ptr != NULL) {
        dtp_host_count(b, -(int64_t)bytes);
        free(ptr);
    }
}

dtp_status dtp_host_upload(dtp_backend *b, void *device, const void *host, size_t bytes,
                           dtp_err *err)
{
    (void)b;
    (void)err;
    if (bytes > 0) {
        memcpy(device, host, bytes);
    }
    return DTP_OK;
}

dtp_status dtp_host_download(dtp_backend *b, void *host, const void *device, size_t bytes,
                             dtp_err *err)
{
    (void)b;
    (void)err;
    if (bytes > 0) {
        memcpy(host, device, bytes);
    }
    return DTP_OK;
}

/* A box inside a row-major array: where it starts and how far apart its rows are, in bytes. */
typedef struct box {
    unsigned char *at;
    int64_t stride[DTP_MAX_RANK];
} box;

/* The box of a row-major array of this shape whose first element on `axis` is `start`. */
static box box_of(const dtp_ttype *shape, int32_t axis, int64_t start, void *data)
{
    box b = {.at = data};
    int64_t stride = dtp_dtype_bytes(shape->dtype);
    for (int32_t i = shape->rank - 1; i >= 0; i--) {
        b.stride[i] = stride;
        stride *= shape->dims[i].size;
    }
    if (start > 0) {
        b.at += start * b.stride[axis];
    }
    return b;
}

/* Copies a box of `shape` elements. Trailing dims that are contiguous on both sides move as one
 * run. */
static void copy_box(const dtp_ttype *shape, box to, box from)
{
    int64_t run = dtp_dtype_bytes(shape->dtype);
    int32_t rank = shape->rank;
    if (dtp_ttype_elems(shape) == 0) {
        return;
    }
    while (rank > 0 && from.stride[rank - 1] == run && to.stride[rank - 1] == run) {
        run *= shape->dims[--rank].size;
    }
    int64_t index[DTP_MAX_RANK] = {0};
    for (int32_t d = 0; d >= 0;) {
        memcpy(to.at, from.at, (size_t)run);
        for (d = rank - 1; d >= 0; d--) {
            to.at += to.stride[d];
            from.at += from.stride[d];
            if (++index[d] < shape->dims[d].size) {
                break;
            }
            to.at -= index[d] * to.stride[d];
            from.at -= index[d] * from.stride[d];
            index[d] = 0;
        }
    }
}

/* Chunk p of the local axis: its start, and the shape of the box that it fills. */
static int64_t chunk_of(const dtp_ttype *local, int32_t axis, int32_t parts, int32_t p,
                        dtp_ttype *shape)
{
    int64_t start;
    *shape = *local;
    dtp_chunk(local->dims[axis].size, parts, p, &start, &shape->dims[axis].size);
    return start;
}

static dtp_status check_part(const dtp_ttype *local, int32_t axis, int32_t parts,
                             const dtp_ttype *part, dtp_err *err)
{
    bool fits = parts > 0 && part->rank == local->rank && axis >= 0 && axis < local->rank &&
                part->dtype == local->dtype;
    for (int32_t i = 0; fits && i < part->rank; i++) {
        int64_t n = local->dims[i].size;
        fits = part->dims[i].size >= (i == axis ? (n + parts - 1) / parts : n);
    }
    return fits ? DTP_OK
                : DTP_FAIL(err, DTP_INTERNAL, "%d staging parts do not fit a tensor of rank %d",
                           parts, local->rank);
}

dtp_status dtp_host_pack(dtp_backend *b, const dtp_view *src, int32_t axis, int32_t parts,
                         const dtp_ttype *part, void *staging, dtp_err *err)
{
    (void)b;
    DTP_TRY(check_part(&src->local, axis, parts, part, err));
    size_t bytes = (size_t)dtp_ttype_bytes(part);
    for (int32_t p = 0; p < parts; p++) {
        unsigned char *at = (unsigned char *)staging + (size_t)p * bytes;
        dtp_ttype shape;
        int64_t start = chunk_of(&src->local, axis, parts, p, &shape);
        if (dtp_ttype_elems(&shape) != dtp_ttype_elems(part)) {
            memset(at, 0, bytes);
        }
        copy_box(&shape, box_of(part, axis, 0, at), box_of(&src->local, axis, start, src->data));
    }
    return DTP_OK;
}

dtp_status dtp_host_unpack(dtp_backend *b, const void *staging, int32_t axis, int32_t parts,
                           const dtp_ttype *part, const dtp_view *dst, dtp_err *err)
{
    (void)b;
    DTP_TRY(check_part(&dst->local, axis, parts, part, err));
    const dtp_view from = {.data = (void *)(uintptr_t)staging};
    size_t bytes = (size_t)dtp_ttype_bytes(part);
    for (int32_t p = 0; p < parts; p++) {
        unsigned char *at = (unsigned char *)from.data + (size_t)p * bytes;
        dtp_ttype shape;
        int64_t start = chunk_of(&dst->local, axis, parts, p, &shape);
        copy_box(&shape, box_of(&dst->local, axis, start, dst->data), box_of(part, axis, 0, at));
    }
    return DTP_OK;
}

dtp_status dtp_host_slice(dtp_backend *b, const dtp_view *src, int32_t axis, int64_t start,
                          const dtp_view *dst, dtp_err *err)
{
    (void)b;
    dtp_ttype shape = dst->local;
    bool fits = shape.rank == src->local.rank && axis >= 0 && axis < shape.rank &&
                shape.dtype == src->local.dtype;
    for (int32_t i = 0; fits && i < shape.rank; i++) {
        fits = i == axis || src->local.dims[i].size == shape.dims[i].size;
    }
    if (!fits) {
        return DTP_FAIL(err, DTP_INTERNAL, "slice at %lld of axis %d does not fit",
                        (long long)start, axis);
    }
    const int64_t skip = dtp_slice_common(&src->local, axis, start, &shape);
    copy_box(&shape, box_of(&dst->local, axis, skip, dst->data),
             box_of(&src->local, axis, start + skip, src->data));
    return DTP_OK;
}

dtp_status dtp_host_scale(dtp_backend *b, const dtp_view *src, double factor, const dtp_view *dst,
                          dtp_err *err)
{
    (void)b;
    const int64_t n = dtp_ttype_elems(&dst->local);
    const dtp_dtype dtype = dst->local.dtype;
    if (!dtp_dtype_is_float(dtype) || src->local.dtype != dtype ||
        dtp_ttype_elems(&src->local) != n) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "cannot scale %lld elements of %s", (long long)n,
                        dtp_dtype_name(dtype));
    }
    if (dtype == DTP_F32) {
        const float *from = src->data;
        float *to = dst->data;
        for (int64_t i = 0; i < n; i++) {
            to[i] = (float)(factor * (double)from[i]);
        }
        return DTP_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        dtp_element_set(dtype, dst->data, i, factor * dtp_element(dtype, src->data, i));
    }
    return DTP_OK;
}
