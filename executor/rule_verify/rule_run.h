/* Runs a lowered graph of INPUT tensors on virtual ranks with given global values, and collects
 * what every rank holds of the outputs. */
#ifndef DTP_EXECUTOR_RULE_VERIFY_RULE_RUN_H
#define DTP_EXECUTOR_RULE_VERIFY_RULE_RUN_H

#include "core/graph/op.h"
#include "executor/comm/communicator.h"
#include "spmd/program/program.h"

enum { DTP_RULE_MAX_RANKS = 8, DTP_RULE_MAX_OUTPUTS = 12, DTP_RULE_SEED = 7, DTP_RULE_STEP = 2 };

typedef struct dtp_rule_run {
    const dtp_program *p;
    const char *backend;
    const double *const *inputs; /* by tensor id: all elements of an INPUT */
    uint64_t seed;               /* of the summands of partial operands */
    dtp_sim_pool *pool;          /* virtual ranks to run on; NULL: new ones */
    int32_t n_kernels;           /* of registered ops */
    const dtp_kernel *kernels;
    /* results: elements of each output of the graph at their global index */
    double *got[DTP_RULE_MAX_RANKS][DTP_RULE_MAX_OUTPUTS];
    bool *seen[DTP_RULE_MAX_RANKS][DTP_RULE_MAX_OUTPUTS];
} dtp_rule_run;

/* Runs the program once; partial operands get random summands. Free the results either way. */
dtp_status dtp_rule_run_execute(dtp_rule_run *r, dtp_err *err) DTP_MUST_CHECK;
void dtp_rule_run_free(dtp_rule_run *r);

/* Error of output o on the worst rank, relative to the largest element of `want` (by global index).
 * Infinite when an element is NaN or an infinity and the wanted one is not that very one, when it
 * is on another number of ranks than the value's layout says, or differs between two of them. Where
 * ops get terms of a sum, and in products of several operands, any other will do. */
double dtp_rule_run_error(const dtp_rule_run *r, int32_t o, const double *want);

#endif
