/* einsum: runs the steps of spmd/target/cpu_einsum_plan.h. Matrix products go to OpenBLAS, batches
 * in parallel when there are enough of them; loop steps are copies, sums, products or batched
 * dots. */
#include "spmd/target/cpu_einsum_plan.h"

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

static dtp_gemm product_at(const dtp_gemm *base, const dtp_nest *batches, int64_t index)
{
    int64_t off[DTP_NEST_VIEWS];
    dtp_gemm part = *base;
    dtp_nest_elem(batches, index, off);
    part.a += off[DTP_EINSUM_A];
    part.b += off[DTP_EINSUM_B];
    part.c += off[DTP_EINSUM_C];
    return part;
}

static void run_gemm(const dtp_kernel_args *args, const dtp_einsum_step *step)
{
    const dtp_einsum_gemm *g = &step->gemm;
    dtp_gemm base = {.trans_a = g->trans_a,
                     .trans_b = g->trans_b,
                     .m = g->m,
                     .n = g->n,
                     .k = g->k,
                     .alpha = 1.0f,
                     .a = address(args, &step->part[DTP_EINSUM_A]),
                     .b = address(args, &step->part[DTP_EINSUM_B]),
                     .c = address(args, &step->part[DTP_EINSUM_C]),
                     .lda = g->ld[DTP_EINSUM_A],
                     .ldb = g->ld[DTP_EINSUM_B],
                     .ldc = g->ld[DTP_EINSUM_C]};
    int64_t strides[DTP_EINSUM_PARTS][DTP_NEST_DIMS];
    dtp_nest nest;
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        memcpy(strides[p], g->stride[p], sizeof g->stride[p]);
    }
    dtp_nest_raw(&nest, g->n_batch, g->batch, DTP_EINSUM_PARTS,
                 (const int64_t(*)[DTP_NEST_DIMS])strides);
    const int64_t batches = dtp_nest_total(&nest);
    if (batches < args->threads || batches == 1) {
        for (int64_t i = 0; i < batches; i++) {
            dtp_gemm part = product_at(&base, &nest, i);
            dtp_gemm_run(&part, args->threads);
        }
        return;
    }
    int entered = dtp_gemm_enter();
    const double madds = (double)(batches * g->m) * (double)(g->n * g->k);
    int32_t team = dtp_cpu_team_of_products(args->threads, madds);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t i = 0; i < batches; i++) {
        dtp_gemm part = product_at(&base, &nest, i);
        dtp_gemm_serial(&part);
    }
    dtp_gemm_leave(entered);
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
            run_gemm(args, &plan.steps[i]);
        } else {
            run_loop(args, &plan.steps[i]);
        }
    }
    return DTP_OK;
}

const dtp_cpu_row dtp_cpu_einsum[] = {{"einsum", einsum_kernel, check_einsum}, {.op = NULL}};
