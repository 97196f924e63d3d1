/* Strided views of a row of elements: parts of stored tensors, also transposed ones. */
#include "executor/device/strided.h"

#include <string.h>

dtp_strided dtp_strided_of(const dtp_shard *part, const dtp_shard *whole)
{
    dtp_strided out = {.rank = part->rank};
    int64_t step = 1;
    for (int32_t d = part->rank - 1; d >= 0; d--) {
        out.first += (part->offset[d] - whole->offset[d]) * step;
        out.size[d] = part->size[d];
        out.stride[d] = step;
        step *= whole->size[d];
    }
    return out;
}

dtp_strided dtp_strided_dense(const dtp_strided *like)
{
    dtp_shard all = {.rank = like->rank};
    memcpy(all.size, like->size, sizeof all.size);
    return dtp_strided_of(&all, &all);
}

static void swap(int64_t *a, int64_t *b)
{
    const int64_t was = *a;
    *a = *b;
    *b = was;
}

void dtp_strided_sort(dtp_strided *a, dtp_strided *b)
{
    for (int32_t d = 1; d < a->rank; d++) {
        for (int32_t k = d; k > 0 && a->stride[k - 1] < a->stride[k]; k--) {
            swap(&a->stride[k - 1], &a->stride[k]);
            swap(&a->size[k - 1], &a->size[k]);
            swap(&b->stride[k - 1], &b->stride[k]);
            swap(&b->size[k - 1], &b->size[k]);
        }
    }
}

/* The next index over dims [0, n), the last one the fastest; false at the end. */
static bool next_index(const dtp_strided *v, int32_t n, int64_t *at)
{
    for (int32_t d = n - 1; d >= 0; d--) {
        if (++at[d] < v->size[d]) {
            return true;
        }
        at[d] = 0;
    }
    return false;
}

static int64_t element_at(const dtp_strided *v, int32_t n, const int64_t *at)
{
    int64_t e = v->first;
    for (int32_t d = 0; d < n; d++) {
        e += at[d] * v->stride[d];
    }
    return e;
}

/* Elements of two dims in blocks, so that both sides use the lines that they load. */
static inline void copy_plane(const int64_t n[2], const char *src, const int64_t from[2], char *dst,
                              const int64_t to[2], size_t width)
{
    enum { BLOCK = 32 };
    for (int64_t i0 = 0; i0 < n[0]; i0 += BLOCK) {
        for (int64_t j0 = 0; j0 < n[1]; j0 += BLOCK) {
            for (int64_t i = i0; i < n[0] && i < i0 + BLOCK; i++) {
                for (int64_t j = j0; j < n[1] && j < j0 + BLOCK; j++) {
                    memcpy(dst + (i * to[0] + j * to[1]) * (int64_t)width,
                           src + (i * from[0] + j * from[1]) * (int64_t)width, width);
                }
            }
        }
    }
}

static void copy_rows(const int64_t n[2], const char *src, const int64_t from[2], char *dst,
                      const int64_t to[2], int64_t width)
{
    if (from[1] == 1 && to[1] == 1) {
        for (int64_t i = 0; i < n[0]; i++) {
            memcpy(dst + i * to[0] * width, src + i * from[0] * width, (size_t)(n[1] * width));
        }
    } else if (width == 2) {
        copy_plane(n, src, from, dst, to, 2);
    } else if (width == 4) {
        copy_plane(n, src, from, dst, to, 4);
    } else {
        copy_plane(n, src, from, dst, to, (size_t)width);
    }
}

void dtp_strided_copy(const dtp_strided *from, const void *src, const dtp_strided *to, void *dst,
                      int64_t elem_bytes)
{
    /* the plane: the last dim, along which `from` is contiguous, and the one along which `to` is */
    const int32_t last = from->rank - 1;
    int32_t other = last - 1;
    for (int32_t d = 0; d < last; d++) {
        other = to->stride[d] < to->stride[other] ? d : other;
    }
    int64_t n[2] = {1, 1}, a_step[2] = {0, 0}, b_step[2] = {0, 0}, at[DTP_MAX_RANK] = {0};
    dtp_strided rest = *from;
    for (int32_t i = 0; i < 2; i++) {
        const int32_t d = i == 0 ? other : last;
        if (d >= 0) {
            n[i] = from->size[d];
            a_step[i] = from->stride[d];
            b_step[i] = to->stride[d];
            rest.size[d] = 1;
        }
    }
    do {
        copy_rows(n, (const char *)src + element_at(from, from->rank, at) * elem_bytes, a_step,
                  (char *)dst + element_at(to, from->rank, at) * elem_bytes, b_step, elem_bytes);
    } while (next_index(&rest, rest.rank, at));
}

dtp_status dtp_strided_read(int fd, const char *file, int64_t base, const dtp_strided *view,
                            int64_t elem_bytes, void *out, dtp_err *err)
{
    int64_t run = 1, at[DTP_MAX_RANK] = {0};
    int32_t k = view->rank; /* the dims from here on are contiguous */
    for (; k > 0 && (view->size[k - 1] == 1 || view->stride[k - 1] == run); k--) {
        run *= view->size[k - 1];
    }
    char *to = out;
    do {
        DTP_TRY(dtp_read_at(fd, file, base + element_at(view, k, at) * elem_bytes, to,
                            run * elem_bytes, err));
        to += run * elem_bytes;
    } while (next_index(view, k, at));
    return DTP_OK;
}
