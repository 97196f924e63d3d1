/* The transports of the CUDA backend. A collective of a queued one is a flight: it begins on the
 * communication queue after what is on the compute queue at START, and compute goes on after it
 * from WAIT. */
#ifndef DTP_EXECUTOR_CUDA_COMM_COMM_H
#define DTP_EXECUTOR_CUDA_COMM_COMM_H

#include "executor/comm/communicator_internal.h"
#include "executor/cuda/cuda_internal.h"

typedef struct dtp_cuda_flight dtp_cuda_flight;

/* The collectives of one rank that were started. */
typedef struct dtp_cuda_flights {
    dtp_cuda *cuda;
    dtp_comm *comm;
    dtp_cuda_flight *first, *last, *unused; /* on the queue, in their order; free ones */
    dtp_cuda_flight *made;                  /* all */
    bool recorded;                          /* some are in recordings */
    /* Pinned: the address of the request that the queue is at, of a recording whose events do not
     * tell; NULL: not kept. The device writes while the host reads. */
    _Atomic uint64_t *at;
    double waited_s, longest_s; /* the host's present wait, its longest one before */
} dtp_cuda_flights;

/* START, first half: the communication queue waits for the compute queue. */
dtp_status dtp_cuda_flight_begin(dtp_cuda_flights *f, const dtp_coll *coll,
                                 const dtp_coll_ends *ends, dtp_request *request,
                                 dtp_err *err) DTP_MUST_CHECK;
/* START, second half: the collective is on the communication queue. */
dtp_status dtp_cuda_flight_end(dtp_cuda_flights *f, dtp_request *request,
                               dtp_err *err) DTP_MUST_CHECK;
/* WAIT: the compute queue waits for the collective. */
dtp_status dtp_cuda_flight_wait(dtp_cuda_flights *f, dtp_request *request,
                                dtp_err *err) DTP_MUST_CHECK;
/* Looks whether a collective has been at work for longer than the communicator's deadline: `late`
 * says so, else it is empty; *coll is it, NULL when it is one of a recording: those count from the
 * end of the host's longest wait before. The host has waited for waited_s. *at as for poll
 * (transport.h). */
dtp_status dtp_cuda_flights_look(dtp_cuda_flights *f, double waited_s, char late[DTP_ERR_MSG_BYTES],
                                 const dtp_request **at, const dtp_coll **coll,
                                 dtp_err *err) DTP_MUST_CHECK;
void dtp_cuda_flights_close(dtp_cuda_flights *f);

/* Creates those of n events that are NULL; none measures time. */
dtp_status dtp_cuda_need_events(int32_t n, cudaEvent_t *const *events, dtp_err *err) DTP_MUST_CHECK;

/* Messages of a rank over the device transport. */
typedef struct dtp_cuda_end dtp_cuda_end;
typedef struct dtp_cuda_mail {
    dtp_cuda *cuda;
    dtp_comm *comm;
    dtp_transport host;   /* of the same ranks */
    cudaStream_t *queues; /* by 2 * peer, + 1 to it; NULL: not used yet */
    cudaStream_t after;   /* for what begins behind several events */
    dtp_cuda_end *ends;   /* all */
} dtp_cuda_mail;
/* dtp_transport_ops.post and finish. */
dtp_status dtp_cuda_mail_post(dtp_cuda_mail *mail, dtp_message *m, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_cuda_mail_finish(dtp_cuda_mail *mail, dtp_message *m, dtp_err *err) DTP_MUST_CHECK;
void dtp_cuda_mail_close(dtp_cuda_mail *mail);

/* A collective of a group of one: copies on the communication queue. */
dtp_status dtp_cuda_put_single(dtp_cuda *cuda, const dtp_coll *coll, const dtp_coll_ends *ends,
                               dtp_err *err) DTP_MUST_CHECK;

/* Each is collective over all ranks, but may fail on one of them alone. */
dtp_status dtp_cuda_device_create(dtp_comm *comm, dtp_cuda *cuda, dtp_transport *out,
                                  dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_cuda_nccl_create(dtp_comm *comm, dtp_cuda *cuda, dtp_transport *out,
                                dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_cuda_staged_create(dtp_comm *comm, dtp_cuda *cuda, dtp_transport *out,
                                  dtp_err *err) DTP_MUST_CHECK;
/* Whether kernels of this rank can reach the memory of the devices of all ranks of this process. */
dtp_status dtp_cuda_reach_peers(const dtp_comm *comm, const dtp_cuda *cuda,
                                dtp_err *err) DTP_MUST_CHECK;

#endif
