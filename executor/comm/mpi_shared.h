/* What the ranks of one host share. Every rank owns a segment that the others map: where it stands,
 * mailboxes, two small bounce buffers, and memory that the rank lends to its caller. A word is
 * written by the owner of the segment only. */
#ifndef DTP_EXECUTOR_COMM_MPI_SHARED_H
#define DTP_EXECUTOR_COMM_MPI_SHARED_H

#include <stdatomic.h>

#include "executor/comm/mpi_internal.h"
#include "executor/comm/free_list.h"

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

/* Where a rank stands, for the others. Odd version: it is being changed. */
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

/* What this rank saw of another one; see mpi_watch.c. */
typedef struct dtp_comm__observed {
    uint64_t version, turn;
    int32_t kind, mailbox;
    bool held;
    dtp_coll coll;
} dtp_comm__observed;

struct dtp_comm__shared {
    MPI_Comm world;
    dtp_mesh mesh;
    int32_t rank, size;
    bool use;
    int32_t spins;
    int fd;
    int64_t bytes;             /* of the address space of every segment */
    int64_t backed;            /* of it, from the start */
    dtp_comm__segment **bases; /* by rank; NULL = not on this host */
    dtp_comm__free_list ranges;
    dtp_comm__group groups[DTP_COMM_MAILBOXES];
    dtp_comm__observed *observed; /* by rank */
    dtp_comm__visit *visits;      /* by rank */
    bool failed;                  /* this rank, on its own */
};

/* Offset of memory in the own segment; -1 = elsewhere. */
int64_t dtp_comm__shared_offset(const dtp_comm__shared *s, const void *p);
/* The mesh dims that a mailbox is about. */
dtp_mesh_set dtp_comm__mailbox_set(const dtp_comm__shared *s, int32_t mailbox);

/* ---- mpi_watch.c: ranks that can never go on ---- */

/* This rank waits in vain so far: the others see it until dtp_comm__deadlock_end. */
void dtp_comm__deadlock_begin(dtp_comm__shared *s, int32_t mailbox, uint64_t turn);
void dtp_comm__deadlock_end(dtp_comm__shared *s);
/* Between the two: whether what this rank waits for will never come. Then it stands as STUCK or
 * FAILED, with the reason, for good. */
bool dtp_comm__deadlock_hopeless(dtp_comm__shared *s);
/* This rank runs no more collectives; false: nor did it before, and the first reason is kept. */
bool dtp_comm__deadlock_stop(dtp_comm__shared *s, dtp_comm__published_kind kind, const char *why);

#endif
