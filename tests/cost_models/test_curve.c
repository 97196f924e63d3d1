/* Measured curves: evaluation between and beyond their points. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/machine/curve.h"
#include "cost_models/machine/gemm.h"

enum { SEED = 20240917 };

static double uniform(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

static void test_curve__passes_through_its_points_and_scales_beyond(void **state)
{
    (void)state;
    const double x[] = {10.0, 100.0, 1000.0};
    const double y[] = {2.0, 2.0, 8.0};
    dtp_curve c = {.n = 3, .x = x, .y = y};
    for (int i = 0; i < 3; i++) {
        assert_true(fabs(dtp_curve_at(&c, x[i]) / y[i] - 1.0) < 1e-12);
    }
    assert_true(fabs(dtp_curve_at(&c, 0.0) - 2.0) < 1e-12);
    assert_true(fabs(dtp_curve_at(&c, 1.0) - 2.0) < 1e-12);
    assert_true(fabs(dtp_curve_at(&c, 5000.0) - 40.0) < 1e-9);
    assert_true(fabs(dtp_curve_at(&c, sqrt(100.0 * 1000.0)) - 4.0) < 1e-9);
}

static void check_monotone_continuous(const dtp_curve *c, double from, double to)
{
    double before = dtp_curve_at(c, from);
    for (double x = from; x < to; x *= 1.001) {
        double y = dtp_curve_at(c, x);
        assert_true(y >= before * (1.0 - 1e-12));
        assert_true(y <= before * 1.05);
        before = y;
    }
}

static void test_curve__fit_is_monotone_and_never_jumps(void **state)
{
    (void)state;
    uint64_t random = SEED;
    print_message("seed %d\n", SEED);
    for (int round = 0; round < 50; round++) {
        double x[24], y[24];
        for (int i = 0; i < 24; i++) {
            x[i] = pow(4.0, i / 2); /* pairs of equal sizes */
            y[i] = (1.0 + 1e-3 * x[i]) * (0.5 + uniform(&random));
        }
        dtp_arena *arena = dtp_arena_create();
        dtp_curve fit;
        assert_int_equal(dtp_curve_from_samples(arena, 24, x, y, &fit, NULL), DTP_OK);
        assert_int_equal(fit.n, 12);
        check_monotone_continuous(&fit, 0.1, 1e9);
        dtp_arena_destroy(arena);
    }
}

/* Among all monotone sequences over a fine grid of levels none is closer in log y. */
static void test_curve__fit_has_the_least_deviation(void **state)
{
    (void)state;
    uint64_t random = SEED;
    enum { N = 4, LEVELS = 24 };
    for (int round = 0; round < 20; round++) {
        double x[N], y[N], ours = 0.0, best = HUGE_VAL;
        for (int i = 0; i < N; i++) {
            x[i] = i + 1;
            y[i] = exp(uniform(&random));
        }
        dtp_arena *arena = dtp_arena_create();
        dtp_curve fit;
        assert_int_equal(dtp_curve_from_samples(arena, N, x, y, &fit, NULL), DTP_OK);
        for (int i = 0; i < N; i++) {
            ours += fabs(log(fit.y[i]) - log(y[i]));
        }
        for (int code = 0; code < LEVELS * LEVELS * LEVELS * LEVELS; code++) {
            int level[N] = {code % LEVELS, code / LEVELS % LEVELS, code / LEVELS / LEVELS % LEVELS,
                            code / LEVELS / LEVELS / LEVELS};
            double sum = 0.0;
            for (int i = 0; i < N; i++) {
                sum += i > 0 && level[i] < level[i - 1]
                           ? HUGE_VAL
                           : fabs(level[i] / (LEVELS - 1.0) - log(y[i]));
            }
            best = fmin(best, sum);
        }
        assert_true(ours <= best + 1e-12);
        dtp_arena_destroy(arena);
    }
}

static void test_curve__one_disturbed_sample_stays_alone(void **state)
{
    (void)state;
    const double x[] = {1.0, 2.0, 4.0, 8.0, 16.0};
    const double y[] = {1000.0, 2.0, 4.0, 8.0, 16.0};
    dtp_arena *arena = dtp_arena_create();
    dtp_curve fit;
    assert_int_equal(dtp_curve_from_samples(arena, 5, x, y, &fit, NULL), DTP_OK);
    assert_true(fabs(fit.y[0] - 2.0) < 1e-9);
    assert_true(fabs(fit.y[4] - 16.0) < 1e-9);
    assert_true(fit.fit_error > 100.0);
    dtp_arena_destroy(arena);
}

/* Some sizes of batches were measured for some shapes only. */
static dtp_machine *noisy_gemm_machine(uint64_t seed)
{
    dtp_machine *m = NULL;
    const int64_t sizes[] = {1, 8, 64, 512};
    assert_int_equal(dtp_machine_create("gemm", &m, NULL), DTP_OK);
    m->memory_bytes = 1;
    m->mem_bw_Bps = 1e10;
    m->flops[DTP_F32] = 1e11;
    m->gemm = dtp_arena_alloc(m->arena, 192, sizeof *m->gemm);
    for (int i = 0; i < 192; i++) {
        const int shape = i % 64;
        if (shape == 63 || (i > 63 && shape % 3 == 0)) {
            continue; /* the largest node is left to the fill */
        }
        m->gemm[m->n_gemm++] = (dtp_gemm_point){sizes[shape / 16],
                                                sizes[shape / 4 % 4],
                                                sizes[shape % 4],
                                                false,
                                                false,
                                                1e9 * (1.0 + 40.0 * uniform(&seed)),
                                                DTP_F32,
                                                sizes[i / 64]};
    }
    assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
    return m;
}

static double gemm_at(const dtp_machine *m, double a, double b, double c, int64_t batch)
{
    dtp_work w = {.batch = batch, .m = (int64_t)a, .n = (int64_t)b, .k = (int64_t)c};
    return dtp_gemm_grid_time(m->gemm_grid, DTP_F32, &w);
}

static void test_gemm__more_work_never_costs_less(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        dtp_machine *m = noisy_gemm_machine(seed);
        for (int64_t i = 0; i < 2 * 24 * 24 * 24; i++) {
            double s[3] = {pow(1.45, (double)(i / 1152)), pow(1.45, (double)(i / 48 % 24)),
                           pow(1.45, (double)(i / 2 % 24))};
            const int64_t batch = i % 2 == 0 ? 1 : 1 + i % 97;
            double here = gemm_at(m, s[0], s[1], s[2], batch) * (1.0 - 1e-12);
            assert_true(gemm_at(m, s[0] * 1.45 + 1.0, s[1], s[2], batch) >= here);
            assert_true(gemm_at(m, s[0], s[1] * 1.45 + 1.0, s[2], batch) >= here);
            assert_true(gemm_at(m, s[0], s[1], s[2] * 1.45 + 1.0, batch) >= here);
            assert_true(gemm_at(m, s[0], s[1], s[2], batch + 1 + batch / 3) >= here);
        }
        dtp_machine_destroy(m);
    }
}

static void test_gemm__clean_measurements_are_reproduced(void **state)
{
    (void)state;
    dtp_machine *m = noisy_gemm_machine(1);
    for (int32_t i = 0; i < m->n_gemm; i++) {
        m->gemm[i].flops = 2e9;
        m->gemm[i].trans_b = i % 2 == 0;
    }
    assert_int_equal(dtp_machine_index(m, NULL), DTP_OK);
    assert_true(m->gemm_fit_error < 1e-9);
    assert_true(fabs(gemm_at(m, 100, 200, 300, 1) / (2.0 * 6e6 / 2e9) - 1.0) < 1e-9);
    assert_true(fabs(gemm_at(m, 100, 200, 300, 40) / (80.0 * 6e6 / 2e9) - 1.0) < 1e-9);
    assert_true(fabs(gemm_at(m, 2000, 3000, 300, 1) / (2.0 * 1.8e9 / 2e9) - 1.0) < 1e-9);
    assert_true(fabs(gemm_at(m, 2000, 3000, 300, 1000) / (2e3 * 1.8e9 / 2e9) - 1.0) < 1e-9);
    dtp_machine_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curve__passes_through_its_points_and_scales_beyond),
        cmocka_unit_test(test_curve__fit_is_monotone_and_never_jumps),
        cmocka_unit_test(test_curve__fit_has_the_least_deviation),
        cmocka_unit_test(test_curve__one_disturbed_sample_stays_alone),
        cmocka_unit_test(test_gemm__more_work_never_costs_less),
        cmocka_unit_test(test_gemm__clean_measurements_are_reproduced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
