/* Quarters of cases: disjoint, together all, never empty; scripts get the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/support/quarter.h"

static const char *const QUARTERS[] = {"1/4", "2/4", "3/4", "4/4"};

static void test_quarter__all_without_one(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("DTP_QUARTER"), 0);
    for (int64_t i = 0; i < 10; i++) {
        assert_true(quarter_has(i, 10));
    }
    assert_int_equal(quarter_of(100), 100);
    assert_int_equal(quarter_of(0), 0);
}

static void test_quarter__each_case_in_one(void **state)
{
    (void)state;
    for (int64_t n = 1; n <= 70; n++) {
        int64_t n_in[4] = {0};
        for (int64_t i = 0; i < n; i++) {
            int in = 0;
            for (int k = 0; k < 4; k++) {
                assert_int_equal(setenv("DTP_QUARTER", QUARTERS[k], 1), 0);
                in += quarter_has(i, n) ? 1 : 0;
                n_in[k] += quarter_has(i, n) ? 1 : 0;
            }
            assert_true(n < 4 ? in >= 1 : in == 1);
        }
        for (int k = 0; k < 4; k++) {
            assert_true(n_in[k] >= 1 && n_in[k] <= n / 4 + 1);
        }
    }
    assert_int_equal(quarter_of(100), 25);
    assert_int_equal(quarter_of(7), 1);
}

/* Cases that differ by 2, 4 or 8 are not all of one quarter. */
static void test_quarter__strides(void **state)
{
    (void)state;
    for (int64_t stride = 2; stride <= 8; stride *= 2) {
        for (int k = 0; k < 4; k++) {
            int64_t n = 0;
            assert_int_equal(setenv("DTP_QUARTER", QUARTERS[k], 1), 0);
            for (int64_t i = 0; i < 64; i += stride) {
                n += quarter_has(i, 64) ? 1 : 0;
            }
            assert_in_range(n, 1, 64 / stride / 2);
        }
    }
}

static void test_quarter__scripts_get_the_same(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        for (int64_t n = 1; n <= 41; n += 8) {
            char command[160], line[16];
            assert_int_equal(setenv("DTP_QUARTER", QUARTERS[k], 1), 0);
            (void)snprintf(command, sizeof command,
                           "seq 0 %d | python3 tests/support/quarter.py 2>/dev/null", (int)n - 1);
            FILE *lines = popen(command, "r");
            assert_non_null(lines);
            for (int64_t i = 0; i < n; i++) {
                if (quarter_has(i, n)) {
                    assert_non_null(fgets(line, sizeof line, lines));
                    assert_int_equal(strtol(line, NULL, 10), i);
                }
            }
            assert_null(fgets(line, sizeof line, lines));
            assert_int_equal(pclose(lines), 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quarter__all_without_one),
        cmocka_unit_test(test_quarter__each_case_in_one),
        cmocka_unit_test(test_quarter__strides),
        cmocka_unit_test(test_quarter__scripts_get_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
