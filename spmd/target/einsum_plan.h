/* How the kernels of a backend run an einsum on one rank: a list of steps, each a loop nest or a
 * batched matrix product.
 *
 * Operands are multiplied pairwise from left to right. For each pair every dim of size > 1 is
 *   batch  in both operands and in the result
 *   m      in the first operand and the result only
 *   n      in the second operand and the result only
 *   k      in both operands, not in the result: summed
 * Dims of one operand alone that the result lacks are summed beforehand by a loop step. With a k
 * dim and an m or n dim the pair is a batched GEMM; all else (products without a sum, outer
 * products, batched dot products, sums over nothing) is a loop step.
 *
 * An operand of the GEMM is used where it lies when its m dims and its k dims (likewise n, k and m,
 * n) each form one run in memory, in an order that all sharers of the group agree on, and the
 * innermost dim is not a batch dim; batch dims may lie anywhere else. Otherwise a loop step copies
 * it into matrix form in the workspace (and a result out of it). All but one dim of the m or of the
 * n group may also become batch dims, with stride 0 in the operand that lacks them, when the dim
 * that stays is large enough for a useful matrix. Of all these ways, and the possible orders within
 * the groups, the plan takes the one that moves the fewest elements; the fewest batch dims on ties.
 *
 * Steps run in order. Every intermediate has the dtype of the operands, but a result in matrix form
 * has that of what it is copied to.
 */
#ifndef DTP_SPMD_TARGET_EINSUM_PLAN_H
#define DTP_SPMD_TARGET_EINSUM_PLAN_H

#include "core/graph/op.h"

enum {
    DTP_EINSUM_STEPS = 6 * (DTP_MAX_OP_IN - 1),
    DTP_EINSUM_OUT = -1,      /* dtp_einsum_buf.operand: the output of the call */
    DTP_EINSUM_WORKSPACE = -2 /* dtp_einsum_buf.operand: the workspace */
};

/* Where an operand of a step starts. */
typedef struct dtp_einsum_buf {
    int32_t operand; /* >= 0: that operand of the call */
    dtp_dtype dtype;
    int64_t offset; /* WORKSPACE: first byte, a multiple of 64; else 0 */
} dtp_einsum_buf;

/* Operands of a step, and the index of their strides below. */
enum { DTP_EINSUM_A, DTP_EINSUM_B, DTP_EINSUM_C, DTP_EINSUM_PARTS };

/* C[outer dims] = sum over the inner dims of A (times B). The first n_out dims are those of the
 * result, in its memory order, outermost first; the n - n_out others are summed. A size may be 0:
 * an empty sum is 0. */
typedef struct dtp_einsum_loop {
    int32_t n, n_out;
    bool two; /* B takes part */
    int64_t size[DTP_MAX_OP_DIMS];
    int64_t stride[DTP_EINSUM_PARTS]
                  [DTP_MAX_OP_DIMS]; /* elements; 0 where the part lacks the dim */
} dtp_einsum_loop;

/* C (m x n) = A (m x k) B (k x n), row-major with leading dimensions ld in elements, for every
 * index of the batch dims. All sizes are at least 1. */
typedef struct dtp_einsum_gemm {
    int64_t m, n, k;
    bool trans_a, trans_b; /* stored as k x m, n x k */
    int64_t ld[DTP_EINSUM_PARTS];
    int32_t n_batch;
    int64_t batch[DTP_MAX_RANK];                    /* sizes > 1, outermost first */
    int64_t stride[DTP_EINSUM_PARTS][DTP_MAX_RANK]; /* elements */
} dtp_einsum_gemm;

typedef struct dtp_einsum_step {
    bool is_gemm;
    bool is_pack; /* a copy into or out of matrix form */
    dtp_einsum_buf part[DTP_EINSUM_PARTS];
    dtp_einsum_loop loop;
    dtp_einsum_gemm gemm;
} dtp_einsum_step;

typedef struct dtp_einsum_plan {
    int32_t n_steps;
    bool elementwise; /* one loop step without a sum: a product or a copy */
    bool too_large; /* an intermediate exceeds int64 bytes, or a pair DTP_MAX_OP_DIMS dims; no steps
                     */
    int64_t workspace_bytes;
    double pack_bytes;  /* read plus written by the pack steps */
    double inner_bytes; /* read plus written by the other steps, each of their operands once */
    double flops;       /* 2 per multiply-add of GEMMs, 1 per addition or product of loops */
    dtp_einsum_step steps[DTP_EINSUM_STEPS];
} dtp_einsum_plan;

/* Plan of an einsum call with local (or global) types. An output without elements has no steps. The
 * struct is large (about 100 KiB): one on the stack is fine, many are not. */
void dtp_einsum_plan_make(const dtp_op_call *call, dtp_einsum_plan *plan);

/* For rows of targets: bytes of the workspace; work, whose matrix sizes are those of the product
 * with the most multiplications. */
int64_t dtp_einsum_workspace(const dtp_op_call *call);
void dtp_einsum_work(const dtp_op_call *call, dtp_work *out);

/* The same of an expression of a product (core/graph/ops/fused.c). */
int64_t dtp_einsum_fused_workspace(const dtp_op_call *call);
void dtp_einsum_fused_work(const dtp_op_call *call, dtp_work *out);

#endif
