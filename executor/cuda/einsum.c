/* einsum: runs the steps of spmd/target/einsum_plan.h, planned when the call is bound. */
#include <string.h>

#include "executor/cuda/gemm.h"
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/copy.h"
#include "executor/cuda/kernels/einsum.h"

/* A step of the plan, ready to run but for the addresses of its parts. */
typedef struct step {
    enum { PRODUCT, LOOP, COPY } kind;
    dtp_einsum_buf part[DTP_EINSUM_PARTS];
    bool two; /* B takes part */
    dtp_cuda_gemm *product;
    dtp_cuda_einsum_loop *loop; /* COPY: its `kept` alone */
} step;

typedef struct einsum_job {
    int32_t n;
    step *steps;
} einsum_job;

static void *address(const dtp_kernel_args *args, const dtp_einsum_buf *buf)
{
    return buf->operand == DTP_EINSUM_OUT         ? args->out[0].data
           : buf->operand == DTP_EINSUM_WORKSPACE ? (void *)((char *)args->workspace + buf->offset)
                                                  : args->in[buf->operand].data;
}

/* Dims [first, last) of a loop for C, A and B, by falling stride of A when `sorted`. */
static dtp_status loop_nest(const dtp_einsum_loop *loop, int32_t first, int32_t last, bool sorted,
                            dtp_cuda_nest *out, dtp_err *err)
{
    static const int32_t parts[] = {DTP_EINSUM_C, DTP_EINSUM_A, DTP_EINSUM_B};
    int64_t sizes[DTP_NEST_DIMS], strides[DTP_NEST_VIEWS][DTP_NEST_DIMS];
    int32_t order[DTP_NEST_DIMS], n = 0;
    const int64_t *by = loop->stride[DTP_EINSUM_A];
    dtp_nest nest;
    for (int32_t i = first; i < last; i++) {
        int32_t at = n++;
        while (sorted && at > 0 && by[order[at - 1]] < by[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
    for (int32_t i = 0; i < n; i++) {
        sizes[i] = loop->size[order[i]];
        for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
            strides[p][i] = loop->stride[parts[p]][order[i]];
        }
    }
    dtp_nest_raw(&nest, n, sizes, DTP_EINSUM_PARTS, (const int64_t(*)[DTP_NEST_DIMS])strides);
    return dtp_cuda_nest_of(&nest, out, err);
}

static dtp_status bind_step(const dtp_kernel_args *args, const dtp_einsum_step *from, step *s,
                            dtp_arena *arena, dtp_err *err)
{
    const dtp_einsum_loop *loop = &from->loop;
    const dtp_dtype a_type = from->part[DTP_EINSUM_A].dtype;
    const dtp_dtype c_type = from->part[DTP_EINSUM_C].dtype;
    memcpy(s->part, from->part, sizeof s->part);
    if (from->is_gemm) {
        s->kind = PRODUCT;
        DTP_TRY(DTP_NEW(arena, s->product, 1, err));
        return dtp_cuda_gemm_bind(dtp_cuda_of(args->backend), &from->gemm, a_type, c_type,
                                  s->product, err);
    }
    const bool sums = loop->n > loop->n_out;
    s->two = loop->two;
    s->kind = sums || s->two || a_type != c_type ? LOOP : COPY;
    DTP_TRY(DTP_NEW(arena, s->loop, 1, err));
    s->loop->c_dtype = (int32_t)c_type;
    s->loop->a_dtype = (int32_t)a_type;
    s->loop->b_dtype = (int32_t)from->part[DTP_EINSUM_B].dtype;
    DTP_TRY(loop_nest(loop, 0, loop->n_out, sums, &s->loop->kept, err));
    return loop_nest(loop, loop->n_out, loop->n, true, &s->loop->summed, err);
}

static dtp_status einsum_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                              dtp_err *err)
{
    dtp_einsum_plan plan;
    einsum_job *job;
    DTP_CUDA_STATE(arena, state, job, err);
    dtp_einsum_plan_make(args->call, &plan);
    if (plan.too_large) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "einsum: an intermediate product is too large");
    }
    if (plan.workspace_bytes > args->workspace_bytes) {
        return DTP_FAIL(err, DTP_INTERNAL, "einsum: workspace of %lld bytes, %lld are needed",
                        (long long)args->workspace_bytes, (long long)plan.workspace_bytes);
    }
    job->n = plan.n_steps;
    DTP_TRY(DTP_NEW(arena, job->steps, job->n, err));
    for (int32_t i = 0; i < job->n; i++) {
        DTP_TRY(bind_step(args, &plan.steps[i], &job->steps[i], arena, err));
    }
    return DTP_OK;
}

static dtp_status einsum_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const einsum_job *job = args->state;
    const cudaStream_t queue = dtp_cuda_stream(args);
    for (int32_t i = 0; i < job->n; i++) {
        const step *s = &job->steps[i];
        void *const data[DTP_EINSUM_PARTS] = {
            address(args, &s->part[DTP_EINSUM_A]),
            s->kind == PRODUCT || s->two ? address(args, &s->part[DTP_EINSUM_B]) : NULL,
            address(args, &s->part[DTP_EINSUM_C])};
        if (s->kind == PRODUCT) {
            DTP_TRY(dtp_cuda_gemm_run(dtp_cuda_of(args->backend), s->product, data, err));
        } else if (s->kind == LOOP) {
            DTP_CUDA_TRY(err, dtp_cuda_einsum_loop_run(queue, s->loop, data[DTP_EINSUM_C],
                                                       data[DTP_EINSUM_A], data[DTP_EINSUM_B]));
        } else {
            DTP_CUDA_TRY(err, dtp_cuda_copy(queue, &s->loop->kept,
                                            (int32_t)dtp_dtype_bytes(s->part[DTP_EINSUM_C].dtype),
                                            data[DTP_EINSUM_C], data[DTP_EINSUM_A]));
        }
    }
    return DTP_OK;
}

const dtp_kernel dtp_cuda_einsum[] = {{"einsum", einsum_kernel, einsum_bind, DTP_CUDA_FLOATS},
                                      {.op = NULL}};
