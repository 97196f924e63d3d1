/* A table of indices against a search through all items. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/hash.h"

enum { ITEMS = 3000 };

/* Items of one hash, in the order in which they were added, then the end. */
static void check_items(const dtp_hash_table *table, const uint32_t *hash, int32_t n, uint32_t h)
{
    uint32_t at = h;
    for (int32_t i = 0; i < n; i++) {
        if (hash[i] == h) {
            assert_int_equal(dtp_hash_table_next(table, h, &at), i);
        }
    }
    assert_int_equal(dtp_hash_table_next(table, h, &at), -1);
}

static void fill(dtp_hash_table *table, dtp_arena *arena, uint32_t spread)
{
    static uint32_t hash[ITEMS];
    for (int32_t i = 0; i < ITEMS; i++) {
        hash[i] = UINT32_MAX - (uint32_t)i * 2654435761U % spread;
        check_items(table, hash, i, hash[i]);
        assert_int_equal(dtp_hash_table_add(table, arena, hash[i], i, NULL), DTP_OK);
    }
    for (int32_t i = 0; i < ITEMS; i += 7) {
        check_items(table, hash, ITEMS, hash[i]);
    }
}

static void test_hash_table__finds_equal_hashes_in_order(void **state)
{
    (void)state;
    dtp_arena *arena = dtp_arena_create();
    dtp_hash_table table = {0};
    uint32_t at = 5;
    assert_non_null(arena);
    assert_int_equal(dtp_hash_table_next(&table, 5, &at), -1);
    dtp_hash_table_clear(&table);
    for (uint32_t spread = 3; spread < UINT32_MAX / 1000; spread *= 100) {
        fill(&table, arena, spread);
        dtp_hash_table_clear(&table);
        assert_int_equal(table.n, 0);
    }
    for (uint32_t h = 0; h < 100; h++) {
        at = h;
        assert_int_equal(dtp_hash_table_next(&table, h, &at), -1);
    }
    dtp_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_table__finds_equal_hashes_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
