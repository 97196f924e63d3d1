/* A compiled call: a program whose inputs and outputs lie outside its memory, bound once and run
 * many times on different buffers. */
#ifndef DTP_DTENSOR_EXECUTABLE_H
#define DTP_DTENSOR_EXECUTABLE_H

#include "executor/run/runner.h"
#include "spmd/program/program.h"

typedef struct dtp_executable dtp_executable;

/* What one operand or result of an executable is. */
typedef struct dtp_exec_slot {
    dtp_value_id value; /* whose buffer it is */
    dtp_ttype type;     /* global */
    dtp_layout layout;
    int64_t bytes;  /* of the buffer to pass: that of the largest shard of any rank */
    int32_t shares; /* results: the operand in whose buffer the result lies (a pure renaming), -1 =
                       its own */
} dtp_exec_slot;

typedef struct dtp_executable_spec {
    dtp_program *program; /* lowered with `external`, see spmd/lower/lower.h */
    dtp_graph *graph;     /* of the program; NULL: somebody else's */
    int32_t n_in, n_out;
    const dtp_value_id *in;  /* the INPUT values in the order of the call, each once */
    const dtp_value_id *out; /* kept values */
} dtp_executable_spec;

/* Takes over program and graph (also on failure) and binds them; borrows backend and comm. Does not
 * communicate. DTP_UNSUPPORTED when the backend lacks a kernel or the communicator a reduction. */
dtp_status dtp_executable_create(const dtp_executable_spec *spec, dtp_backend *backend,
                                 dtp_comm *comm, dtp_executable **out, dtp_err *err) DTP_MUST_CHECK;
void dtp_executable_destroy(dtp_executable *x);

int32_t dtp_executable_inputs(const dtp_executable *x, const dtp_exec_slot **out);
int32_t dtp_executable_outputs(const dtp_executable *x, const dtp_exec_slot **out);
/* Collectives of one run. */
int32_t dtp_executable_colls(const dtp_executable *x, const dtp_coll_stat **out);
const dtp_program *dtp_executable_program(const dtp_executable *x);
/* Makes the sub-communicators that a run needs; collective. */
dtp_status dtp_executable_prepare(dtp_executable *x, dtp_err *err) DTP_MUST_CHECK;

/* Bytes of device scratch that a run needs, and where they are; all executables of one mesh share
 * the scratch of the largest. A change costs a pass over the views; the same address again is free.
 */
int64_t dtp_executable_scratch_bytes(const dtp_executable *x);
void dtp_executable_set_scratch(dtp_executable *x, void *scratch);

/* Runs on the given device buffers; out[i] is ignored for results that share an operand. A kernel
 * that fails does not end the run, which would leave the peers alone in a collective: results are
 * then worthless, and dtp_executable_failure says why. */
dtp_status dtp_executable_run(dtp_executable *x, void *const *in, void *const *out, uint64_t seed,
                              int64_t step, dtp_err *err) DTP_MUST_CHECK;
/* The first failure of a kernel on this rank in the last run; NULL: none. Borrowed until the next
 * run. */
const dtp_err *dtp_executable_failure(const dtp_executable *x);
/* Whether kernels may refuse the values of operands, on one rank and not on another: after each run
 * the ranks then agree. */
bool dtp_executable_may_fail(const dtp_executable *x);

#endif
