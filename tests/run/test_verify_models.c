/* Every model of models/ in a small size on virtual ranks against one device, data parallel by
 * rules and planned: in f32, and in 16 bits on the reference backend. With the argument "all" in
 * f32 under more plans. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/plan_case.h"
#include "tests/support/plan_models.h"

#define BYTES .text = true

/* Mixtral twice: with eight experts some have hardly any gradient, which Adam makes full steps of.
 */
static const plan_model MODELS[] = {
    {.file = "models/mlp_digits.json"},
    {.file = "models/gpt_bytes.json", .dims = SMALL_GPT_BYTES, BYTES},
    {.file = "models/gpt_bytes_dropout.json", .dims = SMALL_GPT_BYTES, BYTES},
    {.file = "models/gpt2_small.json", .dims = SMALL_GPT "positions=16"},
    {.file = "models/gpt3_175b.json", .dims = SMALL_GPT},
    {.file = "models/mtf_lm.json", .dims = SMALL_MTF},
    {.file = "models/llama3_8b.json", .dims = SMALL_LLAMA},
    {.file = "models/llama3_70b.json", .dims = SMALL_LLAMA},
    {.file = "models/mixtral_8x7b.json", .dims = SMALL_LLAMA "experts=4 capacity=3"},
    {.file = "models/gpt_bytes_experts.json",
     .dims = SMALL_GPT_BYTES " experts=4 capacity=3",
     BYTES},
    {.file = "models/mixtral_8x7b_index.json", .dims = SMALL_LLAMA "experts=4 capacity=3"},
    {.file = "models/bert_large.json", .dims = SMALL_BERT},
    {.file = "models/vit_b16.json", .dims = SMALL_VIT},
    {.file = "tests/run/imported.json"},
    {.file = "tests/run/convs.json"},
    {.file = "models/mixtral_8x7b.json",
     .dims = "batch=4 layers=4 length=32 vocab=128 kv_heads=2 group=2 d_head=16 d_ff=96 experts=8 "
             "capacity=10"},
};
enum { N_MODELS = sizeof MODELS / sizeof MODELS[0] };

static const plan_row DATA_2 = {
    .mesh = "x:2", .machine = "h100_64", .options = {.rules = "batch:x"}};
static const plan_row RULES_2X2 = {
    .mesh = "x:2;y:2", .machine = "l4_16", .options = {.objective = DTP_OBJECTIVE_MEMORY}};
static const plan_row MORE[] = {
    {.mesh = "x:4", .machine = "h100_64", .options = {.rules = "batch:x"}},
    {.mesh = "x:2", .machine = "cpu_2", .options = {.mode = DTP_PLAN_RULES}},
    {.mesh = "x:2", .machine = "h100_64", .options = {.objective = DTP_OBJECTIVE_MEMORY}},
    {.mesh = "x:2", .machine = "cpu_2", .options = {.mode = DTP_PLAN_TENSOR}},
    {.mesh = "x:2",
     .machine = "h100_64",
     .options = {.mode = DTP_PLAN_TENSOR, .objective = DTP_OBJECTIVE_MEMORY}},
    {.mesh = "x:2;y:2",
     .machine = "l4_16",
     .options = {.mode = DTP_PLAN_TENSOR, .objective = DTP_OBJECTIVE_MEMORY}},
};
static bool all; /* of the plans */

static void verify_row(const one_device *d, const plan_row *row)
{
    const char *what = plan_name(d, row);
    dtp_plan *plan = plan_make(d, row);
    dtp_verify_result r = plan_verify(d, plan, what);
    print_message("%s: largest error %.2e\n", what, r.max_rel_err);
    dtp_verify_result_free(&r);
    dtp_plan_destroy(plan);
}

static void test_models__in_f32(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_MODELS; i++) {
        one_device d;
        one_device_open(&MODELS[i], &d);
        verify_row(&d, &DATA_2);
        verify_row(&d, &RULES_2X2);
        for (size_t k = 0; all && k < sizeof MORE / sizeof MORE[0]; k++) {
            verify_row(&d, &MORE[k]);
        }
        one_device_close(&d);
    }
}

/* One step. Not with eight experts: a rounding that changes which are chosen is no small error. */
static void verify_half(const char *precision, const plan_row *row)
{
    for (int i = 0; i < N_MODELS - 1; i++) {
        one_device d;
        plan_model half = MODELS[i];
        half.precision = precision;
        half.backend = "ref";
        half.steps = 1;
        one_device_open(&half, &d);
        verify_row(&d, row);
        one_device_close(&d);
    }
}

static void test_models__in_bf16(void **unused)
{
    (void)unused;
    verify_half("bf16", &DATA_2);
}

static void test_models__in_f16_with_gradients_in_f32(void **unused)
{
    (void)unused;
    verify_half("f16,gradients=f32", &RULES_2X2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models__in_f32),
        cmocka_unit_test(test_models__in_bf16),
        cmocka_unit_test(test_models__in_f16_with_gradients_in_f32),
    };
    all = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
