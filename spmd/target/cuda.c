/* The target of the CUDA backend. */
#include <string.h>

#include "spmd/target/conv_plan.h"
#include "spmd/target/cuda_attention.h"
#include "spmd/target/cuda_fold.h"
#include "spmd/target/cuda_workspace.h"
#include "spmd/target/einsum_plan.h"
#include "spmd/target/linear_loss.h"
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

/* Losses of rows are added by a second kernel: two numbers per label, */
static int64_t workspace_loss(const dtp_op_call *call)
{
    return strcmp(dtp_call_choice(call, "reduce"), "none") == 0 ? 0
                                                                : 8 * dtp_ttype_elems(&call->in[1]);
}

/* and one per row of the parts. */
static int64_t workspace_finish(const dtp_op_call *call)
{
    return strcmp(dtp_call_choice(call, "reduce"), "none") == 0 ? 0
                                                                : 4 * dtp_ttype_elems(&call->in[0]);
}

static int64_t workspace_label_weight(const dtp_op_call *call)
{
    return 4 * dtp_ttype_elems(&call->in[0]);
}

static int64_t workspace_linear_loss(const dtp_op_call *call)
{
    return dtp_linear_workspace(dtp_target_cuda.ops, call);
}

static const dtp_target_op cuda_ops[] = {
    {"all", dtp_cuda_fold_workspace, NULL},
    {"amax", dtp_cuda_fold_workspace, NULL},
    {"any", dtp_cuda_fold_workspace, NULL},
    {"attention_grad", dtp_cuda_attention_grad_workspace, NULL},
    {"attention_part_grad", dtp_cuda_attention_grad_workspace, NULL},
    {"conv", dtp_cuda_conv_workspace, NULL},
    {"conv_transpose", dtp_cuda_conv_workspace, NULL},
    {"conv_weight", dtp_cuda_conv_workspace, NULL},
    {"cross_entropy", workspace_loss, NULL},
    {"cross_entropy_finish", workspace_finish, NULL},
    {"einsum", dtp_einsum_workspace, dtp_einsum_work},
    {"embedding_grad", workspace_scatter, NULL},
    {"fused_product", dtp_einsum_fused_workspace, dtp_einsum_fused_work},
    {"fused_product2", dtp_einsum_fused_workspace, dtp_einsum_fused_work},
    {"fused_product_sum", dtp_einsum_fused_workspace, dtp_einsum_fused_work},
    {"fused_operand_sum", dtp_einsum_fused_workspace, dtp_einsum_fused_work},
    {"label_weight", workspace_label_weight, NULL},
    {"layer_norm_grad", dtp_cuda_norm_grad_workspace, NULL},
    {"layer_norm_grad_apply", dtp_cuda_norm_grad_workspace, NULL},
    {"linear_loss", workspace_linear_loss, NULL},
    {"linear_loss_grad", workspace_linear_loss, NULL},
    {"norm", dtp_cuda_fold_workspace, NULL},
    {"reduce", dtp_cuda_fold_workspace, NULL},
    {"rms_norm_grad", dtp_cuda_norm_grad_workspace, NULL},
    {"rms_norm_grad_apply", dtp_cuda_norm_grad_workspace, NULL},
    {"scatter_add", workspace_scatter, NULL},
    {.op = NULL},
};
static const char *const cuda_backends[] = {"cuda", NULL};

const dtp_target dtp_target_cuda = {.name = "cuda",
                                    .runtime = "cuda",
                                    .precision = "bf16",
                                    .backends = cuda_backends,
                                    .ops = cuda_ops,
                                    .floats = FLOATS,
                                    .fuse = DTP_FUSE_ELEMENTWISE | DTP_FUSE_NORM |
                                            DTP_FUSE_PRODUCT | DTP_FUSE_CAST,
                                    .join = DTP_CUDA_UPDATES,
                                    .loss_chunk = (int64_t)128 << 20,
                                    .margins = true,
                                    .asynchronous = true,
                                    .tf32 = true,
                                    .build = "cmake -DDTP_CUDA=ON builds it",
                                    .needs = "cuBLASLt of the CUDA toolkit (package libcublas of "
                                             "NVIDIA, nvidia-cublas of PyPI)"};
