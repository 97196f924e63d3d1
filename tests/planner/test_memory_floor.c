/* What any plan needs, against programs: no baseline, and no plan with the least memory, needs less
 * than the floor; on one rank, where layouts choose nothing, it comes near. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/baselines/baselines.h"
#include "planner/memory_floor.h"
#include "tests/support/tensor_cases.h"

static const tensor_case CASES[] = {
    {.model = TENSOR_MLP, .mesh = "x:4", .dims = TENSOR_MLP_DIMS},
    {.model = TENSOR_MLP, .mesh = "x:2;y:2", .dims = TENSOR_MLP_DIMS, .microbatches = 2},
    {.model = TENSOR_GPT, .mesh = "x:2;y:2", .dims = TENSOR_GPT_DIMS, .precision = "bf16"},
    {.model = TENSOR_GPT, .mesh = "x:4", .dims = TENSOR_GPT_DIMS, .remat = true},
    {.model = TENSOR_GPT, .mesh = "x:2", .dims = TENSOR_GPT_DIMS, .precision = "f16"},
    {.model = "mixtral_8x7b.json",
     .mesh = "x:4",
     .dims = "layers=1 batch=4 length=32",
     .precision = "bf16"},
    {.model = "vit_b16.json", .mesh = "x:8", .dims = "layers=2 batch=8"},
    {.model = "gpt2_small.json", .mesh = "x:2;y:2", .dims = "layers=2 batch=8", .microbatches = 4},
};
enum { N_CASES = sizeof CASES / sizeof CASES[0] };

static dtp_memory_floor floor_of(const tensor_fixture *f)
{
    dtp_memory_floor floor;
    int64_t sum = 0;
    assert_int_equal(dtp_memory_floor_find(f->graph, f->pricer.target,
                                           dtp_mesh_ranks(&f->pricer.mesh), &floor, NULL),
                     DTP_OK);
    for (int32_t k = 0; k < DTP_N_MEMORY_USES; k++) {
        sum += floor.of[k];
    }
    assert_true(floor.bytes > 0);
    assert_int_equal(sum, floor.bytes);
    return floor;
}

static int32_t check_baselines(const tensor_fixture *f, int64_t floor)
{
    const dtp_baseline_options options = {.machine = dtp_redistributor_generic(),
                                          .generic = dtp_redistributor_generic()};
    dtp_arena *arena = dtp_arena_create();
    dtp_candidate *list;
    int32_t n, legal = 0;
    assert_int_equal(dtp_baselines_create(f->graph, &f->pricer, &options, arena, &n, &list, NULL),
                     DTP_OK);
    for (int32_t i = 0; i < n; i++) {
        if (list[i].legal) {
            assert_true(list[i].predicted.peak_bytes >= floor);
            legal++;
        }
    }
    dtp_arena_destroy(arena);
    return legal;
}

/* The plan with the least memory; a limit below the floor is refused at once, by it. */
static double check_least(const tensor_fixture *f, int64_t floor)
{
    dtp_plan_request request = tensor_fixture_request(f);
    request.options.objective = DTP_OBJECTIVE_MEMORY;
    dtp_plan_result r = tensor_fixture_plan(f, &request);
    assert_non_null(r.plan);
    const int64_t least = r.plan->predicted.peak_bytes;
    assert_true(least >= floor);
    dtp_plan_result_free(&r);
    request.options.memory_limit_bytes = floor - 1;
    r = tensor_fixture_plan(f, &request);
    assert_true(r.infeasible && r.needs != NULL && r.smallest_bound == floor);
    assert_non_null(strstr(r.needs, " of parameters"));
    dtp_plan_result_free(&r);
    return (double)floor / (double)least;
}

static void test_memory_floor__no_program_needs_less(void **state)
{
    (void)state;
    const dtp_target *target;
    int32_t legal = 0, n = 0;
    double part = 0.0;
    for (int32_t t = 0; (target = dtp_target_at(t)) != NULL; t++) {
        for (int32_t i = 0; i < N_CASES; i++) {
            tensor_fixture f;
            tensor_case c = CASES[i];
            c.target = target;
            tensor_fixture_create(&c, &f);
            const dtp_memory_floor floor = floor_of(&f);
            legal += check_baselines(&f, floor.bytes);
            if (i < 2) {
                part += check_least(&f, floor.bytes);
                n++;
            }
            tensor_fixture_destroy(&f);
        }
    }
    print_message("%d baselines; the floor is %.3f of the least that plans need\n", legal,
                  part / n);
    assert_true(legal > 100 && part / n > 0.4);
}

static void test_memory_floor__is_near_on_one_rank(void **state)
{
    (void)state;
    const tensor_case c = {.model = "gpt2_small.json", .mesh = "x:1", .dims = "layers=2 batch=2"};
    tensor_fixture f;
    tensor_fixture_create(&c, &f);
    const double part = check_least(&f, floor_of(&f).bytes);
    print_message("%.3f\n", part);
    assert_true(part > 0.9);
    tensor_fixture_destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_floor__no_program_needs_less),
        cmocka_unit_test(test_memory_floor__is_near_on_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
