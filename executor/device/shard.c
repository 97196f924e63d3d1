/* The rectangular part of a tensor that one rank (or one file) holds, and copies between such
 * parts. */
#include "executor/device/shard.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/sort.h"

dtp_shard dtp_shard_whole(const dtp_ttype *type)
{
    dtp_shard p = {.rank = type->rank};
    for (int32_t i = 0; i < type->rank; i++) {
        p.global[i] = p.size[i] = type->dims[i].size;
    }
    return p;
}

dtp_shard dtp_shard_of(const dtp_ttype *type, const dtp_layout *layout, const dtp_mesh *mesh,
                       int32_t rank)
{
    dtp_shard p = {.rank = type->rank};
    dtp_ttype local;
    dtp_layout_local(layout, mesh, type, rank, &local, p.offset);
    for (int32_t i = 0; i < type->rank; i++) {
        p.global[i] = type->dims[i].size;
        p.size[i] = local.dims[i].size;
    }
    return p;
}

int64_t dtp_shard_elems(const dtp_shard *shard)
{
    int64_t n = 1;
    for (int32_t i = 0; i < shard->rank; i++) {
        n *= shard->size[i];
    }
    return n;
}

bool dtp_shard_intersect(const dtp_shard *a, const dtp_shard *b, dtp_shard *out)
{
    *out = *a;
    for (int32_t i = 0; i < a->rank; i++) {
        int64_t start = a->offset[i] > b->offset[i] ? a->offset[i] : b->offset[i];
        int64_t a_end = a->offset[i] + a->size[i], b_end = b->offset[i] + b->size[i];
        int64_t end = a_end < b_end ? a_end : b_end;
        if (end <= start) {
            return false;
        }
        out->offset[i] = start;
        out->size[i] = end - start;
    }
    return true;
}

/* ---- cover ---- */

/* Let f(x) be how many shards hold element x, less 1 inside of the tensor. The difference of f
 * along every dim is not zero at corners of boxes alone: +1 at a corner with an even number of
 * upper bounds, -1 at the others, the reverse for the tensor. f is 0 everywhere if and only if
 * these cancel at every point. At the first point in lexicographic order where they do not, f is
 * what is left, as f(x) sums all differences at points that are <= x in every dim. */

/* Coordinate of a corner along `dim`, which bit i of the corner is for; behind the n_dims bits
 * stands the box, n for that of the tensor. */
static int64_t corner_at(const dtp_shard *shards, int32_t n, int64_t corner, int32_t n_dims,
                         int32_t i, int32_t dim)
{
    const int64_t box = corner >> n_dims, upper = corner >> i & 1;
    if (box == n) {
        return upper * shards[0].global[dim];
    }
    return shards[box].offset[dim] + upper * shards[box].size[dim];
}

/* Dims along which some shard is not all of the tensor. */
static int32_t split_dims(const dtp_shard *shards, int32_t n, int32_t dims[DTP_MAX_RANK])
{
    int32_t n_dims = 0;
    for (int32_t d = 0; d < shards[0].rank; d++) {
        bool split = false;
        for (int32_t i = 0; i < n && !split; i++) {
            split = shards[i].size[d] != shards[i].global[d];
        }
        if (split) {
            dims[n_dims++] = d;
        }
    }
    return n_dims;
}

dtp_status dtp_shards_cover(const dtp_shard *shards, int32_t n, bool *cover,
                            int64_t element[DTP_MAX_RANK], dtp_err *err)
{
    int32_t dims[DTP_MAX_RANK];
    const int32_t n_dims = split_dims(shards, n, dims);
    const int64_t corners = ((int64_t)n + 1) << n_dims;
    dtp_keyed *items = malloc(2 * (size_t)corners * sizeof *items);
    DTP_TRY(DTP_MEMORY(err, items));
    for (int64_t c = 0; c < corners; c++) {
        items[c].item = c;
    }
    for (int32_t i = n_dims - 1; i >= 0; i--) { /* by the last dim first: lexicographic order */
        for (int64_t c = 0; c < corners; c++) {
            items[c].key = dtp_sort_key(corner_at(shards, n, items[c].item, n_dims, i, dims[i]));
        }
        dtp_sort_keyed(items, items + corners, corners);
    }
    int64_t left = 0;
    memset(element, 0, DTP_MAX_RANK * sizeof *element);
    *cover = true;
    for (int64_t c = 0; c < corners && *cover; c++) {
        const int64_t corner = items[c].item;
        bool last = c + 1 == corners;
        for (int32_t i = 0; i < n_dims; i++) {
            element[dims[i]] = corner_at(shards, n, corner, n_dims, i, dims[i]);
            last = last ||
                   element[dims[i]] != corner_at(shards, n, items[c + 1].item, n_dims, i, dims[i]);
        }
        const bool upper = __builtin_parityll((unsigned long long)corner & ((1ULL << n_dims) - 1));
        left += upper == (corner >> n_dims == n) ? 1 : -1;
        *cover = !last || left == 0;
    }
    free(items);
    return DTP_OK;
}

dtp_shard_runs dtp_shard_runs_of(const dtp_shard *whole, const dtp_shard *part)
{
    dtp_shard_runs it = {.whole = *whole, .part = *part, .axis = part->rank, .run = 1};
    /* dims that part, whole and tensor all have in full join the run, and the next one partly */
    while (it.axis > 0) {
        int32_t i = --it.axis;
        it.run *= part->size[i];
        if (part->size[i] != whole->size[i] || part->size[i] != part->global[i]) {
            break;
        }
    }
    it.left = 1;
    for (int32_t i = 0; i < it.axis; i++) {
        it.left *= part->size[i];
    }
    it.left = it.run == 0 ? 0 : it.left;
    it.at[0] = -1; /* before the first run */
    return it;
}

bool dtp_shard_next(dtp_shard_runs *it)
{
    if (it->left == 0) {
        return false;
    }
    it->left--;
    if (it->at[0] < 0) {
        it->at[0] = 0;
    } else {
        for (int32_t i = it->axis - 1; i >= 0; i--) {
            if (++it->at[i] < it->part.size[i]) {
                break;
            }
            it->at[i] = 0;
        }
    }
    it->in_whole = it->in_tensor = 0;
    for (int32_t i = 0; i < it->part.rank; i++) {
        int64_t index = it->part.offset[i] + it->at[i];
        it->in_whole = it->in_whole * it->whole.size[i] + (index - it->whole.offset[i]);
        it->in_tensor = it->in_tensor * it->part.global[i] + index;
    }
    return true;
}

/* The longest runs common to both storages: those of the coarser walk cut to the finer one. */
void dtp_shard_copy(const dtp_shard *part, const dtp_shard *src, const void *src_data,
                    const dtp_shard *dst, void *dst_data, int64_t elem_bytes)
{
    dtp_shard_runs from = dtp_shard_runs_of(src, part), to = dtp_shard_runs_of(dst, part);
    int64_t from_left = 0, to_left = 0;
    for (;;) {
        if (from_left == 0 && dtp_shard_next(&from)) {
            from_left = from.run;
        }
        if (to_left == 0 && dtp_shard_next(&to)) {
            to_left = to.run;
        }
        int64_t n = from_left < to_left ? from_left : to_left;
        if (n == 0) {
            return;
        }
        memcpy((char *)dst_data + (to.in_whole + to.run - to_left) * elem_bytes,
               (const char *)src_data + (from.in_whole + from.run - from_left) * elem_bytes,
               (size_t)(n * elem_bytes));
        from_left -= n;
        to_left -= n;
    }
}

dtp_status dtp_read_at(int fd, const char *file, int64_t at, void *out, int64_t n, dtp_err *err)
{
    int64_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, (char *)out + done, (size_t)(n - done), (off_t)(at + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return DTP_FAIL(err, DTP_IO, "%s: %" PRId64 " bytes at %" PRId64 ": %s", file, n, at,
                            got < 0 ? strerror(errno) : "the file ends before");
        }
        done += got;
    }
    return DTP_OK;
}
