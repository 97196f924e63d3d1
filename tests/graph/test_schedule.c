/* Learning rate schedules: values at the places that define them, and against a sum of their parts.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dtp/schedule.h"

static void is_at(const dtp_schedule *s, int64_t step, double want)
{
    assert_int_equal(dtp_schedule_check(s, NULL), DTP_OK);
    const double got = dtp_schedule_at(s, step);
    if (!(fabs(got - want) <= 1e-12)) {
        fail_msg("kind %d at step %lld: %.15g, not %.15g", s->kind, (long long)step, got, want);
    }
}

static void test_schedule__nothing_given_is_one(void **state)
{
    (void)state;
    const dtp_schedule s = {0};
    is_at(&s, 0, 1.0);
    is_at(&s, INT64_MAX, 1.0);
    assert_true(dtp_schedule_at(NULL, 3) == 1.0);
}

/* Equal parts, the last one whole, and then what the kind begins with. */
static void test_schedule__warms_up(void **state)
{
    (void)state;
    for (int32_t kind = DTP_SCHEDULE_CONSTANT; kind <= DTP_SCHEDULE_PIECEWISE; kind++) {
        const dtp_schedule s = {.kind = kind, .n = 1, .warmup = 8, .steps = 20, .at = {30}};
        for (int64_t step = 0; step < 8; step++) {
            is_at(&s, step, 0.125 * (double)(step + 1));
        }
        is_at(&s, 8, kind == DTP_SCHEDULE_INVERSE_SQRT ? sqrt(8.0 / 9.0) : 1.0);
    }
}

/* From 1 at the end of the warm-up to `last` at `steps` and after it; halfway in the middle. */
static void test_schedule__falls(void **state)
{
    (void)state;
    static const int32_t kinds[] = {DTP_SCHEDULE_LINEAR, DTP_SCHEDULE_COSINE};
    for (int32_t i = 0; i < 2; i++) {
        const dtp_schedule s = {.kind = kinds[i], .warmup = 10, .steps = 110, .last = 0.2};
        is_at(&s, 10, 1.0);
        is_at(&s, 60, 0.6);
        is_at(&s, 110, 0.2);
        is_at(&s, INT64_MAX, 0.2);
        for (int64_t step = 11; step <= 110; step++) {
            assert_true(dtp_schedule_at(&s, step) < dtp_schedule_at(&s, step - 1));
            /* both are odd about the middle */
            is_at(&s, step, 1.2 - dtp_schedule_at(&s, 120 - step));
        }
    }
}

static void test_schedule__falls_with_the_root(void **state)
{
    (void)state;
    const dtp_schedule s = {.kind = DTP_SCHEDULE_INVERSE_SQRT, .warmup = 100};
    is_at(&s, 99, 1.0);
    is_at(&s, 399, 0.5);
    is_at(&s, 9999, 0.1);
}

static void test_schedule__has_pieces(void **state)
{
    (void)state;
    const dtp_schedule s = {
        .kind = DTP_SCHEDULE_PIECEWISE, .n = 3, .at = {5, 7, 100}, .scale = {0.5, 2.0, 0.0}};
    static const double want[][2] = {{0, 1}, {4, 1}, {5, 0.5}, {6, 0.5}, {7, 2}, {99, 2}, {100, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        is_at(&s, (int64_t)want[i][0], want[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_schedule__nothing_given_is_one),
                                       cmocka_unit_test(test_schedule__warms_up),
                                       cmocka_unit_test(test_schedule__falls),
                                       cmocka_unit_test(test_schedule__falls_with_the_root),
                                       cmocka_unit_test(test_schedule__has_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
