/* CPU kernels of the smaller ops against the reference backend on shapes that take their paths:
 * rows of several runs, permuted outputs, several threads (the same bits). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/graph/ops/elementwise.h"
#include "tests/ops/cpu_harness.h"

/* The functions of all numbers. */
#define MATH_REAL(op) {#op, NULL, 0},
#define MATH_POSITIVE(op)
#define MATH_TRUTH(op)
#define MATH(op, text, domain, ...) MATH_##domain(op)

static void test_math__matches_reference(void **state)
{
    (void)state;
    static const struct {
        const char *op, *key;
        double value;
    } ops[] = {DTP_UNARY_OPS(MATH){"pow", "exponent", 2},
               {"leaky_relu", NULL, 0},
               {"elu", "alpha", 0.5},
               {"clamp", "low", -0.25},
               {"fill", "value", 3}};
    static const char *const outs[] = {NULL, "b=301 a=170"};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        for (size_t k = 0; k < 2; k++) {
            cpu_case c;
            cpu_case_start(&c, ops[i].op);
            if (ops[i].key != NULL) {
                cpu_attr_float(&c, ops[i].key, ops[i].value);
            }
            cpu_floats(&c, "a=170 b=301");
            cpu_infer(&c, outs[k]);
            cpu_check(&c, 2e-6);
            cpu_case_free(&c);
        }
    }
}

static void check_rows(const char *op, const char *key, int64_t value, const char *over)
{
    cpu_case c;
    cpu_case_start(&c, op);
    if (key != NULL) {
        cpu_attr_int(&c, key, value);
    }
    cpu_attr_dims(&c, "over", over);
    cpu_floats(&c, "a=40 b=50 c=30");
    cpu_infer(&c, NULL);
    cpu_check(&c, 2e-6);
    cpu_case_free(&c);
}

static void test_row_stats__match_reference(void **state)
{
    (void)state;
    static const char *const overs[] = {"c", "a", "b", "a c", "a b c"};
    for (size_t i = 0; i < sizeof overs / sizeof overs[0]; i++) {
        check_rows("logsumexp", NULL, 0, overs[i]);
        check_rows("var", NULL, 0, overs[i]);
        check_rows("std", "correction", 0, overs[i]);
        for (int64_t ord = 0; ord < 3; ord++) {
            check_rows("norm", "ord", ord, overs[i]);
        }
    }
}

static void check_one_dim(const char *op, const char *key, const char *dim, int64_t k)
{
    cpu_case c;
    cpu_case_start(&c, op);
    cpu_attr_dim(&c, key, dim);
    if (k > 0) {
        cpu_attr_int(&c, "k", k);
        cpu_attr_int(&c, "largest", k % 2);
    }
    cpu_floats(&c, "a=40 b=50 c=30");
    cpu_infer(&c, NULL);
    cpu_check(&c, 2e-6);
    cpu_case_free(&c);
}

static void test_order_and_scan__match_reference(void **state)
{
    (void)state;
    static const char *const dims[] = {"a", "b", "c"};
    for (size_t i = 0; i < 3; i++) {
        check_one_dim("argmax", "over", dims[i], 0);
        check_one_dim("argmin", "over", dims[i], 0);
        check_one_dim("cumsum", "dim", dims[i], 0);
        check_one_dim("topk", "over", dims[i], 1);
        check_one_dim("topk", "over", dims[i], 4);
        check_one_dim("topk", "over", dims[i], 29);
    }
}

static void test_reduce__of_integers_matches_reference(void **state)
{
    (void)state;
    static const char *const overs[] = {"a", "b", "a b"};
    for (int64_t kind = 0; kind < 4; kind++) {
        for (size_t i = 0; i < sizeof overs / sizeof overs[0] && kind != 1; i++) {
            cpu_case c;
            cpu_case_start(&c, "reduce");
            cpu_attr_int(&c, "kind", kind);
            cpu_attr_dims(&c, "over", overs[i]);
            cpu_ints(&c, i == 0 ? DTP_I64 : DTP_I32, "a=37 b=65", 1000);
            cpu_infer(&c, NULL);
            cpu_check(&c, 0.0);
            cpu_case_free(&c);
        }
    }
}

static void check_gather(const char *x, const char *ids, const char *out)
{
    cpu_case c;
    cpu_case_start(&c, "gather");
    cpu_attr_dim(&c, "over", "v");
    cpu_floats(&c, x);
    cpu_ints(&c, DTP_I32, ids, 33);
    cpu_infer(&c, out);
    cpu_check(&c, 0.0);
    cpu_case_free(&c);
}

static void test_gather__matches_reference(void **state)
{
    (void)state;
    check_gather("v=33 d=40", "a=50 b=30", NULL);
    check_gather("d=40 v=33", "a=50 b=30", NULL);
    check_gather("a=50 v=33 d=40", "k=7", "k=7 d=40 a=50");
    check_gather("a=50 v=33", "a=50 k=70", NULL);
    check_gather("a=500 v=33", "a=500", NULL);
    check_gather("a=50 v=33 d=20", "v=40 a=50", NULL);
}

static void check_scatter(const char *ids, const char *src, const char *along, bool ints)
{
    cpu_case c;
    cpu_case_start(&c, "scatter_add");
    cpu_attr_dim(&c, "over", "v");
    cpu_attr_dims(&c, "along", along);
    cpu_attr_int(&c, "size", 33);
    cpu_ints(&c, DTP_I64, ids, 33);
    if (ints) {
        cpu_ints(&c, DTP_I32, src, 100);
    } else {
        cpu_floats(&c, src);
    }
    cpu_infer(&c, NULL);
    cpu_check(&c, 4e-6);
    cpu_case_free(&c);
}

static void test_scatter_add__matches_reference(void **state)
{
    (void)state;
    check_scatter("k=300", "k=300 d=120", "k", false);
    check_scatter("k=300", "d=120 k=300", "k", true);
    check_scatter("a=50 k=70", "k=70 a=50 d=11", "k", false);
    check_scatter("a=50 v=70", "a=50 v=70", "v", false);
    check_scatter("a=50 b=20", "a=50 b=20", "a b", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_math__matches_reference),
        cmocka_unit_test(test_row_stats__match_reference),
        cmocka_unit_test(test_order_and_scan__match_reference),
        cmocka_unit_test(test_reduce__of_integers_matches_reference),
        cmocka_unit_test(test_gather__matches_reference),
        cmocka_unit_test(test_scatter_add__matches_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
