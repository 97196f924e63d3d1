/* The memory plan against brute force: random sets of intervals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/lower/first_fit.h"
#include "spmd/program/program_internal.h"
#include "tests/support/spmd_sim.h"
#include "spmd/lower/memplan.h"

static int64_t aligned(int64_t bytes)
{
    return (bytes + DTP_BUFFER_ALIGN - 1) / DTP_BUFFER_ALIGN * DTP_BUFFER_ALIGN;
}

static bool overlap(const dtp_interval *a, const dtp_interval *b)
{
    return a->first <= b->last && b->first <= a->last && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Largest sum over time, the slow way. */
static int64_t live_sum(const dtp_interval *items, int32_t n, int32_t times)
{
    int64_t most = 0;
    for (int32_t t = 0; t < times; t++) {
        int64_t sum = 0;
        for (int32_t i = 0; i < n; i++) {
            sum += items[i].first <= t && t <= items[i].last ? aligned(items[i].bytes) : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static void random_items(dtp_interval *items, int32_t n, int32_t times, uint64_t *seed)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t first = (int32_t)(spmd_sim_random(seed) % (uint64_t)times);
        int32_t room = times - first;
        int32_t length = (int32_t)(spmd_sim_random(seed) %
                                   (uint64_t)(i % 4 == 0 ? room : (room < 6 ? room : 6)));
        items[i] = (dtp_interval){
            .bytes = 1 + (int64_t)(spmd_sim_random(seed) % (i % 3 == 0 ? 100000 : 500)),
            .first = first,
            .last = first + length,
            .offset = -1};
    }
}

static void check_items(const dtp_interval *items, int32_t n, int32_t times, int64_t peak)
{
    int64_t top = 0;
    for (int32_t i = 0; i < n; i++) {
        assert_true(items[i].offset >= 0);
        assert_int_equal(items[i].offset % DTP_BUFFER_ALIGN, 0);
        int64_t end = items[i].offset + aligned(items[i].bytes);
        top = end > top ? end : top;
        for (int32_t k = 0; k < i; k++) {
            assert_false(overlap(&items[i], &items[k]));
        }
    }
    assert_int_equal(top, peak);
    int64_t sum = live_sum(items, n, times);
    assert_true(sum <= peak);
}

/* What is enough is met where the lowest peak meets it; else that is the result. */
static void check_enough(dtp_interval *items, int32_t n, int32_t times, int64_t lowest)
{
    const int64_t tried[] = {lowest - 1, lowest, lowest + lowest / 50, 2 * lowest};
    for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++) {
        int64_t peak;
        assert_int_equal(dtp_memplan__place(items, n, tried[i], &peak, NULL), DTP_OK);
        check_items(items, n, times, peak);
        assert_true(tried[i] < lowest ? peak == lowest : peak <= tried[i]);
    }
}

static void test_memplan__random_sets_never_overlap(void **state)
{
    (void)state;
    static dtp_interval items[300];
    double worst = 1, total = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t s = seed;
        int32_t n = 1 + (int32_t)(seed % 300), times = 1 + (int32_t)(seed * 7 % 120);
        int64_t peak;
        random_items(items, n, times, &s);
        assert_int_equal(dtp_memplan__place(items, n, 0, &peak, NULL), DTP_OK);
        check_items(items, n, times, peak);
        check_enough(items, n, times, peak);
        double ratio = (double)peak / (double)live_sum(items, n, times);
        worst = ratio > worst ? ratio : worst;
        total += ratio;
    }
    printf("seeds 1..300: peak / largest live sum: mean %.4f, worst %.4f\n", total / 300, worst);
    assert_true(total / 300 < 1.06);
}

/* Forward values that are used again backward in reverse order, plus short-lived ones: what a
 * training step looks like. The bound must be met. */
static void test_memplan__training_pattern_meets_the_bound(void **state)
{
    (void)state;
    enum { LAYERS = 100, N = 4 * LAYERS };
    static dtp_interval items[N];
    for (int32_t i = 0; i < LAYERS; i++) {
        int32_t back = 4 * LAYERS - 2 * i;
        items[4 * i] = (dtp_interval){.bytes = 4096, .first = 2 * i, .last = back};
        items[4 * i + 1] = (dtp_interval){.bytes = 16384, .first = 2 * i, .last = back};
        items[4 * i + 2] = (dtp_interval){.bytes = 8192, .first = 2 * i, .last = 2 * i + 1};
        items[4 * i + 3] = (dtp_interval){.bytes = 4096, .first = back - 1, .last = back + 1};
    }
    int64_t peak;
    assert_int_equal(dtp_memplan__place(items, N, 0, &peak, NULL), DTP_OK);
    check_items(items, N, 4 * LAYERS + 2, peak);
    assert_int_equal(peak, live_sum(items, N, 4 * LAYERS + 2));
}

static void test_memplan__many_buffers(void **state)
{
    (void)state;
    enum { N = 20000 };
    dtp_interval *items = calloc(N, sizeof *items);
    uint64_t seed = 5;
    int64_t peak;
    random_items(items, N, 12000, &seed);
    assert_int_equal(dtp_memplan__place(items, N, 0, &peak, NULL), DTP_OK);
    int64_t bound = live_sum(items, N, 12000);
    printf("%d random buffers: peak / bound %.4f\n", N, (double)peak / (double)bound);
    assert_true(peak >= bound);
    free(items);
}

static void test_memplan__refuses_sizes_beyond_int64(void **state)
{
    (void)state;
    dtp_interval items[2] = {{.bytes = INT64_MAX - 10}, {.bytes = INT64_MAX / 2}};
    int64_t peak;
    assert_int_equal(dtp_memplan__place(items, 1, 0, &peak, NULL), DTP_RANGE);
    items[0].bytes = INT64_MAX / 2;
    items[0].last = items[1].last = 1;
    items[1].bytes = INT64_MAX / 2 + 2;
    assert_int_equal(dtp_memplan__place(items, 2, 0, &peak, NULL), DTP_RANGE);
}

/* The lowest offset at which item n meets none before it: 0, or the end of another one. */
static int64_t lowest_offset(const dtp_interval *items, int32_t n)
{
    int64_t best = INT64_MAX;
    for (int32_t candidate = -1; candidate < n; candidate++) {
        dtp_interval x = items[n];
        bool free = true;
        x.offset = candidate < 0 ? 0 : items[candidate].offset + items[candidate].bytes;
        for (int32_t k = 0; k < n && free; k++) {
            free = !overlap(&x, &items[k]);
        }
        best = free && x.offset < best ? x.offset : best;
    }
    return best;
}

/* As in training: what the forward pass keeps is needed in turn, the first for longest, beside
 * short ones. Or, `striped`, every other one is needed always, the rest in the first half alone:
 * then the second half has hundreds of gaps. */
static void long_items(dtp_interval *items, int32_t n, bool striped, uint64_t *seed)
{
    random_items(items, n, 400, seed);
    for (int32_t i = 0; i < n; i++) {
        dtp_interval *x = &items[i];
        if (striped && i < 600) {
            x->first = 0;
            x->last = i % 2 == 0 ? 399 : 199;
            x->bytes = i % 2 == 0 ? 64 : 1 + x->bytes % 1000;
        } else if (!striped && i % 3 == 0) {
            x->first = 199 * i / n;
            x->last = 399 - x->first;
        }
    }
}

/* As many as fill several chunks, which are split on the way; cleared and used again. */
static void test_memplan__first_fit_is_the_lowest_offset(void **state)
{
    (void)state;
    enum { N = 700 };
    static dtp_interval items[N];
    static const int32_t last_said[] = {0, 5, 399, 5000};
    dtp_first_fit *fit = NULL;
    dtp_arena *arena = dtp_arena_create();
    for (uint64_t seed = 1; seed <= 16; seed++) {
        uint64_t s = seed;
        if (seed % 4 == 1) {
            assert_int_equal(dtp_first_fit_create(arena, N, last_said[seed / 4], &fit, NULL),
                             DTP_OK);
        }
        if (seed % 2 == 0) {
            random_items(items, N, seed % 4 == 0 ? 10 : 400, &s);
        } else {
            long_items(items, N, seed % 4 == 3, &s);
        }
        dtp_first_fit_clear(fit);
        for (int32_t i = 0; i < N; i++) {
            dtp_interval *x = &items[i];
            x->offset = dtp_first_fit_place(fit, x->bytes, x->first, x->last);
            if (x->offset != lowest_offset(items, i)) {
                fail_msg("seed %d, buffer %d: not the lowest offset", (int)seed, i);
            }
        }
    }
    dtp_arena_destroy(arena);
}

static void test_memplan__nothing_to_place(void **state)
{
    (void)state;
    int64_t peak;
    dtp_interval none;
    assert_int_equal(dtp_memplan__place(&none, 0, 0, &peak, NULL), DTP_OK);
    assert_int_equal(peak, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memplan__random_sets_never_overlap),
        cmocka_unit_test(test_memplan__training_pattern_meets_the_bound),
        cmocka_unit_test(test_memplan__many_buffers),
        cmocka_unit_test(test_memplan__refuses_sizes_beyond_int64),
        cmocka_unit_test(test_memplan__first_fit_is_the_lowest_offset),
        cmocka_unit_test(test_memplan__nothing_to_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
