/* Running one function on every rank of a mesh: alone, as threads of this process, or as the
 * processes of the MPI job around us. */
#ifndef DTP_EXECUTOR_RUN_RANKS_H
#define DTP_EXECUTOR_RUN_RANKS_H

#include "executor/device/backend.h"
#include "executor/comm/communicator.h"

typedef struct dtp_ranks_options {
    const char *comm;      /* "self", "sim" or "mpi" */
    const char *backend;   /* the name of a device (devices.h) */
    const char *transport; /* one of the device's; NULL: what the ranks allow */
    const char *switches;  /* of the device (dtp_device_options); NULL: none */
    int32_t threads;  /* per rank; 0: the processors that this rank may use, shared with the ranks
                        of this machine that may use the very same ones */
    double timeout_s; /* deadline of every collective; 0: DTP_COMM_TIMEOUT_S */
    const atomic_int *ends; /* see dtp_comm */
    const char *rank; /* what a launcher calls this one (dtp_comm_launched_rank); NULL: unknown */
    const dtp_comm_reporter *reporter; /* of a failure of an MPI job; NULL: none */
} dtp_ranks_options;

typedef dtp_status (*dtp_ranks_body)(dtp_comm *comm, dtp_backend *backend, void *user,
                                     dtp_err *err);

/* Runs body on all ranks, each with a backend of its own. "mpi": the processes of the job run it,
 * this is one of them. DTP_INVALID for another name and for "self" with more than one rank. All
 * ranks come to one outcome (dtp_comm_conclude): the failure of the lowest rank that failed by
 * itself, however they are run. */
dtp_status dtp_ranks_run(const dtp_ranks_options *options, const dtp_mesh *mesh,
                         dtp_ranks_body body, void *user, dtp_err *err) DTP_MUST_CHECK;

/* What a process of an MPI job calls in place of dtp_ranks_run when it `failed` before: the others
 * learn of it. Returns the outcome, never DTP_OK unless `failed` is. *err is not NULL. */
dtp_status dtp_ranks_fail(const dtp_ranks_options *options, dtp_status failed,
                          dtp_err *err) DTP_MUST_CHECK;

#endif
