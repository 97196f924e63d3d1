/* Products of 16-bit operands by blocks that are widened to f32 and multiplied by OpenBLAS. A block
 * of C sums its k blocks in f32, in their order, and is rounded once. */
#include "executor/cpu/gemm/gemm_provider.h"

#include "executor/cpu/loops/widen.h"

/* Of m, n and k: three f32 blocks fill most of a private cache, and widening an operand costs a few
 * per cent of the arithmetic. */
enum { BLOCK = 256, BLOCK_ELEMS = BLOCK * BLOCK };

DTP_CPU_CLONES static void widen_block(dtp_dtype type, int64_t rows, int64_t cols,
                                       const uint16_t *src, int64_t ld, float *dst)
{
    for (int64_t i = 0; i < rows; i++, src += ld, dst += cols) {
        if (type == DTP_BF16) {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) {
                dst[j] = dtp_from_bf16(src[j]);
            }
        } else {
#pragma omp simd
            for (int64_t j = 0; j < cols; j++) {
                dst[j] = dtp_from_f16(src[j]);
            }
        }
    }
}

/* dst = src + beta dst. */
DTP_CPU_CLONES static void narrow_row(dtp_dtype type, int64_t n, const float *src, float beta,
                                      uint16_t *dst)
{
    if (type == DTP_BF16) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            dst[j] = dtp_to_bf16(beta == 0.0f ? src[j] : src[j] + beta * dtp_from_bf16(dst[j]));
        }
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            dst[j] = dtp_to_f16(beta == 0.0f ? src[j] : src[j] + beta * dtp_from_f16(dst[j]));
        }
    }
}

/* Rows [row, row + rows) of a stored matrix and so many columns of them; the transposed block when
 * `trans`. */
static void load(dtp_dtype type, bool trans, const void *data, int64_t ld, const int64_t at[2],
                 const int64_t size[2], float *dst)
{
    const int r = trans ? 1 : 0;
    widen_block(type, size[r], size[1 - r], (const uint16_t *)data + at[r] * ld + at[1 - r], ld,
                dst);
}

static int64_t at_most(int64_t left)
{
    return left < BLOCK ? left : BLOCK;
}

/* The block of C whose first element is (i, j). */
static void run_block(const dtp_gemm_desc *g, int64_t i, int64_t j, float *scratch)
{
    const bool in_place = g->c_type == DTP_F32;
    float *a = scratch, *b = a + BLOCK_ELEMS, *c = b + BLOCK_ELEMS;
    dtp_gemm block = {.trans_a = g->trans_a,
                      .trans_b = g->trans_b,
                      .m = at_most(g->m - i),
                      .n = at_most(g->n - j),
                      .alpha = g->alpha,
                      .beta = in_place ? g->beta : 0.0f,
                      .a = a,
                      .b = b};
    block.c = in_place ? (float *)g->c + i * g->ldc + j : c;
    block.ldc = in_place ? g->ldc : block.n;
    int64_t p = 0;
    do {
        block.k = at_most(g->k - p);
        block.lda = g->trans_a ? block.m : block.k;
        block.ldb = g->trans_b ? block.k : block.n;
        load(g->ab_type, g->trans_a, g->a, g->lda, (int64_t[]){i, p}, (int64_t[]){block.m, block.k},
             a);
        load(g->ab_type, g->trans_b, g->b, g->ldb, (int64_t[]){p, j}, (int64_t[]){block.k, block.n},
             b);
        dtp_gemm_serial(&block);
        block.beta = 1.0f;
        p += BLOCK;
    } while (p < g->k);
    for (int64_t r = 0; r < block.m && !in_place; r++) {
        narrow_row(g->c_type, block.n, c + r * block.n, g->beta,
                   (uint16_t *)g->c + (i + r) * g->ldc + j);
    }
}

static void run(void *state, const dtp_gemm_desc *g, void *scratch)
{
    (void)state;
    for (int64_t j = 0; j < g->n; j += BLOCK) {
        for (int64_t i = 0; i < g->m; i += BLOCK) {
            run_block(g, i, j, scratch);
        }
    }
}

static bool takes(const dtp_gemm_desc *g)
{
    return (g->ab_type == DTP_BF16 || g->ab_type == DTP_F16) &&
           (g->c_type == g->ab_type || g->c_type == DTP_F32);
}

static dtp_status bind(const dtp_gemm_desc *g, void **state, size_t *scratch_bytes, dtp_err *err)
{
    (void)g;
    (void)err;
    *state = NULL;
    *scratch_bytes = 3 * BLOCK_ELEMS * sizeof(float);
    return DTP_OK;
}

static void unbind(void *state)
{
    (void)state;
}

const dtp_gemm_provider dtp_gemm_widened = {
    .name = "widened", .takes = takes, .bind = bind, .unbind = unbind, .run = run};
