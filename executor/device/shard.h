/* The rectangular part of a tensor that one rank (or one file) holds, and copies between such
 * parts. */
#ifndef DTP_EXECUTOR_DEVICE_SHARD_H
#define DTP_EXECUTOR_DEVICE_SHARD_H

#include "core/layout/layout.h"

/* Indices offset[i] .. offset[i] + size[i] - 1 of every dim of a tensor with sizes global[i].
 * Stored row-major and contiguous. */
typedef struct dtp_shard {
    int32_t rank;
    int64_t global[DTP_MAX_RANK], offset[DTP_MAX_RANK], size[DTP_MAX_RANK];
} dtp_shard;

/* The whole of a tensor. */
dtp_shard dtp_shard_whole(const dtp_ttype *type);
/* What a rank holds under a layout. */
dtp_shard dtp_shard_of(const dtp_ttype *type, const dtp_layout *layout, const dtp_mesh *mesh,
                       int32_t rank);
int64_t dtp_shard_elems(const dtp_shard *shard);
/* Common part of two shards of one tensor; false when empty. */
bool dtp_shard_intersect(const dtp_shard *a, const dtp_shard *b, dtp_shard *out);
/* Whether n non-empty shards of one tensor hold every element exactly once, in time that grows with
 * n log n. If not, `element` is one that none or several of them hold. */
dtp_status dtp_shards_cover(const dtp_shard *shards, int32_t n, bool *cover,
                            int64_t element[DTP_MAX_RANK], dtp_err *err) DTP_MUST_CHECK;

/* Runs of consecutive elements: `part` (inside `whole`) is visited in row-major order of its
 * elements; each call gives the next longest run that is contiguous in `whole` and in the tensor.
 * Start from `dtp_shard_runs it = dtp_shard_runs_of(whole, part)`. */
typedef struct dtp_shard_runs {
    dtp_shard whole, part;
    int32_t axis;             /* runs cover the dims from here on */
    int64_t at[DTP_MAX_RANK]; /* position of the next run in part */
    int64_t run, left;        /* elements of a run; runs still to come */
    int64_t in_whole,
        in_tensor; /* element index of the run in the storage of whole, in the tensor */
} dtp_shard_runs;

dtp_shard_runs dtp_shard_runs_of(const dtp_shard *whole, const dtp_shard *part);
/* False at the end; else it->run elements start at it->in_whole. */
bool dtp_shard_next(dtp_shard_runs *it);

/* Copies `part` (inside both) from the storage of `src` to the storage of `dst`. */
void dtp_shard_copy(const dtp_shard *part, const dtp_shard *src, const void *src_data,
                    const dtp_shard *dst, void *dst_data, int64_t elem_bytes);

/* n bytes from byte `at` of a file; a short file is DTP_IO. */
dtp_status dtp_read_at(int fd, const char *file, int64_t at, void *out, int64_t n,
                       dtp_err *err) DTP_MUST_CHECK;

#endif
