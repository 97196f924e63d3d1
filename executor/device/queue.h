/* What a backend offers whose kernels run on queues of a device while the host goes on. The order
 * in which work is put on a queue is the order in which it runs; queues run beside each other,
 * except where one waits for an event of another. Slots of dtp_backend_ops.queue; all REQUIRED.
 */
#ifndef DTP_EXECUTOR_DEVICE_QUEUE_H
#define DTP_EXECUTOR_DEVICE_QUEUE_H

#include <stddef.h>

#include "dtp/op.h"

typedef enum dtp_queue_kind {
    DTP_QUEUE_COMPUTE, /* kernels and staging copies */
    DTP_QUEUE_COPY     /* feeds */
} dtp_queue_kind;

/* A point that a queue passes. */
typedef struct dtp_event dtp_event;
/* Work that was recorded instead of being run, and can be put on the compute queue as one. */
typedef struct dtp_recording dtp_recording;

typedef struct dtp_queue_ops {
    /* The compute queue. */
    dtp_queue *(*compute)(dtp_backend *b);
    /* Memory beside that of alloc, not counted: of the device, zeroed in the order of the compute
     * queue, or of the host where copies of queues reach it, zeroed. Freed once the queues are
     * idle; NULL is accepted. */
    dtp_status (*take)(dtp_backend *b, bool device, size_t bytes, void **out, dtp_err *err);
    void (*give)(dtp_backend *b, bool device, void *ptr);
    /* Puts a copy on a queue, between device memory and memory of `take`, either way. */
    dtp_status (*copy)(dtp_backend *b, dtp_queue_kind queue, void *to, const void *from,
                       size_t bytes, dtp_err *err);
    /* Puts an update of a record in device memory on the compute queue. *record may change once it
     * returns. */
    dtp_status (*record_put)(dtp_backend *b, const dtp_step_record *record, dtp_step_record *device,
                             dtp_err *err);

    /* Updates that are put on the compute queue between begin and end, as
     * many as the target joins, run as one launch. */
    void (*join_begin)(dtp_backend *b);
    dtp_status (*join_end)(dtp_backend *b, dtp_err *err);

    dtp_status (*event_create)(dtp_backend *b, dtp_event **out, dtp_err *err);
    void (*event_destroy)(dtp_backend *b, dtp_event *event);
    /* The event is where the queue is now. */
    dtp_status (*event_put)(dtp_backend *b, dtp_queue_kind queue, dtp_event *event, dtp_err *err);
    /* What is put on the queue from now on runs after the event. */
    dtp_status (*event_await)(dtp_backend *b, dtp_queue_kind queue, dtp_event *event, dtp_err *err);
    /* Whether it is passed; does not wait. */
    dtp_status (*event_passed)(dtp_backend *b, dtp_event *event, bool *passed, dtp_err *err);
    /* Seconds between two events that are passed. */
    dtp_status (*event_time)(dtp_backend *b, dtp_event *from, dtp_event *to, double *out,
                             dtp_err *err);

    /* A named range of what this thread puts on queues, for profilers; ranges nest. */
    void (*range_begin)(dtp_backend *b, const char *name);
    void (*range_end)(dtp_backend *b);

    /* From begin to end what this thread puts on the compute queue, and on queues that wait for it,
     * is recorded. End with out NULL discards it. */
    dtp_status (*recording_begin)(dtp_backend *b, dtp_err *err);
    dtp_status (*recording_end)(dtp_backend *b, dtp_recording **out, dtp_err *err);
    dtp_status (*recording_put)(dtp_backend *b, dtp_recording *recording, dtp_err *err);
    void (*recording_destroy)(dtp_backend *b, dtp_recording *recording);
} dtp_queue_ops;

#endif
