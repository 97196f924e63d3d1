/* The fenced solver: verdicts, bounds, limits, and failures inside GLPK that must not end the
 * process. */
#include "planner/solver/glpk_fence.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static dtp_ilp *ilp_new(int32_t n, const double *cost)
{
    dtp_ilp *ilp = NULL;
    assert_int_equal(dtp_ilp_create(&ilp, NULL), DTP_OK);
    for (int32_t j = 0; j < n; j++) {
        dtp_ilp_col col = {.lo = 0, .hi = 1, .cost = cost[j], .integer = true};
        assert_int_equal(dtp_ilp_add_col(ilp, col, NULL, NULL), DTP_OK);
    }
    return ilp;
}

static void row(dtp_ilp *ilp, double lo, double hi, int32_t n, const int32_t *cols,
                const double *coefs)
{
    assert_int_equal(dtp_ilp_add_row(ilp, lo, hi, n, cols, coefs, NULL, NULL), DTP_OK);
}

/* Knapsack: max 10a + 6b + 4c with 5a + 4b + 3c <= 7 is b + c = 10 or a = 10; with b worth 7, b +
 * c. */
static void test_ilp__knapsack_optimum(void **state)
{
    (void)state;
    dtp_ilp *ilp = ilp_new(3, (const double[]){-10, -7, -4});
    row(ilp, (double)-INFINITY, 7, 3, (const int32_t[]){0, 1, 2}, (const double[]){5, 4, 3});
    dtp_ilp_options options = dtp_ilp_options_init();
    dtp_ilp_result r;
    assert_int_equal(dtp_ilp_solve(ilp, &options, &r, NULL), DTP_OK);
    assert_int_equal(r.status, DTP_ILP_OPTIMAL);
    assert_true(r.objective == -11.0 && r.bound == -11.0);
    assert_true(r.values[0] == 0.0 && r.values[1] == 1.0 && r.values[2] == 1.0);
    /* Relaxation: a = 1, b = 1/2: -13.5. */
    assert_true(fabs(r.root_bound - -13.5) < 1e-9);
    dtp_ilp_destroy(ilp);
}

static void test_ilp__infeasible_is_a_verdict(void **state)
{
    (void)state;
    dtp_ilp *ilp = ilp_new(2, (const double[]){1, 1});
    row(ilp, 3, (double)INFINITY, 2, (const int32_t[]){0, 1}, (const double[]){1, 1});
    dtp_ilp_options options = dtp_ilp_options_init();
    dtp_ilp_result r;
    assert_int_equal(dtp_ilp_solve(ilp, &options, &r, NULL), DTP_OK);
    assert_int_equal(r.status, DTP_ILP_INFEASIBLE);
    assert_null(r.values);
    dtp_ilp_destroy(ilp);
}

/* 2a + 2b = 1 has a fractional relaxation and no integer point. */
static void test_ilp__infeasible_by_integrality(void **state)
{
    (void)state;
    dtp_ilp *ilp = ilp_new(2, (const double[]){1, 1});
    row(ilp, 1, 1, 2, (const int32_t[]){0, 1}, (const double[]){2, 2});
    dtp_ilp_options options = dtp_ilp_options_init();
    dtp_ilp_result r;
    assert_int_equal(dtp_ilp_solve(ilp, &options, &r, NULL), DTP_OK);
    assert_int_equal(r.status, DTP_ILP_INFEASIBLE);
    dtp_ilp_destroy(ilp);
}

/* A market-split row that needs many nodes: a limit of one node gives no verdict beyond a bound. */
static void test_ilp__node_limit_is_not_a_verdict(void **state)
{
    (void)state;
    enum { N = 30 };
    double cost[N], coef[N];
    int32_t cols[N];
    double sum = 0;
    for (int32_t j = 0; j < N; j++) {
        cols[j] = j;
        coef[j] = (double)(10007 + (j * 7919) % 6841);
        cost[j] = (double)(1 + j % 3);
        sum += coef[j];
    }
    dtp_ilp *ilp = ilp_new(N, cost);
    row(ilp, floor(sum / 2), floor(sum / 2), N, cols, coef);
    dtp_ilp_options options = {.node_limit = 1};
    dtp_ilp_result r;
    assert_int_equal(dtp_ilp_solve(ilp, &options, &r, NULL), DTP_OK);
    assert_true(r.status == DTP_ILP_TIME_LIMIT || r.status == DTP_ILP_FEASIBLE);
    assert_true(isfinite(r.bound) && r.bound <= (double)N * 3);
    dtp_ilp_destroy(ilp);
}

/* A column twice in a row is misuse that makes GLPK call abort(). */
static void test_ilp__abort_inside_glpk_becomes_an_error(void **state)
{
    (void)state;
    dtp_ilp *bad = ilp_new(2, (const double[]){1, 1});
    row(bad, 0, 1, 2, (const int32_t[]){1, 1}, (const double[]){1, 1});
    dtp_ilp_options options = dtp_ilp_options_init();
    dtp_ilp_result r;
    dtp_err err = {0};
    assert_int_equal(dtp_ilp_solve(bad, &options, &r, &err), DTP_SOLVER);
    assert_non_null(strstr(err.msg, "GLPK: glp_set_mat_row"));
    dtp_ilp_destroy(bad);
    test_ilp__knapsack_optimum(NULL); /* the solver still works */
}

static void test_ilp__unbounded_is_an_error(void **state)
{
    (void)state;
    dtp_ilp *ilp = NULL;
    assert_int_equal(dtp_ilp_create(&ilp, NULL), DTP_OK);
    dtp_ilp_col col = {.lo = 0, .hi = (double)INFINITY, .cost = -1};
    assert_int_equal(dtp_ilp_add_col(ilp, col, NULL, NULL), DTP_OK);
    dtp_ilp_options options = dtp_ilp_options_init();
    dtp_ilp_result r;
    dtp_err err = {0};
    assert_int_equal(dtp_ilp_solve(ilp, &options, &r, &err), DTP_SOLVER);
    assert_non_null(strstr(err.msg, "unbounded"));
    dtp_ilp_destroy(ilp);
}

static void test_ilp__bad_input_is_refused(void **state)
{
    (void)state;
    dtp_ilp *ilp = ilp_new(1, (const double[]){1});
    dtp_ilp_col col = {.lo = 2, .hi = 1};
    assert_int_equal(dtp_ilp_add_col(ilp, col, NULL, NULL), DTP_INVALID);
    int32_t other = 1;
    double one = 1, nan_coef = (double)NAN;
    int32_t zero = 0;
    assert_int_equal(dtp_ilp_add_row(ilp, 0, 1, 1, &other, &one, NULL, NULL), DTP_INVALID);
    assert_int_equal(dtp_ilp_add_row(ilp, 0, 1, 1, &zero, &nan_coef, NULL, NULL), DTP_INVALID);
    assert_int_equal(dtp_ilp_add_row(ilp, 1, 0, 1, &zero, &one, NULL, NULL), DTP_INVALID);
    dtp_ilp_destroy(ilp);
}

/* 200 random problems with 8 binaries against all 256 points. */
static void test_ilp__equals_enumeration(void **state)
{
    (void)state;
    uint32_t seed = 12345;
    printf("seed %u\n", seed);
    for (int32_t trial = 0; trial < 200; trial++) {
        enum { N = 8, ROWS = 4 };
        double cost[N], coef[ROWS][N], hi[ROWS];
        int32_t cols[N];
        for (int32_t j = 0; j < N; j++) {
            cols[j] = j;
            seed = seed * 1664525u + 1013904223u;
            cost[j] = (double)(seed >> 24) - 128.0;
            for (int32_t i = 0; i < ROWS; i++) {
                seed = seed * 1664525u + 1013904223u;
                coef[i][j] = (double)(seed >> 26) - 20.0;
            }
        }
        dtp_ilp *ilp = ilp_new(N, cost);
        for (int32_t i = 0; i < ROWS; i++) {
            seed = seed * 1664525u + 1013904223u;
            hi[i] = (double)(seed >> 27) - 24.0;
            row(ilp, (double)-INFINITY, hi[i], N, cols, coef[i]);
        }
        double best = (double)INFINITY;
        for (uint32_t point = 0; point < 1u << N; point++) {
            double value = 0, lhs[ROWS] = {0};
            bool ok = true;
            for (int32_t j = 0; j < N; j++) {
                value += (point >> j & 1u) != 0 ? cost[j] : 0;
                for (int32_t i = 0; i < ROWS; i++) {
                    lhs[i] += (point >> j & 1u) != 0 ? coef[i][j] : 0;
                }
            }
            for (int32_t i = 0; i < ROWS; i++) {
                ok = ok && lhs[i] <= hi[i];
            }
            best = ok && value < best ? value : best;
        }
        dtp_ilp_options options = dtp_ilp_options_init();
        dtp_ilp_result r;
        assert_int_equal(dtp_ilp_solve(ilp, &options, &r, NULL), DTP_OK);
        assert_int_equal(r.status == DTP_ILP_INFEASIBLE, isinf(best) ? 1 : 0);
        if (r.status != DTP_ILP_INFEASIBLE) {
            assert_true(fabs(r.objective - best) < 1e-6);
            assert_true(r.root_bound <= best + 1e-6);
        }
        dtp_ilp_destroy(ilp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ilp__knapsack_optimum),
        cmocka_unit_test(test_ilp__infeasible_is_a_verdict),
        cmocka_unit_test(test_ilp__infeasible_by_integrality),
        cmocka_unit_test(test_ilp__node_limit_is_not_a_verdict),
        cmocka_unit_test(test_ilp__abort_inside_glpk_becomes_an_error),
        cmocka_unit_test(test_ilp__unbounded_is_an_error),
        cmocka_unit_test(test_ilp__bad_input_is_refused),
        cmocka_unit_test(test_ilp__equals_enumeration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
