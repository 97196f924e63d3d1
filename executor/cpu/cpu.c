/* The CPU backend: device memory is host memory, kernels run when called. */
#include "executor/cpu/cpu.h"

#include <stdlib.h>

#include "executor/cpu/gemm/blas.h"
#include "executor/cpu/kernels.h"
#include "executor/device/host_memory.h"

#define LIST(family) dtp_cpu_##family,
static const dtp_kernel *const LISTS[] = {DTP_CPU_FAMILIES(LIST)};

static const dtp_kernel *kernel(const dtp_backend *b, const char *op, int32_t i)
{
    (void)b;
    return dtp_host_kernel(LISTS, sizeof LISTS / sizeof LISTS[0], op, i);
}

static void say(const dtp_backend *b, const dtp_ctx *ctx)
{
    const dtp_blas *blas = dtp_blas_get();
    dtp_log(ctx, DTP_LOG_INFO, "cpu", "blas", "kernels=%s loaded=%s threads=%d", blas->corename(),
            blas->found_loaded ? "by_other_code" : "here", b->threads);
}

static const dtp_backend_ops cpu_ops = {
    .name = "cpu",
    .alloc = dtp_host_alloc,
    .free = dtp_host_free,
    .upload = dtp_host_upload,
    .download = dtp_host_download,
    .kernel = kernel,
    .pack = dtp_host_pack,
    .unpack = dtp_host_unpack,
    .slice = dtp_host_slice,
    .scale = dtp_host_scale,
    .say = say,
    .destroy = dtp_host_destroy,
};

dtp_status dtp_backend_cpu_create(int32_t threads, dtp_backend **out, dtp_err *err)
{
    DTP_TRY(DTP_NOT_NULL(err, out));
    if (threads < 1) {
        return DTP_FAIL(err, DTP_RANGE, "backend cpu: %d threads, at least 1 is needed", threads);
    }
    DTP_TRY(dtp_blas_load(err));
    dtp_backend *b = calloc(1, sizeof *b);
    DTP_TRY(DTP_MEMORY(err, b));
    b->ops = &cpu_ops;
    b->threads = threads;
    *out = b;
    return DTP_OK;
}
