/* Shared by the files of the NCCL transport: nccl_calls.c, nccl_messages.c, and above
 * them nccl.c. */
#ifndef DTP_EXECUTOR_CUDA_COMM_NCCL_INTERNAL_H
#define DTP_EXECUTOR_CUDA_COMM_NCCL_INTERNAL_H

#include "executor/cuda/comm/comm.h"
#include "executor/cuda/comm/nccl_library.h"

typedef struct dtp_nccl__channel dtp_nccl__channel;
typedef struct dtp_nccl__end dtp_nccl__end;

/* Messages of a rank. */
typedef struct dtp_nccl__mail {
    const dtp_nccl *nccl;
    dtp_cuda *cuda;
    dtp_comm *comm;
    dtp_transport host; /* of the same ranks */
    int32_t n_channels;
    dtp_nccl__channel *channels;
    dtp_nccl__end *ends;         /* all */
    dtp_nccl__end *first, *last; /* that compute waits for, in its order */
    cudaStream_t own;            /* for messages of the rank to itself; NULL: there were none */
    void *probe;                 /* bytes that connect channels */
    uint64_t n_posted;
} dtp_nccl__mail;

/* The words of a call that failed, on c or NULL: DTP_COMM. */
dtp_status dtp_nccl__fail(const dtp_nccl *nccl, const dtp_comm *comm, ncclResult_t code,
                          const char *call, ncclComm_t c, dtp_err *err) DTP_MUST_CHECK;
/* Whether a peer is known to have failed. */
dtp_status dtp_nccl__look(dtp_comm *comm, dtp_err *err) DTP_MUST_CHECK;
/* The result of a call on c, once it is there. */
dtp_status dtp_nccl__settle(const dtp_nccl *nccl, dtp_comm *comm, ncclComm_t c, ncclResult_t code,
                            const char *call, dtp_err *err) DTP_MUST_CHECK;

/* Slots of dtp_transport_ops. */
dtp_status dtp_nccl__connect(dtp_nccl__mail *mail, int32_t n, const dtp_message *ends,
                             dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_nccl__post(dtp_nccl__mail *mail, dtp_message *m, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_nccl__finish(dtp_nccl__mail *mail, dtp_message *m, dtp_err *err) DTP_MUST_CHECK;
/* Whether compute is at a message; *late is like it where that is for longer than the deadline,
 * else of no kind. DTP_COMM when one failed. */
dtp_status dtp_nccl__look_at_messages(dtp_nccl__mail *mail, bool *waits, dtp_coll *late,
                                      dtp_err *err) DTP_MUST_CHECK;
/* Nothing is touched any more. Within a group of calls. */
void dtp_nccl__abort_messages(dtp_nccl__mail *mail);
void dtp_nccl__close_messages(dtp_nccl__mail *mail);

#endif
