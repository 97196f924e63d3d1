/* Shared by the files of the MPI communicator. */
#ifndef DTP_EXECUTOR_COMM_MPI_INTERNAL_H
#define DTP_EXECUTOR_COMM_MPI_INTERNAL_H

#include <mpi.h>

#include "executor/comm/communicator_internal.h"

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

dtp_status dtp_comm__mpi_check(int code, const dtp_comm__mpi *c, const char *what,
                               dtp_err *err) DTP_MUST_CHECK;

/* ---- mpi_outcome.c: one outcome of a job ---- */

/* dtp_comm_conclude over the ranks of `world`, which nothing else uses meanwhile. */
dtp_status dtp_comm__mpi_outcome(MPI_Comm world, dtp_status mine, const dtp_comm_reporter *reporter,
                                 dtp_err *err) DTP_MUST_CHECK;

/* ---- mpi_blocks.c: collectives through MPI calls ---- */

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

/* ---- mpi_watch.c: ranks that can never go on ---- */

/* This rank runs no more collectives because of a failure of its own; false when not all ranks can
 * see that. */
bool dtp_comm__shared_fail(dtp_comm__shared *s, const char *why);
/* This rank runs no more collectives; those that wait for it are told. */
void dtp_comm__shared_end(dtp_comm__shared *s);
/* This rank destroys its communicator: those that wait for it are told. False when this rank failed
 * and another one ended without knowing, or does not seem to learn of it. */
bool dtp_comm__shared_leave(dtp_comm__shared *s);

#endif
