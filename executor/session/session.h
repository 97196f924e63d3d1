/* A job on one rank: a bound program with parameters, feeds and a step count. Every function is
 * collective: all ranks call it in the same order. */
#ifndef DTP_EXECUTOR_SESSION_SESSION_H
#define DTP_EXECUTOR_SESSION_SESSION_H

#include "core/base/ctx.h"
#include "executor/session/feed.h"
#include "executor/run/runner.h"

typedef struct dtp_session dtp_session;

typedef struct dtp_session_options {
    uint64_t seed;
    int32_t n_feeds;
    const dtp_feed_spec *feeds;
    const char *load; /* checkpoint directory, index or .safetensors file; NULL: initial values */
    const char *save; /* the only path that the job will save to: other jobs cannot, from now on;
                         NULL: any, kept from others during the save */
    int32_t keep;     /* sets that stay in a checkpoint directory; 0 is 1 */
    bool allow_nan;   /* go on when the loss is not finite */
    bool profile;
    const dtp_ctx *ctx; /* log; NULL: silent */
} dtp_session_options;

/* Seed 0, no feeds, no load, no save; a loss that is not finite is an error. */
dtp_session_options dtp_session_options_init(void);

/* Agrees on program and options with the peers (all ranks fail when they differ), binds the program
 * and fills parameters and states. Borrows p, backend and comm; they must outlive the session. */
dtp_status dtp_session_create(const dtp_program *p, dtp_backend *backend, dtp_comm *comm,
                              const dtp_session_options *options, dtp_session **out,
                              dtp_err *err) DTP_MUST_CHECK;
void dtp_session_destroy(dtp_session *s);

typedef struct dtp_step_result {
    int64_t step; /* the one that just ran, from 0 */
    bool has_loss;
    double loss;
    dtp_runner_times times;
    double feed_s; /* making and copying the inputs; not part of times */
} dtp_step_result;

/* Feeds, runs and reads the loss. DTP_NOT_FINITE, with the same message on all ranks, when it is
 * not finite and that is not allowed; the step has been made then. Another failure on this rank is
 * told to the peers: under sim they return DTP_COMM, under mpi the job is aborted after printing
 * the error. */
dtp_status dtp_session_step(dtp_session *s, dtp_step_result *out, dtp_err *err) DTP_MUST_CHECK;
/* Looks at all parameters and optimizer states that steps change. DTP_NOT_FINITE, with the same
 * message on all ranks, names step, node, tensor and the lowest rank that holds such a value. */
dtp_status dtp_session_check(dtp_session *s, dtp_err *err) DTP_MUST_CHECK;
/* Next step. */
int64_t dtp_session_next_step(const dtp_session *s);
dtp_runner *dtp_session_runner(const dtp_session *s);

/* Bytes of this rank: asked from the backend at the highest, and touched. */
void dtp_session_peak(const dtp_session *s, int64_t *allocated, int64_t *touched);
/* The highest peak of every rank, in rank order; `out` holds as many as there are ranks. */
dtp_status dtp_session_peaks(dtp_session *s, int64_t *out, dtp_err *err) DTP_MUST_CHECK;

/* Whether a tensor can be read after a step: parameters, states, outputs, the loss, fetches. */
bool dtp_session_can_fetch(const dtp_session *s, dtp_tensor_id t);

/* Streams a tensor to rank 0 in bounded memory: visit is called there for consecutive elements of
 * the shard of each rank (elements first .. first + n - 1 of the shard's storage; sums of partial
 * layouts are already made). `replicas`: from all ranks, else from one holder of each shard. NULL
 * visit is allowed on other ranks. */
typedef dtp_status (*dtp_collect_visit)(void *user, int32_t rank, const dtp_shard *shard,
                                        int64_t first, int64_t n, const void *data, dtp_err *err);
dtp_status dtp_session_collect(dtp_session *s, dtp_tensor_id t, bool replicas,
                               dtp_collect_visit visit, void *user, dtp_err *err) DTP_MUST_CHECK;
/* The whole tensor on rank 0 (`out` is ignored elsewhere and may be NULL there). */
dtp_status dtp_session_gather(dtp_session *s, dtp_tensor_id t, void *out,
                              dtp_err *err) DTP_MUST_CHECK;
/* Gathers and writes <path> as .npy on rank 0. */
dtp_status dtp_session_fetch_npy(dtp_session *s, dtp_tensor_id t, const char *path,
                                 dtp_err *err) DTP_MUST_CHECK;

/* Parameters and states: a path that ends with .safetensors becomes one file (one tensor at a time
 * on rank 0), any other a directory of one file per rank and an index
 * (executor/files/checkpoint.h). What is there stays until the new one is complete. Values that are
 * not finite are never saved (DTP_NOT_FINITE as above, also with allow_nan). DTP_IO when another
 * job holds the lock. */
dtp_status dtp_session_save(dtp_session *s, const char *path, dtp_err *err) DTP_MUST_CHECK;
/* Parameters (all must be there), states (all or none: then they keep their initial values) and
 * step. */
dtp_status dtp_session_load(dtp_session *s, const char *path, dtp_err *err) DTP_MUST_CHECK;

#endif
