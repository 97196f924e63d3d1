/* A transport: how the tensors of a program move between ranks. */
#include "executor/comm/transport.h"

#include "executor/device/host_memory.h"

dtp_status dtp_transport_run(dtp_transport *t, const dtp_coll *coll, const void *in, void *out,
                             dtp_err *err)
{
    const dtp_coll_ends ends = {in, out};
    dtp_request request;
    DTP_TRY(t->ops->start(t, coll, &ends, &request, err));
    return t->ops->wait(t, &request, err);
}

dtp_status dtp_transport_alloc(dtp_transport *t, dtp_backend *b, size_t bytes, bool alike,
                               void **out, dtp_err *err)
{
    const bool fits = t->caps.queued ? alike : b->ops->alloc == dtp_host_alloc;
    void *registered =
        fits && t->ops->register_memory != NULL ? t->ops->register_memory(t, bytes) : NULL;
    if (registered == NULL) {
        return b->ops->alloc(b, bytes, out, err);
    }
    dtp_host_count(b, (int64_t)bytes);
    *out = registered;
    return DTP_OK;
}

void dtp_transport_free(dtp_transport *t, dtp_backend *b, void *ptr, size_t bytes)
{
    if (ptr != NULL && t->ops->release_memory != NULL && t->ops->release_memory(t, ptr)) {
        dtp_host_count(b, -(int64_t)bytes);
    } else {
        b->ops->free(b, ptr, bytes);
    }
}
