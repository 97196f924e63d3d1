/* Folds of the CUDA backend (sums, gradients of parameters that many rows share) whose results are
 * too few to fill a device: every result is made of parts, kept in the workspace. */
#ifndef DTP_SPMD_TARGET_CUDA_FOLD_H
#define DTP_SPMD_TARGET_CUDA_FOLD_H

#include "core/graph/op.h"

enum { DTP_CUDA_PART_BYTES = 8 }; /* of one part of one result */

/* Bytes for the most parts that a call may use, 0 when it needs none: of an op with one result,
 * its first output; of the gradient of a norm. */
int64_t dtp_cuda_fold_workspace(const dtp_op_call *call);
int64_t dtp_cuda_norm_grad_workspace(const dtp_op_call *call);

#endif
