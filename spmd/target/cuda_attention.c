/* Workspace of the CUDA kernels of attention's gradient: dout . out of every head and query, in
 * f32. */
#include "spmd/target/cuda_attention.h"

int64_t dtp_cuda_attention_grad_workspace(const dtp_op_call *call)
{
    const dtp_ttype *lse = &call->in[call->n_in - 2];
    return dtp_ttype_elems(lse) * (int64_t)sizeof(float);
}
