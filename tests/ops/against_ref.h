/* A case of an op on a backend against the reference backend in f64 on the same values. */
#ifndef DTP_TESTS_OPS_AGAINST_REF_H
#define DTP_TESTS_OPS_AGAINST_REF_H

#include "executor/device/backend.h"
#include "tests/ops/cases.h"

/* Of the values of the operands. */
extern uint64_t against_ref_seed;

/* From here on failures are noted and tests go on. A device that is of no more use ends the program
 * with the list so far. */
void against_ref_go_on(void);
/* Failures noted. */
int32_t against_ref_failures(void);
/* Calls of the functions below. */
int32_t against_ref_cases(void);
/* Fails the test when more than so many are noted. */
void against_ref_judge(int32_t before);
/* Prints how many cases there were, and a line for each failure. */
void against_ref_list(void);

/* Floats of a dtype on a backend, against f64; a 16-bit result is rounded once. */
void against_ref_case(const dtp_op_case *c, dtp_dtype dtype, dtp_backend *backend,
                      dtp_backend *ref);
/* The same with what is not finite in the operands (dtp_case_feed): NaN and infinities come out
 * where the reference has them. */
void against_ref_feeds(const dtp_op_case *c, dtp_dtype dtype, dtp_backend *backend,
                       dtp_backend *ref);
/* Runs the node with output o in the buffer of the operand that the op allows; the outputs must be
 * bitwise those of the ordinary run. */
void against_ref_in_place(const dtp_op_case *c, dtp_dtype float_dtype, dtp_backend *b, int32_t o);
/* Ids and labels out of range are DTP_RANGE with the value. */
void against_ref_refuses(dtp_backend *b, dtp_dtype dtype);

#endif
