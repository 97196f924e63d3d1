/* Times and recordings on the compute queue of a device. */
#include "executor/bench/measure.h"

/* Collectives of a transport that is not queued are the work of the host. */
bool dtp_bench_by_events(const dtp_bench *b, dtp_sample_kind kind)
{
    const bool collective = kind == DTP_SAMPLE_COLL || kind == DTP_SAMPLE_BESIDE;
    return b->backend->ops->queue != NULL && (!collective || b->comm->transport.caps.queued);
}

static dtp_status meet(dtp_bench *b, dtp_err *err)
{
    const dtp_coll few = {.kind = DTP_ALL_REDUCE,
                          .set = dtp_comm_all(b->comm),
                          .op = DTP_REDUCE_SUM,
                          .dtype = DTP_F32,
                          .count = 16};
    return dtp_transport_run(&b->comm->transport, &few, b->pools[DTP_BENCH_FLOATS].data,
                             b->pools[DTP_BENCH_RESULTS].data, err);
}

dtp_status dtp_bench_mark(dtp_bench *b, dtp_bench_event event, dtp_err *err)
{
    if (event == DTP_BENCH_BEGIN && b->comm->size > 1 && b->comm->transport.caps.queued) {
        DTP_TRY(meet(b, err));
    }
    return b->backend->ops->queue->event_put(b->backend, DTP_QUEUE_COMPUTE, b->events[event], err);
}

dtp_status dtp_bench_seconds(dtp_bench *b, dtp_bench_event to, double *out, dtp_err *err)
{
    return b->backend->ops->queue->event_time(b->backend, b->events[DTP_BENCH_BEGIN], b->events[to],
                                              out, err);
}

dtp_status dtp_bench_record(dtp_bench *b, dtp_bench_action action, void *user, int32_t first,
                            int32_t runs, dtp_recording **out, dtp_err *err)
{
    const dtp_queue_ops *queue = b->backend->ops->queue;
    dtp_status s = DTP_OK;
    DTP_TRY(queue->recording_begin(b->backend, err));
    for (int32_t i = 0; i < runs && s == DTP_OK; i++) {
        s = action(user, first + i, err);
    }
    if (s != DTP_OK) {
        (void)queue->recording_end(b->backend, NULL, NULL);
        return s;
    }
    return queue->recording_end(b->backend, out, err);
}
