/* Working memory that the kernels of a backend share, since they run one after the other: as
 * large as the most that one of them needs. */
#include "executor/device/scratch.h"

#include <stdint.h>
#include <stdlib.h>

enum { ALIGNMENT = 64 };

dtp_status dtp_scratch_reserve(dtp_scratch *scratch, size_t bytes, dtp_err *err)
{
    if (bytes == 0 || bytes <= scratch->bytes) {
        return DTP_OK;
    }
    if (bytes > SIZE_MAX / 2) {
        return DTP_FAIL(err, DTP_NOMEM, "out of memory for %zu bytes", bytes);
    }
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *data = aligned_alloc(ALIGNMENT, bytes);
    DTP_TRY(DTP_MEMORY(err, data));
    dtp_scratch_free(scratch);
    *scratch = (dtp_scratch){data, bytes};
    return DTP_OK;
}

void dtp_scratch_free(dtp_scratch *scratch)
{
    free(scratch->data);
    *scratch = (dtp_scratch){0};
}
