/* Where the tensors of the suite of transports lie. */
#ifndef DTP_TESTS_COMM_COMM_BUFFERS_H
#define DTP_TESTS_COMM_COMM_BUFFERS_H

#include "executor/comm/communicator.h"

/* Host memory, and as much of a backend with a queue when there is one. */
typedef struct comm_buffers {
    char *in, *out;
    int64_t capacity; /* bytes of each */
    dtp_backend *backend;
    char *device_in, *device_out;
} comm_buffers;

dtp_status comm_buffers_make(comm_buffers *b, int64_t capacity, dtp_backend *backend, dtp_err *err);
void comm_buffers_destroy(comm_buffers *b);
/* Where the transport finds what is at `p` of the host memory. */
void *comm_buffers_place(const comm_buffers *b, void *p);
/* Brings both to the backend. */
dtp_status comm_buffers_upload(const comm_buffers *b, dtp_err *err);
/* Waits for the queue, and brings the outputs; gives up the transport when that fails. */
dtp_status comm_buffers_download(dtp_comm *c, const comm_buffers *b, dtp_err *err);
/* Waits for the compute queue of a backend, as a runner does. */
dtp_status comm_await(dtp_comm *c, dtp_backend *b, dtp_err *err);

#endif
