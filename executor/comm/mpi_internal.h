/* Shared by the files of the MPI communicator. */
#ifndef DTP_EXECUTOR_COMM_MPI_INTERNAL_H
#define DTP_EXECUTOR_COMM_MPI_INTERNAL_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "executor/comm/communicator_internal.h"
#include "executor/comm/free_list.h"

enum { DTP_COMM_SETS = 1 << DTP_MAX_MESH_DIMS };

typedef struct dtp_comm__shared dtp_comm__shared;
typedef struct dtp_comm__remote dtp_comm__remote;

typedef struct dtp_comm__mpi {
    dtp_comm base;
    MPI_Comm world;
    MPI_Comm outcome;         /* for dtp_comm_conclude alone; MPI_COMM_NULL: no conclusion */
    bool aborted;             /* this rank failed, and the others were told */
    bool concluded;           /* all ranks know the outcome */
    dtp_comm__shared *shared; /* NULL: no memory is shared with other ranks */
    dtp_comm__remote *remote;
    dtp_comm__scratch scratch;
} dtp_comm__mpi;

/* ---- memory shared by the ranks of a host ---- */

/* What the ranks of one host share. Every rank owns a segment that the others map: its published
 * state, mailboxes, two small bounce buffers, and memory registered for its caller. A word is
 * written by the owner of the segment only. */
enum {
    DTP_COMM_LINE_BYTES = 64,
    DTP_COMM_PAGE_BYTES = 4096,
    DTP_COMM_BOUNCE_BYTES = 32 << 10,
    DTP_COMM_BARRIER = DTP_COMM_SETS, /* the mailbox of the barrier; the others are by set */
    DTP_COMM_MAILBOXES
};

/* Read by the members of the owner's group. */
typedef struct dtp_comm__mailbox {
    _Alignas(DTP_COMM_LINE_BYTES) _Atomic uint64_t posted; /* the turn that the rest is about */
    dtp_coll coll;
    /* offsets in the owner's segment, of each end of a bucket; -1 = elsewhere */
    int64_t in[DTP_MAX_BUCKET], out[DTP_MAX_BUCKET];
    _Alignas(DTP_COMM_LINE_BYTES) _Atomic uint64_t done; /* last turn whose work is done */
} dtp_comm__mailbox;

typedef enum dtp_comm__published_kind {
    DTP_COMM_RUNS,
    DTP_COMM_WAITS,      /* for the others to post `turn` in mailbox `mailbox` */
    DTP_COMM_WORKS,      /* on a posted turn, and waits for the others to be done with it */
    DTP_COMM_WAITS_AFAR, /* for ranks of other hosts, which has a deadline of its own */
    DTP_COMM_LEFT,       /* ended without a failure */
    DTP_COMM_FAILED,     /* runs no more collectives because of a failure of its own: `why` */
    DTP_COMM_STUCK,      /* runs no more collectives because the ranks disagree: `why` */
    DTP_COMM_LOST /* no rank does, because ranks did not come in time: `why`; rank `turn` found
                            out */
} dtp_comm__published_kind;

/* Published state of a rank, read by the others. Odd version: it is being changed. */
typedef struct dtp_comm__published {
    _Alignas(DTP_COMM_LINE_BYTES) _Atomic uint64_t version;
    _Atomic int32_t kind, mailbox;
    _Atomic uint64_t turn;
    char why[DTP_ERR_MSG_BYTES];
} dtp_comm__published;

typedef struct dtp_comm__segment {
    uint64_t token;
    dtp_comm__published published;
    dtp_comm__mailbox mailboxes[DTP_COMM_MAILBOXES];
    _Alignas(DTP_COMM_PAGE_BYTES) char bounce_in[DTP_COMM_BOUNCE_BYTES];
    char bounce_out[DTP_COMM_BOUNCE_BYTES];
} dtp_comm__segment;

/* The group of this rank that uses one mailbox. */
typedef struct dtp_comm__group {
    bool known;             /* the members */
    bool looked, reachable; /* whether all are on this host */
    int32_t n, me;
    uint64_t turn;
    dtp_comm__segment **members;
    const dtp_coll_ends **ends; /* by member */
    dtp_coll_ends *ends_of;     /* DTP_MAX_BUCKET for each */
} dtp_comm__group;

/* Observed state of another rank; see mpi_deadlock.c. */
typedef struct dtp_comm__observed {
    uint64_t version, turn;
    int32_t kind, mailbox;
    bool held;
    dtp_coll coll;
} dtp_comm__observed;

struct dtp_comm__shared {
    dtp_arena *arena; /* of all arrays below */
    const dtp_comm *base;
    dtp_comm__remote *remote;
    MPI_Comm world;
    dtp_mesh mesh;
    int32_t rank, size;
    bool use;
    int32_t spins;
    int fd;
    int64_t bytes;                 /* of the address space of every segment */
    int64_t backed;                /* of it, from the start */
    dtp_comm__segment **bases;     /* by rank; NULL = not on this host */
    dtp_comm__free_list free_list; /* of the registered memory */
    dtp_comm__group groups[DTP_COMM_MAILBOXES];
    dtp_comm__observed *observed; /* by rank */
    dtp_comm__visit *visits;      /* by rank */
    bool failed;                  /* this rank, on its own */
};

/* ---- mpi_outcome.c: one outcome of a job ---- */

/* dtp_comm_conclude over the ranks of `world`, which nothing else uses meanwhile; each waits for
 * the others at most limit_s. */
dtp_status dtp_comm__mpi_outcome(MPI_Comm world, double limit_s, dtp_status mine,
                                 const dtp_comm_reporter *reporter, dtp_err *err) DTP_MUST_CHECK;
/* The same once ranks are lost: the `first` of those that found out reports and ends the job. Does
 * not return. */
void dtp_comm__mpi_end_lost(MPI_Comm world, bool first, const dtp_comm_reporter *reporter,
                            const dtp_err *err);

/* A limit on calls of MPI that may never return: the process ends with `code` unless
 * dtp_comm__guard_end comes in time. `what` is printed then; NULL: nothing. */
typedef struct dtp_comm__guard dtp_comm__guard;
dtp_comm__guard *dtp_comm__guard_begin(double limit_s, const char *what, int code);
void dtp_comm__guard_end(dtp_comm__guard *guard);
/* MPI_Abort, and the end of this process in any case. */
void dtp_comm__mpi_end_job(MPI_Comm world, int code);

/* DTP_COMM unless MPI returned success. */
dtp_status dtp_comm__mpi_check(int code, int32_t rank, const char *what,
                               dtp_err *err) DTP_MUST_CHECK;

/* ---- mpi_remote.c: collectives between hosts ---- */

enum { DTP_COMM_MISSING = 8 };

/* What a rank says of itself when it is asked. */
typedef struct dtp_comm__answer {
    bool answered;
    int32_t kind;                                 /* dtp_comm__published_kind: RUNS or WAITS */
    int32_t n_missing, missing[DTP_COMM_MISSING]; /* ranks that it waits for */
    dtp_coll coll;                                /* in this */
} dtp_comm__answer;

typedef struct dtp_comm__control dtp_comm__control;

/* A message that a rank waits for. */
typedef struct dtp_comm__wait {
    bool on; /* else for none */
    int32_t peer;
    dtp_coll coll; /* in words */
    double since_s;
} dtp_comm__wait;

/* A queue of collectives and the thread that runs them, one after the other, in the order of their
 * starts, with the messages beside them. It makes all MPI calls of both, and sleeps between looks
 * so that kernels have the core. */
struct dtp_comm__remote {
    const dtp_comm *base;
    MPI_Comm world;
    dtp_comm__shared *shared; /* NULL: none */
    int64_t limit;            /* largest count of one message */
    /* dtp_comm__messages_run */
    dtp_status (*run)(dtp_comm__remote *r, const dtp_coll *coll, const dtp_coll_ends *ends,
                      dtp_err *err);
    /* dtp_comm__messages_move, dtp_comm__messages_abandon */
    dtp_status (*move)(dtp_comm__remote *r, dtp_err *err);
    void (*abandon)(dtp_comm__remote *r);
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool threaded; /* MPI allows the thread; else collectives run when they are started */
    bool runs;     /* it does */
    /* with the lock held */
    bool busy;      /* the thread is at a collective */
    bool announced; /* the others know that ranks are lost */
    bool unclean;   /* requests of a collective that failed are still under way */
    bool stuck;     /* the thread did not return from MPI when the process was to end */
    int32_t issuer; /* once `lost`: the lowest rank that found out */
    dtp_request *first, *last;
    uint64_t started, done;
    dtp_message *posted, *last_posted; /* messages that are to begin */
    dtp_message *held;  /* receives that wait for sends of their memory, of who looks */
    int32_t n_messages; /* that were posted and have not gone */
    dtp_comm__wait awaited;
    dtp_err failure;        /* once `broken` */
    const char *last_words; /* what the thread tells the peers when it is to end, unless NULL */
    _Atomic bool broken, lost;
    _Atomic bool stop;       /* the thread is to end */
    _Atomic int32_t waiting; /* a thread waits: no sleep between looks */
    _Atomic uint64_t looks;  /* at MPI, in all */
    /* of the thread alone */
    int32_t n_requests;
    int32_t failed_rank;         /* the first rank heard of that runs no more collectives, */
    char why[DTP_ERR_MSG_BYTES]; /* and why */
    double since_s;              /* when the collective at hand began */
    bool asked;                  /* the others, because the process ends */
    const dtp_coll *coll;        /* it; NULL: none */
    MPI_Request *requests;       /* of it */
    MPI_Request *awaited_wave;   /* those of them that are waited for */
    dtp_comm__scratch openings, blocks, request_memory, indices, copy, bucket;
    dtp_comm__wait wait; /* `awaited` at the last look */
    int32_t n_moving;    /* requests of messages */
    dtp_comm__scratch moving, moves, gone,
        statuses; /* they; the message of each; for MPI_Testsome */
    /* messages about the ranks */
    dtp_comm__control *heard, *said; /* said: those under way */
    MPI_Request hearing;
    dtp_comm__answer *answers; /* by rank */
    dtp_comm__visit *visits;   /* by rank */
    bool *failed;              /* by rank: it runs no more collectives */
};

/* Borrows base and shared (may be NULL). */
dtp_status dtp_comm__remote_create(const dtp_comm *base, MPI_Comm world, dtp_comm__shared *shared,
                                   dtp_comm__remote **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_comm__remote_destroy(dtp_comm__remote *r);
/* Starts the thread; the first collective does, too. */
dtp_status dtp_comm__remote_begin(dtp_comm__remote *r, dtp_err *err) DTP_MUST_CHECK;
/* Ends the thread; nothing is touched any more. `why`, unless NULL, is sent to the peers. */
void dtp_comm__remote_end(dtp_comm__remote *r, const char *why);
/* See dtp_transport_ops. */
dtp_status dtp_comm__remote_start(dtp_comm__remote *r, dtp_request *request,
                                  dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_comm__remote_wait(dtp_comm__remote *r, const dtp_request *request,
                                 dtp_err *err) DTP_MUST_CHECK;
/* Waits until no collective of the queue writes what another one, which does not go through the
 * queue, touches, or reads what it writes. */
dtp_status dtp_comm__remote_settle(dtp_comm__remote *r, const dtp_request *other,
                                   dtp_err *err) DTP_MUST_CHECK;
/* Why no more collectives can run; DTP_OK: they can. */
dtp_status dtp_comm__remote_failure(dtp_comm__remote *r, dtp_err *err) DTP_MUST_CHECK;
/* For mpi_messages.c, on the thread: unless MPI returned success, the ranks that the collective
 * waits for are lost. */
dtp_status dtp_comm__remote_check(dtp_comm__remote *r, int code, dtp_err *err) DTP_MUST_CHECK;
/* For mpi_messages.c, on the thread: waits until all requests of a wave are done. */
dtp_status dtp_comm__remote_finish(dtp_comm__remote *r, MPI_Request *wave,
                                   dtp_err *err) DTP_MUST_CHECK;
/* Looks at messages and at what the others say. DTP_COMM: nothing goes any more. */
dtp_status dtp_comm__remote_look(dtp_comm__remote *r, dtp_err *err) DTP_MUST_CHECK;
/* Waits some time for a change, with the lock held. True: the thread is stuck in MPI, and the
 * process is about to be killed. */
bool dtp_comm__remote_stuck(dtp_comm__remote *r);
/* On the thread: waits for requests that were cancelled, or will end; where some do not, the job
 * cannot end as usual. */
void dtp_comm__remote_take_back(dtp_comm__remote *r, int32_t n, MPI_Request *requests);
/* No more collectives can run; called with the lock held. */
void dtp_comm__remote_break_locked(dtp_comm__remote *r, const dtp_err *why);
/* The ranks are lost; takes over the verdict, which the thread tells the others when it is this
 * rank's. */
void dtp_comm__remote_lose(dtp_comm__remote *r, int32_t issuer, const char *why);

/* ---- mpi_messages.c ---- */

/* The collective over a group of more than one; count > 0. */
dtp_status dtp_comm__messages_run(dtp_comm__remote *r, const dtp_coll *coll,
                                  const dtp_coll_ends *ends, dtp_err *err) DTP_MUST_CHECK;

/* ---- mpi_stages.c: messages between stages ---- */

/* See dtp_transport_ops. */
dtp_status dtp_comm__message_post(dtp_comm__remote *r, dtp_message *m, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_comm__message_finish(dtp_comm__remote *r, dtp_message *m,
                                    dtp_err *err) DTP_MUST_CHECK;
/* On the thread: begins what was posted, takes note of what has gone. */
dtp_status dtp_comm__messages_move(dtp_comm__remote *r, dtp_err *err) DTP_MUST_CHECK;
/* On the thread, where nothing goes any more: takes messages back. */
void dtp_comm__messages_abandon(dtp_comm__remote *r);
/* Waits until it has done so. */
void dtp_comm__messages_quiet(dtp_comm__remote *r);

/* ---- mpi_segment.c: memory shared by the ranks of a host ---- */

/* Collective over all ranks. *out is NULL when the ranks of this host cannot share memory. */
dtp_status dtp_comm__shared_create(const dtp_comm *base, MPI_Comm world, dtp_comm__shared **out,
                                   dtp_err *err) DTP_MUST_CHECK;
void dtp_comm__shared_destroy(dtp_comm__shared *s);
/* For tests: false = everything goes through MPI calls from now on. All ranks alike. */
void dtp_comm__shared_use(dtp_comm__shared *s, bool use);
/* Memory that the other ranks of this host can reach; NULL when there is none left. */
void *dtp_comm__shared_alloc(dtp_comm__shared *s, size_t bytes);
/* False when ptr is not such memory. */
bool dtp_comm__shared_free(dtp_comm__shared *s, void *ptr);

/* Offset of memory in the own segment; -1 = elsewhere. */
int64_t dtp_comm__shared_offset(const dtp_comm__shared *s, const void *p);
/* The mesh dims that a mailbox is about. */
dtp_mesh_set dtp_comm__mailbox_set(const dtp_comm__shared *s, int32_t mailbox);

/* ---- mpi_shared.c: collectives through shared memory ---- */

/* Whether the group of this rank over a set of mesh dims lies on this host. */
bool dtp_comm__shared_reaches(dtp_comm__shared *s, dtp_mesh_set set);
/* Runs the collective when its group lies on one host and all members can reach all buffers;
 * *ran says whether. Every member of the group calls it for every collective. DTP_COMM when the
 * ranks disagree: on every rank that waits, then or later, and on every later call. */
dtp_status dtp_comm__shared_run(dtp_comm__shared *s, const dtp_coll *coll,
                                const dtp_coll_ends *ends, bool *ran, dtp_err *err) DTP_MUST_CHECK;
/* The barrier of all ranks when they are on one host; *ran says whether. */
dtp_status dtp_comm__shared_barrier(dtp_comm__shared *s, bool *ran, dtp_err *err) DTP_MUST_CHECK;

/* ---- mpi_deadlock.c: ranks that can never go on ---- */

/* This rank waits in vain so far: the others see it until dtp_comm__deadlock_end. `kind` is WAITS,
 * WORKS or WAITS_AFAR. */
void dtp_comm__deadlock_begin(dtp_comm__shared *s, dtp_comm__published_kind kind, int32_t mailbox,
                              uint64_t turn);
void dtp_comm__deadlock_end(dtp_comm__shared *s);
/* Between the two: whether what this rank waits for will never come. Then it publishes STUCK,
 * FAILED or LOST, with the reason, for good. */
bool dtp_comm__deadlock_hopeless(dtp_comm__shared *s);
/* Between the two: whether this rank has waited for longer than the deadline. Then it publishes
 * LOST, with the ranks that keep it waiting. */
bool dtp_comm__deadlock_overdue(dtp_comm__shared *s, double waited_s);
/* The ranks of this host that a rank waits for, by its published state; returns how many. */
int32_t dtp_comm__deadlock_missing(const dtp_comm__shared *s, int32_t rank, int32_t most,
                                   int32_t *missing, dtp_coll *coll);
/* This rank runs no more collectives; false: nor did it before, and the first reason is kept. */
bool dtp_comm__deadlock_stop(dtp_comm__shared *s, dtp_comm__published_kind kind, const char *why);
/* This rank runs no more collectives because of a failure of its own; false when not all ranks can
 * see that. */
bool dtp_comm__shared_fail(dtp_comm__shared *s, const char *why);
/* This rank runs no more collectives; ranks that wait for it learn of it. */
void dtp_comm__shared_end(dtp_comm__shared *s);
/* This rank destroys its communicator: ranks that wait for it learn of it. False when this rank
 * failed and another one ended without knowing, or does not seem to learn of it. */
bool dtp_comm__shared_leave(dtp_comm__shared *s);

#endif
