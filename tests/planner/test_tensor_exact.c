/* Tensor mode against exhaustive search over its own strategy space, for an MLP and two layers of
 * a GPT that train: the optimum by elimination (elimination.h), under a memory limit that of all
 * selections near the bound (limit_search.h); where these are too many, all changes of a few
 * variables at a time. The bound of a plan's certificate is that optimum, too. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/solver/elimination.h"
#include "tests/solver/limit_search.h"
#include "tests/support/tensor_cases.h"
#include "tests/support/quarter.h"

/* ---- without a limit ---- */

/* No plan of the mode that treats the instances of a block alike costs less than the bound. */
static void check_certificate(const tensor_fixture *f, int64_t optimum)
{
    const dtp_plan_request request = tensor_fixture_request(f);
    dtp_plan_result r = tensor_fixture_plan(f, &request);
    assert_non_null(r.plan);
    assert_int_equal(r.plan->certificate.bound, optimum);
    assert_true(r.plan->certificate.cost >= optimum);
    assert_true(r.plan->certificate.status != DTP_CERT_OPTIMAL ||
                r.plan->certificate.cost == optimum);
    dtp_plan_result_free(&r);
}

static void check_optimum(int i, const tensor_case *c, bool tie)
{
    tensor_fixture f;
    int64_t cells;
    dtp_tensor_options options = dtp_tensor_options_init();
    if (!quarter_has(i, 18)) {
        return;
    }
    options.runs = tie ? 1 : 0;
    tensor_fixture_create(c, &f);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
    const int64_t want = elimination_optimum(p->select, &cells);
    print_message("%s on %s%s: %d choices, %" PRId64 " cells, %" PRId64 " ps\n", f.graph->name,
                  c->mesh, tie ? ", folded" : "", p->n_variables, cells, want);
    assert_int_equal(tensor_optimum(p->select), want);
    if (tie) {
        check_certificate(&f, want);
    }
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
}

static void test_tensor_exact__equals_elimination(void **state)
{
    (void)state;
    static const char *const meshes[] = {"x:2", "x:4", "x:2;y:2"};
    for (int i = 0; i < 3; i++) {
        const tensor_case mlp = {.model = TENSOR_MLP, .mesh = meshes[i], .dims = TENSOR_MLP_DIMS};
        const tensor_case gpt = {.model = TENSOR_GPT, .mesh = meshes[i], .dims = TENSOR_GPT_DIMS};
        check_optimum(4 * i, &mlp, false);
        check_optimum(4 * i + 1, &mlp, true);
        check_optimum(4 * i + 2, &gpt, false);
        check_optimum(4 * i + 3, &gpt, true);
        const tensor_case fused[] = {{.model = TENSOR_MLP,
                                      .mesh = meshes[i],
                                      .dims = TENSOR_MLP_DIMS,
                                      .target = &dtp_target_cuda,
                                      .precision = "f16"},
                                     {.model = TENSOR_GPT,
                                      .mesh = meshes[i],
                                      .dims = TENSOR_GPT_DIMS,
                                      .target = &dtp_target_cuda,
                                      .precision = "bf16"}};
        check_optimum(12 + 2 * i, &fused[0], true);
        check_optimum(13 + 2 * i, &fused[1], true);
    }
}

/* ---- under a limit ---- */

/* The limit lies below what the optimum without one uses, by one part in `parts`. */
static void check_limit(const tensor_case *c, int64_t parts)
{
    tensor_fixture f;
    dtp_solve_result r;
    const dtp_solve_options solver = dtp_solve_options_init();
    const limit_options options = limit_options_init();
    tensor_fixture_create(c, &f);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, NULL);
    assert_int_equal(dtp_solve(p->select, &solver, &r, NULL), DTP_OK);
    const int64_t without = r.value.cost;
    p->select->usage_limit = r.value.peak - r.value.peak / parts - 1;
    dtp_solve_result_free(&r);
    assert_int_equal(dtp_solve(p->select, &solver, &r, NULL), DTP_OK);
    assert_non_null(r.assignment);
    const limit_result want = limit_search(p->select, &options);
    print_message("%s on %s, limit %" PRId64 ": %" PRId64 " ps, without %" PRId64 "; from %" PRId64
                  " on, %" PRId64 " partial selections\n",
                  f.graph->name, c->mesh, p->select->usage_limit, want.cost, without, want.bound,
                  want.visited);
    assert_true(want.found && want.cost > without);
    assert_int_equal(r.status, DTP_CERT_OPTIMAL);
    assert_int_equal(r.value.cost, want.cost);
    dtp_solve_result_free(&r);
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
}

static void test_tensor_exact__equals_all_selections_within_a_limit(void **state)
{
    (void)state;
    static const char wide[] = "batch=32 pixels=8 hidden=16 classes=8";
    static const char tall[] = "batch=16 pixels=16 hidden=8 classes=4";
    static const struct {
        const char *mesh, *dims;
        int64_t parts;
    } cases[] = {{"x:2", TENSOR_MLP_DIMS, 16}, {"x:4", TENSOR_MLP_DIMS, 8},
                 {"x:4", TENSOR_MLP_DIMS, 16}, {"x:2;y:2", tall, 16},
                 {"x:2;y:2", tall, 64},        {"x:2;y:2", wide, 4},
                 {"x:2;y:2", wide, 8},         {"x:2;y:2", wide, 16}};
    for (int i = 0; i < 8; i++) {
        const tensor_case c = {.model = TENSOR_MLP, .mesh = cases[i].mesh, .dims = cases[i].dims};
        if (quarter_has(i, 8)) {
            check_limit(&c, cases[i].parts);
        }
    }
}

enum { CHANGED = 3, TRIES = 20 };

/* All strategies of a few variables, the rest as it is: nothing that fits is cheaper. */
static void check_changes(const dtp_problem *p, const dtp_solve_result *r, uint64_t seed)
{
    int32_t *assignment = malloc((size_t)p->n_variables * sizeof *assignment), at[CHANGED], i = 0;
    assert_non_null(assignment);
    memcpy(assignment, r->assignment, (size_t)p->n_variables * sizeof *assignment);
    for (int k = 0; k < CHANGED; k++) {
        const int32_t third = p->n_variables / CHANGED; /* one of every third: distinct */
        at[k] = k * third + (int32_t)tensor_draw(&seed, (uint64_t)third);
        assignment[at[k]] = 0;
    }
    while (i < CHANGED) {
        dtp_problem_value value;
        assert_int_equal(dtp_problem_evaluate(p, assignment, &value, NULL), DTP_OK);
        assert_true(!value.feasible || value.cost >= r->value.cost);
        for (i = 0; i < CHANGED; i++) {
            assignment[at[i]] = (assignment[at[i]] + 1) % dtp_problem_n_strategies(p, at[i]);
            if (assignment[at[i]] != 0) {
                break;
            }
        }
    }
    free(assignment);
}

static void test_tensor_exact__nothing_better_near_the_optimum_under_a_limit(void **state)
{
    (void)state;
    static const tensor_case cases[] = {
        {.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS},
        {.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS},
        {.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tensor_fixture f;
        dtp_solve_result r;
        tensor_fixture_create(&cases[i], &f);
        dtp_tensor_problem *p = tensor_fixture_problem(&f, NULL);
        tensor_solve_limited(p->select, &r);
        for (uint64_t k = 0; k < TRIES; k++) {
            if (quarter_has((int64_t)k, TRIES)) {
                check_changes(p->select, &r, 21 + TRIES * i + k);
            }
        }
        dtp_solve_result_free(&r);
        dtp_tensor_problem_destroy(p);
        tensor_fixture_destroy(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_exact__equals_elimination),
        cmocka_unit_test(test_tensor_exact__equals_all_selections_within_a_limit),
        cmocka_unit_test(test_tensor_exact__nothing_better_near_the_optimum_under_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
