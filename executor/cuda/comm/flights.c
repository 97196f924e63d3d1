/* Collectives under way on a card: when each began, and which one the host waits for. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "executor/cuda/comm/comm.h"
#include "executor/cuda/kernels/copy.h"

struct dtp_cuda_flight {
    cudaEvent_t begin, end;
    dtp_coll coll; /* without its bucket */
    bool waited, passed, recorded;
    double since_s;             /* when it was seen to have begun; 0: not yet */
    const dtp_request *request; /* its name */
    dtp_cuda_flight *next, *older;
};

dtp_status dtp_cuda_need_events(int32_t n, cudaEvent_t *const *events, dtp_err *err)
{
    for (int32_t i = 0; i < n; i++) {
        if (*events[i] == NULL) {
            DTP_CUDA_TRY(err, cudaEventCreateWithFlags(events[i], cudaEventDisableTiming));
        }
    }
    return DTP_OK;
}

static dtp_cuda_flight *flight_of(const dtp_request *request)
{
    return (dtp_cuda_flight *)(uintptr_t)request->turn;
}

static void give_back(dtp_cuda_flights *f, dtp_cuda_flight *flight)
{
    flight->next = f->unused;
    f->unused = flight;
}

/* Those at the head of the queue that have ended leave it. */
static dtp_status retire(dtp_cuda_flights *f, dtp_err *err)
{
    while (f->first != NULL) {
        dtp_cuda_flight *flight = f->first;
        const cudaError_t code = cudaEventQuery(flight->end);
        if (code == cudaErrorNotReady) {
            return DTP_OK;
        }
        DTP_TRY(dtp_cuda_status(code, dtp_coll_name(flight->coll.kind), err));
        f->first = flight->next;
        f->last = f->first != NULL ? f->last : NULL;
        flight->passed = true;
        if (flight->waited) {
            give_back(f, flight);
        }
    }
    return DTP_OK;
}

static dtp_status take(dtp_cuda_flights *f, dtp_cuda_flight **out, dtp_err *err)
{
    dtp_cuda_flight *flight = f->unused;
    if (flight == NULL) {
        flight = calloc(1, sizeof *flight);
        DTP_TRY(DTP_MEMORY(err, flight));
        flight->older = f->made;
        f->made = flight;
        give_back(f, flight);
    }
    cudaEvent_t *events[] = {&flight->begin, &flight->end};
    DTP_TRY(dtp_cuda_need_events(2, events, err));
    f->unused = flight->next;
    *out = flight;
    return DTP_OK;
}

static dtp_status is_recorded(cudaStream_t queue, bool *out, dtp_err *err)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    DTP_CUDA_TRY(err, cudaStreamIsCapturing(queue, &capture));
    *out = capture != cudaStreamCaptureStatusNone;
    return DTP_OK;
}

/* Of a recording: the queue comes to a collective. */
static dtp_status come_to(dtp_cuda_flights *f, const dtp_request *request, dtp_err *err)
{
    if (f->at != NULL) {
        DTP_CUDA_TRY(err, dtp_cuda_put_word(f->cuda->comm, (uint64_t)(uintptr_t)request, f->at));
    }
    return DTP_OK;
}

dtp_status dtp_cuda_flight_begin(dtp_cuda_flights *f, const dtp_coll *coll,
                                 const dtp_coll_ends *ends, dtp_request *request, dtp_err *err)
{
    const cudaStream_t compute = f->cuda->compute, comm = f->cuda->comm;
    dtp_cuda_flight *flight = NULL;
    bool recorded, first;
    DTP_TRY(is_recorded(compute, &recorded, err));
    DTP_TRY(is_recorded(comm, &first, err));
    first = !first;
    DTP_TRY(recorded ? DTP_OK : retire(f, err));
    DTP_TRY(take(f, &flight, err));
    const cudaEvent_t begin = flight->begin, end = flight->end;
    *flight = (dtp_cuda_flight){.begin = begin,
                                .end = end,
                                .coll = *coll,
                                .recorded = recorded,
                                .request = request,
                                .older = flight->older};
    flight->coll.bucket = NULL;
    if (recorded) {
        f->recorded = true;
    } else {
        *(f->first != NULL ? &f->last->next : &f->first) = flight;
        f->last = flight;
    }
    *request = (dtp_request){
        .coll = *coll, .ends = ends, .pending = true, .turn = (uint64_t)(uintptr_t)flight};
    DTP_CUDA_TRY(err, cudaEventRecord(begin, compute));
    /* before the wait: compute goes on meanwhile; but the first wait makes the queue part of the
     * recording */
    DTP_TRY(recorded && !first ? come_to(f, request, err) : DTP_OK);
    DTP_CUDA_TRY(err, cudaStreamWaitEvent(comm, begin, 0));
    return recorded && first ? come_to(f, request, err) : DTP_OK;
}

dtp_status dtp_cuda_flight_end(dtp_cuda_flights *f, dtp_request *request, dtp_err *err)
{
    DTP_CUDA_TRY(err, cudaEventRecord(flight_of(request)->end, f->cuda->comm));
    return DTP_OK;
}

dtp_status dtp_cuda_flight_wait(dtp_cuda_flights *f, dtp_request *request, dtp_err *err)
{
    dtp_cuda_flight *flight = flight_of(request);
    DTP_CUDA_TRY(err, cudaStreamWaitEvent(f->cuda->compute, flight->end, 0));
    flight->waited = true;
    request->pending = false;
    if (flight->passed ||
        flight->recorded) { /* what was put on the queue needs the event no more */
        give_back(f, flight);
    }
    return DTP_OK;
}

dtp_status dtp_cuda_flights_look(dtp_cuda_flights *f, double waited_s, char late[DTP_ERR_MSG_BYTES],
                                 const dtp_request **at, const dtp_coll **coll, dtp_err *err)
{
    const double limit_s = f->comm->timeout_s;
    const dtp_request *unused = NULL;
    at = at != NULL ? at : &unused;
    late[0] = '\0';
    *at = NULL;
    *coll = NULL;
    f->longest_s = waited_s < f->waited_s ? fmax(f->longest_s, f->waited_s) : f->longest_s;
    f->waited_s = waited_s;
    DTP_TRY(retire(f, err));
    dtp_cuda_flight *flight = f->first;
    if (flight == NULL) {
        *at = f->at != NULL ? (const dtp_request *)(uintptr_t)atomic_load(f->at) : NULL;
        if (f->recorded && waited_s > limit_s + f->longest_s) {
            (void)snprintf(late, DTP_ERR_MSG_BYTES,
                           "rank %d: the collectives of a recorded step are not done after %g s",
                           f->comm->rank, waited_s);
        }
        return DTP_OK;
    }
    *at = flight->request;
    const cudaError_t begun = cudaEventQuery(flight->begin);
    if (begun == cudaErrorNotReady) {
        return DTP_OK;
    }
    DTP_TRY(dtp_cuda_status(begun, dtp_coll_name(flight->coll.kind), err));
    const double now = dtp_now_s();
    flight->since_s = flight->since_s > 0 ? flight->since_s : now;
    if (now - flight->since_s > limit_s) {
        *coll = &flight->coll;
        dtp_comm__describe_late(&f->comm->mesh, 0, NULL, f->comm->rank, *coll, limit_s, late);
    }
    return DTP_OK;
}

void dtp_cuda_flights_close(dtp_cuda_flights *f)
{
    (void)cudaFreeHost(f->at);
    while (f->made != NULL) {
        dtp_cuda_flight *flight = f->made;
        f->made = flight->older;
        if (flight->begin != NULL) {
            (void)cudaEventDestroy(flight->begin);
        }
        if (flight->end != NULL) {
            (void)cudaEventDestroy(flight->end);
        }
        free(flight);
    }
}

dtp_status dtp_cuda_put_single(dtp_cuda *cuda, const dtp_coll *coll, const dtp_coll_ends *ends,
                               dtp_err *err)
{
    for (int32_t k = 0; k < dtp_coll_buffers(coll); k++) {
        const int64_t bytes = dtp_coll_at(coll, k)->count * dtp_dtype_bytes(coll->dtype);
        if (bytes > 0 && ends[k].in != ends[k].out) {
            DTP_CUDA_TRY(err, cudaMemcpyAsync(ends[k].out, ends[k].in, (size_t)bytes,
                                              cudaMemcpyDeviceToDevice, cuda->comm));
        }
    }
    return DTP_OK;
}
