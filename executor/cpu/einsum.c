/* einsum: runs the steps of spmd/target/einsum_plan.h, planned when the call is bound. Matrix
 * products are plans of executor/cpu/gemm/gemm.h; loop steps are copies, sums, products or batched
 * dots. */
#include <string.h>

#include "executor/cpu/elementwise.h"
#include "executor/cpu/gemm/gemm.h"
#include "executor/cpu/kernels.h"
#include "executor/cpu/loops/parallel.h"
#include "executor/cpu/reduce.h"
#include "executor/device/backend.h"
#include "executor/device/einsum_steps.h"

/* A step of the plan, ready to run but for the addresses of its parts. */
typedef struct step {
    enum { PRODUCT, FOLD, MULTIPLY, COPY } kind;
    dtp_einsum_buf part[DTP_EINSUM_PARTS];
    bool two; /* B takes part */
    dtp_gemm_plan *product;
    dtp_nest nest; /* MULTIPLY, COPY */
    dtp_cpu_fold_job fold;
} step;

typedef struct einsum_job {
    int32_t n;
    step *steps;
} einsum_job;

/* ---- matrix products ---- */

static void destroy_plan(void *plan)
{
    dtp_gemm_plan_destroy(plan);
}

static dtp_status bind_product(step *s, const dtp_einsum_gemm *g, const dtp_kernel_args *args,
                               dtp_arena *arena, dtp_err *err)
{
    const dtp_gemm_desc gemm = {.trans_a = g->trans_a,
                                .trans_b = g->trans_b,
                                .m = g->m,
                                .n = g->n,
                                .k = g->k,
                                .alpha = 1.0f,
                                .lda = g->ld[DTP_EINSUM_A],
                                .ldb = g->ld[DTP_EINSUM_B],
                                .ldc = g->ld[DTP_EINSUM_C],
                                .ab_type = s->part[DTP_EINSUM_A].dtype,
                                .c_type = s->part[DTP_EINSUM_C].dtype};
    const dtp_gemm_options options = {.threads = args->threads, .scratch = &args->backend->scratch};
    dtp_gemm_batch batch = {.n = g->n_batch};
    memcpy(batch.size, g->batch, sizeof batch.size);
    memcpy(batch.stride, g->stride, sizeof batch.stride);
    s->kind = PRODUCT;
    DTP_TRY(dtp_gemm_plan_create(&gemm, &batch, &options, &s->product, err));
    return dtp_arena_at_end(arena, destroy_plan, s->product, err);
}

/* ---- loops ---- */

static void bind_loop(step *s, const dtp_einsum_loop *loop, int32_t threads)
{
    static const int32_t for_copy[] = {DTP_EINSUM_C, DTP_EINSUM_A, DTP_EINSUM_B};
    static const int32_t for_kept[] = {DTP_EINSUM_A, DTP_EINSUM_C, DTP_EINSUM_B};
    static const int32_t for_folded[] = {DTP_EINSUM_A, DTP_EINSUM_B};
    const int32_t outer[2] = {0, loop->n_out}, inner[2] = {loop->n_out, loop->n};
    const int32_t extra = loop->two ? 1 : 0;
    if (loop->n > loop->n_out) {
        s->kind = FOLD;
        s->fold = (dtp_cpu_fold_job){.fold = DTP_FOLD_SUM,
                                     .factor = 1.0,
                                     .threads = threads,
                                     .dtype = s->part[DTP_EINSUM_A].dtype,
                                     .y_dtype = s->part[DTP_EINSUM_C].dtype};
        dtp_einsum_nest(loop, outer, 2 + extra, for_kept, true, &s->fold.kept);
        dtp_einsum_nest(loop, inner, 1 + extra, for_folded, true, &s->fold.folded);
    } else {
        s->kind = loop->two ? MULTIPLY : COPY;
        dtp_einsum_nest(loop, outer, 2 + extra, for_copy, false, &s->nest);
    }
    s->two = loop->two;
}

static void run_loop(const dtp_kernel_args *args, step *s)
{
    const dtp_einsum_buf *part = s->part;
    const dtp_dtype dtype[] = {part[DTP_EINSUM_C].dtype, part[DTP_EINSUM_A].dtype,
                               part[DTP_EINSUM_B].dtype};
    const void *a = dtp_einsum_address(args, &part[DTP_EINSUM_A]);
    const void *b = s->two ? dtp_einsum_address(args, &part[DTP_EINSUM_B]) : NULL;
    void *c = dtp_einsum_address(args, &part[DTP_EINSUM_C]);
    if (s->kind == FOLD) {
        s->fold.x = a;
        s->fold.b = b;
        s->fold.y = c;
        dtp_cpu_fold_run(&s->fold);
    } else if (s->kind == MULTIPLY) {
        dtp_cpu_multiply(&s->nest, args->threads, dtype, a, b, c);
    } else if (dtype[0] == dtype[1]) {
        dtp_nest_copy(&s->nest, args->threads, c, a, dtp_dtype_bytes(dtype[0]));
    } else {
        dtp_cpu_cast(&s->nest, args->threads, dtype[0], c, dtype[1], a);
    }
}

static dtp_status einsum_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                              dtp_err *err)
{
    dtp_einsum_plan plan;
    einsum_job *job;
    DTP_STATE(arena, state, job, err);
    dtp_einsum_plan_make(args->call, &plan);
    DTP_TRY(dtp_einsum_check(args, &plan, err));
    job->n = plan.n_steps;
    DTP_TRY(DTP_NEW(arena, job->steps, job->n, err));
    for (int32_t i = 0; i < job->n; i++) {
        step *s = &job->steps[i];
        memcpy(s->part, plan.steps[i].part, sizeof s->part);
        if (plan.steps[i].is_gemm) {
            DTP_TRY(bind_product(s, &plan.steps[i].gemm, args, arena, err));
        } else {
            bind_loop(s, &plan.steps[i].loop, args->threads);
        }
    }
    return DTP_OK;
}

static dtp_status einsum_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const einsum_job *job = args->state;
    (void)err;
    for (int32_t i = 0; i < job->n; i++) {
        step *s = &job->steps[i];
        if (s->kind == PRODUCT) {
            dtp_gemm_plan_run(s->product, dtp_einsum_address(args, &s->part[DTP_EINSUM_A]),
                              dtp_einsum_address(args, &s->part[DTP_EINSUM_B]),
                              dtp_einsum_address(args, &s->part[DTP_EINSUM_C]));
        } else {
            run_loop(args, s);
        }
    }
    return DTP_OK;
}

const dtp_kernel dtp_cpu_einsum[] = {{"einsum", einsum_kernel, einsum_bind, DTP_FLOATS},
                                     {.op = NULL}};
