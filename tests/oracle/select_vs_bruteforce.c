/* Selection problems against enumeration. Every combination of reductions, each with a lower bound
 * at most the optimum and, without a limit, the optimum itself. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/select/solve.h"
#include "select_random.h"

enum { N_EXACT = 500, N_BOUND = 2000 };

static void check_result(const dtp_select_problem *p, const dtp_select_result *r, int64_t best,
                         bool limited)
{
    const bool proven = r->status == DTP_CERT_OPTIMAL || r->status == DTP_CERT_INFEASIBLE;
    assert_true(best < 0 || r->bound <= best);
    if (r->choice != NULL) {
        assert_true(best >= 0 && r->value.cost >= best && r->value.feasible);
        assert_int_equal(plain_cost(p, r->choice), r->value.cost);
    }
    if (proven) {
        assert_int_equal(r->status, best < 0 ? DTP_CERT_INFEASIBLE : DTP_CERT_OPTIMAL);
        assert_true(best < 0 || (r->value.cost == best && r->bound == best));
    }
    assert_true(proven || limited);
}

static void solve_and_check(const dtp_select_problem *p, uint32_t bits, int64_t iterations,
                            int64_t best, uint64_t seed)
{
    dtp_select_options o = dtp_select_options_init();
    dtp_select_result r;
    dtp_err err = {0};
    o.presolve = combination(bits);
    o.iterations = iterations;
    if (dtp_select_solve(p, &o, &r, &err) != DTP_OK) {
        fail_msg("seed %" PRIu64 ", combination %u: %s", seed, bits, err.msg);
    }
    const bool right = (r.choice == NULL || r.value.cost >= best) && (best < 0 || r.bound <= best);
    const bool done = r.status == DTP_CERT_OPTIMAL || r.status == DTP_CERT_INFEASIBLE;
    if (!right || (!done && iterations > 100)) {
        print_message("seed %" PRIu64 ", combination %u: cost %" PRId64 ", bound %" PRId64
                      ", optimum %" PRId64 "\n",
                      seed, bits, r.value.cost, r.bound, best);
    }
    check_result(p, &r, best, iterations <= 100);
    dtp_select_result_free(&r);
}

static void test_select__equals_enumeration(void **state)
{
    (void)state;
    int32_t infeasible = 0;
    for (uint64_t seed = 1; seed <= N_EXACT; seed++) {
        random_source r = {seed * 7919};
        dtp_select_problem *p = random_problem(&r);
        const int64_t best = enumerate(p);
        infeasible += best < 0 ? 1 : 0;
        for (uint32_t bits = 0; bits < SELECT_COMBINATIONS; bits++) {
            solve_and_check(p, bits, 2000, best, seed);
        }
        dtp_select_problem_destroy(p);
    }
    print_message("%d problems, %d of them infeasible\n", N_EXACT, infeasible);
    assert_true(infeasible > 10 && infeasible < N_EXACT / 2);
}

/* One node of branch and bound and little search: bounds and costs stay on their sides. */
static void test_select__bounds_hold_under_limits(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= N_BOUND; seed++) {
        random_source r = {seed * 104729 + 1};
        dtp_select_problem *p = random_problem(&r);
        const int64_t best = enumerate(p);
        const uint32_t bits = (uint32_t)draw(&r, SELECT_COMBINATIONS);
        solve_and_check(p, bits, 1, best, seed);
        solve_and_check(p, bits | 15U, 2, best, seed);
        dtp_select_problem_destroy(p);
    }
}

static void test_select__same_seed_same_answer(void **state)
{
    (void)state;
    random_source r = {42};
    dtp_select_problem *p = random_problem(&r);
    dtp_select_options o = dtp_select_options_init();
    dtp_select_result a, b;
    assert_int_equal(dtp_select_solve(p, &o, &a, NULL), DTP_OK);
    assert_int_equal(dtp_select_solve(p, &o, &b, NULL), DTP_OK);
    assert_int_equal(a.value.cost, b.value.cost);
    if (a.choice != NULL) {
        assert_memory_equal(a.choice, b.choice, (size_t)p->n_nodes * sizeof *a.choice);
    }
    dtp_select_result_free(&a);
    dtp_select_result_free(&b);
    dtp_select_problem_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select__equals_enumeration),
        cmocka_unit_test(test_select__bounds_hold_under_limits),
        cmocka_unit_test(test_select__same_seed_same_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
