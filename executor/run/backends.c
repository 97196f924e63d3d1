#include "dtp/device_mesh.h"

#include <string.h>

#include "executor/cpu/cpu.h"
#include "executor/ref/ref.h"

dtp_status dtp_backend_create(const char *name, int32_t threads, dtp_backend **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, name, out));
    if (strcmp(name, "cpu") == 0) {
        return dtp_backend_cpu_create(threads, out, err);
    }
    if (strcmp(name, "ref") == 0) {
        return dtp_backend_ref_create(out, err);
    }
    return DTP_FAIL(err, DTP_INVALID, "no backend '%s'; there are: cpu, ref", name);
}
