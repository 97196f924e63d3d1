/* Pieces of tensors: runs, copies, and whether pieces hold every element once. */
#include "executor/device/shard.h"
#include "tests/support/data_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void must(dtp_status status, const dtp_err *err)
{
    if (status != DTP_OK) {
        fail_msg("%s", err->msg);
    }
}

/* Element index of a multi-index in the storage of a piece. */
static int64_t index_in(const dtp_shard *p, const int64_t *at)
{
    int64_t i = 0;
    for (int32_t d = 0; d < p->rank; d++) {
        i = i * p->size[d] + at[d] - p->offset[d];
    }
    return i;
}

/* Calls for every element of a piece, with an odometer: the oracle of the run walkers. */
static bool advance(const dtp_shard *p, int64_t *at)
{
    for (int32_t d = p->rank - 1; d >= 0; d--) {
        if (++at[d] < p->offset[d] + p->size[d]) {
            return true;
        }
        at[d] = p->offset[d];
    }
    return false;
}

static void check_copy(uint32_t *state, const dtp_shard *whole)
{
    dtp_shard a = data_random_piece(state, whole), b = data_random_piece(state, whole), common;
    if (!dtp_shard_intersect(&a, &b, &common)) {
        return;
    }
    int64_t n_a = dtp_shard_elems(&a), n_b = dtp_shard_elems(&b);
    int32_t *src = malloc((size_t)n_a * sizeof *src), *dst = malloc((size_t)n_b * sizeof *dst);
    assert_true(src != NULL && dst != NULL);
    for (int64_t i = 0; i < n_a; i++) {
        src[i] = (int32_t)i;
    }
    for (int64_t i = 0; i < n_b; i++) {
        dst[i] = -1;
    }
    dtp_shard_copy(&common, &a, src, &b, dst, 4);
    int64_t at[DTP_MAX_RANK], copied = 0;
    memcpy(at, common.offset, sizeof at);
    do {
        assert_int_equal(dst[index_in(&b, at)], src[index_in(&a, at)]);
    } while (advance(&common, at));
    for (int64_t i = 0; i < n_b; i++) {
        copied += dst[i] >= 0;
    }
    assert_int_equal(copied, dtp_shard_elems(&common));
    free(src);
    free(dst);
}

static void test_piece__copies_equal_the_odometer(void **unused)
{
    (void)unused;
    uint32_t state = 12345;
    print_message("seed %u\n", (unsigned)state);
    for (int round = 0; round < 3000; round++) {
        dtp_shard whole = {.rank = (int32_t)(data_random(&state) % 5)};
        for (int32_t d = 0; d < whole.rank; d++) {
            whole.global[d] = whole.size[d] = 1 + (int64_t)(data_random(&state) % 5);
        }
        check_copy(&state, &whole);
    }
}

enum { PARTS = 12 };

/* Cuts one part in two along a dim, where it can be cut. */
static void cut(uint32_t *state, dtp_shard *parts, int32_t *n)
{
    dtp_shard *p = &parts[data_random(state) % (uint32_t)*n], *q = &parts[*n];
    const int32_t d = (int32_t)(data_random(state) % (uint32_t)p->rank);
    if (p->size[d] > 1) {
        *q = *p;
        p->size[d] = 1 + (int64_t)(data_random(state) % (uint32_t)(p->size[d] - 1));
        q->offset[d] += p->size[d];
        q->size[d] -= p->size[d];
        ++*n;
    }
}

/* How many parts hold each element, counted one by one. */
static void check_cover(const dtp_shard *whole, const dtp_shard *parts, int32_t n, int32_t *found)
{
    int64_t at[DTP_MAX_RANK], element[DTP_MAX_RANK];
    int32_t held[4096] = {0};
    bool once = true, cover = false;
    dtp_err err = {0};
    assert_in_range(dtp_shard_elems(whole), 1, 4096);
    for (int32_t i = 0; i < n; i++) {
        memcpy(at, parts[i].offset, sizeof at);
        do {
            held[index_in(whole, at)]++;
        } while (advance(&parts[i], at));
    }
    for (int64_t i = 0; i < dtp_shard_elems(whole); i++) {
        once = once && held[i] == 1;
    }
    must(dtp_shards_cover(parts, n, &cover, element, &err), &err);
    assert_int_equal(cover, once);
    assert_true(cover || held[index_in(whole, element)] != 1);
    found[cover]++;
}

static void test_piece__cover_equals_counting(void **unused)
{
    (void)unused;
    uint32_t state = 777;
    int32_t found[2] = {0};
    for (int round = 0; round < 4000; round++) {
        dtp_shard whole = {.rank = 1 + (int32_t)(data_random(&state) % 5)}, parts[PARTS];
        int32_t n = 1;
        for (int32_t d = 0; d < whole.rank; d++) {
            whole.global[d] = whole.size[d] = 1 + (int64_t)(data_random(&state) % 4);
        }
        parts[0] = whole;
        for (uint32_t cuts = data_random(&state) % 11; cuts > 0; cuts--) {
            cut(&state, parts, &n);
        }
        const int32_t other = (int32_t)(data_random(&state) % (uint32_t)n);
        switch (data_random(&state) % 4) {
        case 0: /* another place or size */
            parts[other] = data_random_piece(&state, &whole);
            break;
        case 1: /* one less */
            parts[other] = parts[n - 1];
            n -= n > 1 ? 1 : 0;
            break;
        case 2: /* one more */
            parts[n++] = data_random_piece(&state, &whole);
            break;
        default:
            break;
        }
        check_cover(&whole, parts, n, found);
    }
    assert_true(found[false] > 500 && found[true] > 500);
}

/* A pinwheel has no cut through all of it. */
static void test_piece__cover_without_a_cut(void **unused)
{
    (void)unused;
    static const int64_t boxes[5][4] = {
        {0, 0, 2, 1}, {2, 0, 1, 2}, {1, 2, 2, 1}, {0, 1, 1, 2}, {1, 1, 1, 1}};
    dtp_shard whole = {.rank = 2, .global = {3, 3}, .size = {3, 3}}, parts[5];
    int32_t found[2] = {0};
    for (int32_t i = 0; i < 5; i++) {
        parts[i] = whole;
        memcpy(parts[i].offset, boxes[i], 2 * sizeof(int64_t));
        memcpy(parts[i].size, &boxes[i][2], 2 * sizeof(int64_t));
    }
    check_cover(&whole, parts, 5, found);
    check_cover(&whole, parts, 4, found);
    assert_int_equal(found[true], 1);
}

/* So many that looking at every pair would take hours: rows, columns, a grid, and one that is off
 * by one. */
static void test_piece__cover_of_many(void **unused)
{
    (void)unused;
    enum { SIDE = 700, MANY = SIDE * SIDE };
    dtp_shard *parts = calloc(MANY, sizeof *parts);
    assert_non_null(parts);
    for (int kind = 0; kind < 4; kind++) {
        int64_t element[DTP_MAX_RANK];
        bool cover = false;
        dtp_err err = {0};
        for (int32_t i = 0; i < MANY; i++) {
            const bool grid = kind >= 2;
            const dtp_shard row = {
                .rank = 2, .global = {MANY, 3}, .offset = {i, 0}, .size = {1, 3}};
            const dtp_shard column = {
                .rank = 2, .global = {3, MANY}, .offset = {0, i}, .size = {3, 1}};
            const dtp_shard cell = {.rank = 2,
                                    .global = {2 * SIDE, SIDE},
                                    .offset = {2 * (i / SIDE), i % SIDE},
                                    .size = {2, 1}};
            parts[(int64_t)i * 7919 % MANY] = grid ? cell : kind == 0 ? row : column;
        }
        parts[MANY / 2].offset[0] -= kind == 3 ? 1 : 0;
        must(dtp_shards_cover(parts, MANY, &cover, element, &err), &err);
        assert_int_equal(cover, kind < 3);
    }
    free(parts);
}

static void test_piece__runs_are_whole_where_they_can_be(void **unused)
{
    (void)unused;
    dtp_shard whole = {.rank = 3, .global = {4, 5, 6}, .size = {4, 5, 6}}, part = whole;
    dtp_shard_runs it = dtp_shard_runs_of(&whole, &whole);
    assert_int_equal(it.run, 120);
    part.offset[0] = 1;
    part.size[0] = 2;
    it = dtp_shard_runs_of(&whole, &part);
    assert_int_equal(it.run, 60);
    assert_true(dtp_shard_next(&it));
    assert_int_equal(it.in_whole, 30);
    assert_false(dtp_shard_next(&it));
    part.size[2] = 0;
    it = dtp_shard_runs_of(&whole, &part);
    assert_false(dtp_shard_next(&it));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_piece__copies_equal_the_odometer),
        cmocka_unit_test(test_piece__cover_equals_counting),
        cmocka_unit_test(test_piece__cover_without_a_cut),
        cmocka_unit_test(test_piece__cover_of_many),
        cmocka_unit_test(test_piece__runs_are_whole_where_they_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
