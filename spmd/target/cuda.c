/* The target of the CUDA backend. */
#include "spmd/target/cuda_fold.h"
#include "spmd/target/target.h"

enum { FLOATS = 1U << DTP_F32 | 1U << DTP_BF16 | 1U << DTP_F16 };

static const dtp_target_op cuda_ops[] = {
    {"all", dtp_cuda_fold_workspace, NULL},
    {"any", dtp_cuda_fold_workspace, NULL},
    {"layer_norm_grad", dtp_cuda_norm_grad_workspace, NULL},
    {"layer_norm_grad_apply", dtp_cuda_norm_grad_workspace, NULL},
    {"norm", dtp_cuda_fold_workspace, NULL},
    {"reduce", dtp_cuda_fold_workspace, NULL},
    {"rms_norm_grad", dtp_cuda_norm_grad_workspace, NULL},
    {"rms_norm_grad_apply", dtp_cuda_norm_grad_workspace, NULL},
    {.op = NULL},
};
static const char *const cuda_backends[] = {"cuda", NULL};

const dtp_target dtp_target_cuda = {.name = "cuda",
                                    .backends = cuda_backends,
                                    .ops = cuda_ops,
                                    .floats = FLOATS,
                                    .asynchronous = true};
