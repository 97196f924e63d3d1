/* The bytes that a list of instructions needs at each of them, while a pass moves instructions.
 *
 * The list is serial: every collective ends where it starts. A buffer is needed from the first
 * instruction that touches it to the last one (parameters, state, inputs and kept values as in
 * liveness.c).
 */
#ifndef DTP_SPMD_PROGRAM_NEEDED_H
#define DTP_SPMD_PROGRAM_NEEDED_H

#include "spmd/program/program.h"

/* When a buffer is needed. */
typedef struct dtp_need {
    int32_t first, last; /* last < first: never */
    int64_t bytes;
} dtp_need;

/* All arrays are in the arena that it was found with. */
typedef struct dtp_needed {
    dtp_value_id *roots; /* by value: whose buffer it lies in */
    dtp_need *needs;     /* by root */
    int64_t *bytes;      /* needed, by instruction */
    int64_t peak;        /* the largest of them, before anything is held, */
    int32_t peak_at;     /* and the first instruction that needs it */
    int64_t limit;       /* of them; the peak unless the caller sets it */
} dtp_needed;

/* Of the instructions `instrs` of p, without WAITs. */
dtp_status dtp_needed_find(const dtp_program *p, const dtp_instr *instrs, int32_t n,
                           dtp_arena *arena, dtp_needed *out, dtp_err *err) DTP_MUST_CHECK;
/* Lists the buffers that instructions first..last touch, each once, in `roots`, behind the n that
 * are there; returns how many there are then. */
int32_t dtp_needed_buffers(const dtp_needed *needed, const dtp_instr *instrs, int32_t first,
                           int32_t last, int32_t n, dtp_value_id *roots);
/* Needs n buffers at instructions first..last as well. False, and nothing changes, when that is
 * beyond the limit. */
bool dtp_needed_hold(dtp_needed *needed, int32_t n, const dtp_value_id *roots, int32_t first,
                     int32_t last);

/* Needs n buffers at instructions from, from + step, ... before `end`, step 1 or -1, as well, one
 * by one as far as the limit allows; the first one that it does not, or `end`. */
int32_t dtp_needed_hold_on(dtp_needed *needed, int32_t n, const dtp_value_id *roots, int32_t from,
                           int32_t end, int32_t step);

/* A kernel that writes its one operand in another type, and needs nothing else. */
bool dtp_instr_is_cast(const dtp_instr *instr);

/* A collective with the copies that pack its operands and unpack its results, and with the casts of
 * one operand that make what is packed or sent, or read what comes out: instructions head..tail of
 * a serial list. */
typedef struct dtp_comm_unit {
    int32_t head, start, tail;
} dtp_comm_unit;

/* In order; *units and unit_of[i], the unit of instruction i or -1, have room for n. Without
 * `casts` they belong to no unit. */
int32_t dtp_comm_units_find(const dtp_program *p, const dtp_instr *instrs, int32_t n, bool casts,
                            dtp_comm_unit *units, int32_t *unit_of);

#endif
