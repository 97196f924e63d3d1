/* Element types, beside what is public (dtp/layout.h). */
#ifndef DTP_CORE_BASE_DTYPE_H
#define DTP_CORE_BASE_DTYPE_H

#include "core/base/status.h"
#include "dtp/layout.h"

bool dtp_dtype_is_float(dtp_dtype dtype);
/* DTP_INVALID when the number is none of the enumeration. */
dtp_status dtp_dtype_check(int64_t code, dtp_err *err) DTP_MUST_CHECK;

#endif
