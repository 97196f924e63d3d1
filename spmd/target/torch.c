/* Targets of PyTorch: `torch` runs kernel by kernel, `torch_compile` what torch.compile makes of
 * it. PyTorch runs their programs, no backend of this project does. What they keep in memory
 * between forward and backward pass is what autograd keeps: the operands and results that the
 * gradients of the graph read.
 */
#include "spmd/target/target.h"

enum {
    FLOATS = 1U << DTP_F32 | 1U << DTP_BF16 | 1U << DTP_F16 | 1U << DTP_F64,
    UPDATES = 64 /* of a launch of a fused optimizer */
};

static int64_t most_elems(const dtp_op_call *call)
{
    int64_t most = 0;
    for (int32_t i = 0; i < call->n_in; i++) {
        const int64_t elems = dtp_ttype_elems(&call->in[i]);
        most = elems > most ? elems : most;
    }
    return most;
}

/* The gradient of cross-entropy reads 16-bit logits as f32: these (4 bytes), their log-softmax (4)
 * and its gradient in 16 bits (2), beside logits and result. */
static int64_t workspace_loss_grad(const dtp_op_call *call)
{
    return 10 * most_elems(call);
}

/* Megatron-LM's fused cross-entropy: logits in f32, which become the softmax and its gradient in
 * place (megatron/core/fusions/fused_cross_entropy.py). */
static int64_t workspace_fused_loss_grad(const dtp_op_call *call)
{
    return 4 * most_elems(call);
}

/* FlashAttention sums the gradient of q in f32. */
static int64_t workspace_attention_grad(const dtp_op_call *call)
{
    return 4 * dtp_ttype_elems(&call->in[0]);
}

static const dtp_target_op torch_ops[] = {
    {"attention_grad", workspace_attention_grad, NULL},
    {"attention_part_grad", workspace_attention_grad, NULL},
    {"cross_entropy_grad", workspace_loss_grad, NULL},
    {"cross_entropy_part_grad", workspace_loss_grad, NULL},
    {.op = NULL},
};
static const dtp_target_op megatron_ops[] = {
    {"attention_grad", workspace_attention_grad, NULL},
    {"attention_part_grad", workspace_attention_grad, NULL},
    {"cross_entropy_grad", workspace_fused_loss_grad, NULL},
    {"cross_entropy_part_grad", workspace_fused_loss_grad, NULL},
    {.op = NULL},
};
/* Of the caching allocator, which keeps blocks of other sizes: by published peaks of both
 * (docs/results/published.md). */
#define RESERVE 1.08
static const char *const torch_backends[] = {NULL};

/* Of both targets, before what each fuses. */
#define OF_TORCH                                                                                   \
    .runtime = "torch", .precision = "bf16", .backends = torch_backends, .floats = FLOATS,         \
    .join = UPDATES, .asynchronous = true, .streams = true, .reserve = RESERVE, .direct = true,    \
    .tf32 = true, .fp8 = true

const dtp_target dtp_target_torch = {OF_TORCH, .name = "torch", .ops = torch_ops, .fsdp = true,
                                     .fuse = DTP_FUSE_BIAS};
const dtp_target dtp_target_torch_compile = {
    OF_TORCH, .name = "torch_compile", .ops = torch_ops, .fsdp = true,
    .fuse = DTP_FUSE_BIAS | DTP_FUSE_ELEMENTWISE | DTP_FUSE_NORM | DTP_FUSE_CAST};
/* Tensors have the sequence first, so that parts of collectives are contiguous (nanotron's
 * models/llama.py); every parameter is gathered and its gradient reduced by itself
 * (nanotron's optim/zero.py, optim/gradient_accumulator.py). */
const dtp_target dtp_target_nanotron = {OF_TORCH,         .name = "nanotron",
                                        .ops = torch_ops, .fuse = DTP_FUSE_BIAS,
                                        .strided = true,  .apart = true};
/* Tensors have the sequence first; linear layers
 * gather their input again (megatron/core/tensor_parallel/layers.py); gradients are reduced and
 * parameters gathered in their buffers (megatron/core/distributed/param_and_grad_buffer.py). */
#define OF_MEGATRON                                                                                \
    OF_TORCH, .ops = megatron_ops, .fuse = DTP_FUSE_BIAS, .regathers = true, .strided = true,      \
              .buffers = true

const dtp_target dtp_target_megatron = {OF_MEGATRON, .name = "megatron"};
const dtp_target dtp_target_megatron_overlap = {OF_MEGATRON, .name = "megatron_overlap",
                                                .chunks = true};
