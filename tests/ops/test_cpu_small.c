/* Small work stays on the calling thread: products and loops below the limits of
 * executor/cpu/loops/parallel.h start no team, larger ones do. Counts the threads of this process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "executor/cpu/gemm/gemm.h"

static int count_threads(void)
{
    char line[256];
    int n = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        (void)sscanf(line, "Threads: %d", &n);
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return n;
}

/* How many threads a product adds. */
static int added_by_product(int64_t m, int64_t n, int64_t k)
{
    float *a = calloc((size_t)(m * k), sizeof *a), *b = calloc((size_t)(k * n), sizeof *b);
    float *c = calloc((size_t)(m * n), sizeof *c);
    assert_true(a != NULL && b != NULL && c != NULL);
    const dtp_gemm_desc g = {.m = m, .n = n, .k = k, .alpha = 1.0f, .lda = k, .ldb = n, .ldc = n};
    const dtp_gemm_options options = {.threads = 2};
    dtp_gemm_plan *plan = NULL;
    assert_int_equal(dtp_gemm_plan_create(&g, NULL, &options, &plan, NULL), DTP_OK);
    const int before = count_threads();
    dtp_gemm_plan_run(plan, a, b, c);
    dtp_gemm_plan_destroy(plan);
    free(a);
    free(b);
    free(c);
    return count_threads() - before;
}

static void test_small__products_start_no_team(void **unused)
{
    (void)unused;
    if (count_threads() == 0) {
        skip(); /* no /proc */
    }
    /* the largest of models/mlp_digits.json, on which a team takes longer */
    assert_int_equal(added_by_product(96, 192, 64), 0);
    assert_true(added_by_product(256, 256, 256) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small__products_start_no_team)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
