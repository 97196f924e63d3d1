/* Memory. Each device owns a region of addresses that the host may touch only while operations
 * run: it is opened before the first one of a call and closed when the call returns to the host.
 * Freed memory is not used again. */
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(address, bytes) __asan_poison_memory_region(address, bytes)
#define UNPOISON(address, bytes) __asan_unpoison_memory_region(address, bytes)
#else
#define POISON(address, bytes) ((void)(address), (void)(bytes))
#define UNPOISON(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace emu
{

namespace
{

constexpr size_t region = size_t{1} << 38, zone = 256, huge = size_t{2} << 20;
constexpr unsigned char zone_byte = 0xa5;

size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* What is open lies below this. */
size_t opened(const device &d)
{
    return round_up(d.used, huge);
}

bool protect(const device &d, int protection)
{
    return d.used == 0 || mprotect(d.base, opened(d), protection) == 0;
}

const char *const kinds[] = {"device memory", "pinned host memory", "host memory"};

device *owner(const unsigned char *p)
{
    for (auto &d : all().devices) {
        if (d->base && p >= d->base && p < d->base + region) {
            return d.get();
        }
    }
    return nullptr;
}

/* The entry of `ranges` that holds p; one past its end counts. */
std::map<const unsigned char *, size_t>::const_iterator
entry_of(const std::map<const unsigned char *, size_t> &ranges, const unsigned char *p)
{
    auto next = ranges.upper_bound(p);
    if (next == ranges.begin()) {
        return ranges.end();
    }
    --next;
    return p <= next->first + next->second ? next : ranges.end();
}

void release(device &d, const unsigned char *p, size_t bytes)
{
    unsigned char *start = d.base + (p - d.base);
    UNPOISON(start, bytes);
    d.bytes -= bytes;
    all().counters.device_bytes -= bytes;
    all().counters.live_device--;
    size_t first = round_up(static_cast<size_t>(start - d.base), 4096);
    size_t last =
        static_cast<size_t>(start - d.base + static_cast<ptrdiff_t>(bytes)) & ~size_t{4095};
    if (last > first) {
        madvise(d.base + first, last - first, MADV_DONTNEED);
    }
    POISON(start, bytes);
}

} // namespace

void open_memory()
{
    for (auto &d : all().devices) {
        if (!d->open) {
            protect(*d, PROT_READ | PROT_WRITE);
            d->open = true;
        }
    }
}

void close_memory()
{
    for (auto &d : all().devices) {
        if (d->open) {
            protect(*d, PROT_NONE);
            d->open = false;
        }
    }
}

void drop_memory()
{
    for (auto &d : all().devices) {
        if (d->base) {
            UNPOISON(d->base, opened(*d));
            munmap(d->base, region);
        }
    }
    state &s = all();
    for (unsigned char *p : s.pinned_owned) {
        free(p);
    }
    s.pinned_owned.clear();
    s.pinned.clear();
}

place place_of(const void *address)
{
    const unsigned char *p = static_cast<const unsigned char *>(address);
    if (device *d = owner(p)) {
        auto found = entry_of(d->live, p);
        bool live = found != d->live.end();
        size_t left = live ? static_cast<size_t>(found->first + found->second - p) : 0;
        return {where::device, d->index, left, live};
    }
    auto found = entry_of(all().pinned, p);
    if (found != all().pinned.end() && p < found->first + found->second) {
        return {where::pinned, -1, static_cast<size_t>(found->first + found->second - p), true};
    }
    return {where::pageable, -1, 0, false};
}

cudaError_t check_device_range(const char *what, const void *address, size_t bytes, int index,
                               bool pinned_too)
{
    place p = place_of(address);
    if (bytes == 0 || (p.kind == where::pinned && pinned_too && p.bytes >= bytes)) {
        return cudaSuccess;
    }
    if (p.kind != where::device) {
        return fail(cudaErrorInvalidValue, "%s: %p is %s", what, address,
                    kinds[static_cast<int>(p.kind)]);
    }
    if (p.bytes < bytes) {
        return fail(cudaErrorInvalidValue, "%s: %zu bytes from %p on, the allocation has %zu", what,
                    bytes, address, p.bytes);
    }
    if (p.device != index && !device_at(index).peers.count(p.device)) {
        return fail(cudaErrorInvalidValue,
                    "%s: %p belongs to device %d, to which device %d has no peer access", what,
                    address, p.device, index);
    }
    return cudaSuccess;
}

/* Where user addresses of 64-bit systems lie, less the shadow of the address sanitizer. */
bool could_be_address(uintptr_t word)
{
#if defined(__SANITIZE_ADDRESS__)
    if (word >= 0x7fff8000u && word < 0x10007fff8000u) {
        return false;
    }
#endif
    return word >= uintptr_t{1} << 32 && word < uintptr_t{1} << 47;
}

bool host_mapped(uintptr_t address)
{
    unsigned char resident;
    void *page = reinterpret_cast<void *>(address & ~uintptr_t{4095});
    return mincore(page, 1, &resident) == 0;
}

namespace
{

cudaError_t allocate(device &d, void **address, size_t bytes)
{
    state &s = all();
    size_t need = round_up(bytes, zone);
    if (bytes > s.memory_bytes - d.bytes || d.used + need + 2 * zone > region ||
        fault_now(CUDA_EMU_FAIL_MALLOC)) {
        return cudaErrorMemoryAllocation;
    }
    if (!d.base) {
        void *base = mmap(nullptr, region + huge, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) {
            return cudaErrorMemoryAllocation;
        }
        uintptr_t start = reinterpret_cast<uintptr_t>(base);
        size_t head = round_up(start, huge) - start;
        d.base = static_cast<unsigned char *>(base) + head;
        if (head > 0) {
            munmap(base, head);
        }
        if (head < huge) {
            munmap(d.base + region, huge - head);
        }
        madvise(d.base, region, MADV_HUGEPAGE);
    }
    if (d.used == 0) {
        d.used = zone;
    }
    unsigned char *p = d.base + d.used;
    d.used += need + zone;
    protect(d, PROT_READ | PROT_WRITE);
    d.open = true;
    UNPOISON(p - zone, need + 2 * zone);
    memset(p - zone, zone_byte, zone);
    memset(p, 0xff, bytes);
    memset(p + bytes, zone_byte, need - bytes + zone);
    POISON(p - zone, zone);
    POISON(p + bytes, need - bytes + zone);
    d.live[p] = bytes;
    d.bytes += bytes;
    s.counters.live_device++;
    s.counters.device_bytes += bytes;
    if (s.counters.device_bytes > s.counters.device_peak) {
        s.counters.device_peak = s.counters.device_bytes;
    }
    *address = p;
    return cudaSuccess;
}

/* Only without the sanitizer, which reports such a write itself. */
bool zones_intact([[maybe_unused]] const unsigned char *p, [[maybe_unused]] size_t bytes)
{
#if !defined(__SANITIZE_ADDRESS__)
    for (size_t i = 0; i < zone; i++) {
        if (p[bytes + i] != zone_byte || *(p - zone + i) != zone_byte) {
            return false;
        }
    }
#endif
    return true;
}

} // namespace

} // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaMalloc(void **address, size_t bytes)
{
    guard lock(all().mutex);
    cudaError_t error;
    device *d = current_device(&error);
    error = error == cudaSuccess ? forbidden_in_capture("cudaMalloc") : error;
    *address = nullptr;
    if (error == cudaSuccess && bytes > 0) {
        error = allocate(*d, address, bytes);
        close_memory();
    }
    return said(error);
}

cudaError_t cudaFree(void *address)
{
    guard lock(all().mutex);
    cudaError_t error;
    current_device(&error);
    error = error == cudaErrorNoDevice ? error : forbidden_in_capture("cudaFree");
    if (error != cudaSuccess || !address) {
        return said(error);
    }
    unsigned char *p = static_cast<unsigned char *>(address);
    device *d = owner(p);
    if (!d || !d->live.count(p)) {
        return said(fail(cudaErrorInvalidValue, "cudaFree: %p is no allocation", address));
    }
    host_waits();
    run_until(lock, [d] {
        for (CUstream_st *stream : all().streams) {
            if (stream->device == d->index && !idle(*stream)) {
                return false;
            }
        }
        return true;
    });
    open_memory();
    size_t bytes = d->live[p];
    if (!zones_intact(p, bytes)) {
        fail_device(d->index, cudaErrorIllegalAddress,
                    "a write outside of the device allocation %p of %zu bytes", address, bytes);
    }
    release(*d, p, bytes);
    d->live.erase(p);
    close_memory();
    return said(d->error);
}

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned int)
{
    guard lock(all().mutex);
    cudaError_t error;
    current_device(&error);
    error = error == cudaSuccess ? forbidden_in_capture("cudaHostAlloc") : error;
    *address = nullptr;
    if (error != cudaSuccess || bytes == 0) {
        return said(error);
    }
    void *p = aligned_alloc(4096, round_up(bytes, 4096));
    if (!p) {
        return said(cudaErrorMemoryAllocation);
    }
    memset(p, 0xff, bytes);
    POISON(static_cast<unsigned char *>(p) + bytes, round_up(bytes, 4096) - bytes);
    all().pinned[static_cast<unsigned char *>(p)] = bytes;
    all().pinned_owned.insert(static_cast<unsigned char *>(p));
    all().counters.live_host++;
    *address = p;
    return said(cudaSuccess);
}

cudaError_t cudaMallocHost(void **address, size_t bytes)
{
    return cudaHostAlloc(address, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *address)
{
    guard lock(all().mutex);
    cudaError_t error = forbidden_in_capture("cudaFreeHost");
    if (error != cudaSuccess || !address) {
        return said(error);
    }
    unsigned char *p = static_cast<unsigned char *>(address);
    if (!all().pinned_owned.count(p)) {
        return said(fail(cudaErrorInvalidValue, "cudaFreeHost: %p is no allocation", address));
    }
    host_waits();
    run_until(lock, [] {
        for (CUstream_st *stream : all().streams) {
            if (!idle(*stream)) {
                return false;
            }
        }
        return true;
    });
    close_memory();
    size_t bytes = all().pinned[p];
    UNPOISON(p, round_up(bytes, 4096));
    all().pinned.erase(p);
    all().pinned_owned.erase(p);
    all().counters.live_host--;
    free(p);
    return said(cudaSuccess);
}

cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned int)
{
    guard lock(all().mutex);
    cudaError_t error;
    current_device(&error);
    if (error == cudaSuccess && place_of(address).kind != where::pageable) {
        error = cudaErrorHostMemoryAlreadyRegistered;
    } else if (error == cudaSuccess) {
        all().pinned[static_cast<unsigned char *>(address)] = bytes;
    }
    return said(error);
}

cudaError_t cudaHostUnregister(void *address)
{
    guard lock(all().mutex);
    unsigned char *p = static_cast<unsigned char *>(address);
    bool known = all().pinned.count(p) && !all().pinned_owned.count(p);
    if (known) {
        all().pinned.erase(p);
    }
    return said(known ? cudaSuccess : cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaHostGetDevicePointer(void **device_address, void *address, unsigned int)
{
    guard lock(all().mutex);
    *device_address = address;
    return said(place_of(address).kind == where::pinned ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *total)
{
    guard lock(all().mutex);
    cudaError_t error;
    device *d = current_device(&error);
    if (d) {
        *total = all().memory_bytes;
        *left = *total - d->bytes;
    }
    return said(error);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address)
{
    guard lock(all().mutex);
    place p = place_of(address);
    *attributes = {};
    attributes->device = p.kind == where::device ? p.device : -1;
    attributes->type = p.kind == where::device   ? cudaMemoryTypeDevice
                       : p.kind == where::pinned ? cudaMemoryTypeHost
                                                 : cudaMemoryTypeUnregistered;
    void *same = const_cast<void *>(address);
    attributes->devicePointer = p.kind == where::pageable ? nullptr : same;
    attributes->hostPointer = p.kind == where::device ? nullptr : same;
    return said(cudaSuccess);
}

int cuda_emu_is_device(const void *address, size_t bytes)
{
    guard lock(all().mutex);
    place p = place_of(address);
    return p.kind == where::device && p.bytes >= bytes;
}
}
