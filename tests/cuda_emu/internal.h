/* The parts of the emulated device. One lock covers all state; operations run under it, on
 * whatever host thread waits, so exactly one kernel runs at a time. */
#ifndef CUDA_EMU_INTERNAL_H
#define CUDA_EMU_INTERNAL_H

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda_emu.h"
#include "cuda_runtime_api.h"

namespace emu
{

/* xorshift64*: every choice of the emulator. */
struct random_source {
    uint64_t state = 1;
    uint64_t next()
    {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return state * 0x2545f4914f6cdd1dull;
    }
    /* 0 .. n-1 */
    uint32_t below(uint32_t n)
    {
        return static_cast<uint32_t>((next() >> 32) * n >> 32);
    }
};

/* What a stream or a graph executes; a graph runs it many times. */
struct work {
    const char *name = "";
    double seconds = 0;
    double launch_seconds = 0; /* more where it is not part of a graph */
    int device = 0;
    virtual ~work() = default;
    /* The host has issued it, in the order of the calls; for a graph at its launch. */
    virtual void issued(struct task &)
    {
    }
    virtual bool ready(struct task &)
    {
        return true;
    }
    /* True: done at t.begin_s + seconds. False: somebody calls finish() later. */
    virtual bool start(struct task &t) = 0;
};

struct graph_run;

/* One execution of a work in a stream (graph == NULL) or in a launched graph. */
struct task {
    std::shared_ptr<work> what;
    CUstream_st *stream = nullptr;
    graph_run *graph = nullptr;
    size_t index = 0; /* in the graph */
    bool started = false;
    double begin_s =
        0; /* on the modelled clock: when the host issued it and its predecessors ended */
    std::shared_ptr<void> extra; /* of the kind of work */
};

struct event_record {
    bool done = false;
    task *by = nullptr;
    double time_s = 0;
};

struct capture;

struct device {
    int index = 0;
    unsigned char *base = nullptr;
    size_t used = 0; /* bytes of the region that were ever allocated */
    bool open = false;
    cudaError_t error = cudaSuccess;
    size_t bytes = 0;
    std::map<const unsigned char *, size_t> live;
    std::set<int> peers;
    CUstream_st *legacy = nullptr; /* of calls that name no stream; NULL: none yet */
};

struct state {
    std::mutex mutex;
    std::condition_variable changed;
    random_source random;
    std::vector<std::unique_ptr<device>> devices;
    size_t memory_bytes = size_t{8} << 30;
    std::map<const unsigned char *, size_t> pinned;
    std::set<unsigned char *> pinned_owned;
    std::vector<CUstream_st *> streams;
    std::vector<graph_run *> runs;
    std::vector<std::shared_ptr<capture>> captures;
    std::map<const void *, int> dynamic_limit;
    cuda_emu_counters counters = {};
    uint64_t fault[CUDA_EMU_FAULTS] = {}, seen[CUDA_EMU_FAULTS] = {};
    std::thread::id fault_by[CUDA_EMU_FAULTS];
    unsigned refuse = 0; /* a set of cuda_emu_refusal */
    uint64_t refuse_seed = 0;
    std::string message;
    bool quiet = false, in_order = false;
    size_t launch_queue = 0; /* operations that a stream holds; 0: any number */
    unsigned eager = 64; /* of 256: how often a call runs work at once; drawn anew now and then */
    unsigned until_redraw = 0;
};

typedef std::unique_lock<std::mutex> guard;

state &all();
device &device_at(int index);

/* faults.cpp */
cudaError_t fail(cudaError_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The device is lost as after an illegal access. */
void fail_device(int device, cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool fault_now(cuda_emu_fault fault);
std::string symbol_of(const void *function);
/* Records the last error of the thread. */
cudaError_t said(cudaError_t error);
double &host_clock();

/* device.cpp */
/* The device of the calling thread, or NULL with an error when there is none. */
device *current_device(cudaError_t *error);

/* memory.cpp */
enum class where { device, pinned, pageable };
struct place {
    where kind;
    int device;
    size_t bytes; /* from the address to the end of its allocation */
    bool live;    /* in an allocation, or at its end */
};
place place_of(const void *address);
/* Whether [address, address + bytes) may be used by a kernel or a library on `device`. */
cudaError_t check_device_range(const char *what, const void *address, size_t bytes, int device,
                               bool pinned_too);
void open_memory();
void close_memory();
void drop_memory();
bool could_be_address(uintptr_t word);
bool host_mapped(uintptr_t address);

/* fibers.cpp: one kernel over all its blocks; an error text or "". */
std::string run_grid(struct cuda_emu_call *call, dim3 grid, dim3 block, size_t dynamic_bytes,
                     bool raised, random_source &random);
void shuffle_fragments(random_source &random);

/* streams.cpp */
/* Refuses the default stream and streams that are not live. */
cudaError_t check_stream(cudaStream_t stream);
/* Enqueues or captures. */
cudaError_t submit(guard &lock, cudaStream_t stream, std::shared_ptr<work> what);
/* Runs work until `done`; waits for other host threads when nothing can run. */
void run_until(guard &lock, const std::function<bool()> &done);
bool step(guard &lock);
void finish(task &t, double end_s);
/* Counts a call in which the host waits. */
void host_waits();
/* The host has seen the end of work at this time. */
void host_saw(double time_s);
bool idle(const CUstream_st &stream);
/* The legacy default stream, for which non-blocking streams do not wait, nor it for them. */
CUstream_st &legacy_stream(device &d);
/* Tasks issued before that keep `t` from starting, or a graph's launch from ending. */
void blockers_of(task &t, std::vector<task *> &found);

/* launch.cpp, copies.cpp: work of a device that is lost is left out. */
bool lost(const work &what);

/* graphs.cpp */
cudaError_t capture_work(CUstream_st &stream, std::shared_ptr<work> what);
/* What cudaStreamWaitEvent and cudaEventRecord do when a capture is involved; true: nothing else
 * is to be done. */
bool capture_wait(CUstream_st &stream, CUevent_st &event, cudaError_t *error);
bool capture_record(CUstream_st &stream, CUevent_st &event, cudaError_t *error);
void invalidate(capture &c, cudaError_t error);
/* The error of a call that captures forbid, cudaSuccess when none is under way. */
cudaError_t forbidden_in_capture(const char *call);
void graph_task_done(task &t, double end_s);
void add_ready(std::vector<task *> &candidates);
void graph_blockers_of(task &t, std::vector<task *> &found);
/* The tasks of the graph that `launch` runs, if it does. */
void launched_tasks(task &launch, std::vector<task *> &found);
void drop_graphs();
/* Whether a live executable graph has such a work. */
bool in_graphs(const std::function<bool(const work &)> &such);

/* nccl.cpp: communicators whose ranks wait for each other in a circle get an error. */
void find_deadlock();
void drop_communicators();

} // namespace emu

struct CUstream_st {
    int device = 0;
    int priority = 0;
    uint32_t weight = 1;
    bool dying = false; /* destroyed by the host, work is left */
    std::deque<std::unique_ptr<emu::task>> queue;
    double clock_s = 0;
    std::shared_ptr<emu::capture> capture;
    std::set<CUgraphNode_st *> frontier;
};

struct CUevent_st {
    unsigned flags = 0;
    int device = 0;
    std::shared_ptr<emu::event_record> record;
    std::shared_ptr<emu::capture> capture;
    std::set<CUgraphNode_st *> frontier;
};

#endif
