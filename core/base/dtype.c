#include "core/base/dtype.h"

#include <inttypes.h>
#include <string.h>

static const struct {
    const char *name;
    int64_t bytes;
    bool is_float;
} TYPES[DTP_N_DTYPES] = {
    [DTP_F32] = {"f32", 4, true},    [DTP_F64] = {"f64", 8, true},  [DTP_BF16] = {"bf16", 2, true},
    [DTP_F16] = {"f16", 2, true},    [DTP_I32] = {"i32", 4, false}, [DTP_I64] = {"i64", 8, false},
    [DTP_BOOL] = {"bool", 1, false},
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
