/* Readable forms of layouts and steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/redistribute/steps.h"
#include "tests/support/layout_list.h"
#include "core/layout/placement_text.h"
#include "interop/layout_forms.h"

static dtp_ttype type_of_rank(int32_t rank)
{
    dtp_ttype type = {.dtype = DTP_F32, .rank = rank};
    for (int32_t i = 0; i < rank; i++) {
        type.dims[i] = (dtp_tdim){.id = i, .size = 4};
    }
    return type;
}

static dtp_layout parse(const dtp_mesh *mesh, const dtp_ttype *type, const char *text)
{
    dtp_layout layout;
    dtp_err err;
    if (dtp_layout_parse_any(text, mesh, type, NULL, &layout, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return layout;
}

static void test_layout_places__read_back_every_layout(void **state)
{
    (void)state;
    dtp_mesh mesh;
    dtp_ttype type = type_of_rank(3);
    assert_int_equal(dtp_mesh_parse("a:2;b:2;c:2", &mesh, NULL), DTP_OK);
    for (int op = 0; op < DTP_N_REDUCE_OPS; op++) {
        layout_list list = layout_list_all(3, 3, true, (dtp_reduce_op)op);
        assert_int_equal(list.n, 176);
        for (int32_t i = 0; i < list.n; i++) {
            dtp_strbuf text = {0};
            dtp_placements_print(&list.items[i], &text);
            dtp_layout back = parse(&mesh, &type, dtp_strbuf_text(&text));
            assert_true(dtp_layout_equal(&back, &list.items[i]));
            dtp_strbuf_free(&text);
        }
        layout_list_free(&list);
    }
}

static void test_layout_places__other_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *same;
    } cases[] = {{"S0,S0,R", "S0, S0.1, R"},     {"S-1,R,R", "S2,R,R"},
                 {"S(0),R,R", "S0,R,R"},         {" S( -3 ) , P,R ", "S0,P(sum),R"},
                 {"S0.1,S1,S0", "S0.1,S1,S0.0"}, {"P,R,P", "P(sum),R,P(sum)"}};
    dtp_mesh mesh;
    dtp_ttype type = type_of_rank(3);
    assert_int_equal(dtp_mesh_parse("a:2;b:2;c:2", &mesh, NULL), DTP_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_layout a = parse(&mesh, &type, cases[i].text), b = parse(&mesh, &type, cases[i].same);
        assert_true(dtp_layout_equal(&a, &b));
    }
}

static void test_layout_places__refuses_what_is_no_layout(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {{"R", "fewer than 2"},
                 {"R,R,R", "more than 2"},
                 {"R,R,", "behind the comma"},
                 {"R,S2", "tensor dim 2"},
                 {"R,S-3", "tensor dim -3"},
                 {"R,S", "the number of a tensor dim"},
                 {"R,S+1", "the number of a tensor dim"},
                 {"R,S0x", "more than 2"},
                 {"R,S(0", "')'"},
                 {"R,S0.", "the depth"},
                 {"R,S0.-1", "the depth"},
                 {"R,S0.6", "mesh dim 'b' has 6"},
                 {"R,S99999999999999999999", "the number"},
                 {"R,P(sum", "')'"},
                 {"R,P(mean)", "sum, avg"},
                 {"R,Q", "Shard, Replicate"},
                 {"R,RR", "more than 2"},
                 {"R,SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS", "the number"},
                 {"S0.1,R", "mesh dim 'a' has 1"},
                 {"S0.1,S0.1", "mesh dim 'b' has 1"}};
    dtp_mesh mesh;
    dtp_ttype type = type_of_rank(2);
    assert_int_equal(dtp_mesh_parse("a:2;b:2", &mesh, NULL), DTP_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_layout layout;
        dtp_err err = {0};
        assert_int_equal(dtp_layout_parse_any(cases[i].text, &mesh, &type, NULL, &layout, &err),
                         DTP_INVALID);
        if (strstr(err.msg, cases[i].words) == NULL) {
            fail_msg("'%s': %s", cases[i].text, err.msg);
        }
    }
}

static void test_steps_trace__shows_every_layout_on_the_way(void **state)
{
    (void)state;
    dtp_mesh mesh;
    dtp_ttype type = type_of_rank(2);
    dtp_strbuf text = {0};
    dtp_steps steps = {.n = 2};
    assert_int_equal(dtp_mesh_parse("a:2;b:2;c:2", &mesh, NULL), DTP_OK);
    dtp_layout from = parse(&mesh, &type, "S0.1,S0,P(max)");
    steps.steps[0].after = parse(&mesh, &type, "R,S0,P(max)");
    steps.steps[1].after = parse(&mesh, &type, "S1,S0,R");
    dtp_steps_trace(&from, &steps, &text);
    assert_string_equal(dtp_strbuf_text(&text),
                        "S(0)[1]S(0)[0]P(max)\u2192RS(0)P(max)\u2192S(1)S(0)R");
    dtp_strbuf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout_places__read_back_every_layout),
        cmocka_unit_test(test_layout_places__other_spellings),
        cmocka_unit_test(test_layout_places__refuses_what_is_no_layout),
        cmocka_unit_test(test_steps_trace__shows_every_layout_on_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
