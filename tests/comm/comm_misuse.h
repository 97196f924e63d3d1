/* Ranks that disagree on what they run: every rank gets an error that names both sides, none hangs,
 * and later calls fail at once. For sim and for mpi ranks of one host. */
#ifndef DTP_TESTS_COMM_COMM_MISUSE_H
#define DTP_TESTS_COMM_COMM_MISUSE_H

#include "executor/comm/communicator.h"

typedef struct comm_misuse {
    const char *name;
    int32_t n_dims; /* of the mesh: "x:N", or "x:2;y:2" */
    dtp_rank_body body;
} comm_misuse;

extern const comm_misuse comm_misuses[];
extern const int32_t comm_n_misuses;

#endif
