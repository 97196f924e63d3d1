/* A transport: how the tensors of a program move between ranks. A collective is started and waited
 * for; between the two it may go on beside kernels. Host data (agreement, reads, checkpoints) go
 * over the host communicator instead (communicator.h). One handle per rank.
 */
#ifndef DTP_EXECUTOR_COMM_TRANSPORT_H
#define DTP_EXECUTOR_COMM_TRANSPORT_H

#include "executor/device/backend.h"
#include "spmd/program/program.h"

typedef struct dtp_transport dtp_transport;

/* What a program may expect of a transport. */
typedef struct dtp_transport_caps {
    bool asynchronous;  /* a started collective goes on beside kernels */
    bool strided;       /* the parts of a buffer may be strided; else contiguous ones only */
    bool deterministic; /* a reduction combines in member order: the same bits in every run, and on
                           every such transport */
    /* start and wait put work on queues of the backend that the transport was made for, and return:
     * a collective begins after what is on the compute queue at START, and what is put there after
     * WAIT begins after the collective. Failures of what was put there come from `poll`. Else the
     * caller waits for the compute queue before start and wait. */
    bool queued;
    /* Of a queued one: start and wait may be recorded into a graph of the backend, which then runs
     * them in any number of steps. */
    bool captured;
} dtp_transport_caps;

/* Where the input and the output of a collective lie. */
typedef struct dtp_coll_ends {
    const void *in;
    void *out;
} dtp_coll_ends;

/* A started collective. The memory is the caller's and stays where it is from start to wait;
 * the contents are the transport's. Its address is its name until the collective is done. */
typedef struct dtp_request {
    dtp_coll coll;
    const dtp_coll_ends *ends; /* the caller's */
    bool pending;              /* not done when start returned */
    uint64_t turn;
    struct dtp_request *next; /* started after it */
} dtp_request;

/* Bytes from one rank to another. The memory is the caller's and stays where it is from post to
 * finish; the first members are the caller's, the others the transport's. */
typedef struct dtp_message {
    int32_t peer;    /* rank */
    int32_t channel; /* messages of one channel from one rank to another keep their order */
    bool sends;      /* else it is received */
    void *data;
    int64_t bytes;
    /* NULL, or, for ranks that are threads of one process and a transport above their own, moves
     * the bytes in its place. Called once, at the end that is posted last, while neither rank can
     * take its end back. */
    dtp_status (*move)(struct dtp_message *last, struct dtp_message *first, dtp_err *err);
    int32_t rank, parts;
    int64_t come; /* bytes */
    uint64_t turn;
    bool pending, awaited;
    struct dtp_message *next;
} dtp_message;

typedef struct dtp_transport_ops {
    const char *name;
    /* REQUIRED. Makes what the group of this rank over a set of mesh dims needs; called for every
     * set before the steps. Collective over the group. */
    dtp_status (*prepare)(dtp_transport *t, dtp_mesh_set set, dtp_err *err);
    /* REQUIRED. Starts the collective of spmd/program/program.h over the group of this rank that
     * spans coll->set of the mesh. Every member starts the same collectives in the same order.
     * `ends` has an element for every collective of a bucket, no two of which share memory; it and
     * coll->bucket are used until wait returns. Until then inputs must not change and outputs must
     * not be touched, but that later collectives may read them: they run in the order of their
     * starts. A transport that is not asynchronous is done here. DTP_COMM when a peer failed, did
     * not come in time or the ranks disagree; then the transport is broken, and so are later calls.
     */
    dtp_status (*start)(dtp_transport *t, const dtp_coll *coll, const dtp_coll_ends *ends,
                        dtp_request *request, dtp_err *err);
    /* REQUIRED. Waits until a started collective is done; once per request, in the order of the
     * starts or another. Errors as for start. */
    dtp_status (*wait)(dtp_transport *t, dtp_request *request, dtp_err *err);
    /* OPTIONAL. Gives up what was started: no buffer is touched once it returns, and peers that
     * wait for this rank learn `why`. Recordings that hold collectives are destroyed before. */
    void (*abort)(dtp_transport *t, const char *why);
    /* OPTIONAL, of a queued transport. Looks, without waiting, at the collectives on the queues;
     * called again and again while the host waits for a queue, waited_s seconds so far, and once at
     * the end. DTP_COMM when a collective failed, or a peer is lost: then abort comes. *at names
     * the request that the queue is at, NULL: none or not known; also on failure. `at` NULL: the
     * queue is through, and a peer that is lost is no failure of it. */
    dtp_status (*poll)(dtp_transport *t, double waited_s, const dtp_request **at, dtp_err *err);
    /* OPTIONAL. Of a transport that is not part of a communicator; the queues are idle. */
    void (*destroy)(dtp_transport *t);
    /* OPTIONAL, both or none. Memory, 64-byte aligned, that peers can reach: collectives between
     * such buffers move every byte once. Of the device, of a queued transport; else of the host.
     * NULL when there is none (left). release_memory is false when ptr is not such memory. */
    void *(*register_memory)(dtp_transport *t, size_t bytes);
    bool (*release_memory)(dtp_transport *t, void *ptr);
    /* OPTIONAL, both or none. Messages between the stages of a pipeline: `post` returns at once;
     * the bytes go when both ends are posted, whatever either rank does then. `finish` waits until
     * they have gone, once per message. They do not hold up collectives. DTP_COMM as for start.
     * A receive may have the memory of a message that was sent before, once its other end is
     * posted: it begins when that has gone.
     * Of a queued transport the bytes go, and a receive begins, after what is on the compute queue
     * at post; what is put there after finish begins when they have gone. */
    dtp_status (*post)(dtp_transport *t, dtp_message *message, dtp_err *err);
    dtp_status (*finish)(dtp_transport *t, dtp_message *message, dtp_err *err);
    /* OPTIONAL. Makes what messages need, before the first one: of each channel to or from another
     * rank one end, with peer, channel and direction. Both ranks have them in one order. Collective
     * over all ranks. */
    dtp_status (*connect)(dtp_transport *t, int32_t n, const dtp_message *ends, dtp_err *err);
} dtp_transport_ops;

struct dtp_transport {
    const dtp_transport_ops *ops;
    dtp_transport_caps caps;
    void *self; /* the object behind it */
};

/* Start and wait of a single collective. */
dtp_status dtp_transport_run(dtp_transport *t, const dtp_coll *coll, const void *in, void *out,
                             dtp_err *err) DTP_MUST_CHECK;

/* Like b->ops->alloc, from registered memory when there is some where the backend computes; counted
 * in the backend either way. `alike`: all ranks of the transport do so now, with the same number of
 * bytes; registered memory of a device is for such alone. Free it with dtp_transport_free before
 * the transport ends. DTP_NOMEM. */
dtp_status dtp_transport_alloc(dtp_transport *t, dtp_backend *b, size_t bytes, bool alike,
                               void **out, dtp_err *err) DTP_MUST_CHECK;
/* `bytes` as given to dtp_transport_alloc; NULL is accepted. */
void dtp_transport_free(dtp_transport *t, dtp_backend *b, void *ptr, size_t bytes);

#endif
