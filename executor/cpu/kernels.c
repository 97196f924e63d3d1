/* What the kernels share: attributes, dims of views, working memory. */
#include "executor/cpu/kernels.h"

#include <string.h>

#include "core/base/safe_int.h"
#include "executor/device/backend.h"

dtp_status dtp_cpu_reserve(dtp_backend *b, int64_t floats, dtp_err *err)
{
    int64_t bytes;
    if (!dtp_add_i64(floats, 15, &floats) ||
        !dtp_mul_i64(floats / 16 * 16, (int64_t)sizeof(float) * b->threads, &bytes)) {
        return DTP_FAIL(err, DTP_NOMEM, "rows too long to be widened");
    }
    return dtp_scratch_reserve(&b->scratch, (size_t)bytes, err);
}

float *dtp_cpu_scratch(const dtp_backend *b, int64_t *stride)
{
    *stride = (int64_t)b->scratch.bytes / b->threads / (int64_t)sizeof(float) / 16 * 16;
    return b->scratch.data;
}
