/* Buffers for collectives: registered with the communicator where device memory is host memory. */
#include "executor/comm/memory.h"

#include "executor/device/host_memory.h"

dtp_status dtp_comm_alloc(dtp_comm *c, dtp_backend *b, size_t bytes, void **out, dtp_err *err)
{
    bool host = b->ops->alloc == dtp_host_alloc;
    void *registered =
        host && c->ops->register_memory != NULL ? c->ops->register_memory(c, bytes) : NULL;
    if (registered == NULL) {
        return b->ops->alloc(b, bytes, out, err);
    }
    dtp_host_count(b, (int64_t)bytes);
    *out = registered;
    return DTP_OK;
}

void dtp_comm_free(dtp_comm *c, dtp_backend *b, void *ptr, size_t bytes)
{
    if (ptr != NULL && c->ops->release_memory != NULL && c->ops->release_memory(c, ptr)) {
        dtp_host_count(b, -(int64_t)bytes);
    } else {
        b->ops->free(b, ptr, bytes);
    }
}
