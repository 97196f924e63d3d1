/* Kernel launches. */
#include <cstring>

#include "cuda_runtime.h"
#include "internal.h"

namespace emu
{

namespace
{

constexpr size_t default_dynamic = 48 << 10, most_dynamic = 227 << 10;

struct kernel_work final : work {
    const void *kernel = nullptr;
    cuda_emu_call *call = nullptr;
    dim3 grid, block;
    size_t dynamic_bytes = 0;
    bool broken = false;
    ~kernel_work() override
    {
        call->~cuda_emu_call();
        ::operator delete(call);
    }
    bool start(task &) override
    {
        if (lost(*this)) {
            return true;
        }
        open_memory();
        all().counters.kernels++;
        std::string error = broken ? "injected fault"
                                   : run_grid(call, grid, block, dynamic_bytes,
                                              all().dynamic_limit.count(kernel) > 0, all().random);
        if (!error.empty()) {
            fail_device(device, cudaErrorLaunchFailure, "kernel %s: %s", symbol_of(kernel).c_str(),
                        error.c_str());
        }
        return true;
    }
};

bool fits(const cudaLaunchConfig_t &config)
{
    const dim3 &g = config.gridDim, &b = config.blockDim;
    return g.x > 0 && g.y > 0 && g.z > 0 && g.x <= 2147483647u && g.y <= 65535u && g.z <= 65535u &&
           static_cast<uint64_t>(g.x) * g.y * g.z <= UINT32_MAX && b.x > 0 && b.y > 0 && b.z > 0 &&
           b.x <= 1024 && b.y <= 1024 && b.z <= 64 &&
           static_cast<uint64_t>(b.x) * b.y * b.z <= 1024;
}

size_t dynamic_limit(const void *kernel)
{
    auto found = all().dynamic_limit.find(kernel);
    return found == all().dynamic_limit.end() ? default_dynamic
                                              : static_cast<size_t>(found->second);
}

/* A word that is an address must be one of device memory or of pinned memory. */
cudaError_t check_word(const void *kernel, uintptr_t word, int index)
{
    /* a small number beside padding, which holds what was there before */
    const bool padded = static_cast<uint32_t>(word) < 65536;
    if (padded || !could_be_address(word)) {
        return cudaSuccess;
    }
    const void *address = reinterpret_cast<const void *>(word);
    place p = place_of(address);
    if (p.kind == where::device && !p.live) {
        return fail(cudaErrorIllegalAddress,
                    "kernel %s: the arguments hold %p, freed device memory or none",
                    symbol_of(kernel).c_str(), address);
    }
    if (p.kind == where::device && p.device != index && !device_at(index).peers.count(p.device)) {
        return fail(cudaErrorIllegalAddress,
                    "kernel %s: the arguments hold %p of device %d, device %d has no peer access",
                    symbol_of(kernel).c_str(), address, p.device, index);
    }
    if (p.kind == where::pageable && host_mapped(word)) {
        return fail(cudaErrorIllegalAddress, "kernel %s: the arguments hold the host address %p",
                    symbol_of(kernel).c_str(), address);
    }
    return cudaSuccess;
}

cudaError_t check_words(const void *kernel, const cuda_emu_span *spans, size_t n, int index)
{
    for (size_t k = 0; k < n; k++) {
        for (size_t i = 0; i + 8 <= spans[k].bytes; i += 8) {
            uintptr_t word;
            memcpy(&word, static_cast<const unsigned char *>(spans[k].address) + i, 8);
            cudaError_t error = check_word(kernel, word, index);
            if (error != cudaSuccess) {
                return error;
            }
        }
    }
    return cudaSuccess;
}

cudaError_t check_launch(const cudaLaunchConfig_t &config, const void *kernel,
                         const cuda_emu_span *spans, size_t n)
{
    cudaError_t error = check_stream(config.stream);
    device *d = error == cudaSuccess ? current_device(&error) : nullptr;
    if (error != cudaSuccess) {
        return error;
    }
    if (config.stream->device != d->index) {
        return fail(cudaErrorInvalidResourceHandle,
                    "kernel %s: a stream of device %d, the current device is %d",
                    symbol_of(kernel).c_str(), config.stream->device, d->index);
    }
    if (!fits(config)) {
        const dim3 &g = config.gridDim, &b = config.blockDim;
        return fail(cudaErrorInvalidConfiguration,
                    "kernel %s: grid (%u, %u, %u), block (%u, %u, %u)", symbol_of(kernel).c_str(),
                    g.x, g.y, g.z, b.x, b.y, b.z);
    }
    if (config.dynamicSmemBytes > dynamic_limit(kernel)) {
        return fail(cudaErrorInvalidValue,
                    "kernel %s: %zu bytes of dynamic shared memory, limit %zu",
                    symbol_of(kernel).c_str(), config.dynamicSmemBytes, dynamic_limit(kernel));
    }
    return check_words(kernel, spans, n, d->index);
}

} // namespace

} // namespace emu

using namespace emu;

void *cuda_emu_call_storage(size_t bytes)
{
    return memset(::operator new(bytes), 0, bytes);
}

cudaError_t cuda_emu_launch(const cudaLaunchConfig_t *config, const void *kernel,
                            cuda_emu_call *call, const cuda_emu_span *spans, size_t n)
{
    guard lock(all().mutex);
    auto what = std::make_shared<kernel_work>();
    what->name = "kernel";
    what->call = call;
    what->kernel = kernel;
    cudaError_t error = check_launch(*config, kernel, spans, n);
    if (error != cudaSuccess) {
        return said(error);
    }
    what->grid = config->gridDim;
    what->block = config->blockDim;
    what->dynamic_bytes = config->dynamicSmemBytes;
    double threads = static_cast<double>(config->gridDim.x) * config->gridDim.y *
                     config->gridDim.z * config->blockDim.x * config->blockDim.y *
                     config->blockDim.z;
    what->launch_seconds = 2e-6;
    what->seconds = 1e-6 + threads * 1e-11;
    what->broken = fault_now(CUDA_EMU_FAIL_LAUNCH);
    all().counters.launches++;
    return said(submit(lock, config->stream, what));
}

extern "C" {

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attr, int value)
{
    guard lock(all().mutex);
    cudaError_t error;
    current_device(&error);
    if (error == cudaSuccess && attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || static_cast<size_t>(value) > most_dynamic) {
            error = cudaErrorInvalidValue;
        } else {
            all().dynamic_limit[kernel] = value;
        }
    }
    return said(error);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *kernel)
{
    guard lock(all().mutex);
    cudaError_t error;
    current_device(&error);
    *attr = {};
    attr->maxThreadsPerBlock = 1024;
    attr->numRegs = 32;
    attr->ptxVersion = attr->binaryVersion = 90;
    attr->maxDynamicSharedSizeBytes = static_cast<int>(dynamic_limit(kernel));
    return said(error);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int block_size,
                                                          size_t dynamic_bytes)
{
    size_t by_threads = 2048 / static_cast<size_t>(block_size > 0 ? block_size : 1);
    size_t by_memory = dynamic_bytes > 0 ? (228 << 10) / (dynamic_bytes + 1024) : 32;
    size_t least = by_threads < by_memory ? by_threads : by_memory;
    *blocks = static_cast<int>(least < 32 ? least : 32);
    return said(cudaSuccess);
}
}
