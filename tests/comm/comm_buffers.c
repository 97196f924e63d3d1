/* Where the tensors of the suite of transports lie. */
#include "tests/comm/comm_buffers.h"

#include <stdlib.h>
#include <time.h>

#include "core/base/clock.h"

void comm_buffers_destroy(comm_buffers *b)
{
    free(b->in);
    free(b->out);
    if (b->backend != NULL) {
        b->backend->ops->free(b->backend, b->device_in, (size_t)b->capacity);
        b->backend->ops->free(b->backend, b->device_out, (size_t)b->capacity);
    }
}

dtp_status comm_buffers_make(comm_buffers *b, int64_t capacity, dtp_backend *backend, dtp_err *err)
{
    void *in = NULL, *out = NULL;
    *b = (comm_buffers){.capacity = capacity, .backend = backend};
    b->in = malloc((size_t)capacity);
    b->out = malloc((size_t)capacity);
    dtp_status status = DTP_MEMORY(err, b->in, b->out);
    if (status == DTP_OK && backend != NULL) {
        status = backend->ops->alloc(backend, (size_t)capacity, &in, err);
        b->device_in = in;
        status =
            status == DTP_OK ? backend->ops->alloc(backend, (size_t)capacity, &out, err) : status;
        b->device_out = out;
    }
    if (status != DTP_OK) {
        comm_buffers_destroy(b);
    }
    return status;
}

void *comm_buffers_place(const comm_buffers *b, void *p)
{
    char *at = p;
    return b->backend == NULL                        ? p
           : at >= b->in && at < b->in + b->capacity ? b->device_in + (at - b->in)
                                                     : b->device_out + (at - b->out);
}

dtp_status comm_buffers_upload(const comm_buffers *b, dtp_err *err)
{
    dtp_backend *d = b->backend;
    if (d == NULL) {
        return DTP_OK;
    }
    DTP_TRY(d->ops->upload(d, b->device_in, b->in, (size_t)b->capacity, err));
    return d->ops->upload(d, b->device_out, b->out, (size_t)b->capacity, err);
}

dtp_status comm_await(dtp_comm *c, dtp_backend *b, dtp_err *err)
{
    dtp_transport *t = &c->transport;
    dtp_event *end = NULL;
    const double start = dtp_now_s();
    DTP_TRY(b->ops->queue->event_create(b, &end, err));
    dtp_status s = b->ops->queue->event_put(b, DTP_QUEUE_COMPUTE, end, err);
    for (bool passed = false; !passed && s == DTP_OK;) {
        const dtp_request *at = NULL;
        s = b->ops->queue->event_passed(b, end, &passed, err);
        if (s == DTP_OK && t->ops->poll != NULL) {
            s = t->ops->poll(t, dtp_now_s() - start, passed ? NULL : &at, err);
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = passed ? 0 : 20000}, NULL);
    }
    b->ops->queue->event_destroy(b, end);
    return s;
}

dtp_status comm_buffers_download(dtp_comm *c, const comm_buffers *b, dtp_err *err)
{
    dtp_backend *d = b->backend;
    if (d == NULL) {
        return DTP_OK;
    }
    const dtp_status s = comm_await(c, d, err);
    if (s != DTP_OK && c->transport.ops->abort != NULL) {
        c->transport.ops->abort(&c->transport, "a collective failed");
    }
    DTP_TRY(s);
    return d->ops->download(d, b->out, b->device_out, (size_t)b->capacity, err);
}
