/* Memory, lists of kernels and staging copies of backends whose device memory is host memory:
 * entries for the slots of dtp_backend_ops (executor/device/backend.h), semantics of the copies in
 * spmd/program/program.h. They move elements of any type by size; scale alone does arithmetic and
 * takes float types only.
 */
#ifndef DTP_EXECUTOR_DEVICE_HOST_MEMORY_H
#define DTP_EXECUTOR_DEVICE_HOST_MEMORY_H

#include "executor/device/backend.h"

/* Kernel number i of an op in n lists, each ended by a kernel without an op: the slot `kernel`. */
const dtp_kernel *dtp_host_kernel(const dtp_kernel *const *lists, size_t n, const char *op,
                                  int32_t i);

/* The slot `destroy`: frees scratch and backend. */
void dtp_host_destroy(dtp_backend *b);

/* Counts bytes that came to (left, when negative) the backend's memory. */
void dtp_host_count(dtp_backend *b, int64_t bytes);
/* 64-byte aligned memory, counted in the backend; 0 bytes give a valid pointer. DTP_NOMEM. */
dtp_status dtp_host_alloc(dtp_backend *b, size_t bytes, void **out, dtp_err *err) DTP_MUST_CHECK;
/* `bytes` as given to alloc; NULL is accepted. */
void dtp_host_free(dtp_backend *b, void *ptr, size_t bytes);
dtp_status dtp_host_upload(dtp_backend *b, void *device, const void *host, size_t bytes,
                           dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_host_download(dtp_backend *b, void *host, const void *device, size_t bytes,
                             dtp_err *err) DTP_MUST_CHECK;

/* Chunk p of src's local `axis` over `parts` goes to part p of the staging buffer, padded with
 * zeros to the shape of `part`. */
dtp_status dtp_host_pack(dtp_backend *b, const dtp_view *src, int32_t axis, int32_t parts,
                         const dtp_ttype *part, void *staging, dtp_err *err) DTP_MUST_CHECK;
/* The inverse: part p becomes chunk p of dst's local `axis`; the padding is dropped. */
dtp_status dtp_host_unpack(dtp_backend *b, const void *staging, int32_t axis, int32_t parts,
                           const dtp_ttype *part, const dtp_view *dst, dtp_err *err) DTP_MUST_CHECK;
/* Element i of `axis` of dst = element start + i of src; where src does not have it, dst stays. */
dtp_status dtp_host_slice(dtp_backend *b, const dtp_view *src, int32_t axis, int64_t start,
                          const dtp_view *dst, dtp_err *err) DTP_MUST_CHECK;
/* dst = factor * src; src and dst may be the same memory. DTP_UNSUPPORTED on integers. */
dtp_status dtp_host_scale(dtp_backend *b, const dtp_view *src, double factor, const dtp_view *dst,
                          dtp_err *err) DTP_MUST_CHECK;

#endif
