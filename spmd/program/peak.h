/* What makes up the peak: the buffers that are needed at the time when most bytes are needed. */
#ifndef DTP_SPMD_PROGRAM_PEAK_H
#define DTP_SPMD_PROGRAM_PEAK_H

#include "core/graph/uses.h"
#include "spmd/program/program.h"

/* What a buffer holds: a tensor of some use (dtp_memory_use), a copy of one that the forward
 * pass gathered and the backward pass reads, else no tensor: staging and workspace. */
enum { DTP_HELD_BUFFERS = DTP_N_MEMORY_USES, DTP_HELD_COPIES, DTP_N_HELD };
int32_t dtp_held_kind(const dtp_program *p, dtp_value_id v);
/* "parameters", ..., "buffers". */
const char *dtp_held_name(int32_t kind);

/* Whether a value is a copy in another layout that the forward pass made and the backward pass
 * reads. The program has its liveness. */
bool dtp_value_is_kept_copy(const dtp_program *p, dtp_value_id v);

typedef struct dtp_peak_buffer {
    int64_t bytes;
    dtp_value_id value; /* what is in it then: a version of a tensor if there is one */
} dtp_peak_buffer;

typedef struct dtp_peak {
    int32_t at;    /* instruction, the first of those with most bytes; -1: an empty program */
    int64_t bytes; /* needed then; the arena is larger by what could not be packed tightly */
    int32_t n;
    dtp_peak_buffer *buffers; /* largest first */
} dtp_peak;

/* The program has its liveness (dtp_lower). Storage from `arena`. */
dtp_status dtp_peak_find(const dtp_program *p, dtp_arena *arena, dtp_peak *out,
                         dtp_err *err) DTP_MUST_CHECK;
/* The same while instruction `at` runs. */
dtp_status dtp_peak_at(const dtp_program *p, int32_t at, dtp_arena *arena, dtp_peak *out,
                       dtp_err *err) DTP_MUST_CHECK;

/* Bytes that are needed while each instruction runs, by what holds them then, as in dtp_peak_find:
 * (*out)[i][kind]. Storage from `arena`. */
dtp_status dtp_held_over_time(const dtp_program *p, dtp_arena *arena, int64_t (**out)[DTP_N_HELD],
                              dtp_err *err) DTP_MUST_CHECK;

/* Most bytes that are needed at one time while the instructions of each node of the graph run, by
 * node (need[0..n_nodes - 1]); instructions of no node count with the one before them. As for
 * dtp_peak_find, without what could not be packed tightly. */
dtp_status dtp_peak_by_node(const dtp_program *p, int64_t *need, dtp_err *err) DTP_MUST_CHECK;

#endif
