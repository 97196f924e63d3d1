/* Matrix products by cuBLASLt: descriptors and algorithm are chosen once, when a call is bound. */
#ifndef DTP_EXECUTOR_CUDA_GEMM_H
#define DTP_EXECUTOR_CUDA_GEMM_H

#include "executor/cuda/cuda_internal.h"
#include "executor/cuda/kernels/nest.h"
#include "spmd/target/einsum_plan.h"

/* What a product reads and writes: A, B and C, and for an epilogue a vector as long as a row of C
 * (BGRADB: a column), the same for every product, and a matrix of the shape and strides of C. */
enum {
    DTP_CUDA_VECTOR = DTP_EINSUM_PARTS,
    DTP_CUDA_MATRIX,
    DTP_CUDA_GEMM_DATA,
    DTP_CUDA_MATRIX_ALIGNMENT = 16, /* bytes */
    DTP_CUDA_WHY = 160              /* bytes of a reason */
};

/* An algorithm of the library for addresses of some alignment, or why there is none. */
typedef struct dtp_cuda_gemm_algo {
    enum { DTP_CUDA_NOT_SOUGHT, DTP_CUDA_FOUND, DTP_CUDA_REFUSED } state;
    cublasLtMatmulAlgo_t algo;
    dtp_status status;
    char why[DTP_CUDA_WHY];
} dtp_cuda_gemm_algo;

/* Row-major C = A B is column-major C' = B' A': B is the library's first operand. One batch dim is
 * that of the library, the others are a loop of products. */
typedef struct dtp_cuda_gemm {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t layout[DTP_EINSUM_PARTS];
    dtp_cuda_gemm_algo aligned, any; /* of addresses that are multiples of `alignment`; of all */
    bool epilogue;
    uint32_t alignment[DTP_CUDA_GEMM_DATA];
    int64_t bytes[DTP_CUDA_GEMM_DATA]; /* of an element */
    int64_t n_outer;                   /* products */
    int32_t n;                         /* dims of the loop */
    int64_t size[DTP_MAX_RANK], stride[DTP_CUDA_GEMM_DATA][DTP_MAX_RANK];
} dtp_cuda_gemm;

/* A and B of one dtype, C of the same or f32, the epilogue's operands of C's. DTP_UNSUPPORTED when
 * the library has no algorithm for aligned addresses, DTP_INTERNAL when it refuses otherwise. */
dtp_status dtp_cuda_gemm_bind(dtp_cuda *c, const dtp_einsum_gemm *shape, dtp_dtype ab_type,
                              dtp_dtype c_type, cublasLtEpilogue_t epilogue, dtp_cuda_gemm *out,
                              dtp_err *err) DTP_MUST_CHECK;
/* Looks for an algorithm for these addresses, where they are the first that are not aligned. What
 * was refused, here or by a run, is refused with the same words from then on. */
dtp_status dtp_cuda_gemm_ready(dtp_cuda *c, dtp_cuda_gemm *gemm,
                               void *const data[DTP_CUDA_GEMM_DATA], dtp_err *err) DTP_MUST_CHECK;
/* Puts the products on the compute queue, once it is ready for their addresses. The epilogue's
 * matrix begins at a multiple of DTP_CUDA_MATRIX_ALIGNMENT; what it does not need is NULL. */
dtp_status dtp_cuda_gemm_run(dtp_cuda *c, dtp_cuda_gemm *gemm, void *const data[DTP_CUDA_GEMM_DATA],
                             dtp_err *err) DTP_MUST_CHECK;

#endif
