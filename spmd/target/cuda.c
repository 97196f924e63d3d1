/* The target of the CUDA backend. */
#include "spmd/target/linear_loss.h"
#include "spmd/target/target.h"

enum { FLOATS = 1U << DTP_F32 | 1U << DTP_BF16 | 1U << DTP_F16 };

static int64_t workspace_linear_loss(const dtp_op_call *call)
{
    return dtp_linear_workspace(dtp_target_cuda.ops, call);
}

static const dtp_target_op cuda_ops[] = {{"linear_loss", workspace_linear_loss, NULL},
                                         {"linear_loss_grad", workspace_linear_loss, NULL},
                                         {.op = NULL}};
static const char *const cuda_backends[] = {"cuda", NULL};

const dtp_target dtp_target_cuda = {.name = "cuda",
                                    .backends = cuda_backends,
                                    .ops = cuda_ops,
                                    .floats = FLOATS,
                                    .fuse = DTP_FUSE_ELEMENTWISE | DTP_FUSE_NORM,
                                    .loss_chunk = (int64_t)128 << 20,
                                    .asynchronous = true};
