/* The reference backend: host memory, one thread, kernels from the lists of executor/ref/kernels.h.
 */
#include "executor/ref/ref.h"

#include <stdlib.h>

#include "executor/device/host_memory.h"
#include "executor/ref/kernels.h"

#define LIST(family) dtp_ref__##family,
static const dtp_kernel *const LISTS[] = {DTP_REF_FAMILIES(LIST)};

static const dtp_kernel *kernel(const dtp_backend *b, const char *op, int32_t i)
{
    (void)b;
    return dtp_host_kernel(LISTS, sizeof LISTS / sizeof LISTS[0], op, i);
}

static void destroy(dtp_backend *b)
{
    free(b);
}

static const dtp_backend_ops REF_OPS = {.name = "ref",
                                        .alloc = dtp_host_alloc,
                                        .free = dtp_host_free,
                                        .upload = dtp_host_upload,
                                        .download = dtp_host_download,
                                        .kernel = kernel,
                                        .pack = dtp_host_pack,
                                        .unpack = dtp_host_unpack,
                                        .slice = dtp_host_slice,
                                        .scale = dtp_host_scale,
                                        .destroy = destroy};

dtp_status dtp_backend_ref_create(dtp_backend **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    dtp_backend *b = calloc(1, sizeof *b);
    DTP_TRY(DTP_MEMORY(err, b));
    b->ops = &REF_OPS;
    b->threads = 1;
    *out = b;
    return DTP_OK;
}
