/* Plain data of runners (executor/run/runner.h). */
#ifndef DTP_EXECUTOR_RUN_RUNNER_TYPES_H
#define DTP_EXECUTOR_RUN_RUNNER_TYPES_H

#include "executor/device/backend.h"
#include "dtp/session.h"
#include "spmd/program/program.h"

typedef struct dtp_runner dtp_runner;

/* Collectives of one kind over one set of mesh dims, per rank and step. */
typedef struct dtp_coll_stat {
    dtp_coll_kind kind;
    dtp_mesh_set set;
    int64_t count;
    int64_t bytes; /* sum of the larger buffer of each call: count elements of all_reduce and
                      collective_permute, n*count of the others */
} dtp_coll_stat;

/* For logs and tests: called before and after every instruction that this rank runs. */
typedef struct dtp_runner_watch {
    void (*event)(void *user, dtp_runner *r, int32_t instr, bool after);
    void *user;
} dtp_runner_watch;

typedef struct dtp_runner_options {
    bool profile;         /* keep the time of every instruction */
    bool borrowed_memory; /* the arena is the caller's, given by dtp_runner_set_memory */
    bool no_graph;        /* on a queue, put every instruction there in every step */
    dtp_runner *beside;   /* of another chunk of the stage, over the same transport; NULL: none */
    /* Where the first failure of a kernel is noted. The step goes on, on what the kernel left, so
     * that the peers are not left alone in a collective. Borrowed; the caller clears it before a
     * step. NULL: the step ends with the failure. */
    dtp_err *failure;
} dtp_runner_options;

enum { DTP_RUNNER_READS = 2 }; /* values of which a step notes the first element */

/* Of an instruction, from the begin of the step. */
typedef struct dtp_span {
    double begin_s, end_s;
} dtp_span;

#endif
