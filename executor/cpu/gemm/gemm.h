/* Matrix products, row-major: f32, and bf16 and f16 with f32 accumulation.
 *
 * The provider of a product is chosen by type and processor, never by time, so that results are the
 * same from run to run (docs/decisions/0038-matrix-products.md):
 *   f32   OpenBLAS
 *   bf16  oneDNN where the processor has bf16 dot products, else blocks widened to f32
 *   f16   blocks widened to f32
 * A product of 16-bit operands is summed in f32 and rounded once, to the type of C.
 *
 * A plan binds a product, or a batch of them, to types, shapes and a number of threads; it is made
 * once and run many times, by one caller at a time. Plans of several threads of one process
 * (virtual ranks) run at once. Results depend on shapes, types and threads alone.
 *
 * Libraries always run on the calling thread here; plans share a product between threads by cutting
 * C into a grid, and batches by product. Libraries ask the calling thread's OpenMP settings how
 * many threads to take, so a caller of dtp_gemm_serial outside of a parallel region brackets its
 * products with dtp_gemm_enter and dtp_gemm_leave, which are local to the thread; plans do so
 * themselves. */
#ifndef DTP_EXECUTOR_CPU_GEMM_GEMM_H
#define DTP_EXECUTOR_CPU_GEMM_GEMM_H

#include "core/layout/tensor_type.h"
#include "executor/device/scratch.h"

/* C[m,n] = alpha A[m,k] B[k,n] + beta C. trans_a: A is stored k x m; trans_b: B is stored n x k.
 * Leading dims in elements. beta = 0 ignores what C holds. */
typedef struct dtp_gemm {
    bool trans_a, trans_b;
    int64_t m, n, k;
    float alpha, beta;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
} dtp_gemm;

/* Returns what dtp_gemm_leave needs. */
int dtp_gemm_enter(void);
void dtp_gemm_leave(int entered);

/* On the calling thread. m = 1 and n = 1 run as matrix-vector products. */
void dtp_gemm_serial(const dtp_gemm *g);

/* The same for plans. C is of the type of A and B, or f32. */
typedef struct dtp_gemm_desc {
    bool trans_a, trans_b;
    int64_t m, n, k;
    float alpha, beta;
    int64_t lda, ldb, ldc;
    dtp_dtype ab_type, c_type; /* f32 unless set */
    const void *a, *b;         /* of a run */
    void *c;
} dtp_gemm_desc;

/* Products with equal shapes at strides, in elements. n = 0: one product. */
typedef struct dtp_gemm_batch {
    int32_t n;
    int64_t size[DTP_MAX_RANK];
    int64_t stride[3][DTP_MAX_RANK]; /* of A, B, C */
} dtp_gemm_batch;

/* Scratch memory of a thread, at most; none for f32. */
enum { DTP_GEMM_SCRATCH_MOST = 4 << 20 };

typedef struct dtp_gemm_plan dtp_gemm_plan;

typedef struct dtp_gemm_options {
    int32_t threads;      /* at least 1 */
    const char *provider; /* "openblas", "onednn", "widened"; NULL: by the rule */
    dtp_scratch *scratch; /* of the caller, grows; outlives the plan */
} dtp_gemm_options;

/* The pointers of g are not looked at. DTP_UNSUPPORTED naming the types when no provider, or not
 * the one asked for, multiplies them on this processor. batch NULL: one product. */
dtp_status dtp_gemm_plan_create(const dtp_gemm_desc *g, const dtp_gemm_batch *batch,
                                const dtp_gemm_options *options, dtp_gemm_plan **out,
                                dtp_err *err) DTP_MUST_CHECK;
void dtp_gemm_plan_destroy(dtp_gemm_plan *plan);
void dtp_gemm_plan_run(const dtp_gemm_plan *plan, const void *a, const void *b, void *c);
const char *dtp_gemm_plan_provider(const dtp_gemm_plan *plan); /* static text */

#endif
