/* Queues, events and recordings of the CUDA backend (executor/device/queue.h): streams, events and
 * graphs. */
#include <string.h>

#include "executor/cuda/cuda_internal.h"
#include "executor/cuda/kernels/copy.h"

#if __has_include(<nvtx3/nvToolsExt.h>) /* some toolkits come without it */
#include <nvtx3/nvToolsExt.h>
#else
#define nvtxRangePushA(name) (void)(name)
#define nvtxRangePop() (void)0
#endif

static cudaStream_t stream_of(dtp_backend *b, dtp_queue_kind queue)
{
    const dtp_cuda *c = dtp_cuda_of(b);
    return queue == DTP_QUEUE_COPY ? c->copy : c->compute;
}

static dtp_queue *compute(dtp_backend *b)
{
    return (dtp_queue *)dtp_cuda_of(b)->compute;
}

/* Zeros come in the order of the compute queue, whose kernels and copies use the memory. */
static dtp_status take(dtp_backend *b, bool device, size_t bytes, void **out, dtp_err *err)
{
    bytes = bytes > 0 ? bytes : 1;
    DTP_CUDA_TRY(err, device ? cudaMalloc(out, bytes) : cudaMallocHost(out, bytes));
    if (!device) {
        memset(*out, 0, bytes);
        return DTP_OK;
    }
    const dtp_status s = dtp_cuda_status(cudaMemsetAsync(*out, 0, bytes, dtp_cuda_of(b)->compute),
                                         "cudaMemsetAsync", err);
    if (s != DTP_OK) {
        (void)cudaFree(*out);
    }
    return s;
}

static void give(dtp_backend *b, bool device, void *ptr)
{
    (void)b;
    (void)(device ? cudaFree(ptr) : cudaFreeHost(ptr));
}

static dtp_status copy(dtp_backend *b, dtp_queue_kind queue, void *to, const void *from,
                       size_t bytes, dtp_err *err)
{
    if (bytes > 0) {
        DTP_CUDA_TRY(err, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(b, queue)));
    }
    return DTP_OK;
}

static dtp_status record_put(dtp_backend *b, const dtp_step_record *record, dtp_step_record *device,
                             dtp_err *err)
{
    DTP_CUDA_TRY(err, dtp_cuda_put_record(dtp_cuda_of(b)->compute, record, device));
    return DTP_OK;
}

static void join_begin(dtp_backend *b)
{
    dtp_cuda_of(b)->joining = true;
    dtp_cuda_of(b)->n_joined = 0;
}

static dtp_status join_end(dtp_backend *b, dtp_err *err)
{
    dtp_cuda *c = dtp_cuda_of(b);
    c->joining = false;
    DTP_CUDA_TRY(err, dtp_cuda_update_tensors(c->compute, c->n_joined, c->joined, c->record));
    return DTP_OK;
}

/* ---- events ---- */

static dtp_status event_create(dtp_backend *b, dtp_event **out, dtp_err *err)
{
    cudaEvent_t event = NULL;
    (void)b;
    DTP_CUDA_TRY(err, cudaEventCreate(&event));
    *out = (dtp_event *)event;
    return DTP_OK;
}

static void event_destroy(dtp_backend *b, dtp_event *event)
{
    (void)b;
    if (event != NULL) {
        (void)cudaEventDestroy((cudaEvent_t)event);
    }
}

static dtp_status event_put(dtp_backend *b, dtp_queue_kind queue, dtp_event *event, dtp_err *err)
{
    DTP_CUDA_TRY(err, cudaEventRecord((cudaEvent_t)event, stream_of(b, queue)));
    return DTP_OK;
}

static dtp_status event_await(dtp_backend *b, dtp_queue_kind queue, dtp_event *event, dtp_err *err)
{
    DTP_CUDA_TRY(err, cudaStreamWaitEvent(stream_of(b, queue), (cudaEvent_t)event, 0));
    return DTP_OK;
}

static dtp_status event_passed(dtp_backend *b, dtp_event *event, bool *passed, dtp_err *err)
{
    (void)b;
    const cudaError_t code = cudaEventQuery((cudaEvent_t)event);
    *passed = code == cudaSuccess;
    return code == cudaErrorNotReady ? DTP_OK : dtp_cuda_status(code, "a kernel or copy", err);
}

static dtp_status event_time(dtp_backend *b, dtp_event *from, dtp_event *to, double *out,
                             dtp_err *err)
{
    float ms = 0;
    (void)b;
    DTP_CUDA_TRY(err, cudaEventElapsedTime(&ms, (cudaEvent_t)from, (cudaEvent_t)to));
    *out = 1e-3 * (double)ms;
    return DTP_OK;
}

/* ---- ranges ---- */

static void range_begin(dtp_backend *b, const char *name)
{
    (void)b;
    (void)nvtxRangePushA(name);
}

static void range_end(dtp_backend *b)
{
    (void)b;
    (void)nvtxRangePop();
}

/* ---- recordings ---- */

static dtp_status recording_begin(dtp_backend *b, dtp_err *err)
{
    DTP_CUDA_TRY(err,
                 cudaStreamBeginCapture(dtp_cuda_of(b)->compute, cudaStreamCaptureModeThreadLocal));
    return DTP_OK;
}

static dtp_status recording_end(dtp_backend *b, dtp_recording **out, dtp_err *err)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    const cudaError_t code = cudaStreamEndCapture(dtp_cuda_of(b)->compute, &graph);
    dtp_status s =
        out != NULL ? dtp_cuda_status(code, "recording the step as a graph", err) : DTP_OK;
    if (s == DTP_OK && out != NULL) {
        s = dtp_cuda_status(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate",
                            err);
        *out = (dtp_recording *)executable;
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    return s;
}

static dtp_status recording_put(dtp_backend *b, dtp_recording *recording, dtp_err *err)
{
    DTP_CUDA_TRY(err, cudaGraphLaunch((cudaGraphExec_t)recording, dtp_cuda_of(b)->compute));
    return DTP_OK;
}

static void recording_destroy(dtp_backend *b, dtp_recording *recording)
{
    (void)b;
    if (recording != NULL) {
        (void)cudaGraphExecDestroy((cudaGraphExec_t)recording);
    }
}

const dtp_queue_ops dtp_cuda_queue = {
    .compute = compute,
    .take = take,
    .give = give,
    .copy = copy,
    .record_put = record_put,
    .join_begin = join_begin,
    .join_end = join_end,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_put = event_put,
    .event_await = event_await,
    .event_passed = event_passed,
    .event_time = event_time,
    .range_begin = range_begin,
    .range_end = range_end,
    .recording_begin = recording_begin,
    .recording_end = recording_end,
    .recording_put = recording_put,
    .recording_destroy = recording_destroy,
};
