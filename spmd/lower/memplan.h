/* When a program needs its values (liveness.c), and the memory plan: an offset in one arena for
 * every buffer (memplan.c). */
#ifndef DTP_SPMD_LOWER_MEMPLAN_H
#define DTP_SPMD_LOWER_MEMPLAN_H

#include "spmd/program/program.h"

/* Sets value.first and value.last of every value: the first and the last instruction at which its
 * buffer is needed. */
void dtp_program__liveness(dtp_program *p);
/* A buffer of `bytes` that is needed from `first` to `last`, both included. */
typedef struct dtp_interval {
    int64_t bytes;
    int32_t first, last;
    int64_t offset; /* result */
} dtp_interval;

/* Offsets (multiples of DTP_BUFFER_ALIGN) without overlap in time and memory; returns the end of
 * the highest one in *peak. Other offsets are not looked for once it is at most `enough`. */
dtp_status dtp_memplan__place(dtp_interval *items, int32_t n, int64_t enough, int64_t *peak,
                              dtp_err *err) DTP_MUST_CHECK;

#endif
