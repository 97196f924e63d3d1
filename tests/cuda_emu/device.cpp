/* Devices: how many, what they say about themselves, peers; control of the emulator. */
#include <cstdlib>
#include <cstdio>
#include <cstring>

#include "internal.h"

namespace emu
{

namespace
{

thread_local int current = 0;
constexpr int most_devices = 16;

uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != nullptr ? strtoull(text, nullptr, 10) : otherwise;
}

} // namespace

state &all()
{
    static state *s = [] {
        state *made = new state;
        made->random.state = (from_environment("CUDA_EMU_SEED", 0) + 1) * 0x9e3779b97f4a7c15ull | 1;
        for (uint64_t i = 0; i < from_environment("CUDA_EMU_DEVICES", 1); i++) {
            made->devices.push_back(std::make_unique<device>());
            made->devices.back()->index = static_cast<int>(i);
        }
        made->refuse = static_cast<unsigned>(from_environment("CUDA_EMU_REFUSE", 0));
        made->fault[CUDA_EMU_NO_ALGORITHM] = from_environment("CUDA_EMU_NO_ALGORITHM", 0);
        made->fault[CUDA_EMU_FAIL_LAUNCH] = from_environment("CUDA_EMU_FAIL_LAUNCH", 0);
        made->fault[CUDA_EMU_DROP_BARRIER] = from_environment("CUDA_EMU_DROP_BARRIER", 0);
        made->refuse_seed = from_environment("CUDA_EMU_REFUSE_SEED", 0);
        shuffle_fragments(made->random);
        return made;
    }();
    return *s;
}

device &device_at(int index)
{
    return *all().devices[static_cast<size_t>(index)];
}

device *current_device(cudaError_t *error)
{
    state &s = all();
    if (s.devices.empty()) {
        *error = cudaErrorNoDevice;
        return nullptr;
    }
    if (current >= static_cast<int>(s.devices.size())) {
        *error = cudaErrorInvalidDevice;
        return nullptr;
    }
    *error = device_at(current).error;
    return &device_at(current);
}

namespace
{

cudaError_t check_device(int index)
{
    size_t n = all().devices.size();
    return n == 0                                      ? cudaErrorNoDevice
           : index < 0 || index >= static_cast<int>(n) ? cudaErrorInvalidDevice
                                                       : cudaSuccess;
}

} // namespace

} // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaGetDeviceCount(int *count)
{
    guard lock(all().mutex);
    *count = static_cast<int>(all().devices.size());
    return said(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int index)
{
    guard lock(all().mutex);
    cudaError_t error = check_device(index);
    if (error == cudaSuccess) {
        current = index;
    }
    return said(error);
}

cudaError_t cudaGetDevice(int *index)
{
    guard lock(all().mutex);
    *index = current;
    return said(check_device(current));
}

cudaError_t cudaSetDeviceFlags(unsigned int)
{
    guard lock(all().mutex);
    return said(check_device(current));
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int index)
{
    guard lock(all().mutex);
    cudaError_t error = check_device(index);
    if (error != cudaSuccess) {
        return said(error);
    }
    *prop = {};
    snprintf(prop->name, sizeof prop->name, "emulated device");
    prop->uuid.bytes[15] = static_cast<char>(index);
    prop->totalGlobalMem = all().memory_bytes;
    prop->sharedMemPerBlock = 48 << 10;
    prop->sharedMemPerBlockOptin = 227 << 10;
    prop->sharedMemPerMultiprocessor = 228 << 10;
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->major = 9;
    prop->multiProcessorCount = 4;
    prop->canMapHostMemory = prop->concurrentKernels = prop->unifiedAddressing = 1;
    prop->pciBusID = index + 1;
    prop->asyncEngineCount = 2;
    prop->memoryBusWidth = 512;
    prop->l2CacheSize = 4 << 20;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->maxBlocksPerMultiProcessor = 32;
    prop->streamPrioritiesSupported = 1;
    return said(cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int index)
{
    struct cudaDeviceProp prop;
    cudaError_t error = cudaGetDeviceProperties(&prop, index);
    if (error != cudaSuccess) {
        return error;
    }
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
        *value = prop.maxThreadsPerBlock;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = static_cast<int>(prop.sharedMemPerBlock);
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = static_cast<int>(prop.sharedMemPerBlockOptin);
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = static_cast<int>(prop.sharedMemPerMultiprocessor);
        break;
    case cudaDevAttrWarpSize:
        *value = 32;
        break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
        *value = 1000000; /* kHz */
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = prop.multiProcessorCount;
        break;
    case cudaDevAttrGlobalMemoryBusWidth:
        *value = prop.memoryBusWidth;
        break;
    case cudaDevAttrL2CacheSize:
        *value = prop.l2CacheSize;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = prop.maxThreadsPerMultiProcessor;
        break;
    case cudaDevAttrAsyncEngineCount:
        *value = prop.asyncEngineCount;
        break;
    case cudaDevAttrPciBusId:
        *value = prop.pciBusID;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = prop.major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrIntegrated:
    case cudaDevAttrPageableMemoryAccess:
        *value = 0;
        break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrStreamPrioritiesSupported:
        *value = 1;
        break;
    default:
        return said(cudaErrorInvalidValue);
    }
    return said(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int len, int index)
{
    guard lock(all().mutex);
    cudaError_t error = check_device(index);
    if (error == cudaSuccess &&
        snprintf(text, static_cast<size_t>(len), "0000:%02X:00.0", index + 1) >= len) {
        error = cudaErrorInvalidValue;
    }
    return said(error);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int index, int peer)
{
    guard lock(all().mutex);
    cudaError_t error = check_device(index);
    error = error == cudaSuccess ? check_device(peer) : error;
    *can = error == cudaSuccess && index != peer;
    return said(error);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    guard lock(all().mutex);
    cudaError_t error = check_device(peer);
    device *here = current_device(&error);
    if (error == cudaSuccess && (flags != 0 || peer == here->index || check_device(peer))) {
        error = cudaErrorInvalidDevice;
    } else if (error == cudaSuccess && !here->peers.insert(peer).second) {
        error = cudaErrorPeerAccessAlreadyEnabled;
    }
    return said(error);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return said(cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = all().devices.empty() ? 0 : CUDART_VERSION;
    return said(cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return said(cudaSuccess);
}

void cuda_emu_seed(uint64_t seed)
{
    guard lock(all().mutex);
    state &s = all();
    s.random.state = (seed + 1) * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) {
        s.random.next();
    }
    s.until_redraw = 0;
    shuffle_fragments(s.random);
}

void cuda_emu_devices(int count)
{
    guard lock(all().mutex);
    state &s = all();
    int n = static_cast<int>(s.devices.size());
    for (; n < count && n < most_devices; n++) {
        s.devices.push_back(std::make_unique<device>());
        s.devices.back()->index = n;
    }
    s.devices.resize(static_cast<size_t>(count < 0 ? 0 : count < n ? count : n));
}

void cuda_emu_memory(size_t bytes)
{
    guard lock(all().mutex);
    all().memory_bytes = bytes;
}

void cuda_emu_in_order(int on)
{
    guard lock(all().mutex);
    all().in_order = on != 0;
}

void cuda_emu_launch_queue(size_t n)
{
    guard lock(all().mutex);
    all().launch_queue = n;
}

void cuda_emu_set_fault(enum cuda_emu_fault fault, uint64_t n)
{
    guard lock(all().mutex);
    all().fault[fault] = n;
    all().seen[fault] = 0;
    all().fault_by[fault] = std::this_thread::get_id();
}

void cuda_emu_refuse(unsigned kinds, uint64_t seed)
{
    guard lock(all().mutex);
    all().refuse = kinds;
    all().refuse_seed = seed;
}

struct cuda_emu_counters cuda_emu_count(void)
{
    guard lock(all().mutex);
    return all().counters;
}

const char *cuda_emu_message(void)
{
    static thread_local std::string copy;
    guard lock(all().mutex);
    copy = all().message;
    return copy.c_str();
}

void cuda_emu_quiet(int on)
{
    guard lock(all().mutex);
    all().quiet = on != 0;
}

void cuda_emu_reset(void)
{
    {
        guard lock(all().mutex);
        state &s = all();
        drop_memory();
        for (CUstream_st *stream : s.streams) {
            delete stream;
        }
        s.streams.clear();
        drop_graphs();
        drop_communicators();
        s.devices.clear();
        s.memory_bytes = size_t{8} << 30;
        s.dynamic_limit.clear();
        s.counters = {};
        memset(s.fault, 0, sizeof s.fault);
        memset(s.seen, 0, sizeof s.seen);
        s.refuse = 0;
        s.message.clear();
        s.quiet = s.in_order = false;
        s.launch_queue = 0;
    }
    cuda_emu_devices(1);
    cuda_emu_seed(1);
    current = 0;
    cudaGetLastError();
}
}
