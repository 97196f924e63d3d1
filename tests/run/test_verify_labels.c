/* Losses whose mean depends on the data, in microbatches: class weights, an ignored label, a mask.
 * Each is verified on virtual ranks against the unchanged model on one device: the loss, the norm
 * of the gradients, the gradients that can be fetched and the updates that clipping has scaled. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/plan/plan.h"
#include "tests/support/plan_case.h"
#include "tests/support/plan_models.h"
#include "tests/support/plan_styles.h"

static const struct {
    const char *mesh, *rules;
} LAYOUTS[] = {
    {"x:1", ""},
    {"x:2", "batch:x"},
    {"x:2", "length:x"},
    {"x:2", "classes:x"},
    {"x:2;y:2", "batch:x;length:y"},
    {"x:2;y:2", "batch:x;classes:y"},
};

static void verify_layouts(const plan_model *of, const char *const *counts)
{
    one_device d;
    one_device_open(of, &d);
    for (size_t i = 0; i < sizeof LAYOUTS / sizeof LAYOUTS[0]; i++) {
        for (int32_t k = 0; counts[k] != NULL; k++) {
            dtp_job_options options = dtp_job_options_init();
            options.microbatches = counts[k];
            options.uneven = true;
            dtp_verify_result r = rules_verify(&d, LAYOUTS[i].mesh, LAYOUTS[i].rules, &options);
            dtp_verify_result_free(&r);
        }
    }
    one_device_close(&d);
}

static void test_labels__count_once_per_step(void **unused)
{
    static const char *const precisions[] = {NULL, "bf16", "f16", "f16,gradients=f32"};
    static const char *const counts[] = {"2", "4", NULL};
    (void)unused;
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        verify_layouts(&(plan_model){.file = "tests/run/labels.json", .precision = precisions[i]},
                       counts);
    }
}

/* One label of 8 is ignored, and a microbatch is a label: some have none that counts. */
static void test_labels__that_are_ignored_in_all_of_a_microbatch(void **unused)
{
    static const char *const counts[] = {"8", NULL};
    (void)unused;
    verify_layouts(&(plan_model){.file = "tests/run/labels.json",
                                 .dims = "batch=8 length=1 classes=2",
                                 .steps = 6},
                   counts);
}

/* A mean over a mask, as models write it. */
static void test_labels__masked_by_the_model(void **unused)
{
    static const char *const precisions[] = {NULL, "f16"};
    static const char *const counts[] = {"4", NULL};
    (void)unused;
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        verify_layouts(&(plan_model){.file = "tests/run/masked.json", .precision = precisions[i]},
                       counts);
    }
}

static const plan_row PLANS[] = {
    {.mesh = "x:2;y:2",
     .machine = "a100_8",
     .options = {.mode = DTP_PLAN_TENSOR, .threads = 1, .microbatches = "2"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {.rules = "batch:x", .remat = "all", .microbatches = "2"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:zero2"), .microbatches = "2"}},
    {.mesh = "x:2",
     .machine = "a100_8",
     .options = {PINS_MODE, PLAN_STYLES("**:data", "**:fsdp"), .remat = "all",
                 .microbatches = "2"}},
};

/* Labels of 0 are ignored. Plans, and runs of them with the predicted peak. */
static void test_labels__of_bert(void **unused)
{
    static const char *const precisions[] = {NULL, "bf16"};
    (void)unused;
    for (size_t k = 0; k < sizeof precisions / sizeof precisions[0]; k++) {
        one_device d;
        one_device_open(&(plan_model){.file = "models/bert_large.json",
                                      .dims = SMALL_BERT,
                                      .precision = precisions[k]},
                        &d);
        const plan_losses whole = plan_run(&d, NULL, "one device");
        for (size_t i = 0; i < sizeof PLANS / sizeof PLANS[0]; i++) {
            const char *what = plan_name(&d, &PLANS[i]);
            dtp_plan *plan = plan_make(&d, &PLANS[i]);
            dtp_verify_result r = plan_verify(&d, plan, what);
            const plan_losses losses = plan_run(&d, plan, what);
            plan_losses_near(&losses, &whole, precisions[k] != NULL ? 1e-3 : 2e-6, what);
            dtp_verify_result_free(&r);
            dtp_plan_destroy(plan);
        }
        one_device_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels__count_once_per_step),
        cmocka_unit_test(test_labels__that_are_ignored_in_all_of_a_microbatch),
        cmocka_unit_test(test_labels__masked_by_the_model),
        cmocka_unit_test(test_labels__of_bert),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
