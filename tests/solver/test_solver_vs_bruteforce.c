/* Selection problems against enumeration: every solver with every combination of reductions, to the
 * end and under limits. Costs are evaluated three times: by the solver, by the library's checker
 * and by the enumeration's own code. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "planner/solver/solve.h"
#include "tests/solver/random_problems.h"
#include "tests/support/quarter.h"

enum {
    N_PROBLEMS = 2400,
    N_ODD = 240,
    N_STARTS = 500,
    N_DUAL = 300,
    N_SOLVERS = 4,
    COMBINATIONS_EACH = 4,
    TO_THE_END = 2000
};

typedef struct tally {
    int32_t infeasible, optimal;                     /* problems */
    int32_t covered[N_SOLVERS][SELECT_COMBINATIONS]; /* solves */
    int32_t undecided;                               /* of them */
} tally;

/* The bound is at most the optimum, the optimum at most the cost, and the status says no more than
 * what is true: best is the optimum, -1 when there is no plan. */
static const char *find_lie(const dtp_problem *p, const dtp_solve_result *r, int64_t best)
{
    const bool proven = r->status == DTP_CERT_OPTIMAL || r->status == DTP_CERT_INFEASIBLE;
    if (best >= 0 && r->bound > best) {
        return "bound above the optimum";
    }
    if ((r->status == DTP_CERT_OPTIMAL || r->status == DTP_CERT_FEASIBLE) !=
        (r->assignment != NULL)) {
        return "status and plan disagree";
    }
    if (r->assignment != NULL) {
        dtp_problem_value value;
        if (dtp_problem_evaluate(p, r->assignment, &value, NULL) != DTP_OK || !value.feasible ||
            value.cost != r->value.cost || value.peak != r->value.peak ||
            plain_cost(p, r->assignment) != r->value.cost) {
            return "wrong value";
        }
        if (best < 0 || r->value.cost < best || r->bound > r->value.cost) {
            return "cost below the optimum or the bound";
        }
    }
    if (proven && r->status != (best < 0 ? DTP_CERT_INFEASIBLE : DTP_CERT_OPTIMAL)) {
        return "wrong verdict";
    }
    if (r->status == DTP_CERT_OPTIMAL && (r->value.cost != best || r->bound != best)) {
        return "not the optimum";
    }
    return NULL;
}

/* Fails, naming the case, when the answer is wrong, or undecided though nothing limits it. */
static bool solve_and_check(const dtp_problem *p, const dtp_solve_options *o, int64_t best,
                            const char *name)
{
    dtp_solve_result r;
    dtp_err err = {0};
    if (dtp_solve(p, o, &r, &err) != DTP_OK) {
        fail_msg("%s: %s", name, err.msg);
    }
    const bool proven = r.status == DTP_CERT_OPTIMAL || r.status == DTP_CERT_INFEASIBLE;
    const char *lie = find_lie(p, &r, best);
    if (lie == NULL && !proven && o->iterations >= TO_THE_END) {
        lie = "undecided";
    }
    if (lie != NULL) {
        fail_msg("%s: %s: cost %" PRId64 ", bound %" PRId64 ", optimum %" PRId64, name, lie,
                 r.assignment != NULL ? r.value.cost : -1, r.bound, best);
    }
    dtp_solve_result_free(&r);
    return proven;
}

/* Some combinations of reductions for every solver, all of them in the course of the problems;
 * branch and bound to the end with every other one, with few variables and rounds with the rest. */
static void solve_in_all_ways(const dtp_problem *p, uint64_t seed, int64_t best, tally *t)
{
    bool optimal = true;
    for (uint64_t i = 0; i < N_SOLVERS * COMBINATIONS_EACH; i++) {
        const uint32_t solver = (uint32_t)(i / COMBINATIONS_EACH);
        const bool whole = i % 2 == 0 && solver != DTP_SOLVER_LARGE;
        const uint32_t bits = (uint32_t)((seed + i * 11) % SELECT_COMBINATIONS);
        dtp_solve_options o = dtp_solve_options_init();
        char name[120];
        o.presolve = combination(bits);
        o.solver = (dtp_solver)solver;
        o.seed = seed;
        o.threads = 1 + (int32_t)(seed % 8 == 0);
        o.iterations = whole ? TO_THE_END : 1 + (int64_t)(seed % 7);
        (void)snprintf(name, sizeof name, "problem %" PRIu64 ", solver %u, combination %u", seed,
                       solver, bits);
        const bool proven = solve_and_check(p, &o, best, name);
        t->covered[solver][bits]++;
        t->undecided += proven ? 0 : 1;
        optimal = optimal && (proven || !whole);
    }
    t->optimal += optimal && best >= 0 ? 1 : 0;
    t->infeasible += best < 0 ? 1 : 0;
}

static void test_select__equals_enumeration(void **state)
{
    (void)state;
    tally t = {0};
    int32_t least = N_PROBLEMS, n = 0;
    for (uint64_t seed = 1; seed <= N_PROBLEMS; seed++) {
        /* whole rows of combinations */
        if (!quarter_has((int64_t)seed / SELECT_COMBINATIONS, N_PROBLEMS / SELECT_COMBINATIONS)) {
            continue;
        }
        n++;
        random_source r = {seed * 7919};
        dtp_problem *p = seed % 5 == 0 ? overflowing_problem(&r) : random_problem(&r);
        solve_in_all_ways(p, seed, enumerate(p), &t);
        dtp_problem_destroy(p);
    }
    for (int32_t i = 0; i < N_SOLVERS * SELECT_COMBINATIONS; i++) {
        const int32_t times = t.covered[i / SELECT_COMBINATIONS][i % SELECT_COMBINATIONS];
        least = times < least ? times : least;
    }
    print_message("%d problems: %d solved to the optimum, %d infeasible; every solver with every "
                  "combination at least %d times, %d solves undecided under limits\n",
                  n, t.optimal, t.infeasible, least, t.undecided);
    assert_true(t.optimal >= quarter_of(500) && t.infeasible >= quarter_of(100) &&
                least >= quarter_of(100) && t.undecided >= quarter_of(100));
    assert_int_equal(t.optimal + t.infeasible, n);
}

static void test_select__odd_shapes_equal_enumeration(void **state)
{
    (void)state;
    tally t = {0};
    for (uint64_t seed = 1; seed <= N_ODD; seed++) {
        if (!quarter_has((int64_t)seed - 1, N_ODD)) {
            continue;
        }
        random_source r = {seed * 49979687};
        dtp_problem *p = odd_problem(&r);
        solve_in_all_ways(p, seed, enumerate(p), &t);
        dtp_problem_destroy(p);
    }
    assert_true(t.optimal >= quarter_of(N_ODD / 2) && t.infeasible >= quarter_of(N_ODD / 20));
    assert_int_equal(t.optimal + t.infeasible, quarter_of(N_ODD));
}

/* A known solution is never made worse; below a cutoff there is a solution or a proof of none. */
static void test_select__start_and_cutoff(void **state)
{
    (void)state;
    int32_t below = 0, none = 0;
    for (uint64_t seed = 1; seed <= N_STARTS; seed++) {
        if (!quarter_has((int64_t)seed - 1, N_STARTS)) {
            continue;
        }
        random_source r = {seed * 15485863};
        dtp_problem *p = random_problem(&r);
        const int64_t best = enumerate(p);
        dtp_solve_options o = dtp_solve_options_init();
        dtp_solve_result a;
        int32_t start[SELECT_MAX_NODES];
        for (int32_t i = 0; i < p->n_variables; i++) {
            start[i] = (int32_t)draw(&r, dtp_problem_n_strategies(p, i));
        }
        o.start = start;
        o.iterations = TO_THE_END;
        (void)solve_and_check(p, &o, best, "with a known solution");
        o.cutoff = best < 0 ? 1000 : 1 + best * draw(&r, 3);
        assert_int_equal(dtp_solve(p, &o, &a, NULL), DTP_OK);
        if (best >= 0 && best < o.cutoff) {
            assert_null(find_lie(p, &a, best));
            assert_int_equal(a.status, DTP_CERT_OPTIMAL);
            below++;
        } else {
            assert_null(a.assignment);
            assert_int_equal(a.status, DTP_CERT_INFEASIBLE);
            assert_int_equal(a.bound, o.cutoff);
            none++;
        }
        dtp_solve_result_free(&a);
        dtp_problem_destroy(p);
    }
    assert_true(below > quarter_of(N_STARTS / 5) && none > quarter_of(N_STARTS / 5));
}

/* Where a solution is known, an ascent alone comes before the searches. */
static void test_select__ascent_before_search(void **state)
{
    (void)state;
    dtp_solver_parameters parameters = *dtp_solver_parameters_default();
    int32_t known = 0;
    parameters.epoch_large = 0;
    for (uint64_t seed = 1; seed <= N_STARTS; seed++) {
        if (!quarter_has((int64_t)seed - 1, N_STARTS)) {
            continue;
        }
        random_source r = {seed * 32452843};
        dtp_problem *p = random_problem(&r);
        const int64_t best = enumerate(p);
        dtp_solve_options o = dtp_solve_options_init();
        dtp_solve_result a;
        o.solver = DTP_SOLVER_LARGE;
        o.presolve = (dtp_presolve_options){.incumbent_filter = true};
        o.iterations = 1;
        assert_int_equal(dtp_solve(p, &o, &a, NULL), DTP_OK);
        o.parameters = &parameters;
        o.start = a.assignment;
        o.gap = 0.01;
        o.lp_entries = 0;
        o.iterations = 1 + (int64_t)(seed % 7);
        (void)solve_and_check(p, &o, best, "from a solution, few rounds");
        o.solver = DTP_SOLVER_AUTO;
        o.gap = 0.0;
        o.iterations = TO_THE_END;
        (void)solve_and_check(p, &o, best, "from a solution");
        known += a.assignment != NULL ? 1 : 0;
        dtp_solve_result_free(&a);
        dtp_problem_destroy(p);
    }
    assert_true(known > quarter_of(N_STARTS / 2));
}

static void test_select__same_seed_same_answer(void **state)
{
    (void)state;
    random_source r = {42};
    dtp_problem *p = random_problem(&r);
    dtp_solve_options o = dtp_solve_options_init();
    dtp_solve_result a, b;
    assert_int_equal(dtp_solve(p, &o, &a, NULL), DTP_OK);
    assert_int_equal(dtp_solve(p, &o, &b, NULL), DTP_OK);
    assert_int_equal(a.value.cost, b.value.cost);
    if (a.assignment != NULL) {
        assert_memory_equal(a.assignment, b.assignment,
                            (size_t)p->n_variables * sizeof *a.assignment);
    }
    dtp_solve_result_free(&a);
    dtp_solve_result_free(&b);
    dtp_problem_destroy(p);
}

/* Bounds and splits by dual ascent instead of the linear program, to the end. */
static void test_select__branching_on_the_dual_equals_enumeration(void **state)
{
    (void)state;
    int64_t split = 0;
    for (uint64_t seed = 1; seed <= N_DUAL; seed++) {
        if (!quarter_has((int64_t)seed - 1, N_DUAL)) {
            continue;
        }
        random_source r = {seed * 86028121};
        dtp_problem *p = random_problem(&r);
        const int64_t best = enumerate(p);
        dtp_solve_options o = dtp_solve_options_init();
        o.presolve = combination((uint32_t)draw(&r, SELECT_COMBINATIONS));
        o.solver = DTP_SOLVER_EXACT;
        o.lp_entries = -1;
        o.iterations = TO_THE_END;
        dtp_solve_result a;
        assert_int_equal(dtp_solve(p, &o, &a, NULL), DTP_OK);
        const char *lie = find_lie(p, &a, best);
        if (lie != NULL || a.status == DTP_CERT_FEASIBLE || a.status == DTP_CERT_TIME_LIMIT) {
            fail_msg("problem %" PRIu64 ": %s", seed, lie != NULL ? lie : "undecided");
        }
        split += a.nodes > 1 ? 1 : 0;
        dtp_solve_result_free(&a);
        dtp_problem_destroy(p);
    }
    assert_true(split > quarter_of(N_DUAL / 50));
}

/* GLPK's answer itself, before the proof: one node is all that branch and bound has. Costs are
 * small enough for its tolerances. */
static void test_select__glpk_finds_the_optimum(void **state)
{
    (void)state;
    int32_t found = 0;
    for (uint64_t seed = 1; seed <= N_DUAL; seed++) {
        if (!quarter_has((int64_t)seed - 1, N_DUAL)) {
            continue;
        }
        random_source r = {seed * 32452843};
        dtp_problem *p = odd_problem(&r);
        const int64_t best = enumerate(p);
        dtp_solve_options o = dtp_solve_options_init();
        dtp_solve_result a;
        o.solver = DTP_SOLVER_GLPK;
        o.presolve = combination(seed % 2 == 0 ? SELECT_COMBINATIONS - 1 : 0);
        o.iterations = 1;
        assert_int_equal(dtp_solve(p, &o, &a, NULL), DTP_OK);
        if ((a.assignment == NULL) != (best < 0) || (best >= 0 && a.value.cost != best)) {
            fail_msg("seed %" PRIu64 ": cost %" PRId64 ", optimum %" PRId64, seed,
                     a.assignment != NULL ? a.value.cost : -1, best);
        }
        found += best >= 0 ? 1 : 0;
        dtp_solve_result_free(&a);
        dtp_problem_destroy(p);
    }
    assert_true(found > quarter_of(N_DUAL / 2));
}

static void test_select__glpk_refuses_what_is_too_large(void **state)
{
    (void)state;
    dtp_solver_parameters few = *dtp_solver_parameters_default();
    random_source r = {5};
    dtp_problem *p = odd_problem(&r);
    dtp_solve_options o = dtp_solve_options_init();
    dtp_solve_result a;
    dtp_err err = {0};
    few.glpk_columns = 1;
    o.parameters = &few;
    o.solver = DTP_SOLVER_GLPK;
    o.presolve = combination(SELECT_COMBINATIONS - 1);
    assert_int_equal(dtp_solve(p, &o, &a, &err), DTP_RANGE);
    assert_non_null(strstr(err.msg, "glpk_columns = 1"));
    dtp_problem_destroy(p);
}

/* Rings of variables with chords, too large to enumerate. */
static dtp_problem *ring(random_source *r, int32_t n)
{
    enum { K = 6 };
    dtp_problem *p = NULL;
    int64_t cost[K * K], usage[K];
    assert_int_equal(dtp_problem_create("ring", 40 * n / 8, &p, NULL), DTP_OK);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t s = 0; s < K; s++) {
            cost[s] = draw(r, 1000);
            usage[s] = draw(r, 100);
        }
        assert_int_equal(dtp_problem_add_variable(p, i, i + 1 + n / 8, K, cost, usage, NULL),
                         DTP_OK);
    }
    for (int32_t e = 0; e < 2 * n; e++) {
        const int32_t a = e % n, b = e < n ? (e + 1) % n : (int32_t)((a + 2 + draw(r, n - 3)) % n);
        for (int32_t i = 0; i < K * K; i++) {
            cost[i] = draw(r, 5) == 0 ? 0 : draw(r, 2000);
        }
        assert_int_equal(dtp_problem_add_edge(p, a, b, cost, NULL), DTP_OK);
    }
    assert_int_equal(dtp_problem_check(p, NULL), DTP_OK);
    return p;
}

static dtp_solve_result solve_on_threads(const dtp_problem *p, dtp_solve_options o, int32_t threads)
{
    dtp_solve_result r;
    dtp_err err = {0};
    o.threads = threads;
    if (dtp_solve(p, &o, &r, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_non_null(r.assignment);
    assert_true(r.value.feasible && r.bound > 0 && r.bound <= r.value.cost);
    return r;
}

/* Search and ascent side by side; then what auto does with a kernel above its limit and below:
 * neighbourhoods on both threads in either, branch and bound in the latter. */
static void test_select__same_answer_on_any_threads(void **state)
{
    (void)state;
    const struct {
        dtp_solver solver;
        int64_t max_entries, iterations;
        int32_t variables;
    } cases[] = {{DTP_SOLVER_LARGE, 250000, 30, 80},
                 {DTP_SOLVER_AUTO, 1000, 20, 40},
                 {DTP_SOLVER_AUTO, 250000, 8, 24}};
    for (uint64_t seed = 0; seed < 6; seed++) {
        random_source r = {seed + 1};
        dtp_problem *p = ring(&r, cases[seed % 3].variables);
        dtp_solve_options o = dtp_solve_options_init();
        o.solver = cases[seed % 3].solver;
        o.max_entries = cases[seed % 3].max_entries;
        o.iterations = cases[seed % 3].iterations;
        dtp_solve_result a = solve_on_threads(p, o, 1), b = solve_on_threads(p, o, 2);
        assert_int_equal(a.value.cost, b.value.cost);
        assert_int_equal(a.bound, b.bound);
        assert_memory_equal(a.assignment, b.assignment,
                            (size_t)p->n_variables * sizeof *a.assignment);
        dtp_solve_result_free(&a);
        dtp_solve_result_free(&b);
        dtp_problem_destroy(p);
    }
}

/* Without a limit of iterations the time ends the search, with both whichever comes first, and a
 * proof ends it before. The test's own time limit is the check. */
static void test_select__whichever_limit_comes_first(void **state)
{
    (void)state;
    const struct {
        double time_limit_s;
        int64_t iterations;
    } cases[] = {{0.4, 0}, {0.4, INT64_MAX}, {1e7, 1}, {0.0, 1}};
    random_source r = {99};
    dtp_problem *p = ring(&r, 50);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_solve_options o = dtp_solve_options_init();
        const dtp_stop stop = {.end_s = dtp_now_s() + cases[i].time_limit_s};
        o.stop = cases[i].time_limit_s > 0.0 ? &stop : NULL;
        o.until_stopped = o.stop != NULL;
        o.iterations = cases[i].iterations;
        dtp_solve_result a = solve_on_threads(p, o, 2);
        assert_true(a.value.cost == a.bound || a.status == DTP_CERT_FEASIBLE);
        dtp_solve_result_free(&a);
    }
    dtp_problem_destroy(p);
    p = random_problem(&r);
    dtp_solve_options o = dtp_solve_options_init();
    const dtp_stop stop = {.end_s = dtp_now_s() + 1e7};
    o.stop = &stop;
    o.until_stopped = true;
    assert_true(solve_and_check(p, &o, enumerate(p), "no limit of iterations"));
    dtp_problem_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select__equals_enumeration),
        cmocka_unit_test(test_select__odd_shapes_equal_enumeration),
        cmocka_unit_test(test_select__start_and_cutoff),
        cmocka_unit_test(test_select__ascent_before_search),
        cmocka_unit_test(test_select__same_seed_same_answer),
        cmocka_unit_test(test_select__branching_on_the_dual_equals_enumeration),
        cmocka_unit_test(test_select__glpk_finds_the_optimum),
        cmocka_unit_test(test_select__glpk_refuses_what_is_too_large),
        cmocka_unit_test(test_select__same_answer_on_any_threads),
        cmocka_unit_test(test_select__whichever_limit_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
