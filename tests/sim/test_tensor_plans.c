/* Selections of tensor mode as programs on virtual ranks: they compute what one device computes.
 * The best selection without and with a tight memory limit, and random ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "planner/candidate.h"
#include "planner/select/solve.h"
#include "tests/oracle/tensor_cases.h"
#include "tests/sim/verify_case.h"

static const double TOLERANCE = 5e-5;

static void verify(const tensor_fixture *f, const dtp_tensor_problem *p, const int32_t *selection,
                   const char *what)
{
    verify_case c = verify_case_init(what);
    dtp_arena *arena = dtp_arena_create();
    dtp_lower_options options = dtp_lower_options_init();
    dtp_sharding s;
    dtp_err err = {0};
    options.redistributor = dtp_tensor_redistributor(p);
    c.options.reference_graph = f->model;
    c.options.tolerance = TOLERANCE;
    c.options.steps = 2;
    if (dtp_tensor_sharding(p, selection, arena, &s, &err) != DTP_OK) {
        fail_msg("%s: %s", what, err.msg);
    }
    verify_sharding(f->graph, &s, &options, &c);
    dtp_arena_destroy(arena);
}

/* Solves within a limit (0: none) and runs the answer; returns its peak. */
static int64_t check_best(const tensor_fixture *f, dtp_tensor_problem *p, int64_t limit,
                          const char *what)
{
    const dtp_select_options options = dtp_select_options_init();
    dtp_select_result r;
    const int64_t none = p->select->usage_limit;
    p->select->usage_limit = limit > 0 ? limit : none;
    assert_int_equal(dtp_select_solve(p->select, &options, &r, NULL), DTP_OK);
    p->select->usage_limit = none;
    assert_true(r.choice != NULL || limit > 0);
    const int64_t peak = r.choice != NULL ? r.value.peak : 0;
    if (r.choice != NULL) {
        verify(f, p, r.choice, what);
    }
    dtp_select_result_free(&r);
    return peak;
}

static void check_case(const tensor_case *c, int32_t n_random)
{
    tensor_fixture f;
    uint64_t seed = 17;
    tensor_fixture_create(c, &f);
    dtp_tensor_problem *p = tensor_fixture_problem(&f, NULL);
    int32_t *selection = calloc((size_t)p->n_choices, sizeof *selection);
    assert_non_null(selection);
    const int64_t peak = check_best(&f, p, 0, c->mesh);
    (void)check_best(&f, p, peak * 9 / 10, c->mesh);
    for (int32_t k = 0; k < n_random; k++) {
        if (tensor_random_selection(p, &seed, selection)) {
            verify(&f, p, selection, c->mesh);
        }
    }
    free(selection);
    dtp_tensor_problem_destroy(p);
    tensor_fixture_destroy(&f);
}

static void test_tensor_plans__mlp(void **state)
{
    (void)state;
    check_case(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:2", .dims = TENSOR_MLP_DIMS}, 20);
    check_case(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:4", .dims = TENSOR_MLP_DIMS}, 20);
    check_case(&(tensor_case){.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS}, 20);
}

static void test_tensor_plans__gpt(void **state)
{
    (void)state;
    check_case(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS}, 8);
    check_case(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS}, 8);
    check_case(&(tensor_case){.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS}, 8);
}

static void test_tensor_plans__microbatches_and_recomputation(void **state)
{
    (void)state;
    check_case(
        &(tensor_case){
            .model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS, .microbatches = 2},
        20);
    check_case(
        &(tensor_case){.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS, .remat = true},
        6);
    check_case(
        &(tensor_case){
            .model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS, .microbatches = 4},
        6);
    check_case(&(tensor_case){.model = TENSOR_GPT,
                              .mesh = "x:2;y:2",
                              .dims = TENSOR_GPT_DIMS,
                              .remat = true,
                              .microbatches = 2},
               6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_plans__mlp),
        cmocka_unit_test(test_tensor_plans__gpt),
        cmocka_unit_test(test_tensor_plans__microbatches_and_recomputation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
