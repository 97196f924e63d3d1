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

enum { N_EXACT = 500, N_BOUND = 2000, N_DUAL = 300, N_SOLVERS = 1000 };

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

/* A known solution is never made worse; below a cutoff there is a solution or a proof of none. */
static void test_select__start_and_cutoff(void **state)
{
    (void)state;
    int32_t below = 0, none = 0;
    for (uint64_t seed = 1; seed <= N_EXACT; seed++) {
        random_source r = {seed * 15485863};
        dtp_select_problem *p = random_problem(&r);
        const int64_t best = enumerate(p);
        dtp_select_options o = dtp_select_options_init();
        dtp_select_result a;
        int32_t start[SELECT_MAX_NODES];
        for (int32_t i = 0; i < p->n_nodes; i++) {
            start[i] = (int32_t)draw(&r, dtp_select_n_strategies(p, i));
        }
        o.start = start;
        assert_int_equal(dtp_select_solve(p, &o, &a, NULL), DTP_OK);
        check_result(p, &a, best, false);
        dtp_select_result_free(&a);
        o.cutoff = best < 0 ? 1000 : 1 + best * draw(&r, 3);
        assert_int_equal(dtp_select_solve(p, &o, &a, NULL), DTP_OK);
        if (best >= 0 && best < o.cutoff) {
            check_result(p, &a, best, false);
            below++;
        } else {
            assert_null(a.choice);
            assert_int_equal(a.status, DTP_CERT_INFEASIBLE);
            assert_int_equal(a.bound, o.cutoff);
            none++;
        }
        dtp_select_result_free(&a);
        dtp_select_problem_destroy(p);
    }
    assert_true(below > N_EXACT / 5 && none > N_EXACT / 5);
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

/* The solvers by name, on any reductions: search and ascent alone prove what they say they prove.
 */
static void test_select__every_solver(void **state)
{
    (void)state;
    int32_t proven = 0;
    for (uint64_t seed = 1; seed <= N_SOLVERS; seed++) {
        random_source r = {seed * 32452843};
        dtp_select_problem *p = random_problem(&r);
        const int64_t best = enumerate(p);
        dtp_select_options o = dtp_select_options_init();
        o.presolve = combination((uint32_t)draw(&r, SELECT_COMBINATIONS));
        o.seed = seed;
        for (int32_t solver = DTP_SELECT_AUTO; solver <= DTP_SELECT_LARGE; solver++) {
            dtp_select_result a;
            const bool large = solver == DTP_SELECT_LARGE;
            o.solver = (dtp_select_solver)solver;
            o.iterations = large ? 10 : 2000;
            o.threads = 1 + (int32_t)draw(&r, 2);
            assert_int_equal(dtp_select_solve(p, &o, &a, NULL), DTP_OK);
            check_result(p, &a, best, large);
            proven += large && a.status != DTP_CERT_FEASIBLE && a.status != DTP_CERT_TIME_LIMIT;
            dtp_select_result_free(&a);
        }
        dtp_select_problem_destroy(p);
    }
    print_message("search and ascent alone proved %d of %d\n", proven, N_SOLVERS);
    assert_true(proven > N_SOLVERS / 2);
}

/* Bounds and splits by dual ascent instead of the linear program, to the end. */
static void test_select__branching_on_the_dual_equals_enumeration(void **state)
{
    (void)state;
    int64_t split = 0;
    for (uint64_t seed = 1; seed <= N_DUAL; seed++) {
        random_source r = {seed * 86028121};
        dtp_select_problem *p = random_problem(&r);
        const int64_t best = enumerate(p);
        dtp_select_options o = dtp_select_options_init();
        o.presolve = combination((uint32_t)draw(&r, SELECT_COMBINATIONS));
        o.solver = DTP_SELECT_EXACT;
        o.lp_entries = -1;
        o.iterations = 2000;
        dtp_select_result a;
        assert_int_equal(dtp_select_solve(p, &o, &a, NULL), DTP_OK);
        if (best >= 0 && a.bound != best) {
            print_message("seed %" PRIu64 "\n", seed);
        }
        check_result(p, &a, best, false);
        split += a.nodes > 1 ? 1 : 0;
        dtp_select_result_free(&a);
        dtp_select_problem_destroy(p);
    }
    assert_true(split > N_DUAL / 50);
}

/* Rings of nodes with chords, too large to enumerate. */
static dtp_select_problem *ring(random_source *r, int32_t n)
{
    enum { K = 6 };
    dtp_select_problem *p = NULL;
    int64_t cost[K * K], usage[K];
    assert_int_equal(dtp_select_problem_create("ring", 40 * n / 8, &p, NULL), DTP_OK);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t s = 0; s < K; s++) {
            cost[s] = draw(r, 1000);
            usage[s] = draw(r, 100);
        }
        assert_int_equal(dtp_select_add_node(p, i, i + 1 + n / 8, K, cost, usage, NULL), DTP_OK);
    }
    for (int32_t e = 0; e < 2 * n; e++) {
        const int32_t a = e % n, b = e < n ? (e + 1) % n : (int32_t)((a + 2 + draw(r, n - 3)) % n);
        for (int32_t i = 0; i < K * K; i++) {
            cost[i] = draw(r, 5) == 0 ? 0 : draw(r, 2000);
        }
        assert_int_equal(dtp_select_add_edge(p, a, b, cost, NULL), DTP_OK);
    }
    assert_int_equal(dtp_select_problem_check(p, NULL), DTP_OK);
    return p;
}

static void test_select__same_answer_on_any_threads(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        random_source r = {seed};
        dtp_select_problem *p = ring(&r, 80);
        dtp_select_options o = dtp_select_options_init();
        dtp_select_result a, b;
        o.solver = DTP_SELECT_LARGE;
        o.iterations = 30;
        o.threads = 1;
        assert_int_equal(dtp_select_solve(p, &o, &a, NULL), DTP_OK);
        o.threads = 2;
        assert_int_equal(dtp_select_solve(p, &o, &b, NULL), DTP_OK);
        assert_non_null(a.choice);
        assert_non_null(b.choice);
        assert_true(a.value.feasible && a.bound > 0 && a.bound <= a.value.cost);
        assert_int_equal(a.value.cost, b.value.cost);
        assert_int_equal(a.bound, b.bound);
        assert_memory_equal(a.choice, b.choice, (size_t)p->n_nodes * sizeof *a.choice);
        dtp_select_result_free(&a);
        dtp_select_result_free(&b);
        dtp_select_problem_destroy(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select__equals_enumeration),
        cmocka_unit_test(test_select__bounds_hold_under_limits),
        cmocka_unit_test(test_select__start_and_cutoff),
        cmocka_unit_test(test_select__same_seed_same_answer),
        cmocka_unit_test(test_select__every_solver),
        cmocka_unit_test(test_select__branching_on_the_dual_equals_enumeration),
        cmocka_unit_test(test_select__same_answer_on_any_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
