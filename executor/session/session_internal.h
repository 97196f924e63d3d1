/* Shared by the files of the session. */
#ifndef DTP_EXECUTOR_SESSION_SESSION_INTERNAL_H
#define DTP_EXECUTOR_SESSION_SESSION_INTERNAL_H

#include "core/files/file_lock.h"
#include "core/layout/stored.h"
#include "executor/files/checkpoint.h"
#include "executor/run/collect.h"
#include "executor/session/session.h"
#include "spmd/program/stage_table.h"

/* Inputs on their way to the queue of a device: host memory for every microbatch of the steps that
 * may be started, so that none is overtaken, and the events that order copies and kernels. */
typedef struct dtp_session__feeds {
    char *ring;                             /* NULL: there is no queue */
    int64_t slot_bytes, at[DTP_MAX_STAGES]; /* of a microbatch; by chunk: where its inputs begin */
    dtp_event *free, *fed; /* the last microbatch has been computed; the inputs are there */
} dtp_session__feeds;

/* A step that is started. */
typedef struct dtp_session__started {
    int64_t step;
    double feed_s, rate;
} dtp_session__started;

/* Finding where a loss that is not finite comes from (finite_origin.c). */
typedef struct dtp_session__origin {
    int32_t first_update; /* the instruction; -1: nothing is kept */
    void **copies;        /* by update: its target before the updates of such a step; else NULL */
    bool looks;           /* that step runs once more */
    int32_t microbatch;
    int64_t found[2]; /* first place of NaN or inf, of -inf */
    double value[2];
} dtp_session__origin;

/* Of a plan with stages (session_stages.c). */
typedef struct dtp_session__pipeline {
    const dtp_stages *stages; /* NULL: there are none */
    int32_t stage;            /* of this rank; its chunks are stage, stage + stages->n, ... */
    dtp_comm *comm;           /* of its stage; without stages the session's */
    dtp_mesh mesh;            /* of all ranks, the stages outermost */
    dtp_arena *arena;
    dtp_stage_table table;
    dtp_value_id *home_value; /* by tensor: dtp_session__readable of the program of its home */
    dtp_message *messages;    /* by transfer * microbatches + microbatch, * 2, + 1 to send */
    dtp_action_times *ran;    /* by action: in the last step, */
    double step_s;            /* which took so long, without feeds */
    int32_t *emptied;         /* by slot: the action whose gradients are under way; -1: none */
} dtp_session__pipeline;

struct dtp_session {
    dtp_runner *runners[DTP_MAX_STAGES]; /* by chunk of this rank, n_chunks */
    dtp_value_id *tensor_values[DTP_MAX_STAGES];
    const dtp_program *program; /* of the chunk that is entered, as runner and tensor_value */
    dtp_backend *backend;
    dtp_comm *comm;
    dtp_ctx ctx;
    bool log;
    uint64_t seed;
    dtp_runner *runner;
    dtp_feed *feed;
    int32_t n_chunks;        /* programs of this rank: 1, or chunks of its stage */
    int32_t chunk;           /* that is entered */
    dtp_tensor_id set_input; /* has these values and no feed */
    const void *set_values;  /* NULL: all have feeds */
    dtp_session__pipeline pipeline;
    dtp_value_id *tensor_value; /* by tensor id: what a reader gets; -1 = not kept there */
    void *host;                 /* for the largest shard that is fed or initialised */
    int64_t host_bytes;
    int64_t step;
    int64_t first_fed; /* the step that gets the first rows; 0 where rows are shuffled */
    dtp_session__feeds feeds;
    dtp_session__started started[2]; /* by step, in turn */
    int64_t n_started, n_finished;
    bool allow_nan;
    dtp_session__origin origin;
    int32_t keep;
    dtp_file_lock *lock; /* on rank 0, of the checkpoint that the job is to write; else NULL */
    char *locked;        /* its path, on all ranks; NULL: none */
    dtp_run_texts run;   /* what its steps speak of */
    char *resumed;       /* path of what the session goes on from; NULL: it does not resume */
    bool made_folder;    /* for it */
    const dtp_stored_params *stored; /* how a framework has the parameters; NULL */
    dtp_dtype *types;                /* by view of it: element types in its files */
};

/* DTP_NOT_FINITE on all ranks when the loss of the step, of which `own` is this rank's part, is not
 * finite, or the norm of the gradients, but where a loss scale has skipped the step. */
dtp_status dtp_session__check_loss(dtp_session *s, const dtp_step_result *result, double own,
                                   dtp_err *err) DTP_MUST_CHECK;

/* After the runner is made; before it is destroyed. */
void dtp_session__origin_open(dtp_session *s);
void dtp_session__origin_close(dtp_session *s);
/* "; the first nan or inf: node 'y' (log), inf at rank 0", "" when nothing was kept. All
 * ranks together, after a step whose loss is not finite, which runs once more. */
dtp_status dtp_session__origin_find(dtp_session *s, int64_t step, char *out, size_t bytes,
                                    dtp_err *err) DTP_MUST_CHECK;

/* Says in s->run what steps of the session speak of. */
dtp_status dtp_session__run_describe(dtp_session *s, dtp_err *err) DTP_MUST_CHECK;
/* Whether steps of a run that a checkpoint at `path` is of mean the same here. What may differ is a
 * warning. DTP_INVALID naming both. */
dtp_status dtp_session__run_compare(dtp_session *s, const char *path, const dtp_run_texts *was,
                                    dtp_err *err) DTP_MUST_CHECK;

/* As after creation without `load`: the initial values, and step 0. */
dtp_status dtp_session__restart(dtp_session *s, dtp_err *err) DTP_MUST_CHECK;

/* Fills the inputs of microbatch j of the step to start, or puts that on the queue. */
dtp_status dtp_session__feed(dtp_session *s, int32_t j, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_session__feed_open(dtp_session *s, dtp_err *err) DTP_MUST_CHECK;
void dtp_session__feed_close(dtp_session *s);

/* Makes the session one of the stage of this rank; `p` is the program of any chunk. Collective. */
dtp_status dtp_session__stages_open(dtp_session *s, const dtp_program *p,
                                    dtp_err *err) DTP_MUST_CHECK;
void dtp_session__stages_close(dtp_session *s);
/* Makes program, runner and tensor_value those of a chunk of this rank. */
void dtp_session__enter(dtp_session *s, int32_t k);
/* Finishes the runners of a step. *loss and *norm: what this rank has of them, 0: nothing; times
 * are those of all chunks. */
dtp_status dtp_session__finish_chunks(dtp_session *s, dtp_runner_times *times, double *loss,
                                      double *norm, dtp_err *err) DTP_MUST_CHECK;
/* dtp_runner_give_up. */
void dtp_session__abandon(dtp_session *s, const char *why);
/* The chunk of this rank that has a tensor, its home before one with a copy. */
int32_t dtp_session__chunk_of(const dtp_session *s, dtp_tensor_id t);
/* By tensor what a reader gets: the resident value, or one that survives the step; -1 = none. */
void dtp_session__readable(const dtp_program *p, dtp_value_id *out);
/* Runs the table of the stage; *feed_s grows by the time of feeds. */
dtp_status dtp_session__stage_step(dtp_session *s, double *feed_s, dtp_err *err) DTP_MUST_CHECK;
/* What a reader gets of a tensor, in the chunk that is its home; NULL: it is not kept. */
const dtp_value *dtp_session__kept(const dtp_session *s, dtp_tensor_id t);
/* *x of the ranks at the home of a tensor on all ranks; without stages as it is. Collective. */
dtp_status dtp_session__share(dtp_session *s, dtp_tensor_id t, double *x,
                              dtp_err *err) DTP_MUST_CHECK;

/* The collection of what is kept of a tensor, over no mesh dims yet. */
dtp_collection dtp_session__collection(const dtp_session *s, dtp_tensor_id t);
/* Streams a tensor to rank 0 in bounded memory: `out` gets it there, or `visit` sees it.
 * `replicas`: from all ranks, else from one holder of each shard. */
dtp_status dtp_session__collect(dtp_session *s, dtp_tensor_id t, bool replicas, void *out,
                                dtp_collect_visit visit, void *user, dtp_err *err) DTP_MUST_CHECK;

/* What a gradient that was collected is multiplied by to be that of the loss (grad_factor of
 * dtp_graph), on rank 0; 1 there for other tensors, and elsewhere. Collective. */
dtp_status dtp_session__gradient_factor(dtp_session *s, dtp_tensor_id t, double *out,
                                        dtp_err *err) DTP_MUST_CHECK;

/* A new buffer with the whole tensor on rank 0 (elsewhere NULL), the caller's to free. All ranks
 * learn when there is no memory for it. */
dtp_status dtp_session__gather_new(dtp_session *s, dtp_tensor_id t, void **out,
                                   dtp_err *err) DTP_MUST_CHECK;

#endif
