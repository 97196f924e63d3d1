/* Text forms of layouts: round trips over all layouts, known texts of other systems, hostile input.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "interop/layout_forms.h"
#include "tests/support/layout_list.h"

typedef struct fixture {
    dtp_arena *arena;
    dtp_dims dims;
    dtp_mesh mesh;
    dtp_ttype type;
} fixture;

static fixture setup(const char *mesh, int32_t rank)
{
    static const char *const names[] = {"batch", "heads", "d_ff", "S0"};
    static const int64_t sizes[] = {8, 6, 12, 4};
    fixture f = {.arena = dtp_arena_create(), .type = {.dtype = DTP_F32, .rank = rank}};
    assert_non_null(f.arena);
    dtp_dims_init(&f.dims, f.arena);
    assert_int_equal(dtp_mesh_parse(mesh, &f.mesh, NULL), DTP_OK);
    for (int32_t i = 0; i < 4; i++) {
        dtp_dim_id id;
        assert_int_equal(dtp_dims_intern(&f.dims, names[i], sizes[i], &id, NULL), DTP_OK);
        if (i < rank) {
            f.type.dims[i] = (dtp_tdim){id, sizes[i]};
        }
    }
    return f;
}

static void teardown(fixture *f)
{
    dtp_arena_destroy(f->arena);
}

/* Does the form have words for the layout? Told from the layout alone. */
static bool expressible(dtp_layout_form form, const dtp_layout *layout)
{
    bool partial = false;
    int32_t deepest = 0;
    for (int32_t m = 0; m < layout->n_mesh; m++) {
        partial = partial || layout->placement[m].kind == DTP_PARTIAL;
        deepest = layout->placement[m].order > deepest ? layout->placement[m].order : deepest;
    }
    const bool torch = form == DTP_FORM_TORCH || form == DTP_FORM_TORCH_SHORT;
    return (!partial || torch || form == DTP_FORM_OURS) && (deepest == 0 || form != DTP_FORM_TF);
}

/* Same piece on every rank, same partial ops. */
static bool same_pieces(const fixture *f, const dtp_layout *a, const dtp_layout *b)
{
    for (int32_t m = 0; m < f->mesh.n_dims; m++) {
        if (a->placement[m].kind != b->placement[m].kind ||
            a->placement[m].op != b->placement[m].op ||
            a->placement[m].axis != b->placement[m].axis) {
            return false;
        }
    }
    for (int32_t rank = 0; rank < dtp_mesh_ranks(&f->mesh); rank++) {
        dtp_ttype la, lb;
        int64_t oa[DTP_MAX_RANK], ob[DTP_MAX_RANK];
        dtp_layout_local(a, &f->mesh, &f->type, rank, &la, oa);
        dtp_layout_local(b, &f->mesh, &f->type, rank, &lb, ob);
        for (int32_t i = 0; i < f->type.rank; i++) {
            if (oa[i] != ob[i] || la.dims[i].size != lb.dims[i].size) {
                return false;
            }
        }
    }
    return true;
}

static void round_trip(const fixture *f, dtp_layout_form form, const dtp_layout *layout)
{
    dtp_err err = {0};
    dtp_layout again;
    dtp_strbuf text = {0};
    const dtp_status s =
        dtp_layout_print_as(form, layout, &f->mesh, &f->type, &f->dims, &text, &err);
    if (!expressible(form, layout)) {
        assert_int_equal(s, DTP_UNSUPPORTED);
        dtp_strbuf_free(&text);
        return;
    }
    assert_int_equal(s, DTP_OK);
    const char *written = dtp_strbuf_text(&text);
    if (form == DTP_FORM_MTF && written[0] == '\0') {
        const dtp_layout replicated = dtp_layout_replicated(layout->rank, layout->n_mesh);
        assert_true(dtp_layout_equal(layout, &replicated));
        dtp_strbuf_free(&text);
        return;
    }
    const dtp_layout_form seen = dtp_layout_form_of(written);
    const bool torch = form == DTP_FORM_TORCH || form == DTP_FORM_TORCH_SHORT;
    if (torch ? seen != DTP_FORM_TORCH : seen != form) {
        fail_msg("'%s' of form %s taken for %s", written, dtp_layout_form_name(form),
                 dtp_layout_form_name(seen));
    }
    if (dtp_layout_parse_any(written, &f->mesh, &f->type, &f->dims, &again, &err) != DTP_OK) {
        fail_msg("'%s': %s", written, err.msg);
    }
    assert_int_equal(dtp_layout_check(&again, &f->mesh, &f->type, &err), DTP_OK);
    const bool same =
        form == DTP_FORM_TORCH ? same_pieces(f, layout, &again) : dtp_layout_equal(layout, &again);
    if (!same) {
        fail_msg("'%s' of form %s reads as another layout", written, dtp_layout_form_name(form));
    }
    dtp_strbuf_free(&text);
}

static void test_layout_forms__every_layout_round_trips(void **state)
{
    static const char *const meshes[] = {"", "x:4", "x:2;y:3", "x:2;y:1;z:3", "x:2;y:2;z:2"};
    (void)state;
    int32_t count = 0;
    for (size_t i = 0; i < sizeof meshes / sizeof meshes[0]; i++) {
        for (int32_t rank = 0; rank <= 3; rank++) {
            fixture f = setup(meshes[i], rank);
            for (int32_t op = 0; op < DTP_N_REDUCE_OPS; op++) {
                layout_list all = layout_list_all(rank, f.mesh.n_dims, true, (dtp_reduce_op)op);
                for (int32_t k = 0; k < all.n; k++, count++) {
                    for (int32_t form = 0; form < DTP_N_LAYOUT_FORMS; form++) {
                        round_trip(&f, (dtp_layout_form)form, &all.items[k]);
                    }
                }
                layout_list_free(&all);
            }
            teardown(&f);
        }
    }
    assert_true(count > 1000);
}

/* Texts as other systems write them, on the mesh x:2;y:3 and [batch, heads, d_ff]. */
static void test_layout_forms__texts_of_other_systems(void **state)
{
    static const char *const rows[][2] = {
        {"(Shard(0), Replicate())", "batch@x"},
        {"(Shard(dim=0), Partial(sum))", "batch@x, +sum(y)"},
        {"[Shard(dim=-1), Shard(1)]", "heads@y, d_ff@x"},
        {"S0,R", "batch@x"},
        {"S(0)R", "batch@x"},
        {"S0S1", "batch@x, heads@y"},
        {"PP", "+sum(x), +sum(y)"},
        {"P(avg)R", "+avg(x)"},
        {"(Partial(reduce_op='product'), Replicate(),)", "+prod(x)"},
        {"(Partial(), R)", "+sum(x)"},
        {"S-1 S-3", "batch@y, d_ff@x"},
        {"S0S0", "batch@x+y"},
        {"S(0)[1]S(0)[0]", "batch@y+x"},
        {"S0.1,S0", "batch@y+x"},
        {"S0,S0.1", "batch@x+y"},
        {"(_StridedShard(dim=0, sf=3), Shard(dim=0))", "batch@y+x"},
        {"(_StridedShard(dim=0, split_factor=3), Shard(dim=0))", "batch@y+x"},
        {"(_S(0, 3), S(0))", "batch@y+x"},
        {"SS0/3,S0", "batch@y+x"},
        {"(_StridedShard(dim=2, sf=1), Replicate())", "d_ff@x"},
        {"P('x', None, 'y')", "batch@x, d_ff@y"},
        {"PartitionSpec(None, ('y', 'x'))", "heads@y+x"},
        {"PartitionSpec('x',)", "batch@x"},
        {"P(\"x\")", "batch@x"},
        {"P((), ('x',))", "heads@x"},
        {"P()", "replicated"},
        {"P", NULL},
        {"batch:x;d_ff:y", "batch@x, d_ff@y"},
        {"d_ff:y;d_ff:x", "d_ff@y+x"},
        {"S0:x", "replicated"},
        {"", NULL},
        {"sharding_specs:x,unsharded,y, mesh:|x=2,y=3|*CPU", "batch@x, d_ff@y"},
        {"sharding_specs:x,unsharded,y mesh:|x=2,y=3|", "batch@x, d_ff@y"},
        {"sharding_specs:unsharded,unsharded,x", "d_ff@x"},
        {"sharding_specs:y,unsharded,unsharded, mesh:m|x=2,y=3|0,1,2,3,4,5|0,1|"
         "/job:localhost/task:0/device:CPU:0,/job:localhost/task:0/device:CPU:1|use_xla_spmd",
         "batch@y"},
        {"batch@x, +max(y)", "batch@x, +max(y)"},
        {" replicated", "replicated"},
    };
    (void)state;
    fixture f = setup("x:2;y:3", 3);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_layout layout;
        dtp_err err = {0};
        char text[DTP_LAYOUT_TEXT_BYTES];
        const dtp_status s =
            dtp_layout_parse_any(rows[i][0], &f.mesh, &f.type, &f.dims, &layout, &err);
        if (rows[i][1] == NULL) {
            assert_int_not_equal(s, DTP_OK);
            continue;
        }
        if (s != DTP_OK) {
            fail_msg("'%s': %s", rows[i][0], err.msg);
        }
        dtp_layout_print(&layout, &f.mesh, &f.type, &f.dims, text);
        assert_string_equal(text, rows[i][1]);
    }
    teardown(&f);
}

static void test_layout_forms__every_form_is_written_as_its_system_does(void **state)
{
    static const char *const expected[DTP_N_LAYOUT_FORMS] = {
        "heads@z, d_ff@y+x",
        "heads:z;d_ff:y;d_ff:x",
        NULL,
        "(_StridedShard(dim=2, sf=3), Shard(dim=2), Shard(dim=1))",
        "S2.1, S2, S1",
        "P(None, 'z', ('y', 'x'))",
    };
    (void)state;
    fixture f = setup("x:2;y:3;z:2", 3);
    dtp_layout layout;
    dtp_strbuf text = {0};
    assert_int_equal(
        dtp_layout_parse_any("heads@z, d_ff@y+x", &f.mesh, &f.type, &f.dims, &layout, NULL),
        DTP_OK);
    for (int32_t form = 0; form < DTP_N_LAYOUT_FORMS; form++) {
        const dtp_status s = dtp_layout_print_as((dtp_layout_form)form, &layout, &f.mesh, &f.type,
                                                 &f.dims, &text, NULL);
        assert_int_equal(s, expected[form] == NULL ? DTP_UNSUPPORTED : DTP_OK);
        if (expected[form] != NULL) {
            assert_string_equal(dtp_strbuf_text(&text), expected[form]);
        }
        dtp_strbuf_free(&text);
    }
    teardown(&f);
    f = setup("x:3;y:2", 2);
    assert_int_equal(dtp_layout_parse_any("batch@x", &f.mesh, &f.type, &f.dims, &layout, NULL),
                     DTP_OK);
    assert_int_equal(
        dtp_layout_print_as(DTP_FORM_TF, &layout, &f.mesh, &f.type, &f.dims, &text, NULL), DTP_OK);
    assert_string_equal(dtp_strbuf_text(&text), "sharding_specs:x,unsharded, mesh:|x=3,y=2|*CPU");
    dtp_strbuf_free(&text);
    teardown(&f);
}

typedef struct bad_text {
    const char *text;
    dtp_status status;
    const char *names; /* part of the message */
} bad_text;

static void test_layout_forms__errors_name_the_place(void **state)
{
    static const bad_text rows[] = {
        {"S0", DTP_INVALID, "fewer than 2 placements"},
        {"S0,R,R", DTP_INVALID, "more than 2 placements"},
        {"S3,R", DTP_INVALID, "tensor dim 3 of a tensor of rank 3"},
        {"S-4,R", DTP_INVALID, "tensor dim -4"},
        {"S99999999999,R", DTP_INVALID, "the number of a tensor dim"},
        {"", DTP_INVALID, "the text is empty"},
        {" ", DTP_INVALID, "the text is empty"},
        {"Q0,R", DTP_INVALID, "Shard, Replicate or Partial (or S, R, P)"},
        {"(Shard(0), Replicate()", DTP_INVALID, "at character 23"},
        {"(Shard(0), Replicate()) x", DTP_INVALID, "the end at character 25"},
        {"(Shard(0], R)", DTP_INVALID, "')' at character 9"},
        {"P(mean),R", DTP_INVALID, "sum, avg, product, min or max"},
        {"SS0/2,S0", DTP_UNSUPPORTED, "split factor 2 on mesh dim 'x'"},
        {"R,SS0/2", DTP_UNSUPPORTED, "split factor 2 on mesh dim 'y'"},
        {"SS0/0,S0", DTP_INVALID, "a split factor of 1 or more"},
        {"S0[0],S0[0]", DTP_INVALID, "each once; mesh dim 'y' has 0"},
        {"S0[0],S0", DTP_INVALID, "each once; mesh dim 'y' has 0"},
        {"S0[2],S0[0]", DTP_INVALID, "mesh dim 'x' has 2"},
        {"S0.1,S1", DTP_INVALID, "mesh dim 'x' has 1"},
        {"S0.,R", DTP_INVALID, "the depth of a split"},
        {"SS0/3,S0.1", DTP_INVALID, "each once"},
        {"P('x', 'x')", DTP_INVALID, "'x' is used twice"},
        {"P('q')", DTP_INVALID, "mesh dim 'q' is not in the mesh"},
        {"P('x', None, None, None)", DTP_INVALID, "more than 3 entries"},
        {"P('x", DTP_INVALID, "a string that is closed"},
        {"P(('x' 'y'))", DTP_INVALID, "',' or ')' in a tuple"},
        {"P('x') P", DTP_INVALID, "the end at character 8"},
        {"PartitionSpec['x']", DTP_INVALID, "'(' at character 14"},
        {"sharding_specs:x,x,unsharded", DTP_INVALID, "'x' is used twice"},
        {"sharding_specs:x,unsharded", DTP_INVALID, "2 sharding specs for a tensor of rank 3"},
        {"sharding_specs:x,y,unsharded,x", DTP_INVALID, "more sharding specs"},
        {"sharding_specs:scalar", DTP_INVALID, "'scalar' is not in the mesh"},
        {"sharding_specs:any,x,y", DTP_UNSUPPORTED, "'any' leaves the layout open"},
        {"sharding_specs:x,unsharded,y, mesh:|x=3,y=2|", DTP_INVALID, "not for 'x:2;y:3'"},
        {"sharding_specs:x,unsharded,y, mesh:x=2", DTP_INVALID, "a mesh such as"},
        {"sharding_specs:x,unsharded,y, mesh:|x=2,y=3|1,0,2,3,4,5|", DTP_UNSUPPORTED,
         "device 0 at place 1"},
        {"sharding_specs:x,unsharded,y, mesh:|x=2,y=3|0,1,2", DTP_INVALID, "global device id"},
        {"batch:q", DTP_INVALID, "has no dim 'q'"},
        {"nope:x", DTP_INVALID, "no dim 'nope'"},
        {"batch:x;heads:x", DTP_INVALID, "both are split over mesh dim 'x'"},
        {"batch@x, heads@x", DTP_INVALID, "'x' is used twice"},
        {"hello", DTP_INVALID, "at character 1, before 'hello'"},
    };
    (void)state;
    fixture f = setup("x:2;y:3", 3);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dtp_layout layout;
        dtp_err err = {0};
        const dtp_status s =
            dtp_layout_parse_any(rows[i].text, &f.mesh, &f.type, &f.dims, &layout, &err);
        if (s != rows[i].status || strstr(err.msg, rows[i].names) == NULL) {
            fail_msg("'%s': status %d, message '%s'", rows[i].text, (int)s, err.msg);
        }
    }
    teardown(&f);
}

static void test_layout_forms__mesh_of_tensorflow(void **state)
{
    dtp_mesh mesh, want;
    dtp_err err = {0};
    (void)state;
    assert_int_equal(dtp_mesh_parse("x:3;y:2", &want, NULL), DTP_OK);
    assert_int_equal(dtp_mesh_parse("|x=3,y=2|", &mesh, NULL), DTP_OK);
    assert_memory_equal(&mesh, &want, sizeof mesh);
    assert_int_equal(dtp_mesh_parse("mesh:cpus|x=3,y=2|0,1,2,3,4,5|0|d", &mesh, NULL), DTP_OK);
    assert_memory_equal(&mesh, &want, sizeof mesh);
    assert_int_equal(dtp_mesh_parse("|x=3,y=2", &mesh, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "second '|'"));
    assert_int_equal(dtp_mesh_parse("|x=3,x=2|", &mesh, &err), DTP_INVALID);
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

/* Pieces of legal texts in random order, with random bytes between them. */
static void random_text(uint64_t *seed, char *out, size_t size)
{
    static const char *const pieces[] = {
        "S0",
        "S(1)",
        "R",
        "P(",
        "P('",
        "x",
        "'y'",
        "None",
        ",",
        ", ",
        "(",
        ")",
        "[",
        "]",
        "SS0/",
        "2",
        "Partial",
        "Replicate",
        "Shard",
        "(dim=",
        "sf=",
        "-1",
        "@",
        "batch",
        "heads",
        ":",
        ";",
        "|",
        "mesh:",
        "+sum(",
        "+",
        "sharding_specs:",
        "_Strided",
        "unsharded",
        "scalar",
        "|x=2,y=3|",
        "0,1,2,3,4,5",
        "*CPU",
        "[1]",
        " ",
        "PartitionSpec",
        "avg)",
        "999999999",
        "d_ff@x+y",
        "\xff",
    };
    size_t used = 0;
    const uint64_t n = next_random(seed) % 14;
    out[0] = '\0';
    for (uint64_t i = 0; i < n; i++) {
        const char *piece = pieces[next_random(seed) % (sizeof pieces / sizeof pieces[0])];
        const char byte[2] = {(char)(1 + next_random(seed) % 255), '\0'};
        const char *add = next_random(seed) % 12 == 0 ? byte : piece;
        if (used + strlen(add) + 1 < size) {
            memcpy(out + used, add, strlen(add) + 1);
            used += strlen(add);
        }
    }
}

static void test_layout_forms__random_text_is_an_error_or_a_layout(void **state)
{
    static const char *const meshes[] = {"", "x:4", "x:2;y:3", "x:2;y:2;z:2"};
    uint64_t seed = 20260131;
    int32_t legal = 0;
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int32_t i = 0; i < 60000; i++) {
        fixture f = setup(meshes[i % 4], (int32_t)(next_random(&seed) % 5));
        char text[512];
        dtp_layout layout;
        dtp_err err = {0};
        random_text(&seed, text, sizeof text);
        char *exact = malloc(strlen(text) + 1); /* sanitizers see a read past the end */
        assert_non_null(exact);
        memcpy(exact, text, strlen(text) + 1);
        if (dtp_layout_parse_any(exact, &f.mesh, &f.type, &f.dims, &layout, &err) == DTP_OK) {
            legal++;
            if (dtp_layout_check(&layout, &f.mesh, &f.type, &err) != DTP_OK) {
                fail_msg("'%s' gives a bad layout: %s", text, err.msg);
            }
        } else {
            assert_true(err.msg[0] != '\0');
        }
        free(exact);
        teardown(&f);
    }
    assert_true(legal > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_forms__every_layout_round_trips),
        cmocka_unit_test(test_layout_forms__texts_of_other_systems),
        cmocka_unit_test(test_layout_forms__every_form_is_written_as_its_system_does),
        cmocka_unit_test(test_layout_forms__errors_name_the_place),
        cmocka_unit_test(test_layout_forms__mesh_of_tensorflow),
        cmocka_unit_test(test_layout_forms__random_text_is_an_error_or_a_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
