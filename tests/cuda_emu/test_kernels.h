/* Kernels of the emulator's own tests, launched from C. */
#ifndef TEST_KERNELS_H
#define TEST_KERNELS_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Variants of the sum of each row; all but the first two are wrong. */
enum row_sum_kind {
    ROW_SUM_SHARED,     /* a tree in shared memory */
    ROW_SUM_SHUFFLE,    /* warp shuffles, then shared memory */
    ROW_SUM_NO_BARRIER, /* the tree without its barrier */
    ROW_SUM_DIVERGENT,  /* half of the threads leave before the barrier */
    ROW_SUM_TWO_LINES,  /* threads wait at two barriers */
    ROW_SUM_BEYOND,     /* a write beyond the shared array */
    ROW_SUM_LANE_GONE,  /* half of a warp shuffles, the rest waits at a barrier */
};
cudaError_t test_row_sum(enum row_sum_kind kind, const float *x, float *y, int rows, int columns,
                         cudaStream_t stream);
cudaError_t test_add(float *x, float value, int n, cudaStream_t stream);
/* y[i] = x[i] for i < n + beyond: wrong unless beyond is 0. */
cudaError_t test_copy(const float *x, float *y, int n, int beyond, cudaStream_t stream);
/* out[warp * 8 ...]: ballot, any, all, sum by xor, value from lane 3, from below, from above,
 * syncthreads_count. */
cudaError_t test_votes(unsigned *out, int warps, cudaStream_t stream);
/* c = a b, 16 x 16 x 16, bf16 and half bits, row-major a, column-major b. */
cudaError_t test_wmma_bf16(const unsigned short *a, const unsigned short *b, float *c,
                           cudaStream_t stream);
cudaError_t test_wmma_half(const unsigned short *a, const unsigned short *b, float *c,
                           cudaStream_t stream);
/* The product read through x[] as if the lane mapping were known. */
cudaError_t test_wmma_assumed(const unsigned short *a, const unsigned short *b, float *c,
                              cudaStream_t stream);
/* A tf32 product, 16 x 16 x 8. */
cudaError_t test_wmma_tf32(const float *a, const float *b, float *c, cudaStream_t stream);
cudaError_t test_dynamic(float *y, int n, size_t bytes, int raise_limit, cudaStream_t stream);
cudaError_t test_too_much_static(float *y, cudaStream_t stream);
cudaError_t test_uninitialised(float *y, cudaStream_t stream);
/* Counts with atomics; *counter ends at blocks * threads. */
cudaError_t test_atomics(int *counter, unsigned *most, int blocks, int threads,
                         cudaStream_t stream);
/* out[lane * 4 ...]: sum, largest and smallest of lane % 5 - 2, lanes of the same value. */
cudaError_t test_reductions(int *out, cudaStream_t stream);
/* Integers of x, nearest and down, and the sine of pi x as an integer times 1000. */
cudaError_t test_integers(const float *x, int *out, int n, cudaStream_t stream);
cudaError_t test_trap(cudaStream_t stream);
cudaError_t test_empty(int blocks, int threads, cudaStream_t stream);
cudaError_t test_barriers(int blocks, int threads, int n, cudaStream_t stream);
/* Bits of x as bf16 and half, and back. */
cudaError_t test_convert(const float *x, unsigned short *bf16, unsigned short *fp16, int n,
                         cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
