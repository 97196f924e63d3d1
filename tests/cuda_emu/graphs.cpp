/* Stream capture and graphs. A captured operation depends on the frontier of its stream: the
 * nodes that its next operation would wait for. */
#include <algorithm>

#include "internal.h"

struct CUgraphNode_st {
    std::shared_ptr<emu::work> what;
    std::vector<size_t> before;
    size_t index;
    bool followed;
};

struct CUgraph_st {
    std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};

struct CUgraphExec_st {
    std::vector<CUgraphNode_st> nodes;
    std::vector<std::vector<size_t>> after;
    bool running = false;
};

namespace emu
{

struct capture {
    CUstream_st *origin = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id thread;
    cudaError_t error = cudaSuccess;
    bool active = true;
    std::unique_ptr<CUgraph_st> graph;
};

struct graph_run {
    std::shared_ptr<CUgraphExec_st> exec;
    task *launch = nullptr;
    bool started = false;
    std::vector<std::unique_ptr<task>> tasks;
    std::vector<size_t> missing; /* predecessors that have not ended, per node */
    size_t left = 0;
    double end_s = 0;
};

namespace
{

/* Handles of live executables; works of launches share them. */
std::map<CUgraphExec_st *, std::shared_ptr<CUgraphExec_st>> execs;

struct graph_work final : work {
    std::shared_ptr<CUgraphExec_st> exec;
    graph_run *run = nullptr;
    void issued(task &t) override
    {
        run = new graph_run;
        run->exec = exec;
        run->launch = &t;
        run->left = exec->nodes.size();
        for (const CUgraphNode_st &node : exec->nodes) {
            std::unique_ptr<task> made(new task);
            made->what = node.what;
            made->stream = t.stream;
            made->graph = run;
            made->index = node.index;
            run->tasks.push_back(std::move(made));
            run->missing.push_back(node.before.size());
            node.what->issued(*run->tasks.back());
        }
        all().runs.push_back(run);
    }
    bool ready(task &) override
    {
        return !exec->running;
    }
    bool start(task &t) override
    {
        run->started = true;
        run->end_s = t.begin_s;
        exec->running = run->left > 0;
        for (auto &made : run->tasks) {
            made->begin_s = t.begin_s;
        }
        if (run->left == 0) {
            drop();
            return true;
        }
        return false;
    }
    void drop()
    {
        std::vector<graph_run *> &runs = all().runs;
        runs.erase(std::find(runs.begin(), runs.end(), run));
        delete run;
        run = nullptr;
    }
};

capture *capture_of(CUstream_st &stream)
{
    return stream.capture.get();
}

void leave(std::shared_ptr<capture> c)
{
    c->active = false;
    for (CUstream_st *stream : all().streams) {
        if (stream->capture == c) {
            stream->capture = nullptr;
            stream->frontier.clear();
        }
    }
    std::vector<std::shared_ptr<capture>> &captures = all().captures;
    captures.erase(std::find(captures.begin(), captures.end(), c));
}

} // namespace

void invalidate(capture &c, cudaError_t error)
{
    if (c.error == cudaSuccess) {
        c.error = error;
    }
}

cudaError_t forbidden_in_capture(const char *call)
{
    for (auto &c : all().captures) {
        if (c->mode == cudaStreamCaptureModeGlobal ||
            (c->mode == cudaStreamCaptureModeThreadLocal &&
             c->thread == std::this_thread::get_id())) {
            invalidate(*c, cudaErrorStreamCaptureUnsupported);
            return fail(cudaErrorStreamCaptureUnsupported, "%s while a stream is captured", call);
        }
    }
    return cudaSuccess;
}

cudaError_t capture_work(CUstream_st &stream, std::shared_ptr<work> what)
{
    capture &c = *stream.capture;
    if (c.error != cudaSuccess) {
        return cudaErrorStreamCaptureInvalidated;
    }
    std::unique_ptr<CUgraphNode_st> node(new CUgraphNode_st);
    node->what = std::move(what);
    node->index = c.graph->nodes.size();
    node->followed = false;
    for (CUgraphNode_st *before : stream.frontier) {
        node->before.push_back(before->index);
        before->followed = true;
    }
    stream.frontier = {node.get()};
    c.graph->nodes.push_back(std::move(node));
    return cudaSuccess;
}

bool capture_record(CUstream_st &stream, CUevent_st &event, cudaError_t *error)
{
    if (!stream.capture) {
        return false;
    }
    *error = stream.capture->error == cudaSuccess ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
    event.capture = stream.capture;
    event.frontier = stream.frontier;
    event.record = nullptr;
    return true;
}

bool capture_wait(CUstream_st &stream, CUevent_st &event, cudaError_t *error)
{
    if (!event.capture) {
        if (stream.capture && event.record) {
            invalidate(*stream.capture, cudaErrorStreamCaptureIsolation);
            *error = fail(cudaErrorStreamCaptureIsolation,
                          "a captured stream waits for an event recorded outside");
        }
        return stream.capture != nullptr;
    }
    if (!event.capture->active) {
        *error = fail(cudaErrorCapturedEvent, "wait for an event of a capture that has ended");
    } else if (event.capture->error != cudaSuccess) {
        *error = cudaErrorStreamCaptureInvalidated;
    } else if (stream.capture && stream.capture != event.capture) {
        invalidate(*stream.capture, cudaErrorStreamCaptureMerge);
        invalidate(*event.capture, cudaErrorStreamCaptureMerge);
        *error = cudaErrorStreamCaptureMerge;
    } else {
        stream.capture = event.capture;
        stream.frontier.insert(event.frontier.begin(), event.frontier.end());
    }
    return true;
}

void add_ready(std::vector<task *> &candidates)
{
    for (graph_run *run : all().runs) {
        for (size_t i = 0; run->started && i < run->tasks.size(); i++) {
            task *t = run->tasks[i].get();
            if (t && !t->started && run->missing[i] == 0 && t->what->ready(*t)) {
                candidates.push_back(t);
            }
        }
    }
}

void graph_blockers_of(task &t, std::vector<task *> &found)
{
    graph_run &run = *t.graph;
    if (!run.started) {
        found.push_back(run.launch);
        return;
    }
    for (size_t before : run.exec->nodes[t.index].before) {
        if (run.tasks[before]) {
            found.push_back(run.tasks[before].get());
        }
    }
}

void launched_tasks(task &launch, std::vector<task *> &found)
{
    for (graph_run *run : all().runs) {
        for (size_t i = 0; run->launch == &launch && i < run->tasks.size(); i++) {
            if (run->tasks[i]) {
                found.push_back(run->tasks[i].get());
            }
        }
    }
}

void graph_task_done(task &t, double end_s)
{
    graph_run &run = *t.graph;
    size_t index = t.index;
    run.end_s = std::max(run.end_s, end_s);
    for (size_t after : run.exec->after[index]) {
        run.tasks[after]->begin_s = std::max(run.tasks[after]->begin_s, end_s);
        run.missing[after]--;
    }
    run.tasks[index].reset();
    if (--run.left == 0) {
        task *launch = run.launch;
        double last_s = run.end_s;
        run.exec->running = false;
        static_cast<graph_work &>(*launch->what).drop();
        finish(*launch, last_s);
    }
}

bool in_graphs(const std::function<bool(const work &)> &such)
{
    for (auto &[handle, exec] : execs) {
        for (const CUgraphNode_st &node : exec->nodes) {
            if (such(*node.what)) {
                return true;
            }
        }
    }
    return false;
}

void drop_graphs()
{
    for (graph_run *run : all().runs) {
        delete run;
    }
    all().runs.clear();
    all().captures.clear();
    execs.clear();
}

} // namespace emu

using namespace emu;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    guard lock(all().mutex);
    cudaError_t error = check_stream(stream);
    if (error == cudaSuccess && stream->capture) {
        error = cudaErrorIllegalState;
    } else if (error == cudaSuccess) {
        auto c = std::make_shared<capture>();
        c->origin = stream;
        c->mode = mode;
        c->thread = std::this_thread::get_id();
        c->graph.reset(new CUgraph_st);
        stream->capture = c;
        stream->frontier.clear();
        all().captures.push_back(c);
    }
    return said(error);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    guard lock(all().mutex);
    *graph = nullptr;
    cudaError_t error = check_stream(stream);
    capture *c = error == cudaSuccess ? capture_of(*stream) : nullptr;
    if (!c) {
        return said(error != cudaSuccess ? error : cudaErrorIllegalState);
    }
    if (c->origin != stream) {
        return said(cudaErrorStreamCaptureUnmatched);
    }
    if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id()) {
        return said(cudaErrorStreamCaptureWrongThread);
    }
    error = c->error == cudaSuccess ? cudaSuccess : cudaErrorStreamCaptureInvalidated;
    for (auto &node : c->graph->nodes) {
        if (error == cudaSuccess && !node->followed && !stream->frontier.count(node.get())) {
            error = fail(cudaErrorStreamCaptureUnjoined,
                         "a capture ends, a forked stream is not joined");
        }
    }
    if (error == cudaSuccess) {
        *graph = c->graph.release();
        all().counters.live_objects++;
    }
    leave(stream->capture);
    return said(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    guard lock(all().mutex);
    cudaError_t error = check_stream(stream);
    *status = error != cudaSuccess || !stream->capture ? cudaStreamCaptureStatusNone
              : stream->capture->error == cudaSuccess  ? cudaStreamCaptureStatusActive
                                                       : cudaStreamCaptureStatusInvalidated;
    return said(error);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    size_t total = graph->nodes.size();
    for (size_t i = 0; nodes && i < *n; i++) {
        nodes[i] = i < total ? graph->nodes[i].get() : nullptr;
    }
    *n = nodes ? std::min(*n, total) : total;
    return said(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    guard lock(all().mutex);
    if (!graph || flags != 0) {
        return said(cudaErrorInvalidValue);
    }
    auto made = std::make_shared<CUgraphExec_st>();
    made->after.resize(graph->nodes.size());
    for (auto &node : graph->nodes) {
        made->nodes.push_back(*node);
        for (size_t before : node->before) {
            made->after[before].push_back(node->index);
        }
    }
    *exec = made.get();
    execs[made.get()] = made;
    all().counters.live_objects++;
    return said(cudaSuccess);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    guard lock(all().mutex);
    return said(execs.count(exec) ? check_stream(stream) : cudaErrorInvalidValue);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    guard lock(all().mutex);
    cudaError_t error = check_stream(stream);
    auto found = execs.find(exec);
    if (error == cudaSuccess && found == execs.end()) {
        error = cudaErrorInvalidValue;
    } else if (error == cudaSuccess && stream->capture) {
        error = fail(cudaErrorNotSupported, "a graph launch in a capture");
    }
    if (error != cudaSuccess) {
        return said(error);
    }
    auto what = std::make_shared<graph_work>();
    what->name = "graph";
    what->exec = found->second;
    all().counters.graph_launches++;
    return said(submit(lock, stream, what));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    guard lock(all().mutex);
    if (!execs.erase(exec)) {
        return said(cudaErrorInvalidValue);
    }
    all().counters.live_objects--;
    return said(cudaSuccess);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    guard lock(all().mutex);
    if (!graph) {
        return said(cudaErrorInvalidValue);
    }
    delete graph;
    all().counters.live_objects--;
    return said(cudaSuccess);
}
}
