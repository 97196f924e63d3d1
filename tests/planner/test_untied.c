/* The bound by dual ascent alone (dtp_dual_bound) of the problem in which every instance of a
 * repeated block decides for itself, against its optimum by elimination. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/solver/dual_bound.h"
#include "tests/solver/elimination.h"
#include "tests/support/tensor_cases.h"

static int64_t bound_of(const dtp_tensor_problem *p, int64_t rounds, int32_t n,
                        const dtp_memory_multiplier *multipliers)
{
    int64_t bound = -1;
    dtp_err err = {0};
    const dtp_dual_start start = {.n_multipliers = n, .multipliers = multipliers};
    if (dtp_dual_bound(p->select, &start, rounds, &bound, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return bound;
}

static void check_bound(const tensor_case *c)
{
    tensor_fixture f;
    dtp_tensor_options options = dtp_tensor_options_init();
    tensor_fixture_create(c, &f);
    dtp_tensor_problem *tied = tensor_fixture_problem(&f, &options);
    options.runs = 0;
    dtp_tensor_problem *plain = tensor_fixture_problem(&f, &options);
    const int64_t best = elimination_optimum(plain->select, NULL),
                  together = elimination_optimum(tied->select, NULL);
    const int64_t start = bound_of(plain, 0, 0, NULL), bound = bound_of(plain, 60, 0, NULL);
    print_message("%s on %s: bound %" PRId64 " <= untied %" PRId64 " <= folded %" PRId64 "\n",
                  f.graph->name, c->mesh, bound, best, together);
    assert_true(start <= best && bound <= best && best <= together);
    assert_true(start <= bound && bound > best - best / 20);
    assert_true(together == best || plain->select->n_stored < dtp_problem_n_entries(plain->select));
    assert_true(bound_of(tied, 60, 0, NULL) <= together);
    dtp_tensor_problem_destroy(tied);
    dtp_tensor_problem_destroy(plain);
    tensor_fixture_destroy(&f);
}

static void test_untied__bound_without_folding(void **state)
{
    (void)state;
    check_bound(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS});
    check_bound(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS});
    check_bound(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS});
}

/* Whatever the prices of times are, under a limit the bound holds; good ones lift it. */
static void test_untied__bound_under_a_limit(void **state)
{
    (void)state;
    tensor_fixture f;
    uint64_t seed = 9;
    dtp_tensor_options options = dtp_tensor_options_init();
    dtp_solve_result r;
    tensor_fixture_create(
        &(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS}, &f);
    options.runs = 0;
    dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
    tensor_solve_limited(p->select, &r);
    const int64_t peak_at = r.value.peak_at;
    const int64_t without = bound_of(p, 40, 0, NULL);
    int64_t best = 0;
    for (int k = 0; k < 12; k++) {
        dtp_memory_multiplier prices[3] = {{peak_at, (double)(1 << k)}};
        for (int i = 1; i < 3; i++) {
            prices[i].time = (int64_t)tensor_draw(&seed, 3 * (uint64_t)f.graph->n_nodes);
            prices[i].multiplier = (double)tensor_draw(&seed, 100) / 10;
        }
        const int64_t one = bound_of(p, 40, 1, prices);
        const int64_t all = bound_of(p, 40, 3, prices);
        assert_true(one <= r.value.cost && all <= r.value.cost);
        best = one > best ? one : best;
    }
    print_message("without prices %" PRId64 ", with %" PRId64 " <= %" PRId64 "\n", without, best,
                  r.value.cost);
    assert_true(best > without);
    dtp_solve_result_free(&r);
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_untied__bound_without_folding),
        cmocka_unit_test(test_untied__bound_under_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
