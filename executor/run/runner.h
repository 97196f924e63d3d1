/* The interpreter: runs a program on one rank. One arena of program->peak_bytes is the only device
 * memory; everything a step needs is bound at creation, so a step neither allocates nor looks up.
 * External values (spmd/program/program.h) lie in buffers that the caller binds and may bind anew
 * before every step.
 */
#ifndef DTP_EXECUTOR_RUN_RUNNER_H
#define DTP_EXECUTOR_RUN_RUNNER_H

#include "executor/comm/communicator.h"
#include "executor/device/shard.h"
#include "executor/run/runner_types.h"

/* Checks the program against backend and communicator and binds it. Borrows p, backend and comm.
 * Options NULL: none of them. DTP_UNSUPPORTED naming node and op when the backend lacks a kernel;
 * DTP_INVALID when the mesh does not have as many ranks as the communicator, and when backend or
 * transport are not what the program's target is for. Does not communicate: see
 * dtp_runner_prepare. */
dtp_status dtp_runner_create(const dtp_program *p, dtp_backend *backend, dtp_comm *comm,
                             const dtp_runner_options *options, dtp_runner **out,
                             dtp_err *err) DTP_MUST_CHECK;
/* Puts the arena of a runner with borrowed memory at `memory`: program->peak_bytes of device
 * memory, 64-byte aligned, borrowed. Its contents matter only during a step. */
void dtp_runner_set_memory(dtp_runner *r, void *memory);
/* The arena; borrowed. */
void *dtp_runner_memory(const dtp_runner *r);
/* Puts an external value and everything inside it at `data`: device memory of values[root].bytes,
 * borrowed. `root` has no parent. Costs one store per use of the buffer. Every external root must
 * be bound before a step. */
void dtp_runner_bind(dtp_runner *r, dtp_value_id root, void *data);
void dtp_runner_destroy(dtp_runner *r);
/* The transport makes what the program's groups need; collective. */
dtp_status dtp_runner_prepare(dtp_runner *r, dtp_err *err) DTP_MUST_CHECK;

/* Runs a step: all instructions once; with microbatches (spmd/program/program.h), every one of them
 * on the inputs as they are. A failure reads "rank 1: instruction 12 (node 'h'): ..."; the caller
 * must then give up. */
dtp_status dtp_runner_step(dtp_runner *r, uint64_t seed, int64_t step, dtp_runner_times *times,
                           dtp_err *err) DTP_MUST_CHECK;

/* After a failure of this rank alone: tells the peers (dtp_comm_abort), once no recording is left
 * that holds collectives, of the runners beside it neither. Before memory is freed, for which CUDA
 * may wait for all devices of the process, the peers' too. */
void dtp_runner_give_up(dtp_runner *r, const char *why);

/* The same in parts: the microbatches of a step, `end`, and `finish`. Where kernels run on a queue
 * the first two only put work there; the next steps may be put there before one is finished, up to
 * dtp_runner_ahead unfinished ones.
 *
 * On a queue whose transport is queued the second run of a microbatch is recorded as a graph, and
 * later ones put the graph there, until a buffer lies elsewhere. Not with no_graph, with a profile,
 * while a watch is set, or when the transport cannot be recorded. */

/* Runs one microbatch of a step, 0 <= microbatch < dtp_program_microbatches, in order, each after
 * its inputs were filled. Views give kernels the sizes of the whole batch and the microbatch's
 * place in it. Without microbatches microbatch 0 is the step. */
dtp_status dtp_runner_microbatch(dtp_runner *r, uint64_t seed, int64_t step, int32_t microbatch,
                                 dtp_err *err) DTP_MUST_CHECK;
/* Of a stage (dtp_program.slots): what is in_slot is from now on that of a slot. */
void dtp_runner_set_slot(dtp_runner *r, int32_t slot);
/* Of a stage, instead of microbatches: runs a section (dtp_instr_section) of a microbatch in the
 * slot that is set. `first`: of the step. Recorded on a queue as microbatches are, by microbatch
 * and section; in another slot than before it runs as it is, and is recorded anew. */
dtp_status dtp_runner_section(dtp_runner *r, uint64_t seed, int64_t step, int32_t microbatch,
                              int32_t section, bool first, dtp_err *err) DTP_MUST_CHECK;
/* Ends a step after its last microbatch. The first elements of the DTP_RUNNER_READS values `read`,
 * which are kept, are noted; -1, and NULL: none. */
dtp_status dtp_runner_end(dtp_runner *r, const dtp_value_id *read, dtp_err *err) DTP_MUST_CHECK;
/* Waits for the oldest step that was ended and not finished, and checks what its kernels found in
 * their data. `raw`: NULL, or room for the elements as they are, 8 bytes each. */
dtp_status dtp_runner_finish(dtp_runner *r, dtp_runner_times *times, void *raw,
                             dtp_err *err) DTP_MUST_CHECK;
/* 1, or 2 on a queue. */
int32_t dtp_runner_ahead(const dtp_runner *r);

/* From the next step on; event NULL: no watch. On a queue instructions are watched as they
 * are put there. */
void dtp_runner_set_watch(dtp_runner *r, dtp_runner_watch watch);

/* The record of its steps, for the scalars that a caller may set; seed, step and microbatch are
 * those of the last call. */
dtp_step_record *dtp_runner_record(dtp_runner *r);

/* View of a value on this rank; borrowed. */
const dtp_view *dtp_runner_view(const dtp_runner *r, dtp_value_id v);
/* Piece of the tensor that a value holds on this rank. */
dtp_shard dtp_runner_shard(const dtp_runner *r, dtp_value_id v);

/* Highest byte of the arena that a bound value touches. Equals program->peak_bytes when the plan is
 * exact. */
int64_t dtp_runner_touched_bytes(const dtp_runner *r);
/* Statistics of one step, from the program; returns how many, *out is borrowed. */
int32_t dtp_runner_coll_stats(const dtp_runner *r, const dtp_coll_stat **out);
/* Seconds spent in each instruction, summed over the steps so far; NULL without profile. The launch
 * of joined kernels counts for the last of them. */
const double *dtp_runner_profile(const dtp_runner *r);
/* Begin and end of what the last finished step ran, from the begin of the step and, where there is
 * no queue, without feeds; NULL without profile. Instruction i of microbatch j is span
 * j * dtp_program_body + i; returns how many there are. The span of a START or a WAIT is the time
 * that this rank, on a queue its compute queue, is in it. */
int64_t dtp_runner_spans(const dtp_runner *r, const dtp_span **out);
/* Why a fused kernel ran as several, on this rank so far: "" where it ran as one, NULL for other
 * instructions (dtp_backend_ops.why_apart). */
const char *dtp_runner_why_apart(const dtp_runner *r, int32_t instr);
const dtp_program *dtp_runner_program(const dtp_runner *r);

#endif
