/* The part of the program check that looks at ranges of values (spmd/program/ranges.h). */
#ifndef DTP_SPMD_PROGRAM_PROGRAM_CHECK_RANGES_H
#define DTP_SPMD_PROGRAM_PROGRAM_CHECK_RANGES_H

#include "spmd/program/program.h"

/* The ranges of a value are of dims that its layout splits; one that lies in another value has the
 * ranges of that one, and all of a dim that is whole there. */
dtp_status dtp_check__value_ranges(const dtp_program *p, const dtp_value *v,
                                   dtp_err *err) DTP_MUST_CHECK;
/* Kernels and copies of ranges alone read or write values with ranges. */
dtp_status dtp_check__no_ranges(const dtp_program *p, const dtp_instr *instr,
                                dtp_err *err) DTP_MUST_CHECK;
/* On every rank a kernel has what it reads: of windows the range that the piece of their base
 * needs, of other dims the piece. `call` has global types; `windows`: some rule of it has any. */
dtp_status dtp_check__kernel_ranges(const dtp_program *p, const dtp_instr *instr,
                                    const dtp_op_call *call, bool windows,
                                    dtp_err *err) DTP_MUST_CHECK;
/* A copy out of a tensor's pieces, or of pieces and what was sent into ranges. */
dtp_status dtp_check__range_copy(const dtp_program *p, const dtp_instr *instr,
                                 dtp_err *err) DTP_MUST_CHECK;
/* A permute leads from a copy out of pieces to the copy into the ranges of these. */
dtp_status dtp_check__range_permute(const dtp_program *p, int32_t start,
                                    dtp_err *err) DTP_MUST_CHECK;

/* A permute in the place of a node's kernel gives every place the piece that it reads. Those
 * inside a decomposition are not looked at. */
dtp_status dtp_check__passed_on(const dtp_program *p, const dtp_instr *instr,
                                dtp_err *err) DTP_MUST_CHECK;

#endif
