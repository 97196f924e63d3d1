/* Expressions of sizes in model files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/model/expr.h"

static dtp_status look_up(void *user, const char *name, int64_t *out, dtp_err *err)
{
    (void)user;
    if (strcmp(name, "d_model") == 0) {
        *out = 768;
        return DTP_OK;
    }
    if (strcmp(name, "big") == 0) {
        *out = INT64_MAX;
        return DTP_OK;
    }
    return DTP_FAIL(err, DTP_INVALID, "no name '%s'", name);
}

static void test_expr__computes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"7", 7},
                 {"4*d_model", 3072},
                 {" 4 * d_model + 1 ", 3073},
                 {"2+3*4", 14},
                 {"(2+3)*4", 20},
                 {"20-3-4", 13},
                 {"24/4/2", 3},
                 {"24/(4/2)", 12},
                 {"-3+5", 2},
                 {"-(3-5)*2", 4},
                 {"6/-1", -6},
                 {"d_model/12*12", 768},
                 {"-9223372036854775807-1", INT64_MIN},
                 {"((((d_model))))", 768}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t value = 0;
        dtp_err err = {0};
        if (dtp_expr_eval(cases[i].text, look_up, NULL, &value, &err) != DTP_OK) {
            fail_msg("'%s': %s", cases[i].text, err.msg);
        }
        assert_true(value == cases[i].value);
    }
}

static void test_expr__rejects(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        dtp_status status;
        const char *message;
    } cases[] = {{"", DTP_INVALID, "expected a number or a name"},
                 {"4*", DTP_INVALID, "expected a number or a name"},
                 {"*4", DTP_INVALID, "expected a number or a name at '*4'"},
                 {"4 5", DTP_INVALID, "expected an operator at '5'"},
                 {"4d", DTP_INVALID, "expected an operator at 'd'"},
                 {"(4", DTP_INVALID, "')' is missing"},
                 {"4)", DTP_INVALID, "expected an operator at ')'"},
                 {"--4", DTP_INVALID, "two minus signs"},
                 {"7/2", DTP_INVALID, "7 / 2 is not exact"},
                 {"7/0", DTP_INVALID, "division by zero"},
                 {"7/(d_model-768)", DTP_INVALID, "division by zero"},
                 {"d_ff", DTP_INVALID, "no name 'd_ff'"},
                 {"2.5", DTP_INVALID, "expected an operator at '.5'"},
                 {"1e3", DTP_INVALID, "expected an operator at 'e3'"},
                 {"big+1", DTP_RANGE, "does not fit into 64 bits"},
                 {"big*2", DTP_RANGE, "does not fit into 64 bits"},
                 {"0-big-2", DTP_RANGE, "does not fit into 64 bits"},
                 {"-(0-big-1)", DTP_RANGE, "does not fit into 64 bits"},
                 {"(0-big-1)/-1", DTP_RANGE, "does not fit into 64 bits"},
                 {"99999999999999999999", DTP_RANGE, "does not fit into 64 bits"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t value;
        dtp_err err = {0};
        dtp_status s = dtp_expr_eval(cases[i].text, look_up, NULL, &value, &err);
        if (s != cases[i].status || strstr(err.msg, cases[i].message) == NULL) {
            fail_msg("'%s': status %d, '%s'", cases[i].text, (int)s, err.msg);
        }
    }
}

static void test_expr__limits_length_and_depth(void **state)
{
    (void)state;
    char text[DTP_EXPR_MAX_BYTES + 2];
    int64_t value;
    dtp_err err;
    memset(text, '(', 40);
    strcpy(text + 40, "1");
    assert_int_equal(dtp_expr_eval(text, look_up, NULL, &value, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "nested deeper than 32"));
    memset(text, '-', 1);
    memset(text + 1, '1', DTP_EXPR_MAX_BYTES);
    text[DTP_EXPR_MAX_BYTES + 1] = '\0';
    assert_int_equal(dtp_expr_eval(text, look_up, NULL, &value, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "more than 256 characters"));
    memset(text, 'a', 100);
    text[100] = '\0';
    assert_int_equal(dtp_expr_eval(text, look_up, NULL, &value, &err), DTP_INVALID);
    assert_non_null(strstr(err.msg, "a name of more than 63 characters"));
}

static void test_expr__computes_reals(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } cases[] = {{"d_model", 768},
                 {"1/(2*d_model)", 1.0 / 1536},
                 {"-2^2", -4},
                 {"4^-0.5", 0.5},
                 {"2^3^2", 512},
                 {"floor(d_model/10) - 1e1", 66},
                 {"max(3, min(d_model, 5.5))", 5.5},
                 {"((d_model)^((-0.5)))", 0.03608439182435161},
                 {" 1 - 2 - 3 ", -4}};
    static const char *const wrong[] = {"",   "1 2", "floor(1, 2)", "max(1)", "sin(1)",  "1/0",
                                        "(1", "2^",  "(-1)^0.5",    "other",  "big^big", "1,2"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double value = 0;
        assert_int_equal(dtp_expr_real(cases[i].text, look_up, NULL, &value, NULL), DTP_OK);
        assert_true(value == cases[i].value);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        double value = 0;
        assert_int_equal(dtp_expr_real(wrong[i], look_up, NULL, &value, NULL), DTP_INVALID);
    }
    char deep[200];
    memset(deep, '(', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    double value = 0;
    assert_int_equal(dtp_expr_real(deep, look_up, NULL, &value, NULL), DTP_INVALID);
}

static void test_expr__knows_names(void **state)
{
    (void)state;
    assert_true(dtp_expr_is_name("d_model"));
    assert_true(dtp_expr_is_name("_x9"));
    assert_false(dtp_expr_is_name(""));
    assert_false(dtp_expr_is_name("9x"));
    assert_false(dtp_expr_is_name("a-b"));
    assert_false(dtp_expr_is_name("a b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expr__computes),
        cmocka_unit_test(test_expr__rejects),
        cmocka_unit_test(test_expr__limits_length_and_depth),
        cmocka_unit_test(test_expr__computes_reals),
        cmocka_unit_test(test_expr__knows_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
