#include "core/layout/tensor_type.h"

#include "core/base/safe_int.h"

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

bool dtp_ttype_equal(const dtp_ttype *a, const dtp_ttype *b)
{
    if (a->dtype != b->dtype || a->rank != b->rank) {
        return false;
    }
    for (int32_t i = 0; i < a->rank; i++) {
        if (a->dims[i].id != b->dims[i].id || a->dims[i].size != b->dims[i].size) {
            return false;
        }
    }
    return true;
}
