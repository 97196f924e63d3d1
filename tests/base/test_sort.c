/* Sorting by keys against the order that comparisons give, ties in their order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/sort.h"

enum { MOST = 700 };

static uint64_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 11;
}

static void test_sort__is_stable_and_in_order(void **state)
{
    (void)state;
    static dtp_keyed items[MOST], scratch[MOST];
    uint64_t seed = 5;
    for (int64_t n = 0; n < MOST; n += n < 40 ? 1 : 97) {
        const uint64_t spread = n % 3 == 0 ? 7 : n % 3 == 1 ? 100000 : UINT64_MAX;
        for (int64_t i = 0; i < n; i++) {
            const int64_t value = (int64_t)(next(&seed) % spread) - (i % 2 == 0 ? 50 : 0);
            items[i] = (dtp_keyed){dtp_sort_key(value), i};
            assert_int_equal(dtp_sort_value(items[i].key), value);
        }
        dtp_sort_keyed(items, scratch, n);
        uint8_t seen[MOST] = {0};
        for (int64_t i = 0; i < n; i++) {
            const int64_t before = i > 0 ? dtp_sort_value(items[i - 1].key) : INT64_MIN;
            const int64_t value = dtp_sort_value(items[i].key);
            assert_true(before < value ||
                        (i > 0 && before == value && items[i - 1].item < items[i].item));
            assert_int_equal(seen[items[i].item]++, 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sort__is_stable_and_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
