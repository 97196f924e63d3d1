/* Elements of a tensor in the storage that a .pt2 file has: a part of it, in any order. */
#include "importers/aten/aten_storage.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/safe_int.h"

enum { MOST_MORE = 1 << 26 };

/* {"as_int": 12} */
static dtp_status count_of(const dtp_foreign_doc *doc, const dtp_foreign *v, int64_t *out,
                           dtp_err *err)
{
    DTP_TRY(dtp_foreign_require(doc, v, "as_int", DTP_FOREIGN_NUMBER, &v, err));
    return dtp_foreign_int(doc, v, 0, INT64_C(1) << 53, out, err);
}

/* Strides of a tensor that is part of a storage, and its first element; *rows: row by row. */
static dtp_status read_place(const dtp_foreign_doc *doc, const dtp_foreign *meta,
                             const dtp_aten_value *v, int64_t *strides, int64_t *first, bool *rows,
                             dtp_err *err)
{
    const dtp_foreign *s = dtp_foreign_first(dtp_foreign_get(meta, "strides"));
    const dtp_foreign *offset = dtp_foreign_get(meta, "storage_offset");
    int64_t at;
    for (int32_t i = 0; i < v->rank && s != NULL; i++, s = dtp_foreign_next(s)) {
        DTP_TRY(count_of(doc, s, &at, err));
        *rows = *rows && (at == strides[i] || v->sizes[i] < 2);
        strides[i] = at;
    }
    return offset == NULL ? DTP_OK : count_of(doc, offset, first, err);
}

/* Elements that lie in another order, row by row. */
static dtp_status by_rows(dtp_arena *arena, dtp_aten_value *v, int64_t size, const int64_t *strides,
                          dtp_err *err)
{
    int64_t index[DTP_MAX_RANK] = {0};
    char *data = dtp_arena_alloc(arena, (size_t)v->bytes, 1);
    DTP_TRY(DTP_MEMORY(err, data));
    for (int64_t n = 0; n < v->bytes; n += size) {
        int64_t at = 0;
        for (int32_t i = 0; i < v->rank; i++) {
            at += index[i] * strides[i];
        }
        memcpy(data + n, v->data + at * size, (size_t)size);
        for (int32_t i = v->rank; i-- > 0 && ++index[i] == v->sizes[i];) {
            index[i] = 0;
        }
    }
    v->data = data;
    return DTP_OK;
}

dtp_status dtp_aten_storage(const dtp_foreign_doc *doc, const dtp_foreign *config, const char *data,
                            int64_t has, dtp_arena *arena, dtp_aten_value *v, dtp_err *err)
{
    const dtp_foreign *meta = dtp_foreign_get(config, "tensor_meta");
    int64_t strides[DTP_MAX_RANK] = {0}, first = 0, last = 0;
    const int64_t size = dtp_aten_bytes(v->dtype);
    int64_t bytes = size;
    bool rows = true;
    for (int32_t i = v->rank; i-- > 0; bytes *= v->sizes[i]) { /* bounded by read_value */
        strides[i] = size > 0 ? bytes / size : 0;
    }
    if (has == 0 && bytes > 0) {
        return DTP_OK;
    }
    DTP_TRY(read_place(doc, meta, v, strides, &first, &rows, err));
    for (int32_t i = 0; i < v->rank && bytes > 0; i++) { /* each is at most 2^53 / 2^56 */
        int64_t by;
        if (!dtp_mul_i64(strides[i], v->sizes[i] - 1, &by) || !dtp_add_i64(last, by, &last)) {
            return dtp_foreign_fail(doc, meta, err, "too many elements");
        }
    }
    if (bytes == 0 || last > has / size - 1 - first) {
        return dtp_foreign_fail(doc, config, err,
                                "%" PRId64 " bytes, but %" PRId64 " elements of %" PRId64
                                " from element %" PRId64 " on",
                                has, bytes == 0 ? 0 : last + 1, size, first);
    }
    if (bytes > has + MOST_MORE) { /* elements that are several of the tensor */
        return dtp_foreign_fail(doc, config, err, "%" PRId64 " bytes for %" PRId64, has, bytes);
    }
    v->data = data + first * size;
    v->bytes = bytes;
    return rows ? DTP_OK : by_rows(arena, v, size, strides, err);
}
