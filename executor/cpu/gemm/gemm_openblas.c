/* Matrix products by OpenBLAS. */
#include "executor/cpu/gemm/gemm_provider.h"

#include <assert.h>
#include <omp.h>

#include "executor/cpu/gemm/blas.h"

int dtp_gemm_enter(void)
{
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    return before;
}

void dtp_gemm_leave(int entered)
{
    omp_set_num_threads(entered);
}

static blasint ld(int64_t given, int64_t least)
{
    return (blasint)dtp_gemm_ld(given, least);
}

/* y = alpha op(A) x + beta y, A stored rows x cols. */
typedef struct gemv {
    bool trans;
    int64_t rows, cols, lda;
    const float *a, *x;
    int64_t inc_x;
    float *y;
    int64_t inc_y;
} gemv;

static void run_gemv(const dtp_blas *blas, const gemv *v, float alpha, float beta)
{
    int64_t n = v->trans ? v->cols : v->rows;
    for (int64_t i = 0; beta == 0.0f && i < n; i++) {
        v->y[i * v->inc_y] = 0.0f; /* gemv multiplies what y holds, NaN included */
    }
    blas->sgemv(CblasRowMajor, v->trans ? CblasTrans : CblasNoTrans, (blasint)v->rows,
                (blasint)v->cols, alpha, v->a, ld(v->lda, v->cols), v->x, (blasint)v->inc_x,
                beta == 0.0f ? 1.0f : beta, v->y, (blasint)v->inc_y);
}

void dtp_gemm_serial(const dtp_gemm *g)
{
    const dtp_blas *blas = dtp_blas_get();
    if (g->m == 0 || g->n == 0) {
        return;
    }
    if (g->k == 0) {
        /* C = beta C, for k = 0. */
        for (int64_t i = 0; i < g->m; i++) {
            float *row = g->c + i * g->ldc;
            for (int64_t j = 0; j < g->n; j++) {
                row[j] = g->beta == 0.0f ? 0.0f : row[j] * g->beta;
            }
        }
    } else if (g->n == 1) {
        gemv v = {.trans = g->trans_a, .a = g->a, .lda = g->lda, .x = g->b, .y = g->c};
        v.rows = g->trans_a ? g->k : g->m;
        v.cols = g->trans_a ? g->m : g->k;
        v.inc_x = g->trans_b ? 1 : ld(g->ldb, 1);
        v.inc_y = ld(g->ldc, 1);
        run_gemv(blas, &v, g->alpha, g->beta);
    } else if (g->m == 1) {
        gemv v = {.trans = !g->trans_b, .a = g->b, .lda = g->ldb, .x = g->a, .y = g->c};
        v.rows = g->trans_b ? g->n : g->k;
        v.cols = g->trans_b ? g->k : g->n;
        v.inc_x = g->trans_a ? ld(g->lda, 1) : 1;
        v.inc_y = 1;
        run_gemv(blas, &v, g->alpha, g->beta);
    } else {
        blas->sgemm(CblasRowMajor, g->trans_a ? CblasTrans : CblasNoTrans,
                    g->trans_b ? CblasTrans : CblasNoTrans, (blasint)g->m, (blasint)g->n,
                    (blasint)g->k, g->alpha, g->a, ld(g->lda, g->trans_a ? g->m : g->k), g->b,
                    ld(g->ldb, g->trans_b ? g->k : g->n), g->beta, g->c, ld(g->ldc, g->n));
    }
}

static bool takes(const dtp_gemm_desc *g)
{
    return g->ab_type == DTP_F32 && g->c_type == DTP_F32;
}

static void run(void *state, const dtp_gemm_desc *g, void *scratch)
{
    (void)state;
    (void)scratch;
    dtp_gemm_serial(&(dtp_gemm){g->trans_a, g->trans_b, g->m, g->n, g->k, g->alpha, g->beta, g->a,
                                g->b, g->c, g->lda, g->ldb, g->ldc});
}

const dtp_gemm_provider dtp_gemm_openblas = {.name = "openblas", .takes = takes, .run = run};
