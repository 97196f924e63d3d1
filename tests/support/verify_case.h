/* One graph as its program on virtual ranks against the graph on one device. Whatever goes wrong
 * fails the test, with the name of the case. What every case checks: the sharding, the program
 * (spmd/program/program_check.h), on every rank outputs, gradients and parameters within the
 * tolerance, and the measured peak of every rank, which is exactly the predicted one. */
#ifndef DTP_TESTS_SUPPORT_VERIFY_CASE_H
#define DTP_TESTS_SUPPORT_VERIFY_CASE_H

#include "core/plan/plan.h"
#include "executor/verify/verify.h"
#include "spmd/lower/lower.h"

typedef struct verify_case {
    const char *what;           /* named in failures */
    const char *backend;        /* default "cpu"; of the ranks and of the one device */
    dtp_verify_options options; /* `reference` is made here unless one is kept */
    int32_t n_kernels;
    const dtp_kernel *kernels; /* of registered ops */
} verify_case;

verify_case verify_case_init(const char *what);

/* A program that was lowered with the fetches of dtp_graph_results. The result is that of rank 0;
 * free it with dtp_verify_result_free. */
dtp_verify_result verify_program(const dtp_graph *g, const dtp_program *p, const verify_case *c);
/* The program of a sharding; `lowering` has no fetches, NULL: the defaults. Free the result. */
dtp_verify_result verify_sharding_result(const dtp_graph *g, const dtp_sharding *s,
                                         const dtp_lower_options *lowering, const verify_case *c);
void verify_sharding(const dtp_graph *g, const dtp_sharding *s, const dtp_lower_options *lowering,
                     const verify_case *c);

#endif
