/* Plans with stages: the selection problem says no more than the programs of all stages need, and
 * no step is shorter than what prunes the search. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cost_models/pipeline.h"
#include "planner/problem/tensors/compute_bound.h"
#include "tests/support/quarter.h"
#include "tests/support/tensor_cases.h"

#define FOUR_LAYERS "batch=16 length=8 vocab=16 layers=4 heads=4 d_head=4"

enum { PER_CASE = 24 };

static const tensor_case CASES[] = {
    {.model = TENSOR_GPT, .mesh = "x:2", .dims = FOUR_LAYERS, .microbatches = 4, .stages = "2"},
    {.model = TENSOR_GPT,
     .mesh = "x:2",
     .dims = FOUR_LAYERS,
     .microbatches = 8,
     .remat = true,
     .stages = "layer:0,1,3",
     .slots = "gpipe"},
    {.model = TENSOR_GPT,
     .mesh = "x:2;y:2",
     .dims = FOUR_LAYERS,
     .microbatches = 4,
     .precision = "bf16,gradients=f32",
     .target = &dtp_target_cuda,
     .stages = "4",
     .slots = "2"},
    {.model = "gpt2_small.json", /* one table on two stages */
     .mesh = "x:2",
     .dims = "batch=16 length=8 vocab=16 layers=4 heads=2 d_head=4",
     .microbatches = 4,
     .remat = true,
     .target = &dtp_target_cuda,
     .stages = "2"},
    {.model = "mixtral_8x7b.json",
     .mesh = "x:2",
     .dims = "batch=16 length=8 vocab=16 layers=4 d_head=4 kv_heads=2 d_ff=16 experts=4",
     .microbatches = 4,
     .stages = "2",
     .slots = "3"},
    {.model = TENSOR_GPT,
     .mesh = "x:2",
     .dims = FOUR_LAYERS,
     .microbatches = 8,
     .remat = true,
     .stages = "2x2"},
    {.model = "gpt2_small.json",
     .mesh = "x:2",
     .dims = "batch=16 length=8 vocab=16 layers=8 heads=2 d_head=4",
     .microbatches = 4,
     .precision = "bf16,gradients=f32",
     .target = &dtp_target_cuda,
     .stages = "2x4",
     .slots = "gpipe"}};

typedef struct tally {
    int32_t tried;
    double memory, cost; /* sums of what the problem says by what the programs have */
} tally;

static void check_selection(const tensor_fixture *f, const dtp_tensor_problem *p,
                            const int32_t *selection, double bound_s, tally *t)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_sharding s;
    dtp_problem_value value;
    dtp_prediction predicted;
    dtp_lower_options options = dtp_lower_options_init(f->redistributor);
    dtp_err err = {0};
    int64_t cost = 0;
    options.target = f->pricer.target;
    assert_int_equal(dtp_problem_evaluate(p->select, selection, &value, NULL), DTP_OK);
    dtp_status st = dtp_tensor_sharding(p, selection, arena, &s, &err);
    st = st == DTP_OK
             ? dtp_pipeline_choose(f->graph, &f->pricer, &s, &options, &predicted, &cost, &err)
             : st;
    if (st != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    if (value.cost > cost || value.peak > predicted.peak_bytes) {
        fail_msg("programs cost %" PRId64 " and need %" PRId64 " bytes, the problem says %" PRId64
                 " and %" PRId64,
                 cost, predicted.peak_bytes, value.cost, value.peak);
    }
    assert_true(bound_s <= predicted.step_time_s);
    t->tried++;
    t->memory += (double)value.peak / (double)predicted.peak_bytes;
    t->cost += (double)value.cost / (double)cost;
    dtp_arena_destroy(arena);
}

static double bound_of(const tensor_fixture *f)
{
    double all_s = 0.0, update_s = 0.0;
    assert_int_equal(dtp_compute_bound(f->graph, &f->pricer, &all_s, &update_s, NULL), DTP_OK);
    assert_true(all_s > update_s);
    return f->graph->stages->n_chunks > f->graph->stages->n
               ? (all_s - update_s) / f->graph->stages->n
               : dtp_stages_bound(all_s - update_s, f->graph->microbatches, f->graph->stages->n);
}

static void test_problem__says_no_more_than_programs_of_stages_need(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        tensor_fixture f;
        tally t = {0};
        uint64_t seed = 7 + i;
        tensor_fixture_create(&CASES[i], &f);
        const dtp_tensor_options options = dtp_tensor_options_init();
        dtp_tensor_problem *p = tensor_fixture_problem(&f, &options);
        int32_t *selection = calloc((size_t)p->n_variables, sizeof *selection);
        assert_non_null(selection);
        const double bound_s = bound_of(&f);
        for (int32_t k = 0; k < PER_CASE; k++) {
            if (tensor_random_selection(p, &seed, selection) && quarter_has(k, PER_CASE)) {
                check_selection(&f, p, selection, bound_s, &t);
            }
        }
        print_message("%.20s, stages %s: %d selections, peak %.3f, cost %.3f of the programs'\n",
                      CASES[i].model, CASES[i].stages, t.tried, t.memory / t.tried,
                      t.cost / t.tried);
        assert_true(t.tried >= quarter_of(PER_CASE / 2));
        assert_true(t.memory / t.tried > 0.5);
        assert_true(t.cost / t.tried > 0.95);
        free(selection);
        dtp_tensor_problem_destroy(p);
        tensor_fixture_destroy(&f);
    }
}

/* One stage: the sum. Many microbatches: a share for each. Against the least of many divisions. */
static void test_bound__holds_for_all_borders(void **state)
{
    (void)state;
    uint64_t seed = 3;
    assert_true(fabs(dtp_stages_bound(6.0, 3, 1) - 6.0) < 1e-12);
    for (int32_t k = 0; k < 2000; k++) {
        const int32_t n = 1 + (int32_t)tensor_draw(&seed, 6),
                      m = 1 + (int32_t)tensor_draw(&seed, 9);
        double work[6], sum = 0.0, before = 0.0, step = 0.0;
        for (int32_t s = 0; s < n; s++) {
            work[s] = 1.0 + (double)tensor_draw(&seed, 1000);
            sum += work[s];
        }
        for (int32_t s = 0; s < n; s++) {
            const double own = m * work[s] + before;
            step = own > step ? own : step;
            before += work[s];
        }
        assert_true(dtp_stages_bound(sum * m, m, n) <= step * (1.0 + 1e-12));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_problem__says_no_more_than_programs_of_stages_need),
        cmocka_unit_test(test_bound__holds_for_all_borders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
