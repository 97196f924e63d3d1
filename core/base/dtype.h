/* Element types. */
#ifndef DTP_CORE_BASE_DTYPE_H
#define DTP_CORE_BASE_DTYPE_H

#include "core/base/status.h"

typedef enum dtp_dtype {
    DTP_F32,
    DTP_F64,
    DTP_BF16,
    DTP_F16,
    DTP_I32,
    DTP_I64,
    DTP_BOOL, /* one byte, 0 or 1 */
    DTP_N_DTYPES
} dtp_dtype;

/* Bytes of one element. */
int64_t dtp_dtype_bytes(dtp_dtype dtype);
/* "f32", "bf16", ... */
const char *dtp_dtype_name(dtp_dtype dtype);
bool dtp_dtype_is_float(dtp_dtype dtype);
/* DTP_INVALID when the name is none of the above. */
dtp_status dtp_dtype_parse(const char *name, dtp_dtype *out, dtp_err *err) DTP_MUST_CHECK;
/* DTP_INVALID when the number is none of the enumeration. */
dtp_status dtp_dtype_check(int64_t code, dtp_err *err) DTP_MUST_CHECK;

#endif
