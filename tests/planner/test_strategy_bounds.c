/* Bounds of single options (planner/tensors/strategy_bounds.h) against the optimum with the option:
 * by elimination without a memory limit, by branch and bound with one. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/solver/multipliers.h"
#include "planner/tensors/strategy_bounds.h"
#include "planner/tensors/plan_bounds.h"
#include "tests/solver/elimination.h"
#include "tests/support/tensor_cases.h"

enum { PRICE_ROUNDS = 1700, SAMPLES = 60, MOST = 200 };

typedef struct subject {
    tensor_fixture f;
    dtp_tensor_problem *problem;
    dtp_arena *arena;
    dtp_strategy_bounds bounds;
    int64_t *cost; /* of the strategies, as they were */
} subject;

/* What was compared: options of which the bound says something, and those of which it could. */
typedef struct tally {
    int32_t options, dearer, told, exact;
} tally;

static void create(const tensor_case *c, int32_t runs, subject *x)
{
    dtp_tensor_options options = dtp_tensor_options_init();
    options.runs = runs;
    tensor_fixture_create(c, &x->f);
    x->problem = tensor_fixture_problem(&x->f, &options);
    x->arena = dtp_arena_create();
    const dtp_problem *s = x->problem->select;
    const size_t n = (size_t)s->first[s->n_variables];
    x->cost = malloc(n * sizeof *x->cost);
    assert_true(x->arena != NULL && x->cost != NULL);
    memcpy(x->cost, s->cost, n * sizeof *x->cost);
}

static void destroy(subject *x)
{
    free(x->cost);
    dtp_arena_destroy(x->arena);
    dtp_tensor_problem_destroy(x->problem);
    tensor_fixture_destroy(&x->f);
}

static void find_bounds(subject *x, int32_t n_prices, const dtp_memory_multiplier *prices)
{
    dtp_err err = {0};
    if (dtp_tensor_option_bounds(x->problem, n_prices, prices, x->arena, &x->bounds, &err) !=
        DTP_OK) {
        fail_msg("%s", err.msg);
    }
    assert_true(x->bounds.base >= 0);
}

/* Only option k of assignment v can be chosen; v = -1: all. */
static void pin(subject *x, int32_t v, int64_t k)
{
    dtp_problem *s = x->problem->select;
    memcpy(s->cost, x->cost, (size_t)s->first[s->n_variables] * sizeof *s->cost);
    for (int64_t i = v >= 0 ? s->first[v] : 0; i < (v >= 0 ? s->first[v + 1] : 0); i++) {
        s->cost[i] = i == k ? s->cost[i] : DTP_FORBIDDEN;
    }
}

static void compare(const subject *x, int64_t k, int64_t best, int64_t with_option, tally *t)
{
    const int64_t above = x->bounds.above[k];
    const int64_t bound = x->bounds.base + above;
    assert_true(above >= 0 && x->bounds.base <= best);
    assert_true(with_option >= DTP_FORBIDDEN || bound <= with_option);
    t->options++;
    t->dearer += with_option > best ? 1 : 0;
    t->told += with_option > best && bound > best ? 1 : 0;
    t->exact += bound == with_option ? 1 : 0;
}

static void report(const subject *x, const char *mesh, int64_t best, const tally *t)
{
    print_message("%s on %s: base %" PRId64 " <= optimum %" PRId64
                  "; of %d options %d are dearer, %d of these by their bounds; %d exact\n",
                  x->f.graph->name, mesh, x->bounds.base, best, t->options, t->dearer, t->told,
                  t->exact);
    assert_true(t->dearer > 0 && t->told > t->dearer / 2);
}

/* ---- without a limit ----------------------------------------------------------------------------
 */

static void check_all(const tensor_case *c, int32_t runs)
{
    subject x;
    tally t = {0};
    create(c, runs, &x);
    find_bounds(&x, 0, NULL);
    const dtp_problem *s = x.problem->select;
    const int64_t best = elimination_optimum(s, NULL);
    const int64_t step = s->first[s->n_variables] / MOST + 1;
    for (int32_t v = 0; v < s->n_variables; v++) {
        for (int64_t k = s->first[v]; k < s->first[v + 1]; k++) {
            if (k % step == 0) {
                pin(&x, v, k);
                compare(&x, k, best, elimination_optimum(s, NULL), &t);
            }
        }
    }
    report(&x, c->mesh, best, &t);
    destroy(&x);
}

static void test_strategy_bounds__below_the_optimum_with_the_option(void **state)
{
    (void)state;
    check_all(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:2", .dims = TENSOR_MLP_DIMS}, 1);
    check_all(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS}, 1);
    check_all(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS}, 1);
    check_all(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS}, 0);
    check_all(&(tensor_case){.model = TENSOR_GPT,
                             .mesh = "x:4",
                             .dims = TENSOR_GPT_DIMS,
                             .remat = true,
                             .microbatches = 2},
              1);
}

/* ---- with a limit -------------------------------------------------------------------------------
 */

/* DTP_FORBIDDEN: proven that there is none; -1: not solved to the end. */
static int64_t optimum_within(const dtp_problem *s)
{
    const dtp_solve_options options = dtp_solve_options_init();
    dtp_solve_result r;
    assert_int_equal(dtp_solve(s, &options, &r, NULL), DTP_OK);
    const int64_t cost = r.status == DTP_CERT_OPTIMAL      ? r.value.cost
                         : r.status == DTP_CERT_INFEASIBLE ? DTP_FORBIDDEN
                                                           : -1;
    dtp_solve_result_free(&r);
    return cost;
}

static void check_limited(const tensor_case *c, uint64_t seed)
{
    subject x;
    tally t = {0};
    int32_t n = 0;
    dtp_memory_multiplier *prices;
    dtp_solve_result r;
    create(c, 1, &x);
    dtp_problem *s = x.problem->select;
    tensor_solve_limited(s, &r);
    assert_int_equal(dtp_memory_multipliers(s, PRICE_ROUNDS, x.arena, &n, &prices, NULL), DTP_OK);
    assert_true(n > 0);
    print_message("seed %" PRIu64 ", %d prices of times\n", seed, n);
    find_bounds(&x, n, prices);
    for (int i = 0; i < SAMPLES; i++) {
        const int32_t v = (int32_t)tensor_draw(&seed, (uint64_t)s->n_variables);
        const int64_t k =
            s->first[v] + (int64_t)tensor_draw(&seed, (uint64_t)dtp_problem_n_strategies(s, v));
        pin(&x, v, k);
        const int64_t with_option = optimum_within(s);
        if (with_option >= 0) {
            compare(&x, k, r.value.cost, with_option, &t);
        }
    }
    print_message("limit %" PRId64 ": ", s->usage_limit);
    report(&x, c->mesh, r.value.cost, &t);
    assert_true(t.options >= SAMPLES / 2);
    dtp_solve_result_free(&r);
    destroy(&x);
}

static void test_strategy_bounds__within_a_limit(void **state)
{
    (void)state;
    check_limited(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:4", .dims = TENSOR_MLP_DIMS}, 5);
    check_limited(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS}, 6);
}

/* ---- which are near -----------------------------------------------------------------------------
 */

static void test_strategy_bounds__the_nearest_are_kept(void **state)
{
    (void)state;
    int32_t first[] = {0, 3, 5}, above[] = {7, DTP_PLAN_MOST_ABOVE, 0, 3, 7};
    const dtp_plan_strategy_bounds b = {
        .n = 2, .cost_ps = 1040, .base_ps = 1000, .unit_ps = 10, .first = first, .above = above};
    static const struct {
        int32_t most;
        int64_t others;
        bool keep[5];
    } cases[] = {
        {1, 1000, {false, false, true, false, false}},
        {2, 1030, {false, false, true, true, false}},
        {3, 1070, {true, false, true, true, true}},
        {5, INT64_MAX, {true, true, true, true, true}},
        {99, INT64_MAX, {true, true, true, true, true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool keep[5] = {false};
        assert_int_equal(dtp_plan_bounds_keep(&b, cases[i].most, keep), cases[i].others);
        assert_memory_equal(keep, cases[i].keep, sizeof keep);
    }
    assert_int_equal(dtp_plan_bound_at(&b, 1, 0), 1030);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strategy_bounds__below_the_optimum_with_the_option),
        cmocka_unit_test(test_strategy_bounds__within_a_limit),
        cmocka_unit_test(test_strategy_bounds__the_nearest_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
