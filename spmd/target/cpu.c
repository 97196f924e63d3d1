/* The targets of backends that compute on the CPU. */
#include "spmd/target/conv_plan.h"
#include "spmd/target/cpu_attention.h"
#include "spmd/target/einsum_plan.h"
#include "spmd/target/linear_loss.h"
#include "spmd/target/target.h"

static int64_t workspace_linear_loss(const dtp_op_call *call)
{
    return dtp_linear_workspace(dtp_target_cpu.ops, call);
}

static const dtp_target_op cpu_ops[] = {
    {"einsum", dtp_einsum_workspace, dtp_einsum_work},
    {"attention", dtp_attention_workspace, NULL},
    {"conv", dtp_cpu_conv_workspace, dtp_cpu_conv_work},
    {"conv_transpose", dtp_cpu_conv_workspace, dtp_cpu_conv_work},
    {"conv_weight", dtp_cpu_conv_workspace, dtp_cpu_conv_work},
    {"attention_grad", dtp_attention_workspace, NULL},
    {"attention_part", dtp_attention_workspace, NULL},
    {"attention_part_grad", dtp_attention_workspace, NULL},
    {"fused_product", dtp_einsum_fused_workspace, dtp_einsum_fused_work},
    {"fused_product2", dtp_einsum_fused_workspace, dtp_einsum_fused_work},
    {"fused_product_sum", dtp_einsum_fused_workspace, dtp_einsum_fused_work},
    {"fused_operand_sum", dtp_einsum_fused_workspace, dtp_einsum_fused_work},
    {"linear_loss", workspace_linear_loss, NULL},
    {"linear_loss_grad", workspace_linear_loss, NULL},
    {.op = NULL},
};

enum { FLOATS = 1U << DTP_F32 | 1U << DTP_BF16 | 1U << DTP_F16 };

static const dtp_target_op no_ops[] = {{.op = NULL}};
/* The reference kernels take what the CPU kernels take, and need no workspace. */
static const char *const cpu_backends[] = {"cpu", "ref", NULL}, *const ref_backends[] = {"ref",
                                                                                         NULL};

const dtp_target dtp_target_cpu = {.name = "cpu",
                                   .runtime = "cpu",
                                   .backends = cpu_backends,
                                   .ops = cpu_ops,
                                   .floats = FLOATS,
                                   .strided = true,
                                   .margins = true,
                                   .asynchronous = true,
                                   .deterministic = true};

const dtp_target dtp_target_cpu_packed = {.name = "cpu_packed",
                                          .runtime = "cpu",
                                          .backends = cpu_backends,
                                          .ops = cpu_ops,
                                          .floats = FLOATS,
                                          .margins = true,
                                          .asynchronous = true,
                                          .deterministic = true};

const dtp_target dtp_target_ref = {.name = "ref",
                                   .runtime = "ref",
                                   .backends = ref_backends,
                                   .ops = no_ops,
                                   .floats = FLOATS | 1U << DTP_F64,
                                   .strided = true,
                                   .margins = true,
                                   .asynchronous = true,
                                   .deterministic = true};
