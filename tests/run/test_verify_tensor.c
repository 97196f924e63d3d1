/* Plans of tensor mode of every shipped model that is small or can be made small: each is verified
 * against one device, and run with the losses of one device, the predicted peak and the predicted
 * number of collectives. Every model is planned for a slow network without a memory limit and near
 * the least memory, and for a fast network without a limit and for the least memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/plan/plan.h"
#include "tests/support/plan_case.h"
#include "tests/support/plan_models.h"
#include "tests/support/quarter.h"

typedef struct subject {
    plan_model model;
    bool remat, on_4; /* all blocks are recomputed; also on four ranks in a row */
} subject;

#define BYTES .text = true

static const subject SUBJECTS[] = {
    {.model = {.file = "models/mlp_digits.json"}, .on_4 = true},
    {.model = {.file = "models/gpt_bytes.json", .dims = SMALL_GPT_BYTES, BYTES}, .on_4 = false},
    {.model = {.file = "models/gpt_bytes_dropout.json", .dims = SMALL_GPT_BYTES, BYTES},
     .remat = false},
    {.model = {.file = "models/gpt_bytes_dropout.json", .dims = SMALL_GPT_BYTES, BYTES},
     .remat = true},
    {.model = {.file = "models/gpt2_small.json", .dims = SMALL_GPT "positions=16"}, .on_4 = true},
    {.model = {.file = "models/mtf_lm.json", .dims = SMALL_MTF}, .on_4 = false},
    {.model = {.file = "models/llama3_8b.json", .dims = SMALL_LLAMA}, .remat = false},
    {.model = {.file = "models/llama3_8b.json", .dims = SMALL_LLAMA}, .remat = true},
    {.model = {.file = "models/mixtral_8x7b.json", .dims = SMALL_LLAMA "experts=4 capacity=3"},
     .on_4 = true},
    {.model = {.file = "models/bert_large.json", .dims = SMALL_BERT}, .on_4 = false},
    {.model = {.file = "models/vit_b16.json", .dims = SMALL_VIT}, .on_4 = false},
};

static int verified;

/* The plan computes what one device computes, in the memory and with the collectives that were
 * predicted. Returns its peak. */
static int64_t prove(const one_device *d, const plan_losses *one, const plan_row *row)
{
    const char *what = plan_name(d, row);
    dtp_plan *plan = plan_make(d, row);
    if (plan->rules_mode) {
        fail_msg("%s: the plan is of rules mode", what);
    }
    dtp_verify_result r = plan_verify(d, plan, what);
    const plan_losses losses = plan_run(d, plan, what);
    const int64_t peak = plan->predicted.peak_bytes;
    plan_losses_near(&losses, one, 1e-5, what);
    dtp_verify_result_free(&r);
    dtp_plan_destroy(plan);
    verified++;
    return peak;
}

/* Any plan will do: none is searched for longer than it takes to come within 10 % of its bound. */
static plan_row tensor_row(const subject *s, const char *mesh, const char *machine)
{
    return (plan_row){
        mesh,
        machine,
        {.mode = DTP_PLAN_TENSOR, .gap = 0.1, .remat = s->remat ? "all" : NULL, .threads = 1}};
}

static void prove_four(const subject *s, const one_device *d, const plan_losses *one,
                       const char *mesh)
{
    plan_row fast = tensor_row(s, mesh, "h100_64"), least = fast;
    plan_row slow = tensor_row(s, mesh, strcmp(mesh, "x:2") == 0 ? "cpu_2" : "l4_16"), tight = slow;
    least.options.objective = DTP_OBJECTIVE_MEMORY;
    (void)prove(d, one, &fast);
    const int64_t least_peak = prove(d, one, &least), slow_peak = prove(d, one, &slow);
    tight.options.memory_limit_bytes = (slow_peak + 3 * least_peak) / 4;
    (void)prove(d, one, &tight);
}

/* `models` of them, or a quarter. */
static void prove_on(const char *mesh, bool of_4, int32_t models)
{
    int32_t n = 0, ran = 0;
    verified = 0;
    for (size_t i = 0; i < sizeof SUBJECTS / sizeof SUBJECTS[0]; i++) {
        const subject *s = &SUBJECTS[i];
        if ((of_4 && !s->on_4) || !quarter_has(n++, models)) {
            continue;
        }
        ran++;
        one_device d;
        one_device_open(&s->model, &d);
        const plan_losses one = plan_run(&d, NULL, s->model.file);
        prove_four(s, &d, &one, mesh);
        one_device_close(&d);
    }
    print_message("%s: %d plans\n", mesh, verified);
    assert_int_equal(n, models);
    assert_true(ran >= quarter_of(models));
    assert_int_equal(verified, 4 * ran);
}

static void test_plans__on_two_ranks(void **unused)
{
    (void)unused;
    prove_on("x:2", false, 11);
}

static void test_plans__on_four_ranks(void **unused)
{
    (void)unused;
    prove_on("x:4", true, 3);
}

static void test_plans__on_two_mesh_dims(void **unused)
{
    (void)unused;
    prove_on("x:2;y:2", false, 11);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans__on_two_ranks),
        cmocka_unit_test(test_plans__on_four_ranks),
        cmocka_unit_test(test_plans__on_two_mesh_dims),
    };
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
