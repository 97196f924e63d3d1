/* Virtual ranks, shared by their files: sim_world.c, above it sim_messages.c, and sim.c
 * (collectives, runs). */
#ifndef DTP_EXECUTOR_COMM_SIM_INTERNAL_H
#define DTP_EXECUTOR_COMM_SIM_INTERNAL_H

#include <pthread.h>
#include <time.h>

#include "executor/comm/communicator_internal.h"

typedef struct dtp_sim__gate {
    int32_t arrived;
    uint64_t generation;
} dtp_sim__gate;

/* What members show each other during a collective, by member index. */
typedef struct dtp_sim__group {
    int32_t n;
    dtp_sim__gate gate;
    const dtp_coll_ends **ends;
    dtp_coll *colls;
} dtp_sim__group;

/* The groups over one set of mesh dims; group g has ranks with equal coordinates elsewhere. */
typedef struct dtp_sim__division {
    int32_t n_groups;
    dtp_sim__group *groups;
} dtp_sim__division;

enum { DTP_SIM__SETS = 1 << DTP_MAX_MESH_DIMS };

/* A rank that runs no more collectives, and the failure that it is about. */
typedef struct dtp_sim__halt {
    bool on;
    bool late;     /* because others did not come in time */
    int32_t cause; /* whose failure; the rank itself, or one that it waited for */
    char why[DTP_ERR_MSG_BYTES];
} dtp_sim__halt;

/* One virtual rank. */
typedef struct dtp_sim__rank {
    dtp_comm *comm;
    dtp_status status;
    dtp_err err;
    pthread_t thread;
    bool started; /* it has a thread of its own */
} dtp_sim__rank;

/* The virtual ranks of one mesh: started once, run as often as wanted, by one thread at a time. A
 * run that failed leaves no trace. */
typedef struct dtp_sim__world {
    dtp_arena *arena; /* changed with the lock held; of all arrays below */
    dtp_mesh mesh;
    int32_t size;
    pthread_mutex_t lock;
    pthread_cond_t *wake; /* by rank: for one that waits at a gate */
    dtp_sim__gate all;
    dtp_sim__division *divisions[DTP_SIM__SETS];
    int32_t n_waiting, n_ended; /* ranks at a gate that is not complete; ranks that are done */
    dtp_comm__visit *visits;    /* by rank */
    dtp_sim__halt *halts;       /* by rank */
    bool failed;                /* some rank has halted */
    bool over;                  /* no rank can go on */
    bool stuck; /* over, and none had failed: the ranks wait for each other: `why` */
    char why[DTP_ERR_MSG_BYTES];
    /* the present run */
    pthread_cond_t begins, ends;
    uint64_t run; /* number of runs so far */
    bool closed;  /* there will be no more */
    dtp_rank_body body;
    void *user;
    dtp_sim__rank *jobs;   /* by rank */
    dtp_message *messages; /* posted and not matched, in the order of the posts */
} dtp_sim__world;

typedef struct dtp_sim__comm {
    dtp_comm base;
    dtp_sim__world *world;
    dtp_comm__scratch scratch;
    bool late;                 /* a collective is done when it or a later one is waited for */
    dtp_request *first, *last; /* started and not done */
} dtp_sim__comm;

/* With the lock of the world held. */

/* A rank that runs no more collectives: those that wait for it are woken, its messages are gone. */
void dtp_sim__halt_rank(dtp_sim__world *w, int32_t rank, int32_t cause, const char *why);
/* When every rank waits or has ended, none of them can ever go on: they are told so. */
void dtp_sim__check_stuck(dtp_sim__world *w);
/* Rank `rank` halts: `coll` is not done in time. */
void dtp_sim__halt_late(dtp_sim__world *w, int32_t rank, const dtp_coll *coll);
/* The failure of a rank that cannot go on: its own lateness, that all wait for each other, or that
 * of rank `failed`, because of which it then halts too. DTP_COMM. */
dtp_status dtp_sim__give_up(dtp_sim__world *w, int32_t rank, int32_t failed,
                            dtp_err *err) DTP_MUST_CHECK;

/* When a wait that begins now ends at the latest. */
struct timespec dtp_sim__deadline(const dtp_sim__world *w, int32_t rank);

/* Messages, as in transport.h. */
dtp_status dtp_sim__post(dtp_transport *t, dtp_message *message, dtp_err *err) DTP_MUST_CHECK;
dtp_status dtp_sim__finish(dtp_transport *t, dtp_message *message, dtp_err *err) DTP_MUST_CHECK;

#endif
