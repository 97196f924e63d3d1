/* Strided views of a row of elements: parts of stored tensors, also transposed ones. */
#ifndef DTP_EXECUTOR_DEVICE_STRIDED_H
#define DTP_EXECUTOR_DEVICE_STRIDED_H

#include "executor/device/shard.h"

/* The elements first + sum of i[d] * stride[d] with 0 <= i[d] < size[d], at least one. */
typedef struct dtp_strided {
    int32_t rank;
    int64_t first, size[DTP_MAX_RANK], stride[DTP_MAX_RANK];
} dtp_strided;

/* Where `part` lies in the storage of `whole`, which holds all of it. */
dtp_strided dtp_strided_of(const dtp_shard *part, const dtp_shard *whole);
/* As many elements of the same sizes, one behind the other. */
dtp_strided dtp_strided_dense(const dtp_strided *like);
/* Brings the dims of `a`, and those of `b` with them, into the order in which `a` is stored. */
void dtp_strided_sort(dtp_strided *a, dtp_strided *b);
/* Copies the elements of one view to those of another one of the same sizes. */
void dtp_strided_copy(const dtp_strided *from, const void *src, const dtp_strided *to, void *dst,
                      int64_t elem_bytes);
/* Reads a view of elements that are stored in a file from byte `base` on, into a contiguous buffer.
 * DTP_IO naming the file. */
dtp_status dtp_strided_read(int fd, const char *file, int64_t base, const dtp_strided *view,
                            int64_t elem_bytes, void *out, dtp_err *err) DTP_MUST_CHECK;

#endif
