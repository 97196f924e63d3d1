/* Matrix products by cuBLASLt: descriptors and algorithm are chosen once, when a call is bound. */
#include "executor/cuda/gemm.h"

#include <stdio.h>
#include <string.h>

/* WORKSPACE: what the library may use, also on Hopper. VECTOR: bytes that its kernels load at once
 * where addresses allow. */
enum { WORKSPACE_BYTES = 32 << 20, VECTOR_BYTES = 16 };

static dtp_status blas_status(cublasStatus_t status, const char *call, dtp_err *err)
{
    return status == CUBLAS_STATUS_SUCCESS
               ? DTP_OK
               : DTP_FAIL(
                     err, status == CUBLAS_STATUS_NOT_SUPPORTED ? DTP_UNSUPPORTED : DTP_INTERNAL,
                     "%.*s: %s", (int)strcspn(call, "("), call, cublasLtGetStatusString(status));
}
#define BLAS_TRY(err, call) DTP_TRY(blas_status(call, #call, err))

static cudaDataType data_type(dtp_dtype dtype)
{
    return dtype == DTP_F32 ? CUDA_R_32F : dtype == DTP_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

/* The batch dim of the library: the longest one. The others become the loop. */
static int32_t split_batch(const dtp_einsum_gemm *g, dtp_cuda_gemm *out)
{
    int32_t longest = 0;
    for (int32_t i = 1; i < g->n_batch; i++) {
        longest = g->batch[i] > g->batch[longest] ? i : longest;
    }
    out->n_outer = 1;
    for (int32_t i = 0; i < g->n_batch; i++) {
        if (i != longest) {
            out->size[out->n] = g->batch[i];
            out->n_outer *= g->batch[i];
            for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
                out->stride[p][out->n] = g->stride[p][i];
            }
            out->stride[DTP_CUDA_MATRIX][out->n] = g->stride[DTP_EINSUM_C][i];
            out->n++;
        }
    }
    return longest;
}

/* Bytes that every address of a part is a multiple of, at most VECTOR_BYTES. */
static uint32_t alignment(const dtp_cuda_gemm *gemm, int32_t part)
{
    int64_t bits = VECTOR_BYTES;
    for (int32_t i = 0; i < gemm->n; i++) {
        bits |= gemm->stride[part][i] * gemm->bytes[part];
    }
    return (uint32_t)(bits & -bits);
}

static dtp_status set_layouts(const dtp_einsum_gemm *g, int32_t batch, const dtp_dtype *dtype,
                              dtp_cuda_gemm *out, dtp_err *err)
{
    const int64_t rows[] = {g->m, g->k, g->m}, cols[] = {g->k, g->n, g->n};
    const bool trans[] = {g->trans_a, g->trans_b, false};
    const int64_t count = g->n_batch > 0 ? g->batch[batch] : 1;
    if (count > INT32_MAX) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "backend cuda: a batch of %lld products",
                        (long long)count);
    }
    const int32_t n = (int32_t)count;
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        const int64_t slow = trans[p] ? cols[p] : rows[p], fast = trans[p] ? rows[p] : cols[p];
        cublasLtMatrixLayout_t layout = &out->layout[p];
        BLAS_TRY(err, cublasLtMatrixLayoutInit(layout, data_type(dtype[p]), (uint64_t)fast,
                                               (uint64_t)slow, g->ld[p]));
        if (n > 1) {
            const int64_t *stride = &g->stride[p][batch];
            BLAS_TRY(err, cublasLtMatrixLayoutSetAttribute(
                              layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n));
            BLAS_TRY(err, cublasLtMatrixLayoutSetAttribute(
                              layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride,
                              sizeof *stride));
        }
    }
    return DTP_OK;
}

/* For addresses that are multiples of so many bytes. */
static dtp_status set_preference(cublasLtMatmulPreference_t pref,
                                 const uint32_t alignments[DTP_EINSUM_PARTS], dtp_err *err)
{
    static const cublasLtMatmulPreferenceAttributes_t of_part[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t bytes = WORKSPACE_BYTES;
    /* sums of parts of k stay f32 and have a fixed order */
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    BLAS_TRY(err, cublasLtMatmulPreferenceSetAttribute(
                      pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
    BLAS_TRY(err, cublasLtMatmulPreferenceSetAttribute(
                      pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
    for (int32_t p = 0; p < DTP_EINSUM_PARTS; p++) {
        BLAS_TRY(err, cublasLtMatmulPreferenceSetAttribute(pref, of_part[p], &alignments[p],
                                                           sizeof alignments[p]));
    }
    const uint32_t *of_c = &alignments[DTP_EINSUM_C];
    BLAS_TRY(err, cublasLtMatmulPreferenceSetAttribute(
                      pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_c, sizeof *of_c));
    return DTP_OK;
}

/* Those of the epilogue. */
static dtp_status set_operands(dtp_cuda_gemm *gemm, void *vector, void *matrix, dtp_err *err)
{
    if (!gemm->epilogue) {
        return DTP_OK;
    }
    BLAS_TRY(err, cublasLtMatmulDescSetAttribute(&gemm->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                 &vector, sizeof vector));
    BLAS_TRY(err,
             cublasLtMatmulDescSetAttribute(&gemm->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                            &matrix, sizeof matrix));
    return DTP_OK;
}

/* The epilogue, whose matrix lies as C does. */
static dtp_status set_epilogue(const dtp_einsum_gemm *g, int32_t batch, uint32_t epilogue,
                               dtp_cuda_gemm *out, dtp_err *err)
{
    enum { LD_MULTIPLE = 8 }; /* the library's rule for leading dimension and stride */
    const int64_t ld = g->ld[DTP_EINSUM_C];
    const int64_t stride = g->n_batch > 0 ? g->stride[DTP_EINSUM_C][batch] : 0;
    int64_t all = ld | stride;
    out->epilogue = epilogue != CUBLASLT_EPILOGUE_DEFAULT;
    BLAS_TRY(err, cublasLtMatmulDescSetAttribute(&out->desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                 &epilogue, sizeof epilogue));
    if (epilogue != CUBLASLT_EPILOGUE_GELU_AUX_BIAS && epilogue != CUBLASLT_EPILOGUE_DGELU &&
        epilogue != CUBLASLT_EPILOGUE_DGELU_BGRAD) {
        return DTP_OK;
    }
    for (int32_t i = 0; i < out->n; i++) {
        all |= out->stride[DTP_CUDA_MATRIX][i];
    }
    if (all % LD_MULTIPLE != 0) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "backend cuda: rows of %lld elements in an epilogue",
                        (long long)ld);
    }
    BLAS_TRY(err, cublasLtMatmulDescSetAttribute(&out->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                                 &ld, sizeof ld));
    BLAS_TRY(err, cublasLtMatmulDescSetAttribute(&out->desc,
                                                 CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE,
                                                 &stride, sizeof stride));
    return DTP_OK;
}

static dtp_status choose(dtp_cuda *c, dtp_cuda_gemm *gemm, cublasLtMatmulPreference_t pref,
                         const uint32_t alignments[DTP_CUDA_GEMM_DATA], cublasLtMatmulAlgo_t *out,
                         dtp_err *err)
{
    cublasLtMatmulHeuristicResult_t found[DTP_CUDA_ALGORITHMS];
    int n = 0;
    cublasLtMatrixLayout_t of_c = &gemm->layout[DTP_EINSUM_C];
    DTP_TRY(set_preference(pref, alignments, err));
    /* of these addresses the library looks at the alignment alone */
    DTP_TRY(set_operands(gemm, (void *)(uintptr_t)alignments[DTP_CUDA_VECTOR],
                         (void *)(uintptr_t)alignments[DTP_CUDA_MATRIX], err));
    BLAS_TRY(err, cublasLtMatmulAlgoGetHeuristic(c->blas, &gemm->desc, &gemm->layout[DTP_EINSUM_B],
                                                 &gemm->layout[DTP_EINSUM_A], of_c, of_c, pref,
                                                 c->algorithm + 1, found, &n));
    const int k = c->algorithm < n ? c->algorithm : n - 1;
    if (n == 0 || found[k].state != CUBLAS_STATUS_SUCCESS) {
        return DTP_FAIL(err, DTP_UNSUPPORTED, "cuBLASLt has no algorithm%s%s", n > 0 ? ": " : "",
                        n > 0 ? cublasLtGetStatusString(found[k].state) : "");
    }
    *out = found[k].algo;
    return DTP_OK;
}

/* Keeps a refusal. */
static dtp_status refuse(dtp_cuda_gemm_algo *algo, dtp_status s, const dtp_err *why,
                         const char *where, dtp_err *err)
{
    algo->state = DTP_CUDA_REFUSED;
    algo->status = s;
    (void)snprintf(algo->why, sizeof algo->why, "%.120s%s", why->msg, where);
    return DTP_FAIL(err, s, "%s", algo->why);
}

static bool is_aligned(const dtp_cuda_gemm *gemm, void *const data[DTP_CUDA_GEMM_DATA])
{
    bool aligned = true;
    for (int32_t p = 0; p < DTP_CUDA_GEMM_DATA; p++) {
        aligned = aligned && (uintptr_t)data[p] % gemm->alignment[p] == 0;
    }
    return aligned;
}

/* The algorithm for aligned addresses, or for all. */
static dtp_status seek(dtp_cuda *c, dtp_cuda_gemm *gemm, bool aligned, dtp_err *err)
{
    cublasLtMatmulPreference_t pref = NULL;
    dtp_cuda_gemm_algo *algo = aligned ? &gemm->aligned : &gemm->any;
    uint32_t least[DTP_CUDA_GEMM_DATA];
    dtp_err why = {0};
    for (int32_t p = 0; p < DTP_CUDA_GEMM_DATA; p++) {
        least[p] = (uint32_t)gemm->bytes[p];
    }
    least[DTP_CUDA_MATRIX] = DTP_CUDA_MATRIX_ALIGNMENT;
    BLAS_TRY(err, cublasLtMatmulPreferenceCreate(&pref));
    const dtp_status s =
        choose(c, gemm, pref, aligned ? gemm->alignment : least, &algo->algo, &why);
    (void)cublasLtMatmulPreferenceDestroy(pref);
    if (s != DTP_OK) {
        return refuse(algo, s, &why, aligned ? "" : ", for unaligned addresses", err);
    }
    algo->state = DTP_CUDA_FOUND;
    return DTP_OK;
}

dtp_status dtp_cuda_gemm_ready(dtp_cuda *c, dtp_cuda_gemm *gemm,
                               void *const data[DTP_CUDA_GEMM_DATA], dtp_err *err)
{
    const bool aligned = is_aligned(gemm, data);
    const dtp_cuda_gemm_algo *algo = aligned ? &gemm->aligned : &gemm->any;
    return algo->state == DTP_CUDA_FOUND     ? DTP_OK
           : algo->state == DTP_CUDA_REFUSED ? DTP_FAIL(err, algo->status, "%s", algo->why)
                                             : seek(c, gemm, aligned, err);
}

dtp_status dtp_cuda_gemm_bind(dtp_cuda *c, const dtp_einsum_gemm *shape, dtp_dtype ab_type,
                              dtp_dtype c_type, cublasLtEpilogue_t epilogue, dtp_cuda_gemm *out,
                              dtp_err *err)
{
    const dtp_dtype dtype[DTP_CUDA_GEMM_DATA] = {ab_type, ab_type, c_type, c_type, c_type};
    const cublasOperation_t first = shape->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = shape->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasComputeType_t compute =
        c->base.tf32 && ab_type == DTP_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    if (c->blas_workspace == NULL) {
        DTP_CUDA_TRY(err, cudaMalloc(&c->blas_workspace, WORKSPACE_BYTES));
    }
    memset(out, 0, sizeof *out);
    for (int32_t p = 0; p < DTP_CUDA_GEMM_DATA; p++) {
        out->bytes[p] = dtp_dtype_bytes(dtype[p]);
    }
    BLAS_TRY(err, cublasLtMatmulDescInit(&out->desc, compute, CUDA_R_32F));
    BLAS_TRY(err, cublasLtMatmulDescSetAttribute(&out->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                                 sizeof first));
    BLAS_TRY(err, cublasLtMatmulDescSetAttribute(&out->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                                 sizeof second));
    const int32_t batch = split_batch(shape, out);
    DTP_TRY(set_layouts(shape, batch, dtype, out, err));
    DTP_TRY(set_epilogue(shape, batch, (uint32_t)epilogue, out, err));
    for (int32_t p = 0; p < DTP_CUDA_GEMM_DATA; p++) {
        out->alignment[p] = alignment(out, p);
    }
    return dtp_err_prefixed(seek(c, out, true, err), err, "product of %lld x %lld x %lld in %s",
                            (long long)shape->m, (long long)shape->n, (long long)shape->k,
                            dtp_dtype_name(ab_type));
}

/* Product i of the loop. */
static dtp_status run_one(dtp_cuda *c, dtp_cuda_gemm *g, const cublasLtMatmulAlgo_t *algo,
                          int64_t i, void *const data[DTP_CUDA_GEMM_DATA], dtp_err *err)
{
    const float one = 1.0f, zero = 0.0f;
    char *at[DTP_CUDA_GEMM_DATA];
    for (int32_t p = 0; p < DTP_CUDA_GEMM_DATA; p++) {
        int64_t index = i, elem = 0;
        for (int32_t d = g->n - 1; d >= 0; d--) {
            elem += index % g->size[d] * g->stride[p][d];
            index /= g->size[d];
        }
        at[p] = data[p] == NULL ? NULL : (char *)data[p] + elem * g->bytes[p];
    }
    cublasLtMatrixLayout_t of_c = &g->layout[DTP_EINSUM_C];
    DTP_TRY(set_operands(g, at[DTP_CUDA_VECTOR], at[DTP_CUDA_MATRIX], err));
    BLAS_TRY(err,
             cublasLtMatmul(c->blas, &g->desc, &one, at[DTP_EINSUM_B], &g->layout[DTP_EINSUM_B],
                            at[DTP_EINSUM_A], &g->layout[DTP_EINSUM_A], &zero, at[DTP_EINSUM_C],
                            of_c, at[DTP_EINSUM_C], of_c, algo, c->blas_workspace, WORKSPACE_BYTES,
                            c->compute));
    return DTP_OK;
}

dtp_status dtp_cuda_gemm_run(dtp_cuda *c, dtp_cuda_gemm *gemm, void *const data[DTP_CUDA_GEMM_DATA],
                             dtp_err *err)
{
    dtp_err why = {0};
    DTP_TRY(dtp_cuda_gemm_ready(c, gemm, data, err));
    dtp_cuda_gemm_algo *algo = is_aligned(gemm, data) ? &gemm->aligned : &gemm->any;
    for (int64_t i = 0; i < gemm->n_outer; i++) {
        const dtp_status s = run_one(c, gemm, &algo->algo, i, data, &why);
        if (s != DTP_OK) {
            return refuse(algo, s, &why, "", err);
        }
    }
    return DTP_OK;
}
