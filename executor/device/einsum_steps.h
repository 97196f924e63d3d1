/* What the kernels of every backend do with the steps of an einsum (spmd/target/einsum_plan.h). */
#ifndef DTP_EXECUTOR_DEVICE_EINSUM_STEPS_H
#define DTP_EXECUTOR_DEVICE_EINSUM_STEPS_H

#include "executor/device/nest.h"
#include "spmd/target/einsum_plan.h"

/* Whether a call can run the steps of its plan: DTP_UNSUPPORTED where an intermediate is too large,
 * DTP_INTERNAL where the workspace is too small. */
dtp_status dtp_einsum_check(const dtp_kernel_args *args, const dtp_einsum_plan *plan,
                            dtp_err *err) DTP_MUST_CHECK;

/* Where a part of a step lies in this run of a call. */
void *dtp_einsum_address(const dtp_kernel_args *args, const dtp_einsum_buf *buf);

/* The nest over dims [range[0], range[1]) of a loop for some of its parts (DTP_EINSUM_A, B, C), by
 * falling stride of A when `sorted`. */
void dtp_einsum_nest(const dtp_einsum_loop *loop, const int32_t range[2], int32_t n_parts,
                     const int32_t *parts, bool sorted, dtp_nest *out);

#endif
