/* Matrix products on OpenBLAS, row-major f32.
 *
 * OpenBLAS always runs on the calling thread here; dtp_gemm_run shares a product between threads
 * itself, by cutting C into a grid. The OpenMP build of OpenBLAS asks the calling thread's OpenMP
 * implementations how many threads to take, so a caller brackets its products with dtp_gemm_enter
 * and dtp_gemm_leave, which are local to the thread: many threads of one process (virtual ranks)
 * may do so at the same time. Worker threads of a parallel region need no bracket. */
#ifndef DTP_EXECUTOR_CPU_GEMM_H
#define DTP_EXECUTOR_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

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
/* On up to `threads` threads. Brackets itself. */
void dtp_gemm_run(const dtp_gemm *g, int32_t threads);

#endif
