/* einsum: runs the steps of spmd/target/einsum_plan.h, planned when the call is bound. What
 * is fused with a product is the epilogue of the last step, where cuBLASLt has it. */
#include <string.h>

#include "core/graph/ops/fused_ops.h"
#include "executor/cuda/gemm.h"
#include "executor/cuda/kernels.h"
#include "executor/cuda/kernels/copy.h"
#include "executor/cuda/kernels/einsum.h"
#include "executor/device/einsum_steps.h"
#include "executor/device/fused_product.h"

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

/* Dims [first, last) of a loop for C, A and B. */
static dtp_status loop_nest(const dtp_einsum_loop *loop, int32_t first, int32_t last, bool sorted,
                            dtp_cuda_nest *out, dtp_err *err)
{
    static const int32_t parts[] = {DTP_EINSUM_C, DTP_EINSUM_A, DTP_EINSUM_B};
    const int32_t range[2] = {first, last};
    dtp_nest nest;
    dtp_einsum_nest(loop, range, DTP_EINSUM_PARTS, parts, sorted, &nest);
    return dtp_cuda_nest_of(&nest, out, err);
}

static dtp_status bind_step(const dtp_kernel_args *args, const dtp_einsum_step *from,
                            cublasLtEpilogue_t epilogue, step *s, dtp_arena *arena, dtp_err *err)
{
    const dtp_einsum_loop *loop = &from->loop;
    const dtp_dtype a_type = from->part[DTP_EINSUM_A].dtype;
    const dtp_dtype c_type = from->part[DTP_EINSUM_C].dtype;
    memcpy(s->part, from->part, sizeof s->part);
    if (from->is_gemm) {
        s->kind = PRODUCT;
        DTP_TRY(DTP_NEW(arena, s->product, 1, err));
        return dtp_cuda_gemm_bind(dtp_cuda_of(args->backend), &from->gemm, a_type, c_type, epilogue,
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

/* The epilogue is that of the last step. */
static dtp_status bind_job(const dtp_kernel_args *args, const dtp_einsum_plan *plan,
                           cublasLtEpilogue_t epilogue, einsum_job *job, dtp_arena *arena,
                           dtp_err *err)
{
    DTP_TRY(dtp_einsum_check(args, plan, err));
    job->n = plan->n_steps;
    DTP_TRY(DTP_NEW(arena, job->steps, job->n, err));
    for (int32_t i = 0; i < job->n; i++) {
        DTP_TRY(bind_step(args, &plan->steps[i],
                          i == job->n - 1 ? epilogue : CUBLASLT_EPILOGUE_DEFAULT, &job->steps[i],
                          arena, err));
    }
    return DTP_OK;
}

static dtp_status run_job(const dtp_kernel_args *args, const einsum_job *job, void *vector,
                          void *matrix, dtp_err *err)
{
    const cudaStream_t queue = dtp_cuda_stream(args);
    for (int32_t i = 0; i < job->n; i++) {
        const step *s = &job->steps[i];
        const bool last = i == job->n - 1;
        void *const data[DTP_CUDA_GEMM_DATA] = {
            dtp_einsum_address(args, &s->part[DTP_EINSUM_A]),
            s->kind == PRODUCT || s->two ? dtp_einsum_address(args, &s->part[DTP_EINSUM_B]) : NULL,
            dtp_einsum_address(args, &s->part[DTP_EINSUM_C]), last ? vector : NULL,
            last ? matrix : NULL};
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

static dtp_status einsum_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                              dtp_err *err)
{
    dtp_einsum_plan plan;
    einsum_job *job;
    DTP_CUDA_STATE(arena, state, job, err);
    dtp_einsum_plan_make(args->call, &plan);
    return bind_job(args, &plan, CUBLASLT_EPILOGUE_DEFAULT, job, arena, err);
}

static dtp_status einsum_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    return run_job(args, args->state, NULL, NULL, err);
}

/* ---- products and more ---- */

/* Views by number: operands, then results. -1 = none. */
typedef struct fused_job {
    bool fused;
    einsum_job job;
    int32_t vector, matrix; /* of the epilogue */
    void *apart;            /* state of the two kernels that run where the epilogue cannot */
} fused_job;

/* Whether a view has the last dims of the result, which are the rows of the product's matrix. */
static bool is_row(const dtp_view *view, const dtp_view *result, int64_t columns)
{
    const int32_t first = result->local.rank - view->local.rank;
    bool same = first >= 0 && dtp_ttype_elems(&view->local) == columns &&
                view->local.dtype == result->local.dtype;
    for (int32_t i = 0; i < view->local.rank && same; i++) {
        same = view->local.dims[i].id == result->local.dims[first + i].id;
    }
    return same;
}

/* The library's epilogue for an expression: bias, gelu or both, gelu_grad; DEFAULT: it has none. */
static cublasLtEpilogue_t epilogue_of_expression(const dtp_kernel_args *args,
                                                 const dtp_einsum_gemm *gemm, fused_job *job)
{
    const dtp_op_call *call = args->call;
    const dtp_view *result = &args->out[0];
    dtp_fused_expr e;
    if (dtp_fused_expr_of(call, &e, NULL) != DTP_OK) {
        return CUBLASLT_EPILOGUE_DEFAULT;
    }
    const dtp_fused_step *s = e.step;
    const bool bias = s[0].function == DTP_FUSED_add && s[0].arg[0] == 0 && s[0].arg[1] == 1;
    const dtp_fused_step *last = &s[bias ? 1 : 0];
    const bool gelu = e.n == (bias ? 2 : 1) && last->function == DTP_FUSED_gelu &&
                      last->arg[0] == (bias ? DTP_FUSED_IN : 0);
    const bool sums = dtp_fused_product_kind_of(call->op) == DTP_FUSED_PRODUCT_SUM;
    if (e.n == 1 && s[0].function == DTP_FUSED_gelu_grad && s[0].arg[0] == 1 && s[0].arg[1] == 0 &&
        dtp_ttype_equal(&args->in[2].local, &result->local)) {
        job->matrix = 2;
        job->vector = sums ? call->n_in + 1 : -1;
        return !sums ? CUBLASLT_EPILOGUE_DGELU
               : gemm->n_batch == 0 && is_row(&args->out[1], result, gemm->n)
                   ? CUBLASLT_EPILOGUE_DGELU_BGRAD
                   : CUBLASLT_EPILOGUE_DEFAULT;
    }
    if (sums || (bias ? !is_row(&args->in[2], result, gemm->n) : e.also >= 0)) {
        return CUBLASLT_EPILOGUE_DEFAULT;
    }
    job->vector = bias ? 2 : -1;
    job->matrix = e.also >= 0 ? call->n_in + 1 : -1;
    return gelu && e.also >= 0 ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
           : gelu              ? (bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU)
           : bias && e.n == 1  ? CUBLASLT_EPILOGUE_BIAS
                               : CUBLASLT_EPILOGUE_DEFAULT;
}

/* That for the sum of operand 1, which is A or B as it lies. */
static cublasLtEpilogue_t epilogue_of_sum(const dtp_kernel_args *args, const dtp_einsum_step *last,
                                          fused_job *job)
{
    const int64_t elems = dtp_ttype_elems(&args->out[1].local);
    job->vector = args->call->n_in + 1;
    return last->gemm.n_batch > 0 ? CUBLASLT_EPILOGUE_DEFAULT
           : last->part[DTP_EINSUM_B].operand == 1 && elems == last->gemm.n
               ? CUBLASLT_EPILOGUE_BGRADA /* the library's A */
           : last->part[DTP_EINSUM_A].operand == 1 && elems == last->gemm.m
               ? CUBLASLT_EPILOGUE_BGRADB
               : CUBLASLT_EPILOGUE_DEFAULT;
}

static dtp_status fused_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                             dtp_err *err)
{
    const dtp_op_call product = dtp_fused_product_of(args->call);
    dtp_einsum_plan plan;
    dtp_err none;
    fused_job *job;
    DTP_CUDA_STATE(arena, state, job, err);
    job->vector = job->matrix = -1;
    dtp_einsum_plan_make(&product, &plan);
    const dtp_einsum_step *last = plan.n_steps > 0 ? &plan.steps[plan.n_steps - 1] : NULL;
    if (last != NULL && last->is_gemm && last->part[DTP_EINSUM_C].operand == DTP_EINSUM_OUT) {
        const cublasLtEpilogue_t epilogue =
            dtp_fused_product_kind_of(args->call->op) == DTP_FUSED_OPERAND_SUM
                ? epilogue_of_sum(args, last, job)
                : epilogue_of_expression(args, &last->gemm, job);
        const dtp_status s = epilogue == CUBLASLT_EPILOGUE_DEFAULT
                                 ? DTP_UNSUPPORTED
                                 : bind_job(args, &plan, epilogue, &job->job, arena, &none);
        job->fused = s == DTP_OK;
        if (s != DTP_OK && s != DTP_UNSUPPORTED) {
            *err = none;
            return s;
        }
    }
    return job->fused && job->matrix < 0 ? DTP_OK
                                         : dtp_fused_product_bind(args, arena, &job->apart, err);
}

static void *view_data(const dtp_kernel_args *args, int32_t v)
{
    const int32_t n_in = args->call->n_in;
    return v < 0 ? NULL : v < n_in ? args->in[v].data : args->out[v - n_in].data;
}

static dtp_status fused_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    const fused_job *job = args->state;
    void *matrix = view_data(args, job->matrix);
    if (job->fused && (uintptr_t)matrix % DTP_CUDA_MATRIX_ALIGNMENT == 0) {
        return run_job(args, &job->job, view_data(args, job->vector), matrix, err);
    }
    dtp_kernel_args apart = *args;
    apart.state = job->apart;
    return dtp_fused_product_run(&apart, err);
}

const dtp_kernel dtp_cuda_einsum[] = {
    {"einsum", einsum_kernel, einsum_bind, DTP_CUDA_FLOATS},
    {"fused_product", fused_kernel, fused_bind, DTP_CUDA_FLOATS},
    {"fused_product2", fused_kernel, fused_bind, DTP_CUDA_FLOATS},
    {"fused_product_sum", fused_kernel, fused_bind, DTP_CUDA_FLOATS},
    {"fused_operand_sum", fused_kernel, fused_bind, DTP_CUDA_FLOATS},
    {.op = NULL}};
