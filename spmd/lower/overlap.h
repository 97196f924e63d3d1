/* Where the START and the WAIT of every collective stand in a program (spmd/program/program.h).
 *
 * Passes work on a serial program: every collective ends where it starts. Overlap then moves STARTs
 * up, so that what compute needs later is already under way, and WAITs down, so that compute goes
 * on while results are on their way. The order of kernels and copies stays. Buffers are needed
 * longer: results from the START, operands until the WAIT, so how far they move is bound by memory
 * as well.
 */
#ifndef DTP_SPMD_LOWER_OVERLAP_H
#define DTP_SPMD_LOWER_OVERLAP_H

#include "spmd/program/program.h"

/* What all orders of the instructions of a program that was lowered have in common. */
typedef struct dtp_overlap_orders dtp_overlap_orders;

/* Storage from `arena`; borrows the program, which stays as it is while orders are made. */
dtp_status dtp_overlap_orders_create(const dtp_program *p, dtp_arena *arena,
                                     dtp_overlap_orders **out, dtp_err *err) DTP_MUST_CHECK;
/* The instructions in the order of `overlap`, in *instrs and *n. Storage, with the operands of
 * WAITs, from `arena`; *instrs is NULL, or an earlier order, which is overwritten. */
dtp_status dtp_overlap_order(dtp_overlap_orders *orders, const dtp_overlap *overlap,
                             dtp_arena *arena, dtp_instr **instrs, int32_t *n,
                             dtp_err *err) DTP_MUST_CHECK;

/* Gives a program this order, and liveness and memory plan (unless `unplaced`) for it. Prices are
 * kept that were set when every WAIT stood behind its START; where the target joins kernels
 * (dtp_target.join) they are to be set anew. */
dtp_status dtp_program_overlap(dtp_program *p, const dtp_overlap *overlap, bool unplaced,
                               dtp_err *err) DTP_MUST_CHECK;

/* Gives a program a memory plan: the first one that needs at most `enough` bytes, else, of all that
 * are tried, the one that needs least. Sets value.offset and peak_bytes. */
dtp_status dtp_program_place(dtp_program *p, int64_t enough, dtp_err *err) DTP_MUST_CHECK;

/* Makes one arena of those of the chunks of each stage, chunk c on stage c mod n_stages, right
 * after all were placed: what each has of its own one behind the other, then the slots, then the
 * rest, which sections of all chunks use in turn. */
dtp_status dtp_programs_share(dtp_program *const *programs, int32_t n, int32_t n_stages,
                              dtp_err *err) DTP_MUST_CHECK;

#endif
