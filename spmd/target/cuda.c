/* The target of the CUDA backend. */
#include "spmd/target/cuda_workspace.h"
#include "spmd/target/target.h"

enum { FLOATS = 1U << DTP_F32 | 1U << DTP_BF16 | 1U << DTP_F16 };

/* Ids, src. */
static int64_t workspace_scatter(const dtp_op_call *call)
{
    const int64_t ids = dtp_ttype_elems(&call->in[0]);
    const int64_t chunks = (ids + DTP_CUDA_SCATTER_CHUNK - 1) / DTP_CUDA_SCATTER_CHUNK;
    const int64_t rest = ids > 0 ? dtp_ttype_elems(&call->in[1]) / ids : 0;
    const int64_t sum_bytes = dtp_dtype_is_float(call->out[0].dtype) ? 4 : 8;
    return 16 * ids + 2 * chunks * rest * sum_bytes;
}

static const dtp_target_op cuda_ops[] = {
    {"embedding_grad", workspace_scatter, NULL},
    {"scatter_add", workspace_scatter, NULL},
    {.op = NULL},
};
static const char *const cuda_backends[] = {"cuda", NULL};

const dtp_target dtp_target_cuda = {.name = "cuda",
                                    .backends = cuda_backends,
                                    .ops = cuda_ops,
                                    .floats = FLOATS,
                                    .asynchronous = true};
