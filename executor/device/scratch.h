/* Working memory that the kernels of a backend share, since they run one after the other: as large
 * as the most that one of them needs. Like the buffers of a library it is part of no arena. */
#ifndef DTP_EXECUTOR_DEVICE_SCRATCH_H
#define DTP_EXECUTOR_DEVICE_SCRATCH_H

#include "core/base/status.h"

typedef struct dtp_scratch {
    void *data;
    size_t bytes;
} dtp_scratch;

/* At least so large, 64-byte aligned. Address and contents are lost: kernels ask when they are
 * bound and look up the address when they run. */
dtp_status dtp_scratch_reserve(dtp_scratch *scratch, size_t bytes, dtp_err *err) DTP_MUST_CHECK;
void dtp_scratch_free(dtp_scratch *scratch);

#endif
