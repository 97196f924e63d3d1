/* What tying loses, against the problem without tying solved to the end: with and without a
 * memory limit, the bound is at most its optimum, which is at most what the tied problem costs.
 */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/solver/solve.h"
#include "planner/solver/dual_bound.h"
#include "planner/tensors/tying_bound.h"
#include "tests/support/tensor_cases.h"

static const tensor_case CASES[] = {
    {.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS},
    {.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS},
    {.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS},
    {.model = TENSOR_GPT,
     .mesh = "x:2",
     .dims = "batch=8 length=16 vocab=16 layers=4 heads=4 d_head=4"},
    {.model = TENSOR_GPT,
     .mesh = "x:4",
     .dims = "batch=4 length=16 vocab=64 layers=3 heads=4 d_head=8"},
    {.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS, .remat = true},
    {.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS, .microbatches = 4},
    {.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS, .remat = true, .microbatches = 2},
    {.model = "mtf_lm.json", .mesh = "x:2", .dims = NULL},
};

enum { N_CASES = sizeof CASES / sizeof CASES[0], N_LIMITS = 2, PRICE_ROUNDS = 1700 };

typedef struct pair {
    tensor_fixture f;
    dtp_tensor_problem *tied, *plain;
} pair;

static void create(const tensor_case *c, pair *x)
{
    dtp_tensor_options options = dtp_tensor_options_init();
    tensor_fixture_create(c, &x->f);
    options.memory_bytes = INT64_MAX / 8;
    x->tied = tensor_fixture_problem(&x->f, &options);
    options.runs = 0;
    x->plain = tensor_fixture_problem(&x->f, &options);
}

static void destroy(pair *x)
{
    dtp_tensor_problem_destroy(x->tied);
    dtp_tensor_problem_destroy(x->plain);
    tensor_fixture_destroy(&x->f);
}

static dtp_solve_result solve(const dtp_problem *p)
{
    dtp_solve_result r;
    const dtp_solve_options options = dtp_solve_options_init();
    assert_int_equal(dtp_solve(p, &options, &r, NULL), DTP_OK);
    return r;
}

static int64_t bound_at(const dtp_tensor_problem *p, int32_t n, const dtp_memory_multiplier *prices)
{
    int64_t bound = -1;
    dtp_err err = {0};
    const dtp_dual_start start = {.n_multipliers = n, .multipliers = prices};
    if (dtp_dual_bound(p->select, &start, 20, &bound, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return bound;
}

/* ---- the bound of a plan ---- */

/* Counts what could be compared, and where tying lost something. */
typedef struct tally {
    int32_t exact, lost, lifted;
} tally;

static void check_bound(const pair *x, const dtp_solve_result *together, tally *t)
{
    int64_t bound = 0;
    const dtp_solve_result apart = solve(x->plain->select);
    const int64_t without = bound_at(x->plain, 0, NULL);
    assert_int_equal(dtp_tying_bound_find(x->tied, together->value.cost, 0, &bound, NULL), DTP_OK);
    print_message("%s: limit %" PRId64 ": bound %" PRId64 " (%" PRId64 " without prices)"
                  " <= untied %" PRId64 "%s <= folded %" PRId64 "\n",
                  x->f.graph->name, x->plain->select->usage_limit, bound, without, apart.value.cost,
                  apart.status == DTP_CERT_OPTIMAL ? "" : "?", together->value.cost);
    assert_non_null(apart.assignment);
    assert_true(bound > 0 && without <= apart.value.cost && bound <= apart.value.cost);
    if (apart.status == DTP_CERT_OPTIMAL) {
        assert_true(apart.value.cost <= together->value.cost);
        t->exact++;
        t->lost += apart.value.cost < together->value.cost ? 1 : 0;
        t->lifted += bound > without ? 1 : 0;
    }
    dtp_solve_result r = apart;
    dtp_solve_result_free(&r);
}

/* The first limits below what is needed without one that have a solution. Returns false when there
 * is none. */
static bool tighten(const pair *x, int64_t peak, int *from, dtp_solve_result *r)
{
    for (int d = *from; d < 14; d++) {
        dtp_solve_result_free(r);
        x->tied->select->usage_limit = x->plain->select->usage_limit = peak - (peak >> d) - 1;
        *r = solve(x->tied->select);
        if (r->assignment != NULL) {
            *from = d + 1;
            return true;
        }
    }
    return false;
}

static void check_limits(const pair *x, tally *t)
{
    dtp_solve_result r = solve(x->tied->select);
    const int64_t peak = r.value.peak;
    int d = 3;
    check_bound(x, &r, t);
    for (int i = 0; i < N_LIMITS && tighten(x, peak, &d, &r); i++) {
        check_bound(x, &r, t);
    }
    dtp_solve_result_free(&r);
}

static void test_tying__bound_below_the_optimum_without_folding(void **state)
{
    (void)state;
    tally t = {0};
    for (size_t i = 0; i < N_CASES; i++) {
        pair x;
        create(&CASES[i], &x);
        assert_true(dtp_tensor_is_tied(x.tied) == (x.tied->n_variables < x.plain->n_variables));
        assert_false(dtp_tensor_is_tied(x.plain));
        check_limits(&x, &t);
        destroy(&x);
    }
    print_message("%d solved to the end, in %d folding loses, in %d prices lift the bound\n",
                  t.exact, t.lost, t.lifted);
    assert_true(t.exact >= 2 * (int32_t)N_CASES);
    assert_true(t.lost >= 3 && t.lifted >= 3);
}

/* ---- runs ---- */

/* The first limit below what is needed without one that has a solution; *r: that solution. */
static int64_t find_limit(dtp_problem *p, int64_t peak, dtp_solve_result *r)
{
    dtp_solve_result_free(r);
    for (int d = 3; d < 14 && r->assignment == NULL; d++) {
        dtp_solve_result_free(r);
        p->usage_limit = peak - (peak >> d) - 1;
        *r = solve(p);
    }
    return p->usage_limit;
}

/* A solution of so many runs needs no more, and is one of the problem of as many as it needs. */
static void check_needed(const tensor_fixture *f, const dtp_sharding *s, int32_t runs)
{
    enum { MANY = 64 };
    int32_t needed = -1;
    bool found = false;
    assert_int_equal(dtp_runs_needed(f->graph, s, MANY, &needed, NULL), DTP_OK);
    assert_true(needed >= 0 && (runs == 0 || (needed > 0 && needed <= runs)));
    dtp_tensor_options options = dtp_tensor_options_init();
    options.runs = needed;
    dtp_tensor_problem *p = tensor_fixture_problem(f, &options);
    int32_t *selection = malloc(((size_t)p->n_variables + 1) * sizeof *selection);
    assert_non_null(selection);
    assert_int_equal(dtp_tensor_assignment(p, s, selection, &found, NULL), DTP_OK);
    assert_true(found);
    print_message("%s in %d runs: the solution needs %d\n", f->graph->name, runs, needed);
    if (needed > 1) {
        int32_t fewer = -1;
        assert_int_equal(dtp_runs_needed(f->graph, s, needed - 1, &fewer, NULL), DTP_OK);
        assert_int_equal(fewer, 0);
    }
    free(selection);
    dtp_tensor_problem_destroy(p);
}

/* Every run is a run or two of the next problem, so what one decides the next can decide too; its
 * optimum is no worse, and the last is that without tying. */
static void check_runs(const tensor_case *c, bool limited)
{
    enum { MOST = 4 };
    tensor_fixture f;
    int64_t before = INT64_MAX, limit = INT64_MAX / 8;
    int32_t n_variables = 0, *selection = NULL;
    dtp_sharding sharding;
    tensor_fixture_create(c, &f);
    dtp_arena *arena = dtp_arena_create();
    for (int32_t runs = 1; runs <= MOST + 1; runs++) {
        bool found = false;
        dtp_tensor_options options = dtp_tensor_options_init();
        options.runs = runs > MOST ? 0 : runs;
        options.memory_bytes = limit;
        dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
        dtp_solve_result r = solve(p->select);
        if (runs == 1 && limited) {
            const int64_t peak = r.value.peak;
            limit = find_limit(p->select, peak, &r);
        }
        assert_non_null(r.assignment);
        assert_int_equal(r.status, DTP_CERT_OPTIMAL);
        assert_true(p->n_variables >= n_variables && r.value.cost <= before);
        selection = dtp_arena_alloc(arena, (size_t)p->n_variables, sizeof *selection);
        assert_true(runs == 1 || dtp_tensor_assignment(p, &sharding, selection, &found, NULL) == 0);
        assert_true(runs == 1 || found);
        assert_int_equal(dtp_tensor_sharding(p, r.assignment, arena, &sharding, NULL), DTP_OK);
        check_needed(&f, &sharding, options.runs);
        print_message("%s in %d runs: %d choices, %" PRId64 "\n", f.graph->name, options.runs,
                      p->n_variables, r.value.cost);
        n_variables = p->n_variables;
        before = r.value.cost;
        dtp_solve_result_free(&r);
        dtp_tensor_problem_destroy(p);
    }
    dtp_arena_destroy(arena);
    tensor_fixture_destroy(&f);
}

static void test_tying__more_runs_are_no_worse(void **state)
{
    (void)state;
    check_runs(&CASES[3], false);
    check_runs(&CASES[5], true);
    check_runs(&CASES[1], true);
}

/* ---- prices ---- */

/* Numbers that no solver hands out, in no order, and some that it may. */
static int32_t draw_prices(uint64_t *seed, int64_t end, dtp_memory_multiplier prices[16])
{
    static const double odd[] = {0.0, -1.0, 1e300, 1e-300, 1e11, 3.5};
    const int32_t n = (int32_t)tensor_draw(seed, 17);
    for (int32_t i = 0; i < n; i++) {
        const uint64_t kind = tensor_draw(seed, 12);
        prices[i].time = (int64_t)tensor_draw(seed, (uint64_t)end + 40) - 20;
        prices[i].multiplier = kind < 6 ? odd[kind] : ldexp(1.0, (int)tensor_draw(seed, 30) - 15);
    }
    if (n > 2) {
        prices[0].multiplier = (double)NAN;
        prices[1].multiplier = (double)INFINITY;
        prices[2].time = prices[1].time;
    }
    return n;
}

static void test_tying__any_prices_give_a_bound(void **state)
{
    (void)state;
    uint64_t seed = 5;
    pair x;
    create(&CASES[1], &x);
    int d = 3;
    dtp_solve_result r = solve(x.tied->select);
    assert_true(tighten(&x, r.value.peak, &d, &r));
    dtp_solve_result best = solve(x.plain->select);
    assert_int_equal(best.status, DTP_CERT_OPTIMAL);
    for (int i = 0; i < 60; i++) {
        dtp_memory_multiplier prices[16];
        const int32_t n = draw_prices(&seed, 3 * (int64_t)x.f.graph->n_nodes, prices);
        const int64_t bound = bound_at(x.plain, n, prices);
        assert_true(bound >= 0 && bound <= best.value.cost);
    }
    dtp_solve_result_free(&best);
    dtp_solve_result_free(&r);
    destroy(&x);
}

/* The same numbers every time; none where the limit does not matter. */
static void test_tying__prices_of_times(void **state)
{
    (void)state;
    pair x;
    dtp_arena *arena = dtp_arena_create();
    dtp_memory_multiplier *a, *b;
    int32_t n = -1, again = -1;
    int d = 3;
    create(&CASES[1], &x);
    const dtp_problem *p = x.tied->select;
    assert_int_equal(dtp_memory_multipliers(p, PRICE_ROUNDS, arena, &n, &a, NULL), DTP_OK);
    assert_int_equal(n, 0);
    dtp_solve_result r = solve(p);
    assert_true(tighten(&x, r.value.peak, &d, &r));
    assert_int_equal(dtp_memory_multipliers(p, PRICE_ROUNDS, arena, &n, &a, NULL), DTP_OK);
    assert_int_equal(dtp_memory_multipliers(p, PRICE_ROUNDS, arena, &again, &b, NULL), DTP_OK);
    assert_true(n > 0);
    assert_int_equal(n, again);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(a[i].time, b[i].time);
        assert_true(a[i].multiplier > 0.0 && a[i].multiplier >= b[i].multiplier &&
                    a[i].multiplier <= b[i].multiplier);
        assert_true(i == 0 || a[i].time > a[i - 1].time);
    }
    assert_true(bound_at(x.tied, n, a) > bound_at(x.tied, 0, NULL));
    dtp_solve_result_free(&r);
    dtp_arena_destroy(arena);
    destroy(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tying__bound_below_the_optimum_without_folding),
        cmocka_unit_test(test_tying__more_runs_are_no_worse),
        cmocka_unit_test(test_tying__any_prices_give_a_bound),
        cmocka_unit_test(test_tying__prices_of_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
