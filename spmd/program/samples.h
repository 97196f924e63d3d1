/* Measurements of one machine: what the executor's bench takes and the cost model's fit turns into
 * a machine description. Plain data, so that neither needs the other. */
#ifndef DTP_SPMD_PROGRAM_SAMPLES_H
#define DTP_SPMD_PROGRAM_SAMPLES_H

#include "spmd/program/arithmetic.h"
#include "spmd/program/program.h"

typedef enum dtp_sample_kind {
    DTP_SAMPLE_GEMM,         /* einsum that is one GEMM: work, arithmetic */
    DTP_SAMPLE_OP,           /* memory-bound op: name, work.bytes */
    DTP_SAMPLE_RATE,         /* the same op in a shape where arithmetic decides: name, work.flops */
    DTP_SAMPLE_MOVE,         /* staging copy: name, work.bytes = read plus written */
    DTP_SAMPLE_COLL,         /* coll, ranks, work.bytes = full buffer (docs/cost-model.md) */
    DTP_SAMPLE_LAUNCH,       /* a kernel with next to nothing to do */
    DTP_SAMPLE_LAUNCH_GRAPH, /* the same one among others in a recording of a queue */
    DTP_SAMPLE_BESIDE,       /* products beside a collective: slower */
    DTP_N_SAMPLE_KINDS
} dtp_sample_kind;

typedef struct dtp_sample {
    dtp_sample_kind kind;
    const char *name; /* op or kind of copy; static storage */
    dtp_work work;
    dtp_arithmetic arithmetic; /* GEMM, OP, RATE: of the first operand */
    dtp_coll_kind coll;
    int32_t ranks;    /* COLL: group size */
    double slower[2]; /* BESIDE: factors on the time of products and collective while both run */
    double time_s;    /* lower decile of the repeats, of the slowest rank */
    int32_t repeats;
} dtp_sample;

typedef struct dtp_samples {
    int32_t n, capacity;
    dtp_sample *items;
    int32_t ranks, threads; /* of the measurement; threads per rank */
} dtp_samples;

#endif
