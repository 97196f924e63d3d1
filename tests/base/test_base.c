/* Meshes and their groups, chunks of dims, and other parts that everything uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/layout/layout.h"
#include "core/layout/layout_rules.h"

static void test_mesh__parses_all_separators(void **state)
{
    (void)state;
    static const char *const same[] = {"x:2;y:3", "x:2,y:3", "x=2 y=3", " x:2. y:3 "};
    for (size_t i = 0; i < 4; i++) {
        dtp_mesh mesh;
        char text[DTP_MESH_TEXT_BYTES];
        assert_int_equal(dtp_mesh_parse(same[i], &mesh, NULL), DTP_OK);
        dtp_mesh_print(&mesh, text);
        assert_string_equal(text, "x:2;y:3");
        assert_int_equal(dtp_mesh_ranks(&mesh), 6);
    }
}

static void test_mesh__rejects_bad_text(void **state)
{
    (void)state;
    static const char *const bad[] = {"x:0",
                                      "x:-1",
                                      "x",
                                      "x:2;x:3",
                                      ":2",
                                      "x:2y",
                                      "x:99999999999",
                                      "x:65536;y:65536",
                                      "a:1;b:1;c:1;d:1;e:1;f:1;g:1",
                                      "x:+2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        dtp_mesh mesh;
        dtp_err err;
        dtp_status s = dtp_mesh_parse(bad[i], &mesh, &err);
        assert_true(dtp_status_is_input(s));
        assert_non_null(strstr(err.msg, "mesh"));
    }
}

static void test_mesh__groups_partition_the_ranks(void **state)
{
    (void)state;
    dtp_mesh mesh;
    assert_int_equal(dtp_mesh_parse("a:2;b:3;c:2", &mesh, NULL), DTP_OK);
    for (dtp_mesh_set set = 0; set < 8; set++) {
        int32_t n = dtp_mesh_set_size(&mesh, set);
        for (int32_t r = 0; r < 12; r++) {
            int32_t index = dtp_mesh_set_index(&mesh, set, r);
            assert_in_range(index, 0, n - 1);
            assert_int_equal(dtp_mesh_set_member(&mesh, set, r, index), r);
            for (int32_t i = 0; i + 1 < n; i++) {
                assert_true(dtp_mesh_set_member(&mesh, set, r, i) <
                            dtp_mesh_set_member(&mesh, set, r, i + 1));
            }
        }
    }
}

static void test_chunk__follows_torch(void **state)
{
    (void)state;
    static const struct {
        int64_t n, k, sizes[8], offsets[8];
    } cases[] = {{10, 4, {3, 3, 3, 1}, {0, 3, 6, 9}},
                 {5, 4, {2, 2, 1, 0}, {0, 2, 4, 5}},
                 {2, 4, {1, 1, 0, 0}, {0, 1, 2, 2}}};
    for (size_t c = 0; c < 3; c++) {
        for (int64_t i = 0; i < cases[c].k; i++) {
            int64_t offset, size;
            dtp_chunk(cases[c].n, cases[c].k, i, &offset, &size);
            assert_int_equal(size, cases[c].sizes[i]);
            assert_int_equal(offset, cases[c].offsets[i]);
        }
    }
}

static void test_layout__nested_uneven_split(void **state)
{
    (void)state;
    static const int64_t sizes[] = {3, 2, 3, 2, 3, 2, 2, 1};
    static const int64_t offsets[] = {0, 3, 5, 8, 10, 13, 15, 17};
    dtp_mesh mesh;
    assert_int_equal(dtp_mesh_parse("a:4;b:2", &mesh, NULL), DTP_OK);
    dtp_ttype type = {.dtype = DTP_F32, .rank = 1, .dims = {{0, 18}}};
    dtp_layout layout = dtp_layout_replicated(1, 2);
    dtp_layout_split(&layout, 0, 0);
    dtp_layout_split(&layout, 1, 0);
    for (int32_t r = 0; r < 8; r++) {
        dtp_ttype local;
        int64_t offset[DTP_MAX_RANK];
        dtp_layout_local(&layout, &mesh, &type, r, &local, offset);
        assert_int_equal(local.dims[0].size, sizes[r]);
        assert_int_equal(offset[0], offsets[r]);
    }
    assert_false(dtp_layout_is_even(&layout, &mesh, &type));
}

/* Every layout of a rank-2 tensor on a 3-dim mesh survives print and parse, and its pieces tile the
 * tensor exactly once per replica. */
static void test_layout__text_round_trip_and_tiling(void **state)
{
    (void)state;
    dtp_arena *arena = dtp_arena_create();
    dtp_dims dims;
    dtp_dim_id a, b;
    dtp_mesh mesh;
    dtp_dims_init(&dims, arena);
    assert_int_equal(dtp_dims_intern(&dims, "rows", 7, &a, NULL), DTP_OK);
    assert_int_equal(dtp_dims_intern(&dims, "cols", 5, &b, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:2;y:3;z:2", &mesh, NULL), DTP_OK);
    dtp_ttype type = {.dtype = DTP_F32, .rank = 2, .dims = {{a, 7}, {b, 5}}};
    for (int32_t code = 0; code < 64; code++) {
        dtp_layout layout = dtp_layout_replicated(2, 3), again;
        for (int32_t m = 2, c = code; m >= 0; m--, c /= 4) {
            if (c % 4 < 2) {
                dtp_layout_split(&layout, m, c % 4);
            } else if (c % 4 == 2) {
                layout.placement[m] = (dtp_placement){.kind = DTP_PARTIAL, .op = DTP_REDUCE_MAX};
            }
        }
        char text[DTP_LAYOUT_TEXT_BYTES];
        assert_int_equal(dtp_layout_check(&layout, &mesh, &type, NULL), DTP_OK);
        dtp_layout_print(&layout, &mesh, &type, &dims, text);
        assert_int_equal(dtp_layout_parse(text, &mesh, &type, &dims, &again, NULL), DTP_OK);
        assert_true(dtp_layout_equal(&layout, &again));
        int copies[7][5] = {{0}}, total = 0;
        for (int32_t r = 0; r < 12; r++) {
            dtp_ttype local;
            int64_t at[DTP_MAX_RANK];
            dtp_layout_local(&layout, &mesh, &type, r, &local, at);
            for (int64_t i = 0; i < local.dims[0].size; i++) {
                for (int64_t j = 0; j < local.dims[1].size; j++) {
                    copies[at[0] + i][at[1] + j]++;
                    total++;
                }
            }
        }
        assert_int_equal(total, 35 * copies[0][0]);
        for (int i = 0; i < 35; i++) {
            assert_int_equal(copies[i / 5][i % 5], copies[0][0]);
        }
    }
    dtp_arena_destroy(arena);
}

static void test_rules__layouts_and_conflicts(void **state)
{
    (void)state;
    dtp_arena *arena = dtp_arena_create();
    dtp_dims dims;
    dtp_dim_id batch, ff;
    dtp_mesh mesh;
    dtp_layout_rules rules;
    dtp_layout layout;
    dtp_err err;
    dtp_dims_init(&dims, arena);
    assert_int_equal(dtp_dims_intern(&dims, "batch", 12, &batch, NULL), DTP_OK);
    assert_int_equal(dtp_dims_intern(&dims, "d_ff", 9, &ff, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse("x:2;y:3", &mesh, NULL), DTP_OK);
    dtp_ttype type = {.dtype = DTP_F32, .rank = 2, .dims = {{batch, 12}, {ff, 9}}};
    assert_int_equal(dtp_layout_rules_parse("batch:x;d_ff:y", &mesh, &dims, arena, &rules, NULL),
                     DTP_OK);
    assert_int_equal(dtp_layout_rules_layout(&rules, &mesh, &dims, &type, false, &layout, NULL),
                     DTP_OK);
    assert_int_equal(layout.placement[0].axis, 0);
    assert_int_equal(layout.placement[1].axis, 1);
    assert_string_equal(dtp_layout_rules_print(&rules, &mesh, &dims, arena), "batch:x;d_ff:y");
    assert_int_equal(dtp_layout_rules_parse("d_ff:x", &mesh, &dims, arena, &rules, NULL), DTP_OK);
    assert_int_equal(dtp_layout_rules_layout(&rules, &mesh, &dims, &type, false, &layout, &err),
                     DTP_INVALID);
    assert_non_null(strstr(err.msg, "'d_ff' of size 9"));
    assert_int_equal(dtp_layout_rules_parse("batch:x;d_ff:x", &mesh, &dims, arena, &rules, NULL),
                     DTP_OK);
    assert_int_equal(dtp_layout_rules_layout(&rules, &mesh, &dims, &type, true, &layout, &err),
                     DTP_INVALID);
    assert_non_null(strstr(err.msg, "'batch' and 'd_ff'"));
    assert_int_equal(dtp_layout_rules_parse("nope:x", &mesh, &dims, arena, &rules, &err),
                     DTP_INVALID);
    assert_int_equal(dtp_layout_rules_parse("batch:q", &mesh, &dims, arena, &rules, &err),
                     DTP_INVALID);
    assert_int_equal(dtp_layout_rules_parse("batch", &mesh, &dims, arena, &rules, &err),
                     DTP_INVALID);
    dtp_arena_destroy(arena);
}

static void test_err__prefix_reads_outside_in(void **state)
{
    (void)state;
    dtp_err err;
    assert_int_equal(DTP_FAIL(&err, DTP_INVALID, "dim '%s' is %d", "d", 3), DTP_INVALID);
    dtp_err_prefix(&err, "einsum");
    dtp_err_prefix(&err, "nodes[%d]", 12);
    assert_string_equal(err.msg, "nodes[12]: einsum: dim 'd' is 3");
    for (int i = 0; i < 300; i++) {
        dtp_err_prefix(&err, "%s", "0123456789");
    }
    assert_true(strlen(err.msg) < sizeof err.msg);
}

/* What programs of other versions of the library hand over. */
static void test_options__of_other_versions(void **state)
{
    (void)state;
    typedef struct options {
        size_t size;
        int64_t old, added;
    } options;
    const options given = {.size = offsetof(options, added), .old = 5, .added = 6};
    options known = {.added = 7};
    dtp_err err = {0};
    assert_int_equal(dtp_options_read("f", &given, sizeof known, &known, &err), DTP_OK);
    assert_true(known.size == sizeof known && known.old == 5 && known.added == 0);
    assert_int_equal(dtp_options_read("f", NULL, sizeof known, &known, &err), DTP_OK);
    assert_true(known.size == sizeof known && known.old == 0);
    const options newer = {.size = sizeof newer + 1}, not_made = {.old = 5};
    assert_int_equal(dtp_options_read("f", &newer, sizeof known, &known, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "newer library"));
    assert_int_equal(dtp_options_read("f", &not_made, sizeof known, &known, &err), DTP_INVALID);
    assert_string_equal(err.msg,
                        "f: options of 0 bytes; they were not made by their _init function");
}

typedef struct end_note {
    int *list, *n;
    int number;
} end_note;

static void add_note(void *user)
{
    const end_note *note = user;
    note->list[(*note->n)++] = note->number;
}

/* The last one first, while its memory is there; at once when there is no arena. */
static void test_arena__calls_functions_at_its_end(void **state)
{
    (void)state;
    int list[4] = {0}, n = 0;
    dtp_arena *arena = dtp_arena_create();
    for (int i = 0; i < 3; i++) {
        end_note *note = dtp_arena_alloc(arena, 1, sizeof *note);
        *note = (end_note){list, &n, i};
        assert_int_equal(dtp_arena_at_end(arena, add_note, note, NULL), DTP_OK);
    }
    assert_int_equal(n, 0);
    dtp_arena_destroy(arena);
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(list[i], 2 - i);
    }
    end_note note = {list, &n, 7};
    assert_int_equal(dtp_arena_at_end(NULL, add_note, &note, NULL), DTP_NOMEM);
    assert_int_equal(n, 4);
    assert_int_equal(list[3], 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arena__calls_functions_at_its_end),
        cmocka_unit_test(test_mesh__parses_all_separators),
        cmocka_unit_test(test_mesh__rejects_bad_text),
        cmocka_unit_test(test_mesh__groups_partition_the_ranks),
        cmocka_unit_test(test_chunk__follows_torch),
        cmocka_unit_test(test_layout__nested_uneven_split),
        cmocka_unit_test(test_layout__text_round_trip_and_tiling),
        cmocka_unit_test(test_rules__layouts_and_conflicts),
        cmocka_unit_test(test_err__prefix_reads_outside_in),
        cmocka_unit_test(test_options__of_other_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
