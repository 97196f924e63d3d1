/* Element types, and element type with named shape of a tensor (dtp_dtype and dtp_ttype in
 * dtp/layout.h). */
#include "core/layout/tensor_type.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/safe_int.h"

static const struct {
    const char *name;
    int64_t bytes;
    bool is_float;
} TYPES[DTP_N_DTYPES + 1] = {
    [DTP_F32] = {"f32", 4, true},    [DTP_F64] = {"f64", 8, true},  [DTP_BF16] = {"bf16", 2, true},
    [DTP_F16] = {"f16", 2, true},    [DTP_I32] = {"i32", 4, false}, [DTP_I64] = {"i64", 8, false},
    [DTP_BOOL] = {"bool", 1, false}, [DTP_F8] = {"f8", 1, true},
};

int64_t dtp_dtype_bytes(dtp_dtype dtype)
{
    return TYPES[dtype].bytes;
}

const char *dtp_dtype_name(dtp_dtype dtype)
{
    return TYPES[dtype].name;
}

bool dtp_dtype_is_float(dtp_dtype dtype)
{
    return TYPES[dtype].is_float;
}

bool dtp_dtype_is_half(dtp_dtype dtype)
{
    return dtp_dtype_is_float(dtype) && dtp_dtype_bytes(dtype) == 2;
}

bool dtp_dtype_widens(dtp_dtype from, dtp_dtype to)
{
    return dtp_dtype_is_float(from) && dtp_dtype_is_float(to) &&
           dtp_dtype_bytes(from) < dtp_dtype_bytes(to);
}

dtp_status dtp_dtype_parse(const char *name, dtp_dtype *out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, name, out));
    for (int i = 0; i < DTP_N_DTYPES; i++) {
        if (strcmp(name, TYPES[i].name) == 0) {
            *out = (dtp_dtype)i;
            return DTP_OK;
        }
    }
    return DTP_FAIL(err, DTP_INVALID, "unknown dtype '%s' (known: f32 f64 bf16 f16 i32 i64 bool)",
                    name);
}

dtp_status dtp_dtype_check(int64_t code, dtp_err *err)
{
    return code >= 0 && code < DTP_N_DTYPES
               ? DTP_OK
               : DTP_FAIL(err, DTP_INVALID,
                          "there is no element type %" PRId64
                          " (0 to %d are f32 f64 bf16 f16 i32 i64 bool)",
                          code, DTP_N_DTYPES - 1);
}

/* ---- types of tensors ---- */

int32_t dtp_ttype_find(const dtp_ttype *type, dtp_dim_id id)
{
    for (int32_t i = 0; i < type->rank; i++) {
        if (type->dims[i].id == id) {
            return i;
        }
    }
    return -1;
}

int64_t dtp_ttype_size(const dtp_ttype *type, dtp_dim_id id)
{
    const int32_t axis = dtp_ttype_find(type, id);
    return axis < 0 ? 1 : type->dims[axis].size;
}

dtp_status dtp_ttype_check_size(const dtp_ttype *type, dtp_err *err)
{
    int64_t n = dtp_dtype_bytes(type->dtype);
    for (int32_t i = 0; i < type->rank; i++) {
        if (type->dims[i].size < 0 || !dtp_mul_i64(n, type->dims[i].size, &n)) {
            return DTP_FAIL(err, DTP_RANGE,
                            "the tensor's bytes do not fit into 64 bits (dim %d is %lld)", i,
                            (long long)type->dims[i].size);
        }
    }
    return DTP_OK;
}

int64_t dtp_ttype_elems(const dtp_ttype *type)
{
    int64_t n = 1;
    for (int32_t i = 0; i < type->rank; i++) {
        n *= type->dims[i].size;
    }
    return n;
}

int64_t dtp_ttype_bytes(const dtp_ttype *type)
{
    return dtp_ttype_elems(type) * dtp_dtype_bytes(type->dtype);
}

bool dtp_ttype_same_sizes(const dtp_ttype *a, const dtp_ttype *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int32_t i = 0; i < a->rank && same; i++) {
        same = a->dims[i].size == b->dims[i].size;
    }
    return same;
}

bool dtp_ttype_equal(const dtp_ttype *a, const dtp_ttype *b)
{
    bool same = dtp_ttype_same_sizes(a, b);
    for (int32_t i = 0; i < a->rank && same; i++) {
        same = a->dims[i].id == b->dims[i].id;
    }
    return same;
}
