/* einsum: runs the steps of spmd/target/einsum_plan.h, planned when the call is bound. What
 * is fused with a product is the epilogue of the last step, where cuBLASLt has it. */
#include <stdio.h>
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

/* Addresses of a step; vector and matrix are those of the last one. */
static void step_data(const dtp_kernel_args *args, const einsum_job *job, int32_t i, void *vector,
                      void *matrix, void *data[DTP_CUDA_GEMM_DATA])
{
    const step *s = &job->steps[i];
    const bool last = i == job->n - 1, two = s->kind == PRODUCT || s->two;
    data[DTP_EINSUM_A] = dtp_einsum_address(args, &s->part[DTP_EINSUM_A]);
    data[DTP_EINSUM_B] = two ? dtp_einsum_address(args, &s->part[DTP_EINSUM_B]) : NULL;
    data[DTP_EINSUM_C] = dtp_einsum_address(args, &s->part[DTP_EINSUM_C]);
    data[DTP_CUDA_VECTOR] = last ? vector : NULL;
    data[DTP_CUDA_MATRIX] = last ? matrix : NULL;
}

/* The last product is known to be ready before anything runs. */
static dtp_status run_job(const dtp_kernel_args *args, const einsum_job *job, void *vector,
                          void *matrix, dtp_err *err)
{
    const cudaStream_t queue = dtp_cuda_stream(args);
    void *data[DTP_CUDA_GEMM_DATA];
    if (job->n > 0 && job->steps[job->n - 1].kind == PRODUCT) {
        step_data(args, job, job->n - 1, vector, matrix, data);
        DTP_TRY(dtp_cuda_gemm_ready(dtp_cuda_of(args->backend), job->steps[job->n - 1].product,
                                    data, err));
    }
    for (int32_t i = 0; i < job->n; i++) {
        const step *s = &job->steps[i];
        step_data(args, job, i, vector, matrix, data);
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
    DTP_STATE(arena, state, job, err);
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
    bool one; /* the library takes the epilogue, as far as is known when it is bound */
    einsum_job job;
    int32_t vector, matrix; /* of the epilogue */
    void *apart;            /* state of the kernels that run where it does not; NULL: none can */
    /* Why a run was apart, "" when none was; why none can be. */
    char why[DTP_CUDA_WHY], no_apart[DTP_CUDA_WHY];
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
    const bool bias =
        s[0].op == dtp_fused_op(DTP_FUSED_ADD) && s[0].arg[0] == 0 && s[0].arg[1] == 1;
    const dtp_fused_step *last = &s[bias ? 1 : 0];
    const bool gelu = e.n == (bias ? 2 : 1) && last->op == dtp_fused_op(DTP_FUSED_GELU) &&
                      last->arg[0] == (bias ? DTP_FUSED_IN : 0);
    const bool sums = dtp_fused_product_kind_of(call->op) == DTP_FUSED_PRODUCT_SUM;
    if (e.n == 1 && s[0].op == dtp_fused_op(DTP_FUSED_GELU_GRAD) && s[0].arg[0] == 1 &&
        s[0].arg[1] == 0 && dtp_ttype_equal(&args->in[2].local, &result->local)) {
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

static bool is_gelu(cublasLtEpilogue_t epilogue)
{
    return epilogue == CUBLASLT_EPILOGUE_GELU || epilogue == CUBLASLT_EPILOGUE_GELU_BIAS ||
           epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU ||
           epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD;
}

/* The product with its epilogue. gelu of f32 is that of our kernel: the library's is not as exact.
 */
static dtp_status bind_as_one(const dtp_kernel_args *args, fused_job *job, dtp_arena *arena,
                              dtp_err *err)
{
    const dtp_op_call product = dtp_fused_product_of(args->call);
    dtp_einsum_plan plan;
    job->vector = job->matrix = -1;
    if (dtp_cuda_of(args->backend)->no_epilogues) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "switch no_epilogues");
    }
    dtp_einsum_plan_make(&product, &plan);
    const dtp_einsum_step *last = plan.n_steps > 0 ? &plan.steps[plan.n_steps - 1] : NULL;
    if (last == NULL || !last->is_gemm || last->part[DTP_EINSUM_C].operand != DTP_EINSUM_OUT) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "the result is not that of a product of cuBLASLt");
    }
    const cublasLtEpilogue_t epilogue =
        dtp_fused_product_kind_of(args->call->op) == DTP_FUSED_OPERAND_SUM
            ? epilogue_of_sum(args, last, job)
            : epilogue_of_expression(args, &last->gemm, job);
    if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "cuBLASLt has no such epilogue");
    }
    if (is_gelu(epilogue) && args->out[0].local.dtype == DTP_F32) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "gelu of f32 is a kernel of its own");
    }
    return bind_job(args, &plan, epilogue, &job->job, arena, err);
}

static void keep_reason(char why[DTP_CUDA_WHY], const dtp_err *err)
{
    (void)snprintf(why, DTP_CUDA_WHY, "%.*s", DTP_CUDA_WHY - 1, err->msg);
}

/* The kernels apart fail, too. */
static dtp_status fail_both(const fused_job *job, dtp_status s, const char *apart, dtp_err *err)
{
    return DTP_FAIL(err, s, "%.400s; as one: %s", apart, job->why);
}

static dtp_status fused_bind(const dtp_kernel_args *args, dtp_arena *arena, void **state,
                             dtp_err *err)
{
    fused_job *job;
    dtp_err refused = {0}, failed = {0};
    DTP_STATE(arena, state, job, err);
    job->one = bind_as_one(args, job, arena, &refused) == DTP_OK;
    keep_reason(job->why, &refused);
    const dtp_status s = dtp_fused_product_bind(args, arena, &job->apart, &failed);
    if (s == DTP_OK) {
        return DTP_OK;
    }
    job->apart = NULL;
    keep_reason(job->no_apart, &failed);
    return job->one ? DTP_OK : fail_both(job, s, failed.msg, err);
}

static void *view_data(const dtp_kernel_args *args, int32_t v)
{
    const int32_t n_in = args->call->n_in;
    return v < 0 ? NULL : v < n_in ? args->in[v].data : args->out[v - n_in].data;
}

static dtp_status run_as_one(const dtp_kernel_args *args, const fused_job *job, dtp_err *err)
{
    void *matrix = view_data(args, job->matrix);
    return (uintptr_t)matrix % DTP_CUDA_MATRIX_ALIGNMENT == 0
               ? run_job(args, &job->job, view_data(args, job->vector), matrix, err)
               : DTP_FAIL(err, DTP_UNSUPPORTED, "the epilogue's matrix at no multiple of %d bytes",
                          DTP_CUDA_MATRIX_ALIGNMENT);
}

/* What is refused is computed apart, from the operands on. */
static dtp_status fused_kernel(const dtp_kernel_args *args, dtp_err *err)
{
    fused_job *job = args->state;
    dtp_err refused = {0}, failed = {0};
    dtp_kernel_args apart = *args;
    if (job->one) {
        const dtp_status s = run_as_one(args, job, &refused);
        if (s == DTP_OK) {
            return DTP_OK;
        }
        keep_reason(job->why, &refused);
        if (job->apart == NULL) {
            return fail_both(job, s, job->no_apart, err);
        }
    }
    apart.state = job->apart;
    const dtp_status s = dtp_fused_product_run(&apart, &failed);
    return s == DTP_OK ? DTP_OK : fail_both(job, s, failed.msg, err);
}

const char *dtp_cuda_why_apart(const dtp_bound_kernel *k)
{
    return k->run == fused_kernel ? ((const fused_job *)k->args.state)->why : NULL;
}

const dtp_kernel dtp_cuda_einsum[] = {{"einsum", einsum_kernel, einsum_bind, DTP_FLOATS},
                                      {"fused_product", fused_kernel, fused_bind, DTP_FLOATS},
                                      {"fused_product2", fused_kernel, fused_bind, DTP_FLOATS},
                                      {"fused_product_sum", fused_kernel, fused_bind, DTP_FLOATS},
                                      {"fused_operand_sum", fused_kernel, fused_bind, DTP_FLOATS},
                                      {.op = NULL}};
