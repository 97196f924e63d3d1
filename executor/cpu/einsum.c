/* einsum: runs the steps of core/graph/ops/einsum_plan.h. Matrix products go to
 * executor/cpu/gemm.h; loop steps are copies, sums, products or batched dots. */
#include "core/graph/ops/einsum_plan.h"

#include <string.h>

#include "executor/cpu/elementwise.h"
#include "executor/cpu/gemm.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/parallel.h"
#include "executor/cpu/reduce.h"

static float *address(const dtp_kernel_args *args, const dtp_einsum_buf *buf)
{
    if (buf->operand == DTP_EINSUM_OUT) {
        return args->out[0].data;
    }
    if (buf->operand == DTP_EINSUM_WORKSPACE) {
        return (void *)((char *)args->workspace + buf->offset);
    }
    return args->in[buf->operand].data;
}

/* ---- matrix products ---- */

static dtp_status run_gemm(const dtp_kernel_args *args, const dtp_einsum_step *step, dtp_err *err)
{
    const dtp_einsum_gemm *g = &step->gemm;
    const dtp_gemm_desc gemm = {.trans_a = g->trans_a,
                                .trans_b = g->trans_b,
                                .m = g->m,
                                .n = g->n,
                                .k = g->k,
                                .alpha = 1.0f,
                                .lda = g->ld[DTP_EINSUM_A],
                                .ldb = g->ld[DTP_EINSUM_B],
                                .ldc = g->ld[DTP_EINSUM_C]};
    dtp_gemm_batch batch = {.n = g->n_batch};
    memcpy(batch.size, g->batch, sizeof batch.size);
    memcpy(batch.stride, g->stride, sizeof batch.stride);
    const dtp_gemm_options options = {.threads = args->threads};
    dtp_gemm_plan *plan = NULL;
    DTP_TRY(dtp_gemm_plan_create(&gemm, &batch, &options, &plan, err));
    dtp_gemm_plan_run(plan, address(args, &step->part[DTP_EINSUM_A]),
                      address(args, &step->part[DTP_EINSUM_B]),
                      address(args, &step->part[DTP_EINSUM_C]));
    dtp_gemm_plan_destroy(plan);
    return DTP_OK;
}

/* ---- loops ---- */

/* Dims [first, last) of a loop for some of its parts, by falling stride of A when `sorted`. */
static void loop_nest(dtp_nest *nest, const dtp_einsum_loop *loop, const int32_t range[2],
                      int32_t n_parts, const int32_t *parts, bool sorted)
{
    int64_t sizes[DTP_NEST_DIMS], strides[DTP_NEST_VIEWS][DTP_NEST_DIMS];
    int32_t order[DTP_NEST_DIMS], n = 0;
    const int64_t *by = loop->stride[DTP_EINSUM_A];
    for (int32_t i = range[0]; i < range[1]; i++) {
        int32_t at = n++;
        while (sorted && at > 0 && by[order[at - 1]] < by[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    for (int32_t i = 0; i < n; i++) {
        sizes[i] = loop->size[order[i]];
        for (int32_t p = 0; p < n_parts; p++) {
            strides[p][i] = loop->stride[parts[p]][order[i]];
        }
    }
    dtp_nest_raw(nest, n, sizes, n_parts, (const int64_t(*)[DTP_NEST_DIMS])strides);
}

static void run_loop(const dtp_kernel_args *args, const dtp_einsum_step *step)
{
    static const int32_t for_copy[] = {DTP_EINSUM_C, DTP_EINSUM_A, DTP_EINSUM_B};
    static const int32_t for_kept[] = {DTP_EINSUM_A, DTP_EINSUM_C, DTP_EINSUM_B};
    static const int32_t for_folded[] = {DTP_EINSUM_A, DTP_EINSUM_B};
    const dtp_einsum_loop *loop = &step->loop;
    const float *a = address(args, &step->part[DTP_EINSUM_A]);
    const float *b = loop->two ? address(args, &step->part[DTP_EINSUM_B]) : NULL;
    float *c = address(args, &step->part[DTP_EINSUM_C]);
    int32_t outer[2] = {0, loop->n_out}, inner[2] = {loop->n_out, loop->n};
    int32_t extra = loop->two ? 1 : 0;
    dtp_nest nest;
    if (loop->n > loop->n_out) {
        dtp_cpu_fold_job job = {.fold = DTP_FOLD_SUM, .factor = 1.0, .x = a, .b = b, .y = c};
        job.threads = args->threads;
        loop_nest(&job.kept, loop, outer, 2 + extra, for_kept, true);
        loop_nest(&job.folded, loop, inner, 1 + extra, for_folded, true);
        dtp_cpu_fold_run(&job);
    } else if (loop->two) {
        loop_nest(&nest, loop, outer, 3, for_copy, false);
        dtp_cpu_multiply(&nest, args->threads, a, b, c);
    } else {
        loop_nest(&nest, loop, outer, 2, for_copy, false);
        dtp_nest_copy(&nest, args->threads, c, a, (int64_t)sizeof *c);
    }
}

static dtp_status check_einsum(const dtp_op_call *call, dtp_err *err)
{
    dtp_einsum_plan plan;
    DTP_TRY(dtp_cpu_check_all_f32(call, err));
    dtp_einsum_plan_make(call, &plan);
    return plan.too_large
               ? DTP_FAIL(err, DTP_UNSUPPORTED, "einsum: an intermediate product is too large")
               : DTP_OK;
}

static dtp_status einsum_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    dtp_einsum_plan plan;
    dtp_einsum_plan_make(args->call, &plan);
    if (plan.workspace_bytes > args->workspace_bytes) {
        return DTP_FAIL(err, DTP_INTERNAL, "einsum: workspace of %lld bytes, %lld are needed",
                        (long long)args->workspace_bytes, (long long)plan.workspace_bytes);
    }
    for (int32_t i = 0; i < plan.n_steps; i++) {
        if (plan.steps[i].is_gemm) {
            DTP_TRY(run_gemm(args, &plan.steps[i], err));
        } else {
            run_loop(args, &plan.steps[i]);
        }
    }
    return DTP_OK;
}

const dtp_cpu_row dtp_cpu_einsum[] = {{"einsum", einsum_kernel, check_einsum}, {.op = NULL}};
