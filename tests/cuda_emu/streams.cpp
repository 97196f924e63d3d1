/* Streams, events and the scheduler. Work waits in the FIFO of its stream. At calls that wait, and
 * now and then at calls that issue work, the scheduler draws one of the heads that can run. The
 * weights of the streams lie powers of 8 apart and are drawn anew now and then: most of the time
 * one stream runs as early and another as late as the events allow. */
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "internal.h"

namespace emu
{

namespace
{

void redraw(state &s)
{
    static const unsigned eagerness[] = {0, 0, 0, 0, 16, 256};
    if (s.until_redraw-- > 0) {
        return;
    }
    s.until_redraw = 20 + s.random.below(200);
    s.eager = eagerness[s.random.below(6)];
    for (CUstream_st *stream : s.streams) {
        stream->weight = 1u << 3 * s.random.below(8);
    }
}

uint32_t weight_of(const task &t)
{
    return t.graph ? 64 : t.stream->weight;
}

void sweep(state &s)
{
    auto dead = [](CUstream_st *stream) {
        bool gone = stream->dying && stream->queue.empty();
        if (gone) {
            delete stream;
        }
        return gone;
    };
    s.streams.erase(std::remove_if(s.streams.begin(), s.streams.end(), dead), s.streams.end());
}

struct record_work final : work {
    std::shared_ptr<event_record> record;
    void issued(task &t) override
    {
        record->by = &t;
    }
    bool start(task &t) override
    {
        record->done = true;
        record->by = nullptr;
        record->time_s = t.begin_s;
        return true;
    }
};

struct wait_work final : work {
    std::shared_ptr<event_record> record;
    bool ready(task &) override
    {
        return record->done;
    }
    bool start(task &t) override
    {
        t.begin_s = std::max(t.begin_s, record->time_s);
        return true;
    }
};

struct host_work final : work {
    cudaHostFn_t function = nullptr;
    void *data = nullptr;
    bool start(task &t) override
    {
        /* Such a function may wait for other host threads: it gets a thread of its own. */
        task *running = &t;
        std::thread([this, running] {
            function(data);
            guard lock(all().mutex);
            finish(*running, running->begin_s + seconds);
        }).detach();
        return false;
    }
};

void describe_heads()
{
    for (CUstream_st *stream : all().streams) {
        if (!stream->queue.empty()) {
            fprintf(stderr, "cuda_emu: stream %p of device %d: %zu waiting, first %s\n",
                    static_cast<void *>(stream), stream->device, stream->queue.size(),
                    stream->queue.front()->what->name);
        }
    }
}

} // namespace

void blockers_of(task &t, std::vector<task *> &found)
{
    if (t.graph) {
        graph_blockers_of(t, found);
    } else if (&t != t.stream->queue.front().get()) {
        found.push_back(t.stream->queue.front().get());
    } else if (wait_work *waits = dynamic_cast<wait_work *>(t.what.get())) {
        if (!waits->record->done) {
            found.push_back(waits->record->by);
        }
    } else if (t.started) {
        launched_tasks(t, found);
    }
}

bool idle(const CUstream_st &stream)
{
    return stream.queue.empty();
}

CUstream_st &legacy_stream(device &d)
{
    if (!d.legacy) {
        d.legacy = new CUstream_st;
        d.legacy->device = d.index;
        all().streams.push_back(d.legacy);
        all().until_redraw = 0;
    }
    return *d.legacy;
}

bool lost(const work &what)
{
    return device_at(what.device).error != cudaSuccess;
}

void host_waits()
{
    all().counters.host_syncs++;
}

void host_saw(double time_s)
{
    host_clock() = std::max(host_clock(), time_s);
}

void finish(task &t, double end_s)
{
    if (t.graph) {
        graph_task_done(t, end_s);
    } else {
        CUstream_st *stream = t.stream;
        stream->clock_s = end_s;
        stream->queue.pop_front();
    }
    all().changed.notify_all();
}

bool step(guard &)
{
    state &s = all();
    std::vector<task *> candidates;
    uint32_t total = 0;
    for (CUstream_st *stream : s.streams) {
        if (!stream->queue.empty()) {
            task &head = *stream->queue.front();
            if (!head.started && head.what->ready(head)) {
                candidates.push_back(&head);
            }
        }
    }
    add_ready(candidates);
    if (candidates.empty()) {
        sweep(s);
        return false;
    }
    for (task *t : candidates) {
        total += weight_of(*t);
    }
    task *chosen = nullptr;
    uint32_t left = s.random.below(total);
    for (task *t : candidates) {
        if (left < weight_of(*t)) {
            chosen = t;
            break;
        }
        left -= weight_of(*t);
    }
    chosen->started = true;
    if (!chosen->graph) {
        chosen->begin_s = std::max(chosen->begin_s, chosen->stream->clock_s);
    }
    std::shared_ptr<work> what = chosen->what;
    if (what->start(*chosen)) {
        const double launch_s = chosen->graph ? 0 : what->launch_seconds;
        finish(*chosen, chosen->begin_s + launch_s + what->seconds);
    }
    sweep(s);
    return true;
}

void run_until(guard &lock, const std::function<bool()> &done)
{
    bool described = false;
    while (!done()) {
        if (step(lock)) {
            continue;
        }
        close_memory();
        find_deadlock();
        std::cv_status status = all().changed.wait_for(lock, std::chrono::seconds(20));
        if (status == std::cv_status::timeout && !described) {
            described = true;
            fprintf(stderr, "cuda_emu: a call waits for 20 s:\n");
            describe_heads();
        }
    }
    close_memory();
}

cudaError_t check_stream(cudaStream_t stream)
{
    state &s = all();
    if (s.devices.empty()) {
        return cudaErrorNoDevice;
    }
    if (std::find(s.streams.begin(), s.streams.end(), stream) == s.streams.end() || stream->dying) {
        return fail(cudaErrorInvalidResourceHandle, "%s",
                    stream ? "a stream that does not exist" : "the default stream is not used");
    }
    return device_at(stream->device).error;
}

cudaError_t submit(guard &lock, cudaStream_t stream, std::shared_ptr<work> what)
{
    state &s = all();
    what->device = stream->device;
    if (stream->capture) {
        return capture_work(*stream, std::move(what));
    }
    if (s.launch_queue > 0 && stream->queue.size() >= s.launch_queue) {
        run_until(lock, [&s, stream] { return stream->queue.size() < s.launch_queue; });
    }
    host_clock() += 1e-6;
    std::unique_ptr<task> t(new task);
    t->what = std::move(what);
    t->stream = stream;
    t->begin_s = host_clock();
    stream->queue.push_back(std::move(t));
    task &queued = *stream->queue.back();
    queued.what->issued(queued);
    redraw(s);
    if (s.in_order) {
        while (!stream->queue.empty() && !stream->queue.front()->started && step(lock)) {
        }
    } else if (s.random.below(256) < s.eager) {
        for (uint32_t n = 1 + s.random.below(8); n > 0 && step(lock); n--) {
        }
    }
    s.changed.notify_all();
    return cudaSuccess;
}

} // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    guard lock(all().mutex);
    cudaError_t error;
    device *d = current_device(&error);
    if (error != cudaSuccess) {
        return said(error);
    }
    if (flags != cudaStreamNonBlocking) {
        return said(fail(cudaErrorInvalidValue, "streams are to be non-blocking"));
    }
    *stream = new CUstream_st;
    (*stream)->device = d->index;
    (*stream)->priority = priority;
    all().streams.push_back(*stream);
    all().counters.live_objects++;
    all().until_redraw = 0;
    return said(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    guard lock(all().mutex);
    cudaError_t error = check_stream(stream);
    if (error != cudaErrorInvalidResourceHandle && error != cudaErrorNoDevice) {
        if (stream->capture) {
            invalidate(*stream->capture, cudaErrorStreamCaptureInvalidated);
        }
        stream->dying = true;
        all().counters.live_objects--;
        sweep(all());
        error = cudaSuccess;
    }
    return said(error);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    guard lock(all().mutex);
    cudaError_t error = check_stream(stream);
    error = error == cudaSuccess ? forbidden_in_capture("cudaStreamSynchronize") : error;
    if (error == cudaSuccess && stream->capture) {
        invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported);
        error = cudaErrorStreamCaptureUnsupported;
    }
    if (error != cudaSuccess) {
        return said(error);
    }
    host_waits();
    int index = stream->device;
    run_until(lock, [stream] { return idle(*stream); });
    host_saw(stream->clock_s);
    return said(device_at(index).error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    guard lock(all().mutex);
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess && stream->capture) {
        invalidate(*stream->capture, cudaErrorStreamCaptureUnsupported);
        error = cudaErrorStreamCaptureUnsupported;
    }
    if (error != cudaSuccess) {
        return said(error);
    }
    for (uint32_t n = 1 + all().random.below(8); n > 0 && !idle(*stream) && step(lock); n--) {
    }
    close_memory();
    error = device_at(stream->device).error;
    return said(error != cudaSuccess ? error : idle(*stream) ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize(void)
{
    guard lock(all().mutex);
    cudaError_t error;
    device *d = current_device(&error);
    error = error == cudaSuccess ? forbidden_in_capture("cudaDeviceSynchronize") : error;
    if (error != cudaSuccess) {
        return said(error);
    }
    host_waits();
    run_until(lock, [d] {
        return std::all_of(all().streams.begin(), all().streams.end(), [d](CUstream_st *stream) {
            return stream->device != d->index || idle(*stream);
        });
    });
    for (CUstream_st *stream : all().streams) {
        if (stream->device == d->index) {
            host_saw(stream->clock_s);
        }
    }
    return said(d->error);
}

cudaError_t cudaDeviceReset(void)
{
    return cudaDeviceSynchronize();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    guard lock(all().mutex);
    cudaError_t error;
    device *d = current_device(&error);
    if (error == cudaSuccess) {
        *event = new CUevent_st;
        (*event)->flags = flags;
        (*event)->device = d->index;
        all().counters.live_objects++;
    }
    return said(error);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    guard lock(all().mutex);
    if (!event) {
        return said(cudaErrorInvalidResourceHandle);
    }
    delete event;
    all().counters.live_objects--;
    return said(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    guard lock(all().mutex);
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess && stream->device != event->device) {
        error = fail(cudaErrorInvalidResourceHandle, "an event of device %d on a stream of %d",
                     event->device, stream->device);
    }
    if (error != cudaSuccess || capture_record(*stream, *event, &error)) {
        return said(error);
    }
    auto what = std::make_shared<record_work>();
    what->name = "event record";
    what->record = std::make_shared<event_record>();
    event->record = what->record;
    event->capture = nullptr;
    return said(submit(lock, stream, what));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
    guard lock(all().mutex);
    cudaError_t error = check_stream(stream);
    if (error != cudaSuccess) {
        return said(error);
    }
    all().counters.event_waits++;
    if (fault_now(CUDA_EMU_DROP_WAIT) || capture_wait(*stream, *event, &error) || !event->record) {
        return said(error);
    }
    auto what = std::make_shared<wait_work>();
    what->name = "event wait";
    what->record = event->record;
    return said(submit(lock, stream, what));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    guard lock(all().mutex);
    cudaError_t error = forbidden_in_capture("cudaEventQuery");
    if (error != cudaSuccess || event->capture) {
        return said(error != cudaSuccess ? error : cudaErrorCapturedEvent);
    }
    auto record = event->record;
    for (uint32_t n = 1 + all().random.below(8); n > 0 && record && !record->done && step(lock);
         n--) {
    }
    close_memory();
    error = device_at(event->device).error;
    return said(error != cudaSuccess      ? error
                : !record || record->done ? cudaSuccess
                                          : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    guard lock(all().mutex);
    cudaError_t error = forbidden_in_capture("cudaEventSynchronize");
    if (error != cudaSuccess || event->capture) {
        return said(error != cudaSuccess ? error : cudaErrorCapturedEvent);
    }
    host_waits();
    int index = event->device;
    if (auto record = event->record) {
        run_until(lock, [record] { return record->done; });
        host_saw(record->time_s);
    }
    return said(device_at(index).error);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    guard lock(all().mutex);
    if (!start->record || !end->record || (start->flags | end->flags) & cudaEventDisableTiming) {
        return said(cudaErrorInvalidResourceHandle);
    }
    if (!start->record->done || !end->record->done) {
        return said(cudaErrorNotReady);
    }
    *ms = static_cast<float>((end->record->time_s - start->record->time_s) * 1e3);
    return said(cudaSuccess);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    guard lock(all().mutex);
    cudaError_t error = check_stream(stream);
    if (error != cudaSuccess) {
        return said(error);
    }
    auto what = std::make_shared<host_work>();
    what->name = "host function";
    what->seconds = 5e-6;
    what->function = function;
    what->data = data;
    return said(submit(lock, stream, what));
}
}
