/* Kernels called from several threads of one process at once, as virtual ranks do, and matrix
 * products with several threads from one caller. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <omp.h>
#include <pthread.h>

#include "tests/ops/cpu_harness.h"
#include "executor/cpu/gemm/gemm.h"

enum { CALLERS = 8, ROUNDS = 40 };

/* A product of small integers: exact in f32 in any order. */
typedef struct product {
    int64_t m, n, k;
    float *a, *b, *c;
    int32_t threads;
    bool trans_a, trans_b, wrong, leaked;
} product;

static float value_at(int64_t i)
{
    return (float)(i * 7 % 13 - 6);
}

static void make(product *p, int64_t m, int64_t n, int64_t k)
{
    p->m = m;
    p->n = n;
    p->k = k;
    p->a = malloc((size_t)(m * k) * sizeof *p->a);
    p->b = malloc((size_t)(k * n) * sizeof *p->b);
    p->c = malloc((size_t)(m * n) * sizeof *p->c);
    for (int64_t i = 0; i < m * k; i++) {
        p->a[i] = value_at(i);
    }
    for (int64_t i = 0; i < k * n; i++) {
        p->b[i] = value_at(i + 3);
    }
}

static void drop(product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
}

static dtp_gemm_desc gemm_of(const product *p)
{
    return (dtp_gemm_desc){.trans_a = p->trans_a,
                           .trans_b = p->trans_b,
                           .m = p->m,
                           .n = p->n,
                           .k = p->k,
                           .alpha = 1.0f,
                           .lda = p->trans_a ? p->m : p->k,
                           .ldb = p->trans_b ? p->k : p->n,
                           .ldc = p->n};
}

static void multiply(const product *p, dtp_gemm_desc g, int rounds)
{
    const dtp_gemm_options options = {.threads = p->threads};
    dtp_gemm_plan *plan = NULL;
    if (dtp_gemm_plan_create(&g, NULL, &options, &plan, NULL) == DTP_OK) {
        for (int i = 0; i < rounds; i++) {
            dtp_gemm_plan_run(plan, p->a, p->b, p->c);
        }
        dtp_gemm_plan_destroy(plan);
    }
}

static bool is_right(const product *p)
{
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            float s = 0.0f;
            for (int64_t l = 0; l < p->k; l++) {
                s += p->a[p->trans_a ? l * p->m + i : i * p->k + l] *
                     p->b[p->trans_b ? j * p->k + l : l * p->n + j];
            }
            if (p->c[i * p->n + j] != s) {
                return false;
            }
        }
    }
    return true;
}

static void *run_rounds(void *user)
{
    product *p = user;
    int before = omp_get_max_threads();
    for (int round = 0; round < ROUNDS; round++) {
        memset(p->c, 0xFF, (size_t)(p->m * p->n) * sizeof *p->c);
        multiply(p, gemm_of(p), 1 + round % 2);
        p->wrong = p->wrong || (round % 10 == 0 && !is_right(p));
    }
    p->wrong = p->wrong || !is_right(p);
    p->leaked = omp_get_max_threads() != before;
    return NULL;
}

static void run_callers(int32_t threads)
{
    product p[CALLERS] = {0};
    pthread_t id[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        make(&p[i], 33 + 7 * i, 65, 70 + i);
        p[i].threads = threads;
        assert_int_equal(pthread_create(&id[i], NULL, run_rounds, &p[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(id[i], NULL), 0);
        assert_false(p[i].wrong);
        assert_false(p[i].leaked);
        drop(&p[i]);
    }
}

static void test_gemm__many_callers_at_once(void **state)
{
    (void)state;
    run_callers(1);
    run_callers(CPU_TEAM);
    run_callers(1);
}

static void test_gemm__shapes_transpositions_threads(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 50},   {1, 70, 40},   {70, 1, 40},  {64, 64, 64},
                                        {3, 200, 65}, {200, 3, 65},  {129, 97, 1}, {257, 130, 33},
                                        {5, 7, 0},    {100, 1000, 9}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int form = 0; form < 4 * CPU_TEAM; form++) {
            product p = {.trans_a = form & 1, .trans_b = (form & 2) != 0, .threads = form / 4 + 1};
            make(&p, shapes[i][0], shapes[i][1], shapes[i][2]);
            run_rounds(&p);
            assert_false(p.wrong);
            assert_false(p.leaked);
            drop(&p);
        }
    }
}

/* beta = 0 ignores what C holds, beta = 1 adds, also for vectors. */
static void test_gemm__beta(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{40, 50}, {1, 50}, {40, 1}};
    for (size_t i = 0; i < 3; i++) {
        product p = {.threads = 1};
        make(&p, shapes[i][0], shapes[i][1], 20);
        int64_t n = p.m * p.n;
        for (int64_t j = 0; j < n; j++) {
            p.c[j] = NAN;
        }
        dtp_gemm_desc g = gemm_of(&p);
        multiply(&p, g, 1);
        assert_true(is_right(&p));
        g.beta = 1.0f;
        multiply(&p, g, 1);
        for (int64_t j = 0; j < n; j++) {
            p.c[j] *= 0.5f;
        }
        assert_true(is_right(&p));
        drop(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm__many_callers_at_once),
        cmocka_unit_test(test_gemm__shapes_transpositions_threads),
        cmocka_unit_test(test_gemm__beta),
    };
    return cmocka_run_group_tests_name("cpu_threads", tests, NULL, NULL);
}
