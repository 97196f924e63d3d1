/* The targets of backends that compute on the CPU. */
#include "spmd/target/cpu_attention.h"
#include "spmd/target/cpu_einsum_plan.h"
#include "spmd/target/linear_loss.h"
#include "spmd/target/target.h"

/* Matrix sizes are those of the product with the most multiplications. */
static void work_einsum(const dtp_op_call *call, dtp_work *out)
{
    dtp_einsum_plan plan;
    double most = 0.0;
    dtp_einsum_plan_make(call, &plan);
    *out = (dtp_work){.cls = DTP_WORK_MEMORY,
                      .flops = plan.flops,
                      .bytes = plan.inner_bytes,
                      .pack_bytes = plan.pack_bytes};
    for (int32_t i = 0; i < plan.n_steps; i++) {
        const dtp_einsum_gemm *g = &plan.steps[i].gemm;
        if (!plan.steps[i].is_gemm) {
            continue;
        }
        int64_t batch = 1;
        for (int32_t b = 0; b < g->n_batch; b++) {
            batch *= g->batch[b];
        }
        const double size = (double)batch * (double)g->m * (double)g->n * (double)g->k;
        if (size > most) {
            most = size;
            out->cls = DTP_WORK_GEMM;
            out->batch = batch;
            out->m = g->m;
            out->n = g->n;
            out->k = g->k;
            out->trans_a = g->trans_a;
            out->trans_b = g->trans_b;
        }
    }
}

static int64_t workspace_einsum(const dtp_op_call *call)
{
    dtp_einsum_plan plan;
    dtp_einsum_plan_make(call, &plan);
    return plan.workspace_bytes;
}

static int64_t workspace_linear_loss(const dtp_op_call *call)
{
    return dtp_linear_workspace(dtp_target_cpu.ops, call);
}

static const dtp_target_op cpu_ops[] = {
    {"einsum", workspace_einsum, work_einsum},
    {"attention", dtp_attention_workspace, NULL},
    {"attention_grad", dtp_attention_workspace, NULL},
    {"attention_part", dtp_attention_workspace, NULL},
    {"attention_part_grad", dtp_attention_workspace, NULL},
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
                                   .backends = cpu_backends,
                                   .ops = cpu_ops,
                                   .floats = FLOATS,
                                   .strided = true,
                                   .asynchronous = true,
                                   .deterministic = true};

const dtp_target dtp_target_cpu_packed = {.name = "cpu_packed",
                                          .backends = cpu_backends,
                                          .ops = cpu_ops,
                                          .floats = FLOATS,
                                          .asynchronous = true,
                                          .deterministic = true};

const dtp_target dtp_target_ref = {.name = "ref",
                                   .backends = ref_backends,
                                   .ops = no_ops,
                                   .floats = FLOATS | 1U << DTP_F64,
                                   .strided = true,
                                   .asynchronous = true,
                                   .deterministic = true};
