/* Selection problems whose numbers are at the ends of what is allowed, with too many variables to
 * enumerate but with an optimum that is known: sums of costs that just stay below
 * DTP_FORBIDDEN or reach it, usages that fill 2^61 - 1, times up to 2^63 - 1. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/solver/solve.h"

enum { N_NODES = 100 };

/* A ring of variables of two strategies: `cheap` and `dear` each, edges cost `differ` where the two
 * strategies are not the same. Strategy 0 uses `usage`, strategy 1 nothing. */
static dtp_problem *ring(int64_t cheap, int64_t dear, int64_t differ, int64_t usage, int64_t limit)
{
    dtp_problem *p = NULL;
    const int64_t cost[] = {cheap, dear}, use[] = {usage, 0};
    const int64_t edge[] = {0, differ, differ, 0};
    assert_int_equal(dtp_problem_create("ring", limit, &p, NULL), DTP_OK);
    for (int32_t i = 0; i < N_NODES; i++) {
        assert_int_equal(dtp_problem_add_variable(p, i, INT64_MAX - i, 2, cost, use, NULL), DTP_OK);
    }
    for (int32_t i = 0; i < N_NODES; i++) {
        assert_int_equal(dtp_problem_add_edge(p, i, (i + 1) % N_NODES, edge, NULL), DTP_OK);
    }
    return p;
}

/* -1: nothing is allowed. */
static void solve(dtp_problem *p, int64_t optimum)
{
    assert_int_equal(dtp_problem_check(p, NULL), DTP_OK);
    for (int solver = DTP_SOLVER_AUTO; solver <= DTP_SOLVER_LARGE; solver++) {
        dtp_solve_options o = dtp_solve_options_init();
        dtp_solve_result r;
        o.solver = (dtp_solver)solver;
        o.iterations = 50;
        assert_int_equal(dtp_solve(p, &o, &r, NULL), DTP_OK);
        if (optimum >= 0) {
            assert_true(r.status != DTP_CERT_INFEASIBLE);
            assert_true(r.bound >= 0 && r.bound <= optimum);
            assert_true(r.assignment == NULL ||
                        (r.value.cost >= optimum && r.value.cost < DTP_FORBIDDEN));
            assert_true(r.status != DTP_CERT_OPTIMAL ||
                        (r.value.cost == optimum && r.bound == optimum));
        } else {
            assert_null(r.assignment);
        }
        assert_true(optimum < 0 || r.assignment != NULL);
        dtp_solve_result_free(&r);
    }
    dtp_problem_destroy(p);
}

static void test_solver_extremes__sums_just_below_forbidden(void **state)
{
    (void)state;
    const int64_t share = DTP_FORBIDDEN / N_NODES;
    solve(ring(share - 1, share, 1, 0, 0), (share - 1) * N_NODES);
    solve(ring(0, DTP_FORBIDDEN - 1, DTP_FORBIDDEN - 1, 0, 0), 0);
}

static void test_solver_extremes__sums_that_reach_forbidden(void **state)
{
    (void)state;
    const int64_t share = DTP_FORBIDDEN / N_NODES;
    solve(ring(share, share, 0, 0, 0), -1);
    solve(ring(share * 90, share * 90, share * 90, 0, 0), -1);
    solve(ring(INT64_MAX, INT64_MAX, INT64_MAX, 0, 0), -1);
}

static void test_solver_extremes__usages_fill_the_range(void **state)
{
    (void)state;
    const int64_t most = INT64_MAX / 4, each = most / N_NODES;
    solve(ring(1, 1000000, 0, each, most), N_NODES);
    solve(ring(1, 1000000, 0, each, 0), INT64_C(1000000) * N_NODES);
    solve(ring(1, 1000000, 0, each, each), 1 + INT64_C(1000000) * (N_NODES - 1));
}

static void test_solver_extremes__what_does_not_fit_is_refused(void **state)
{
    (void)state;
    dtp_err err = {0};
    dtp_problem *p = ring(1, 2, 0, INT64_MAX / 4 / N_NODES + 1, 1);
    assert_int_equal(dtp_problem_check(p, &err), DTP_RANGE);
    assert_string_equal(err.msg, "nodes.usages[99]: the usages add up to 2^61 or more");
    dtp_problem_destroy(p);
    p = ring(1, 2, 0, 0, INT64_C(1) << 61);
    assert_int_equal(dtp_problem_check(p, &err), DTP_RANGE);
    assert_string_equal(err.msg, "usage_limit is 2305843009213693952 (0 to 2^61 - 1)");
    dtp_problem_destroy(p);
    p = ring(-1, 2, 0, 0, 0);
    assert_int_equal(dtp_problem_check(p, &err), DTP_INVALID);
    dtp_problem_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_solver_extremes__sums_just_below_forbidden),
        cmocka_unit_test(test_solver_extremes__sums_that_reach_forbidden),
        cmocka_unit_test(test_solver_extremes__usages_fill_the_range),
        cmocka_unit_test(test_solver_extremes__what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
