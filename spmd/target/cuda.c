/* The target of the CUDA backend. */
#include "spmd/target/cuda_attention.h"
#include "spmd/target/einsum_plan.h"
#include "spmd/target/target.h"

enum { FLOATS = 1U << DTP_F32 | 1U << DTP_BF16 | 1U << DTP_F16 };

static const dtp_target_op cuda_ops[] = {
    {"einsum", dtp_einsum_workspace, dtp_einsum_work},
    {"attention_grad", dtp_cuda_attention_grad_workspace, NULL},
    {"attention_part_grad", dtp_cuda_attention_grad_workspace, NULL},
    {.op = NULL},
};
static const char *const cuda_backends[] = {"cuda", NULL};

const dtp_target dtp_target_cuda = {.name = "cuda",
                                    .backends = cuda_backends,
                                    .ops = cuda_ops,
                                    .floats = FLOATS,
                                    .asynchronous = true};
