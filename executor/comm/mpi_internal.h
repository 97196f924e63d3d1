/* Shared by the files of the MPI communicator. */
#ifndef DTP_EXECUTOR_COMM_MPI_INTERNAL_H
#define DTP_EXECUTOR_COMM_MPI_INTERNAL_H

#include <mpi.h>
#include <stdatomic.h>

#include "executor/comm/communicator_internal.h"
#include "executor/comm/free_list.h"

enum { DTP_COMM_SETS = 1 << DTP_MAX_MESH_DIMS };

typedef struct dtp_comm__shared dtp_comm__shared;

typedef struct dtp_comm__mpi {
    dtp_comm base;
    MPI_Comm world;
    MPI_Comm outcome; /* for dtp_comm_conclude alone; MPI_COMM_NULL: there is no conclusion */
    MPI_Comm subs[DTP_COMM_SETS];
    int64_t limit;            /* largest count given to MPI in one call */
    bool lost;                /* a call to MPI failed: what the peers do in theirs is unknown */
    bool concluded;           /* all ranks know the outcome */
    dtp_comm__shared *shared; /* NULL: no memory is shared with other ranks */
    dtp_comm__scratch scratch, blocks;
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
    int64_t in, out; /* offsets in the owner's segment; -1 = elsewhere */
    _Alignas(DTP_COMM_LINE_BYTES) _Atomic uint64_t done; /* last turn whose work is done */
} dtp_comm__mailbox;

typedef enum dtp_comm__published_kind {
    DTP_COMM_RUNS,
    DTP_COMM_WAITS,  /* for the others to post `turn` in mailbox `mailbox` */
    DTP_COMM_LEFT,   /* ended without a failure */
    DTP_COMM_FAILED, /* runs no more collectives because of a failure of its own: `why` */
    DTP_COMM_STUCK   /* runs no more collectives because the ranks disagree: `why` */
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
    dtp_comm__slot *slots;
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

/* dtp_comm_conclude over the ranks of `world`, which nothing else uses meanwhile. */
dtp_status dtp_comm__mpi_outcome(MPI_Comm world, dtp_status mine, const dtp_comm_reporter *reporter,
                                 dtp_err *err) DTP_MUST_CHECK;

/* ---- mpi_blocks.c: collectives through MPI calls ---- */

/* DTP_COMM unless MPI returned success. */
dtp_status dtp_comm__mpi_check(int code, const dtp_comm__mpi *c, const char *what,
                               dtp_err *err) DTP_MUST_CHECK;
/* The collective over sub-communicator coll->set, which has more than one member; count > 0, in and
 * out do not overlap but where allowed in place. */
dtp_status dtp_comm__mpi_call(dtp_comm__mpi *c, const dtp_coll *coll, const void *in, void *out,
                              dtp_err *err) DTP_MUST_CHECK;

/* ---- mpi_segment.c: memory shared by the ranks of a host ---- */

/* Collective over all ranks. *out is NULL when the ranks of this host cannot share memory. */
dtp_status dtp_comm__shared_create(MPI_Comm world, const dtp_mesh *mesh, dtp_comm__shared **out,
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
dtp_status dtp_comm__shared_run(dtp_comm__shared *s, const dtp_coll *coll, const void *in,
                                void *out, bool *ran, dtp_err *err) DTP_MUST_CHECK;
/* The barrier of all ranks when they are on one host; *ran says whether. */
dtp_status dtp_comm__shared_barrier(dtp_comm__shared *s, bool *ran, dtp_err *err) DTP_MUST_CHECK;

/* ---- mpi_deadlock.c: ranks that can never go on ---- */

/* This rank waits in vain so far: the others see it until dtp_comm__deadlock_end. */
void dtp_comm__deadlock_begin(dtp_comm__shared *s, int32_t mailbox, uint64_t turn);
void dtp_comm__deadlock_end(dtp_comm__shared *s);
/* Between the two: whether what this rank waits for will never come. Then it publishes STUCK or
 * FAILED, with the reason, for good. */
bool dtp_comm__deadlock_hopeless(dtp_comm__shared *s);
/* This rank runs no more collectives; false: nor did it before, and the first reason is kept. */
bool dtp_comm__deadlock_stop(dtp_comm__shared *s, dtp_comm__published_kind kind, const char *why);
/* This rank runs no more collectives because of a failure of its own; false when not all ranks can
 * see that. */
bool dtp_comm__shared_fail(dtp_comm__shared *s, const char *why);
/* This rank runs no more collectives; those that wait for it are told. */
void dtp_comm__shared_end(dtp_comm__shared *s);
/* This rank destroys its communicator: those that wait for it are told. False when this rank failed
 * and another one ended without knowing, or does not seem to learn of it. */
bool dtp_comm__shared_leave(dtp_comm__shared *s);

#endif
