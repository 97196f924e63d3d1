/* Workspace of the CUDA kernels of attention's gradient: dout . out of every head and query, in
 * f32. */
#ifndef DTP_SPMD_TARGET_CUDA_ATTENTION_H
#define DTP_SPMD_TARGET_CUDA_ATTENTION_H

#include "core/graph/op.h"

/* Bytes for a call of attention_grad or attention_part_grad on local types. */
int64_t dtp_cuda_attention_grad_workspace(const dtp_op_call *call);

#endif
