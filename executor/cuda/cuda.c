/* The CUDA backend: device, memory, queue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "executor/cuda/kernels.h"
#include "executor/device/host_memory.h"

#define LIST(family) dtp_cuda_##family,
static const dtp_kernel *const LISTS[] = {DTP_CUDA_FAMILIES(LIST)};

static dtp_status cuda_alloc(dtp_backend *b, size_t bytes, void **out, dtp_err *err)
{
    DTP_CUDA_TRY(err, cudaMalloc(out, bytes > 0 ? bytes : 1));
    dtp_host_count(b, (int64_t)bytes);
    return DTP_OK;
}

static void cuda_free(dtp_backend *b, void *ptr, size_t bytes)
{
    if (ptr != NULL) {
        dtp_host_count(b, -(int64_t)bytes);
        (void)cudaFree(ptr);
    }
}

static dtp_status copy_sync(dtp_backend *b, void *to, const void *from, size_t bytes,
                            enum cudaMemcpyKind kind, dtp_err *err)
{
    const cudaStream_t queue = dtp_cuda_of(b)->compute;
    if (bytes == 0) {
        return DTP_OK;
    }
    DTP_CUDA_TRY(err, cudaMemcpyAsync(to, from, bytes, kind, queue));
    DTP_CUDA_TRY(err, cudaStreamSynchronize(queue));
    return DTP_OK;
}

static dtp_status cuda_upload(dtp_backend *b, void *device, const void *host, size_t bytes,
                              dtp_err *err)
{
    return copy_sync(b, device, host, bytes, cudaMemcpyHostToDevice, err);
}

static dtp_status cuda_download(dtp_backend *b, void *host, const void *device, size_t bytes,
                                dtp_err *err)
{
    return copy_sync(b, host, device, bytes, cudaMemcpyDeviceToHost, err);
}

static const dtp_kernel *kernel(const dtp_backend *b, const char *op, int32_t i)
{
    (void)b;
    return dtp_host_kernel(LISTS, sizeof LISTS / sizeof LISTS[0], op, i);
}

static dtp_status cuda_sync(dtp_backend *b, dtp_err *err)
{
    const dtp_cuda *c = dtp_cuda_of(b);
    DTP_CUDA_TRY(err, cudaStreamSynchronize(c->copy));
    DTP_CUDA_TRY(err, cudaStreamSynchronize(c->compute));
    DTP_CUDA_TRY(err, cudaStreamSynchronize(c->comm));
    return DTP_OK;
}

static dtp_status cuda_describe(const dtp_backend *b, dtp_device_info *out, dtp_err *err)
{
    const int device = ((const dtp_cuda *)b)->device;
    struct cudaDeviceProp p;
    int driver = 0, mhz = 0, memory_mhz = 0;
    size_t free_bytes = 0, bytes = 0;
    DTP_CUDA_TRY(err, cudaGetDeviceProperties(&p, device));
    DTP_CUDA_TRY(err, cudaDriverGetVersion(&driver));
    DTP_CUDA_TRY(err, cudaDeviceGetAttribute(&mhz, cudaDevAttrClockRate, device));
    DTP_CUDA_TRY(err, cudaDeviceGetAttribute(&memory_mhz, cudaDevAttrMemoryClockRate, device));
    DTP_CUDA_TRY(err, cudaMemGetInfo(&free_bytes, &bytes));
    out->kind = "cuda";
    out->memory_bytes = (int64_t)free_bytes; /* context and libraries have taken theirs */
    (void)snprintf(out->text, sizeof out->text, "%.100s, %d MHz, memory %d MHz, driver %d.%d",
                   p.name, mhz / 1000, memory_mhz / 1000, driver / 1000, driver % 1000 / 10);
    return DTP_OK;
}

static void cuda_destroy(dtp_backend *b)
{
    dtp_cuda *c = dtp_cuda_of(b);
    if (c->blas != NULL) {
        (void)cublasLtDestroy(c->blas);
    }
    const cudaStream_t queues[] = {c->compute, c->comm, c->copy};
    for (int32_t i = 0; i < 3; i++) {
        if (queues[i] != NULL) {
            (void)cudaStreamDestroy(queues[i]);
        }
    }
    (void)cudaFree(c->blas_workspace);
    free(c);
}

static const dtp_backend_ops cuda_ops = {
    .name = "cuda",
    .alloc = cuda_alloc,
    .free = cuda_free,
    .upload = cuda_upload,
    .download = cuda_download,
    .kernel = kernel,
    .pack = dtp_cuda_pack,
    .unpack = dtp_cuda_unpack,
    .slice = dtp_cuda_slice,
    .scale = dtp_cuda_scale,
    .describe = cuda_describe,
    .why_apart = dtp_cuda_why_apart,
    .sync = cuda_sync,
    .queue = &dtp_cuda_queue,
    .destroy = cuda_destroy,
};

static dtp_status open(dtp_cuda *c, dtp_err *err)
{
    DTP_CUDA_TRY(err, cudaSetDevice(c->device));
    DTP_CUDA_TRY(err, cudaStreamCreateWithFlags(&c->compute, cudaStreamNonBlocking));
    DTP_CUDA_TRY(err, cudaStreamCreateWithFlags(&c->comm, cudaStreamNonBlocking));
    DTP_CUDA_TRY(err, cudaStreamCreateWithFlags(&c->copy, cudaStreamNonBlocking));
    return cublasLtCreate(&c->blas) == CUBLAS_STATUS_SUCCESS
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "backend cuda: cuBLASLt cannot be used on device %d",
                          c->device);
}

/* Without a driver its version is 0, and the count fails as with one that is too old. */
static dtp_status count_devices(int *n, dtp_err *err)
{
    const cudaError_t code = cudaGetDeviceCount(n);
    int driver = 0;
    if (code == cudaSuccess && *n > 0) {
        return DTP_OK;
    }
    if (code != cudaErrorNoDevice && cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED,
                        "backend cuda: there is no NVIDIA driver on this machine");
    }
    return code == cudaSuccess || code == cudaErrorNoDevice
               ? DTP_FAIL(err, DTP_UNSUPPORTED,
                          "backend cuda: there is no GPU on this machine, or "
                          "CUDA_VISIBLE_DEVICES hides it")
               : DTP_FAIL(err, DTP_UNSUPPORTED, "backend cuda: the GPUs cannot be used: %s",
                          cudaGetErrorString(code));
}

dtp_status dtp_backend_cuda_create(const dtp_device_options *options, dtp_backend **out,
                                   dtp_err *err)
{
    int n = 0;
    DTP_TRY(DTP_NOT_NULL(err, out));
    DTP_TRY(count_devices(&n, err));
    dtp_cuda *c = calloc(1, sizeof *c);
    DTP_TRY(DTP_MEMORY(err, c));
    c->base.ops = &cuda_ops;
    c->base.threads = 1;
    c->device = options->local_rank % n;
    dtp_status s = dtp_cuda_switch(c, options->switches, err);
    s = s == DTP_OK ? open(c, err) : s;
    if (s != DTP_OK) {
        cuda_destroy(&c->base);
        return s;
    }
    *out = &c->base;
    return DTP_OK;
}
