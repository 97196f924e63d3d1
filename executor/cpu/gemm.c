#include "executor/cpu/gemm.h"

#include <assert.h>
#include <omp.h>

#include "executor/cpu/blas.h"
#include "executor/cpu/parallel.h"

int dtp_gemm_enter(void)
{
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    return threads;
}

void dtp_gemm_leave(int entered)
{
    omp_set_num_threads(entered);
}

/* Leading dims that BLAS accepts also where only one row is read. */
static blasint ld(int64_t given, int64_t least)
{
    int64_t v = given < least ? least : given;
    return (blasint)(v > 1 ? v : 1);
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

/* Cuts C into rows x cols blocks for `threads` threads: the grid that reads least of A and B,
 * blocks not thinner than 32. */
static void choose_grid(const dtp_gemm *g, int64_t threads, int64_t *rows, int64_t *cols)
{
    double best = 0.0;
    *rows = 1;
    *cols = 1;
    for (int64_t r = threads; r >= 1; r--) {
        int64_t c = threads / r;
        bool fits = (r == 1 || g->m >= 32 * r) && (c == 1 || g->n >= 32 * c);
        double blocks = (double)(r * c);
        double cost = (double)g->m / (double)r + (double)g->n / (double)c;
        cost = cost + (double)(threads - r * c) / blocks * (double)(g->m + g->n);
        if (fits && (*rows * *cols == 1 || cost < best)) {
            best = cost;
            *rows = r;
            *cols = c;
        }
    }
}

/* Start of part i of n elements cut into `parts`, at a multiple of 16. */
static int64_t cut(int64_t n, int64_t parts, int64_t i)
{
    assert(parts > 0);
    int64_t at = i == parts ? n : n / parts * i / 16 * 16;
    return at < n ? at : n;
}

void dtp_gemm_run(const dtp_gemm *g, int32_t threads)
{
    int64_t rows = 1, cols = 1;
    const double madds = (double)g->m * (double)g->n * (double)g->k;
    if (dtp_cpu_team_of_products(threads, madds) > 1) {
        choose_grid(g, threads, &rows, &cols);
    }
    int entered = dtp_gemm_enter();
    int32_t team = (int32_t)(rows * cols);
#pragma omp parallel for num_threads(team) schedule(static) if (team > 1)
    for (int64_t t = 0; t < rows * cols; t++) {
        int64_t i = cut(g->m, rows, t / cols), j = cut(g->n, cols, t % cols);
        dtp_gemm part = *g;
        part.m = cut(g->m, rows, t / cols + 1) - i;
        part.n = cut(g->n, cols, t % cols + 1) - j;
        part.a += g->trans_a ? i : i * g->lda;
        part.b += g->trans_b ? j * g->ldb : j;
        part.c += i * g->ldc + j;
        dtp_gemm_serial(&part);
    }
    dtp_gemm_leave(entered);
}
