/* The passes over a program, each in a file of its name. */
#ifndef DTP_SPMD_LOWER_PASSES_PASSES_H
#define DTP_SPMD_LOWER_PASSES_PASSES_H

#include "spmd/program/program.h"

/* In the order in which dtp_lower runs them. What a pass needs for itself is from `scratch`. */

/* A rank has at least so many chunks of logits: with the sums of dw, which the kernel needs besides
 * a chunk, fewer logits may take less memory whole. */
enum { DTP_LOSS_LEAST_CHUNKS = 4 };
/* Puts the loss of a linear layer in chunks in the place of its logits (dtp_target.loss_chunk). */
dtp_status dtp_program__fuse_loss(dtp_program *p, dtp_arena *scratch, dtp_err *err) DTP_MUST_CHECK;
/* Fuses biases, gelu and their gradients with products. */
dtp_status dtp_program__fuse_product(dtp_program *p, dtp_arena *scratch,
                                     dtp_err *err) DTP_MUST_CHECK;
/* Puts one kernel in the place of several, as the target lists (dtp_target.fuse). */
dtp_status dtp_program__fuse(dtp_program *p, dtp_arena *scratch, dtp_err *err) DTP_MUST_CHECK;
/* Puts updated parameters into their resident buffers, in place or by a COPY at the end. */
dtp_status dtp_program__resolve_updates(dtp_program *p, dtp_arena *scratch,
                                        dtp_err *err) DTP_MUST_CHECK;
/* Two all-reduces in a row on one tensor become one over both sets of mesh dims. */
dtp_status dtp_program__merge_collectives(dtp_program *p, dtp_arena *scratch,
                                          dtp_err *err) DTP_MUST_CHECK;
/* Sums of all-reduced values become one all-reduce of the sum. `numbers`: those of one element
 * alone, which comes before sums are fused. */
dtp_status dtp_program__sink_reductions(dtp_program *p, bool numbers, dtp_arena *scratch,
                                        dtp_err *err) DTP_MUST_CHECK;
/* Outputs take the buffers of dying operands. */
dtp_status dtp_program__in_place(dtp_program *p, dtp_arena *scratch, dtp_err *err) DTP_MUST_CHECK;
/* Lets ops give in f32 what would only be cast to it (DTP_FUSE_CAST). */
dtp_status dtp_program__fuse_casts(dtp_program *p, dtp_arena *scratch, dtp_err *err) DTP_MUST_CHECK;
/* Lets casts and gathers of parameters run once for all microbatches, as far as no more than
 * *bytes, or the peak, are needed at a time; *bytes becomes what is needed then, 0: none does. */
dtp_status dtp_program__run_once(dtp_program *p, int64_t *bytes, dtp_arena *scratch,
                                 dtp_err *err) DTP_MUST_CHECK;
/* Fuses all-gathers, and reductions of gradients, into buckets of at most `bytes`. */
dtp_status dtp_program__bucket(dtp_program *p, int64_t bytes, dtp_arena *scratch,
                               dtp_err *err) DTP_MUST_CHECK;
/* Puts casts beside the collectives that they feed or read from. */
dtp_status dtp_program__place_casts(dtp_program *p, dtp_arena *scratch,
                                    dtp_err *err) DTP_MUST_CHECK;
/* Moves operands and results out of the program's memory (value.external). DTP_INVALID when there
 * are parameters or state. */
dtp_status dtp_program__externalize(dtp_program *p, dtp_err *err) DTP_MUST_CHECK;

/* Marks kernels that run in the launch of the one before them (dtp_target.join). */
dtp_status dtp_program__join(dtp_program *p, dtp_arena *scratch, dtp_err *err) DTP_MUST_CHECK;

/* ---- shared by the passes ---- */

/* How a value is used. */
typedef struct dtp_usage {
    int32_t reads;    /* by instructions */
    int32_t replicas; /* values directly inside its buffer */
    int32_t written;  /* by this instruction, -1 = none */
} dtp_usage;

/* By value id; from `scratch`. */
dtp_status dtp_program__count_uses(const dtp_program *p, dtp_arena *scratch, dtp_usage **out,
                                   dtp_err *err) DTP_MUST_CHECK;
/* Index of the last instruction that reads any value in the buffer of each root, -1 = none; kept
 * values count as read after the end (n_instrs), unless they are parameters themselves. By value id
 * (set for roots). */
dtp_status dtp_program__last_reads(const dtp_program *p, dtp_arena *scratch, int32_t **out,
                                   dtp_err *err) DTP_MUST_CHECK;
/* Appends a copy of v in a buffer of its own. */
dtp_status dtp_program__copy_value(dtp_program *p, dtp_value_id v, dtp_phase phase,
                                   dtp_value_id *out, dtp_err *err) DTP_MUST_CHECK;
/* Gives a kernel the workspace that the target says: as much as the rank that needs most. */
dtp_status dtp_program__add_workspace(dtp_program *p, dtp_instr *instr,
                                      dtp_err *err) DTP_MUST_CHECK;
/* Removes values that no instruction, update or parent refers to, and renumbers the others. */
dtp_status dtp_program__remove_values(dtp_program *p, const bool *gone, dtp_arena *scratch,
                                      dtp_err *err) DTP_MUST_CHECK;

#endif
