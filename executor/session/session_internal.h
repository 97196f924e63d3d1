/* Shared by session.c and session_fetch.c. */
#ifndef DTP_EXECUTOR_SESSION_SESSION_INTERNAL_H
#define DTP_EXECUTOR_SESSION_SESSION_INTERNAL_H

#include "core/files/file_lock.h"
#include "executor/session/session.h"

struct dtp_session {
    const dtp_program *program;
    dtp_backend *backend;
    dtp_comm *comm;
    dtp_ctx ctx;
    bool log;
    uint64_t seed;
    dtp_runner *runner;
    dtp_feed *feed;
    dtp_value_id *tensor_value; /* by tensor id: what a reader gets; -1 = not kept */
    void *host;                 /* for the largest shard that is fed or initialised */
    int64_t host_bytes;
    int64_t step;
    bool allow_nan;
    int32_t keep;
    dtp_file_lock *lock; /* on rank 0, of the checkpoint that the job is to write; else NULL */
    char *locked;        /* its path, on all ranks; NULL: none */
    bool made_folder;    /* for it */
};

/* The set of all mesh dims. */
dtp_mesh_set dtp_session__all(const dtp_session *s);

/* DTP_NOT_FINITE on all ranks when the loss of the step is not finite; `own` is this rank's part.
 */
dtp_status dtp_session__check_loss(dtp_session *s, const dtp_step_result *result, double own,
                                   dtp_err *err) DTP_MUST_CHECK;

/* Keeps other jobs from writing the checkpoint `path` until dtp_session__unlock; collective. Makes
 * its folder. DTP_IO when another job holds it or the path cannot be written to. */
dtp_status dtp_session__lock(dtp_session *s, const char *path, dtp_err *err) DTP_MUST_CHECK;
/* A folder that was made and is empty goes, too. */
void dtp_session__unlock(dtp_session *s);

/* Room for a whole tensor on rank 0, the caller's to free; the other ranks learn when there is
 * none.
 */
dtp_status dtp_session__whole_buffer(dtp_session *s, int64_t bytes, void **out,
                                     dtp_err *err) DTP_MUST_CHECK;

/* Visits the runs of `shard` that fall into elements first .. first + n - 1 of its storage. */
typedef void (*dtp_run_visit)(void *user, int64_t in_tensor, const void *data, int64_t n);
void dtp_session__runs(const dtp_shard *shard, int64_t first, int64_t n, const void *data,
                       int64_t elem_bytes, dtp_run_visit visit, void *user);

#endif
