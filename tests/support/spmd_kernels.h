/* Plain kernels for the interpreter of spmd_sim.h: one loop over all indices of a call. */
#ifndef DTP_TESTS_SUPPORT_SPMD_KERNELS_H
#define DTP_TESTS_SUPPORT_SPMD_KERNELS_H

#include "tests/support/spmd_sim.h"

/* A spmd_sim_kernel; aborts on an op that it does not know. */
void spmd_kernels_run(const spmd_sim *sim, const dtp_instr *instr, int32_t rank, double *const *in,
                      double *const *out);
/* One call on whole buffers; mean_factor = 1 / number of elements that a mean runs over. */
void spmd_kernels_call(const dtp_op_call *call, double mean_factor, double *const *in,
                       double *const *out);

#endif
