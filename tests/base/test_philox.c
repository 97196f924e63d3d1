/* Philox against known values, and the spread of its numbers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/philox.h"

typedef struct known_answer {
    uint32_t counter[4], key[2], out[4];
} known_answer;

/* The kat_vectors of Random123 for philox4x32 with 10 rounds. */
static void test_philox__known_answers(void **state)
{
    (void)state;
    static const known_answer rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}},
        {{0xffffffffU, 0xffffffffU, 0xffffffffU, 0xffffffffU},
         {0xffffffffU, 0xffffffffU},
         {0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}},
        {{0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U},
         {0xa4093822U, 0x299f31d0U},
         {0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t out[4];
        dtp_philox(rows[i].counter, rows[i].key, out);
        assert_memory_equal(out, rows[i].out, sizeof out);
    }
}

static void test_philox__block_places_its_arguments(void **state)
{
    (void)state;
    uint32_t block[4], direct[4];
    const uint32_t counter[4] = {0x89abcdefU, 0x01234567U, 7, 9};
    const uint32_t key[2] = {0x76543210U, 0xfedcba98U};
    dtp_philox(counter, key, direct);
    dtp_philox_block(UINT64_C(0xfedcba9876543210), 9, 7, UINT64_C(0x0123456789abcdef), block);
    assert_memory_equal(block, direct, sizeof block);
}

static void test_philox__uniform_takes_the_word_of_its_index(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 64; i++) {
        uint32_t words[4];
        dtp_philox_block(3, 5, 11, i / 4, words);
        const double u = dtp_uniform_at(3, 5, 11, i);
        assert_true(u == (double)(words[i % 4] >> 8) / 16777216.0);
        assert_true(u >= 0.0 && u < 1.0);
    }
}

/* Mean, variance and a tail of 200000 draws; the bounds are five standard errors wide. */
static void test_philox__normal_has_the_right_moments(void **state)
{
    (void)state;
    const int32_t n = 200000;
    double sum = 0.0, squares = 0.0, neighbours = 0.0, last = 0.0;
    int32_t beyond_two = 0;
    for (int32_t i = 0; i < n; i++) {
        const double x = dtp_normal_at(42, 1, 0, (uint64_t)i);
        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
        neighbours += x * last;
        last = x;
        beyond_two += fabs(x) > 2.0 ? 1 : 0;
    }
    const double root = sqrt((double)n);
    assert_true(fabs(sum / n) < 5.0 / root);
    assert_true(fabs(squares / n - 1.0) < 5.0 * sqrt(2.0) / root);
    assert_true(fabs(neighbours / n) < 5.0 / root);
    assert_true(fabs((double)beyond_two / n - 0.0455) < 5.0 * 0.209 / root);
}

static void test_philox__streams_and_steps_differ(void **state)
{
    (void)state;
    const double x = dtp_normal_at(1, 2, 3, 4);
    assert_true(x == dtp_normal_at(1, 2, 3, 4));
    assert_true(x != dtp_normal_at(2, 2, 3, 4));
    assert_true(x != dtp_normal_at(1, 3, 3, 4));
    assert_true(x != dtp_normal_at(1, 2, 4, 4));
    assert_true(x != dtp_normal_at(1, 2, 3, 5));
}

/* FNV-1a, 32 bit: the published values of "" and "a". */
static void test_philox__stream_is_fnv1a(void **state)
{
    (void)state;
    assert_int_equal(dtp_stream_of(""), 0x811c9dc5U);
    assert_int_equal(dtp_stream_of("a"), 0xe40c292cU);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox__known_answers),
        cmocka_unit_test(test_philox__block_places_its_arguments),
        cmocka_unit_test(test_philox__uniform_takes_the_word_of_its_index),
        cmocka_unit_test(test_philox__normal_has_the_right_moments),
        cmocka_unit_test(test_philox__streams_and_steps_differ),
        cmocka_unit_test(test_philox__stream_is_fnv1a),
    };
    return cmocka_run_group_tests_name("philox", tests, NULL, NULL);
}
