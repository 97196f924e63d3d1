/* The host communicator: what the ranks of a job agree on and tell each other, in host memory:
 * verdicts, checkpoints, tensors that are read. The tensors of a program move through the transport
 * of the same ranks (transport.h). One handle per rank. */
#ifndef DTP_EXECUTOR_COMM_COMMUNICATOR_H
#define DTP_EXECUTOR_COMM_COMMUNICATOR_H

#include <stdatomic.h>

#include "dtp/device_mesh.h"
#include "executor/comm/transport.h"
#include "spmd/program/program.h"

/* Prints the failure of a job, on one rank, while the others wait; gives the exit code of the
 * process, with which a job ends whose other ranks cannot be told. */
typedef struct dtp_comm_reporter {
    int (*report)(void *user, const dtp_err *err);
    void *user;
} dtp_comm_reporter;

/* What member `me` of the n of a group does for a collective; `ends`: the buffers of all, by
 * member. */
typedef dtp_status (*dtp_comm_transfer)(void *user, const dtp_coll *coll, int32_t n, int32_t me,
                                        const dtp_coll_ends *const *ends, dtp_err *err);

typedef struct dtp_comm_ops {
    const char *name; /* "self", "sim", "mpi" */
    /* REQUIRED. A collective of spmd/program/program.h on host data, over the group of this rank
     * that spans coll->set of the mesh. Every member calls it in the same order. DTP_COMM when a
     * peer failed, did not come within timeout_s or the ranks disagree; then the communicator is
     * broken, and so are later calls. Ranks of several hosts that wait for each other notice at the
     * deadline. */
    dtp_status (*run)(dtp_comm *c, const dtp_coll *coll, const void *in, void *out, dtp_err *err);
    /* REQUIRED. All ranks. */
    dtp_status (*barrier)(dtp_comm *c, dtp_err *err);
    /* OPTIONAL. See dtp_comm_conclude. */
    dtp_status (*conclude)(dtp_comm *c, dtp_status mine, const dtp_comm_reporter *reporter,
                           dtp_err *err);
    /* OPTIONAL. Tells the peers that this rank fails, so that none hangs. */
    void (*abort)(dtp_comm *c, const char *why);
    /* OPTIONAL. See dtp_comm_alike_here. */
    dtp_status (*alike_here)(dtp_comm *c, uint64_t key, int32_t *index, int32_t *n, dtp_err *err);
    /* OPTIONAL, of ranks that are threads of one process. A collective of a transport of their own:
     * every member shows the others its buffers and calls `transfer`, and none returns before all
     * have called it. Errors as for run; then `transfer` may not have been called. */
    dtp_status (*meet)(dtp_comm *c, const dtp_coll *coll, const dtp_coll_ends *ends,
                       dtp_comm_transfer transfer, void *user, dtp_err *err);
    /* OPTIONAL. Looks, without waiting, whether a peer is known to have failed: DTP_COMM. */
    dtp_status (*look)(dtp_comm *c, dtp_err *err);
    void (*destroy)(dtp_comm *c);
} dtp_comm_ops;

struct dtp_comm {
    const dtp_comm_ops *ops;
    dtp_mesh mesh;
    int32_t rank, size;
    double timeout_s;        /* deadline of every collective, of the transport too */
    const atomic_int *ends;  /* not 0: the process is about to be killed; NULL: never */
    dtp_transport transport; /* of the same ranks; often the same object is behind both */
};

#define DTP_COMM_TIMEOUT_S 600.0 /* unless another one is set */

/* Virtual ranks that stay for further runs, by mesh: for many short runs. Owned by one thread.
 * DTP_NOMEM. */
typedef struct dtp_sim_pool dtp_sim_pool;
dtp_status dtp_sim_pool_create(dtp_sim_pool **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_sim_pool_destroy(dtp_sim_pool *pool);
/* As dtp_comm_sim_run, which it is when pool is NULL. */
dtp_status dtp_sim_pool_run(dtp_sim_pool *pool, const dtp_mesh *mesh, dtp_rank_body body,
                            void *user, dtp_err *err) DTP_MUST_CHECK;

/* dtp_comm_mpi_create for a job whose ranks come to one outcome (dtp_comm_conclude), beginning
 * here: `ready` says whether this process failed before (*err says how). Fails on all ranks as
 * dtp_comm_conclude does when one of them is not ready, or the mesh does not fit the job. timeout_s
 * is the communicator's, and holds for joining as well: a process that is not done by then ends and
 * says so with `rank` (dtp_comm_launched_rank; NULL: unknown). *err is not NULL. */
dtp_status dtp_comm_mpi_join(const dtp_mesh *mesh, const char *rank, double timeout_s,
                             dtp_status ready, const dtp_comm_reporter *reporter, dtp_comm **out,
                             dtp_err *err) DTP_MUST_CHECK;
/* The rank that a launcher has given this process, as text; NULL: none. Borrowed from the
 * environment. */
const char *dtp_comm_launched_rank(char *const *environment);
/* The value of NAME in a "NAME=value" list such as environ, NULL when absent. Borrowed. */
const char *dtp_comm_environment(char *const *environment, const char *name);
/* That of the first of the names, ended by NULL, that is in the list. */
const char *dtp_comm_environment_any(char *const *environment, const char *const *names);

/* True when this process was started by mpirun or srun (looks at the launcher's environment as
 * given by the caller: a "NAME=value" list such as environ). */
bool dtp_comm_in_mpi_job(char *const *environment);
/* DTP_INVALID when the environment of such a job has nothing that MPI could find the other ranks
 * by: srun without PMI. Each would be a job of one rank; err->told on all but the first. */
dtp_status dtp_comm_check_launcher(char *const *environment, dtp_err *err) DTP_MUST_CHECK;

/* All mesh dims: the set whose group is all ranks. */
dtp_mesh_set dtp_comm_all(const dtp_comm *c);
/* All-reduce of n values over all ranks, in place. */
dtp_status dtp_comm_all_reduce(dtp_comm *c, dtp_reduce_op op, dtp_dtype dtype, int64_t n,
                               void *values, dtp_err *err) DTP_MUST_CHECK;

/* Agreement of all ranks on a value: one all-reduce of (x, -x) with MIN. DTP_COMM on every rank
 * when they differ. */
dtp_status dtp_comm_agree(dtp_comm *c, uint64_t value, const char *what,
                          dtp_err *err) DTP_MUST_CHECK;
/* The same; the message has the words of rank 0 and of the lowest rank with another value. NULL on
 * all ranks: none. */
dtp_status dtp_comm_agree_words(dtp_comm *c, uint64_t value, const char *what, const char *words,
                                dtp_err *err) DTP_MUST_CHECK;

/* All ranks share one verdict: DTP_OK when `mine` is DTP_OK everywhere. A rank that failed keeps
 * its own code and message; the others get DTP_COMM with the lowest rank that failed and its
 * message, which costs a second small all-reduce then. Collective. */
dtp_status dtp_comm_agree_status(dtp_comm *c, dtp_status mine, dtp_err *err) DTP_MUST_CHECK;

/* The same with one verdict in one wording: every rank, also one that failed for another reason,
 * gets the code and message of the lowest rank that failed. */
dtp_status dtp_comm_agree_status_alike(dtp_comm *c, dtp_status mine, dtp_err *err) DTP_MUST_CHECK;

/* Tells the peers of a failure on this rank alone, over host communicator and transport: they get
 * DTP_COMM with `why` once they wait for this rank. mpi ranks that do not all share memory, or do
 * not learn of it in time, cannot be told: then `why` is printed and the job ends, at once or, on a
 * communicator of dtp_comm_mpi_join, at its conclusion. */
void dtp_comm_abort(dtp_comm *c, const char *why);

/* One outcome for the processes of a job: the last call on a communicator before it is destroyed,
 * by all ranks, failed or not; told of a failure first by dtp_comm_abort. DTP_OK when `mine` is
 * DTP_OK everywhere. Else code and message of the lowest rank whose failure is its own and not that
 * of a peer passed on (err->told), the same on all ranks and whoever noticed first. That rank
 * reports it (NULL: no rank does) before any rank returns; then err->told is set. A rank whose
 * peers do not come within some seconds reports its failure itself and ends the job. *err is not
 * NULL. Virtual ranks and a single one return `mine`: dtp_comm_sim_run chooses alike. */
dtp_status dtp_comm_conclude(dtp_comm *c, dtp_status mine, const dtp_comm_reporter *reporter,
                             dtp_err *err) DTP_MUST_CHECK;

/* On how many ranks of this machine `key` is the same, this one included; at least 1. *index: the
 * number of this one among them, by rank. Collective over all ranks of an mpi communicator; virtual
 * ranks are all alike. */
dtp_status dtp_comm_alike_here(dtp_comm *c, uint64_t key, int32_t *index, int32_t *n,
                               dtp_err *err) DTP_MUST_CHECK;

#endif
