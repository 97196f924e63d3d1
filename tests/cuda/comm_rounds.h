/* Kernels, collectives and messages of virtual ranks on queues: buffers, and what they come to. */
#ifndef DTP_TESTS_CUDA_COMM_ROUNDS_H
#define DTP_TESTS_CUDA_COMM_ROUNDS_H

#include "tests/cuda/comm_ranks.h"

enum { ELEMS = 24, MAX_RANKS = 4, ROUNDS = 4, ALL = MAX_RANKS * ELEMS, BUFFERS = 7 };

/* What the rounds of a body have noted, by rank. */
extern float results[MAX_RANKS][2 * ROUNDS * ALL];

/* Puts to = factor * from on the compute queue. */
dtp_status rounds_scale(dtp_backend *b, float *from, double factor, float *to, int64_t n,
                        dtp_err *err);
/* Runs on buffers of ALL elements, of which the last has room for `results`, and brings it. The
 * values are small integers, different on all ranks. */
typedef dtp_status (*rounds)(dtp_comm *, dtp_backend *, float *const[BUFFERS], dtp_err *);
dtp_status rounds_on(dtp_comm *c, dtp_backend *b, rounds run, dtp_err *err);
/* The results of virtual ranks on the CPU. */
void rounds_expect(const char *mesh_text, ranks_body body, void *expected);

#endif
