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
    DTP_CUDA_TRY(err, cudaStreamSynchronize(dtp_cuda_of(b)->compute));
    return DTP_OK;
}

static dtp_queue *cuda_queue(dtp_backend *b)
{
    return (dtp_queue *)dtp_cuda_of(b)->compute;
}

static dtp_status cuda_error_word(dtp_backend *b, dtp_error_word **out, dtp_err *err)
{
    dtp_cuda *c = dtp_cuda_of(b);
    if (c->n_errors == DTP_CUDA_ERRORS) {
        return DTP_FAIL(err, DTP_NOMEM, "backend cuda: more than %d kernels that check data",
                        DTP_CUDA_ERRORS);
    }
    *out = &c->errors[c->n_errors++];
    return DTP_OK;
}

static dtp_status cuda_record_of(dtp_backend *b, const dtp_step_record *host,
                                 const dtp_step_record **out, dtp_err *err)
{
    dtp_cuda *c = dtp_cuda_of(b);
    int32_t i = 0;
    while (i < c->n_records && c->record_hosts[i] != host) {
        i++;
    }
    if (i == DTP_CUDA_RECORDS) {
        return DTP_FAIL(err, DTP_NOMEM, "backend cuda: more than %d runners", DTP_CUDA_RECORDS);
    }
    c->n_records = i == c->n_records ? i + 1 : c->n_records;
    c->record_hosts[i] = host;
    *out = &c->records[i];
    return DTP_OK;
}

static dtp_status cuda_record_put(dtp_backend *b, const dtp_step_record *host, dtp_err *err)
{
    const dtp_step_record *device = NULL;
    DTP_TRY(cuda_record_of(b, host, &device, err));
    dtp_cuda *c = dtp_cuda_of(b);
    /* of pageable memory: read before the call returns */
    DTP_CUDA_TRY(err, cudaMemcpyAsync(c->records + (device - c->records), host, sizeof *host,
                                      cudaMemcpyHostToDevice, c->compute));
    return DTP_OK;
}

static dtp_status cuda_describe(const dtp_backend *b, dtp_device_info *out, dtp_err *err)
{
    const int device = ((const dtp_cuda *)b)->device;
    struct cudaDeviceProp p;
    int driver = 0, mhz = 0;
    size_t free_bytes = 0, bytes = 0;
    DTP_CUDA_TRY(err, cudaGetDeviceProperties(&p, device));
    DTP_CUDA_TRY(err, cudaDriverGetVersion(&driver));
    DTP_CUDA_TRY(err, cudaDeviceGetAttribute(&mhz, cudaDevAttrClockRate, device));
    DTP_CUDA_TRY(err, cudaMemGetInfo(&free_bytes, &bytes));
    out->kind = "cuda";
    out->memory_bytes = (int64_t)free_bytes; /* context and libraries have taken theirs */
    (void)snprintf(out->text, sizeof out->text, "%.100s, %d MHz, driver %d.%d", p.name, mhz / 1000,
                   driver / 1000, driver % 1000 / 10);
    return DTP_OK;
}

static void cuda_destroy(dtp_backend *b)
{
    dtp_cuda *c = dtp_cuda_of(b);
    if (c->blas != NULL) {
        (void)cublasLtDestroy(c->blas);
    }
    if (c->compute != NULL) {
        (void)cudaStreamDestroy(c->compute);
    }
    (void)cudaFree(c->records);
    (void)cudaFreeHost(c->errors);
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
    .sync = cuda_sync,
    .queue = cuda_queue,
    .error_word = cuda_error_word,
    .record_of = cuda_record_of,
    .record_put = cuda_record_put,
    .destroy = cuda_destroy,
};

static dtp_status open(dtp_cuda *c, dtp_err *err)
{
    DTP_CUDA_TRY(err, cudaSetDevice(c->device));
    DTP_CUDA_TRY(err, cudaStreamCreateWithFlags(&c->compute, cudaStreamNonBlocking));
    void *records = NULL, *errors = NULL;
    DTP_CUDA_TRY(err, cudaMalloc(&records, DTP_CUDA_RECORDS * sizeof *c->records));
    c->records = records;
    DTP_CUDA_TRY(err, cudaMallocHost(&errors, DTP_CUDA_ERRORS * sizeof *c->errors));
    c->errors = errors;
    memset(errors, 0, DTP_CUDA_ERRORS * sizeof *c->errors);
    return cublasLtCreate(&c->blas) == CUBLAS_STATUS_SUCCESS
               ? DTP_OK
               : DTP_FAIL(err, DTP_INTERNAL, "backend cuda: cuBLASLt cannot be used on device %d",
                          c->device);
}

dtp_status dtp_backend_cuda_create(int32_t device, dtp_backend **out, dtp_err *err)
{
    int n = 0;
    DTP_TRY(DTP_NOT_NULL(err, out));
    const cudaError_t found = cudaGetDeviceCount(&n);
    if (found != cudaSuccess || device < 0 || device >= n) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "backend cuda: device %d of %d: %s", device, n,
                        found != cudaSuccess ? cudaGetErrorString(found)
                                             : "there is no such device");
    }
    dtp_cuda *c = calloc(1, sizeof *c);
    DTP_TRY(DTP_MEMORY(err, c));
    c->base.ops = &cuda_ops;
    c->base.threads = 1;
    c->device = device;
    const dtp_status s = open(c, err);
    if (s != DTP_OK) {
        cuda_destroy(&c->base);
        return s;
    }
    *out = &c->base;
    return DTP_OK;
}
