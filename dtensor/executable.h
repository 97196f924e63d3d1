/* A compiled call: a program whose inputs and outputs lie outside its memory, bound once and run
 * many times on different buffers. */
#ifndef DTP_DTENSOR_EXECUTABLE_H
#define DTP_DTENSOR_EXECUTABLE_H

#include "dtp/tensor.h"
#include "executor/run/runner.h"
#include "spmd/lower/lower.h"

typedef struct dtp_executable {
    dtp_graph *graph;     /* of the program */
    dtp_program *program; /* lowered with `external`, see spmd/lower/lower.h */
    int32_t n_in, n_out;
    dtp_value_id in[DTP_MAX_OP_IN];   /* the INPUT values in the order of the call, each once */
    dtp_value_id out[DTP_MAX_OP_OUT]; /* kept values */
    /* What follows is filled by dtp_executable_create. */
    int32_t shares[DTP_MAX_OP_OUT]; /* the operand in whose buffer a result lies (a pure renaming),
                                       -1 = its own */
    dtp_runner *runner;
    int32_t n_colls;
    const dtp_coll_stat *colls; /* collectives of one run */
    void *scratch;
    bool may_fail;   /* kernels may refuse the values of operands, on one rank and not on another:
                        after each run the ranks then agree */
    dtp_err failure; /* of a kernel in the last run; its message ends with the next one */
} dtp_executable;

/* Fills the graph, which is there, lowers it with `options` into x->program and says what its
 * operands and results are. Does not communicate. */
typedef dtp_status (*dtp_call_build)(dtp_device_mesh *mesh, const void *user,
                                     const dtp_lower_options *options, dtp_executable *x,
                                     dtp_err *err);

/* Builds the program of the call `what`, binds it, and tries whether there is memory for a run.
 * DTP_UNSUPPORTED when the backend lacks a kernel or the communicator a reduction. */
dtp_status dtp_executable_create(dtp_device_mesh *mesh, const char *what, dtp_call_build build,
                                 const void *user, dtp_executable **out,
                                 dtp_err *err) DTP_MUST_CHECK;
void dtp_executable_destroy(dtp_executable *x);

/* Runs it on tensors: results are new handles; counts its collectives. A failure on this rank alone
 * is sent to the peers. */
dtp_status dtp_executable_run(dtp_device_mesh *mesh, dtp_executable *x, int64_t step,
                              double lr_scale, const dtp_tensor *in, dtp_tensor *out,
                              dtp_err *err) DTP_MUST_CHECK;

#endif
