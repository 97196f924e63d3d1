/* Does a redistribution give every rank the right elements? Runs it on virtual ranks. */
#ifndef DTP_EXECUTOR_VERIFY_REDISTRIBUTE_CHECK_H
#define DTP_EXECUTOR_VERIFY_REDISTRIBUTE_CHECK_H

#include "spmd/lower/redistribute_program.h"

enum { DTP_REDISTRIBUTE_CHECK_RANKS = 256 }; /* threads at most */

typedef struct dtp_redistribute_verdict {
    int64_t checked; /* elements compared, over all ranks */
    int64_t wrong;   /* elements that differ in any bit */
    int32_t rank;    /* the first wrong one: on this rank ... */
    int64_t index;   /* ... with this index in the whole tensor; -1 = none */
    double got, want;
} dtp_redistribute_verdict;

/* Fills the input with a tensor made from `seed` (partial layouts with summands, factors or bounds
 * that give it without rounding), runs the program on the sim communicator with the named backend
 * and compares the result to the bit; partial results are combined first. A mismatch is a field of
 * the verdict. DTP_RANGE when the mesh has too many ranks or the tensor too many elements. */
dtp_status dtp_redistribute_check(const dtp_redistribute_job *job, const char *backend,
                                  uint64_t seed, dtp_redistribute_verdict *out,
                                  dtp_err *err) DTP_MUST_CHECK;

#endif
