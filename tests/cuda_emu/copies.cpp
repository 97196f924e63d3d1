/* Copies and fills. */
#include <cstring>

#include "internal.h"

namespace emu
{

namespace
{

struct side {
    const void *address;
    size_t pitch;
};

struct copy_work final : work {
    void *to = nullptr;
    const void *from = nullptr;
    size_t to_pitch = 0, from_pitch = 0, width = 0, height = 0;
    std::vector<unsigned char> staged; /* pageable memory is read when the call is made */
    bool start(task &) override
    {
        if (lost(*this)) {
            return true;
        }
        open_memory();
        unsigned char *d = static_cast<unsigned char *>(to);
        const unsigned char *s = static_cast<const unsigned char *>(from);
        for (size_t row = 0; row < height; row++) {
            if (staged.empty()) {
                memmove(d + row * to_pitch, s + row * from_pitch, width);
            } else {
                memcpy(d + row * to_pitch, staged.data() + row * width, width);
            }
        }
        all().counters.copies++;
        return true;
    }
};

struct fill_work final : work {
    void *to = nullptr;
    int value = 0;
    size_t bytes = 0;
    bool start(task &) override
    {
        if (!lost(*this)) {
            open_memory();
            memset(to, value, bytes);
            all().counters.copies++;
        }
        return true;
    }
};

std::shared_ptr<fill_work> make_fill(void *to, int value, size_t bytes)
{
    auto what = std::make_shared<fill_work>();
    what->name = "fill";
    what->seconds = 2e-6 + static_cast<double>(bytes) / 1e12;
    what->to = to;
    what->value = value;
    what->bytes = bytes;
    return what;
}

size_t extent(size_t pitch, size_t width, size_t height)
{
    return height == 0 || width == 0 ? 0 : pitch * (height - 1) + width;
}

/* `device_wanted`: 1 device, 0 host, -1 either. */
cudaError_t check_side(const char *name, const void *address, size_t bytes, int device_wanted)
{
    place p = place_of(address);
    bool on_device = p.kind == where::device;
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (device_wanted >= 0 && on_device != (device_wanted == 1)) {
        return fail(cudaErrorInvalidValue, "copy: the %s %p is %s memory, the kind says %s", name,
                    address, on_device ? "device" : "host", on_device ? "host" : "device");
    }
    if (p.kind != where::pageable && p.bytes < bytes) {
        return fail(cudaErrorInvalidValue,
                    "copy: the %s is %zu bytes from %p on, its allocation "
                    "has %zu",
                    name, bytes, address, p.bytes);
    }
    return cudaSuccess;
}

struct request {
    void *to;
    size_t to_pitch;
    const void *from;
    size_t from_pitch, width, height;
    cudaMemcpyKind kind;
};

cudaError_t check_copy(const request &r)
{
    static const int to_device[] = {0, 1, 0, 1, -1}, from_device[] = {0, 0, 1, 1, -1};
    if (r.kind < 0 || r.kind > cudaMemcpyDefault) {
        return cudaErrorInvalidMemcpyDirection;
    }
    if (r.height > 1 && (r.width > r.to_pitch || r.width > r.from_pitch)) {
        return cudaErrorInvalidPitchValue;
    }
    cudaError_t error =
        check_side("destination", r.to, extent(r.to_pitch, r.width, r.height), to_device[r.kind]);
    return error != cudaSuccess
               ? error
               : check_side("source", r.from, extent(r.from_pitch, r.width, r.height),
                            from_device[r.kind]);
}

std::shared_ptr<copy_work> make_copy(const request &r)
{
    auto what = std::make_shared<copy_work>();
    what->name = "copy";
    what->to = r.to;
    what->from = r.from;
    what->to_pitch = r.to_pitch;
    what->from_pitch = r.from_pitch;
    what->width = r.width;
    what->height = r.height;
    bool inside = place_of(r.to).kind == where::device && place_of(r.from).kind == where::device;
    what->seconds = 2e-6 + static_cast<double>(r.width * r.height) / (inside ? 1e12 : 25e9);
    return what;
}

cudaError_t copy_later(guard &lock, const request &r, cudaStream_t stream)
{
    cudaError_t error = check_stream(stream);
    error = error == cudaSuccess ? check_copy(r) : error;
    if (error != cudaSuccess || r.width == 0 || r.height == 0) {
        return error;
    }
    bool from_pageable = place_of(r.from).kind == where::pageable;
    bool to_pageable = place_of(r.to).kind == where::pageable;
    if (stream->capture && (from_pageable || to_pageable)) {
        invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported);
        return fail(cudaErrorStreamCaptureUnsupported, "a copy of pageable memory in a capture");
    }
    auto what = make_copy(r);
    if (from_pageable) {
        what->staged.resize(r.width * r.height);
        for (size_t row = 0; row < r.height; row++) {
            memcpy(what->staged.data() + row * r.width,
                   static_cast<const unsigned char *>(r.from) + row * r.from_pitch, r.width);
        }
    }
    error = submit(lock, stream, what);
    if (error == cudaSuccess && to_pageable) {
        host_waits();
        run_until(lock, [stream] { return idle(*stream); });
        host_saw(stream->clock_s);
        error = device_at(stream->device).error;
    }
    return error;
}

} // namespace

} // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    guard lock(all().mutex);
    cudaError_t error;
    device *d = current_device(&error);
    request r = {to, bytes, from, bytes, bytes, 1, kind};
    error = error == cudaSuccess ? forbidden_in_capture("cudaMemcpy") : error;
    error = error == cudaSuccess ? check_copy(r) : error;
    if (error != cudaSuccess || bytes == 0) {
        return said(error);
    }
    host_waits();
    if (d->legacy) {
        run_until(lock, [d] { return idle(*d->legacy); });
    }
    auto what = make_copy(r);
    what->device = d->index;
    task unused;
    what->start(unused);
    host_saw(host_clock() + what->seconds);
    close_memory();
    return said(cudaSuccess);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    guard lock(all().mutex);
    return said(copy_later(lock, {to, bytes, from, bytes, bytes, 1, kind}, stream));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    guard lock(all().mutex);
    return said(copy_later(lock, {to, to_pitch, from, from_pitch, width, height, kind}, stream));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    guard lock(all().mutex);
    place d = place_of(to), s = place_of(from);
    if (bytes > 0 && (d.kind != where::device || d.device != to_device || s.kind != where::device ||
                      s.device != from_device)) {
        return said(
            fail(cudaErrorInvalidValue, "peer copy: %p or %p is not of its device", to, from));
    }
    return said(
        copy_later(lock, {to, bytes, from, bytes, bytes, 1, cudaMemcpyDeviceToDevice}, stream));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    guard lock(all().mutex);
    cudaError_t error = check_stream(stream);
    error = error == cudaSuccess
                ? check_device_range("cudaMemsetAsync", to, bytes, stream->device, true)
                : error;
    if (error != cudaSuccess || bytes == 0) {
        return said(error);
    }
    return said(submit(lock, stream, make_fill(to, value, bytes)));
}

/* The host waits for a fill of its own memory alone. */
cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    guard lock(all().mutex);
    cudaError_t error;
    device *d = current_device(&error);
    error = error == cudaSuccess ? forbidden_in_capture("cudaMemset") : error;
    error =
        error == cudaSuccess ? check_device_range("cudaMemset", to, bytes, d->index, true) : error;
    if (error != cudaSuccess || bytes == 0) {
        return said(error);
    }
    CUstream_st &stream = legacy_stream(*d);
    error = submit(lock, &stream, make_fill(to, value, bytes));
    if (error == cudaSuccess && place_of(to).kind == where::pinned) {
        host_waits();
        run_until(lock, [&stream] { return idle(stream); });
    }
    return said(error);
}
}
