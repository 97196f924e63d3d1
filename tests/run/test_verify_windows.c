/* A model of convolutions and pools and one of shifts, rolls, slices and paddings, split over rows,
 * over rows and columns, and by plans, against one device: outputs, gradients, updates, peaks,
 * losses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/plan_case.h"

/* The second one with kernels so large that margins are wider than a piece: dims are gathered. */
static const plan_model MODELS[] = {{.file = "tests/run/convs.json"},
                                    {.file = "tests/run/convs.json", .dims = "kh=7 kw=5"},
                                    {.file = "tests/run/moves.json"}};

enum { N_MODELS = sizeof MODELS / sizeof MODELS[0] };

static void test_windows__rules_split_space(void **state)
{
    static const char *const ROWS[][2] = {
        {"x:2", "h:x"},         {"x:4", "h:x"},         {"x:4", "w:x"},
        {"x:2;y:2", "h:x;w:y"}, {"x:2;y:2", "h:y;w:x"}, {"x:2;y:2", "batch:x;h:y"},
        {"x:2;y:2", "h:x;h:y"}, {"x:2;y:2", "c:x;w:y"}, {"x:3", "h:x"},
        {"x:2;y:3", "h:y;w:x"},
    };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof ROWS / sizeof ROWS[0]; i++) {
        const plan_model *model = &MODELS[i % 2 == 0 ? 0 : N_MODELS - 1];
        const char *const *row = ROWS[i / 2];
        one_device d;
        dtp_job_options options = dtp_job_options_init();
        options.uneven = true;
        one_device_open(model, &d);
        dtp_verify_result r = rules_verify(&d, row[0], row[1], &options);
        print_message("%s, %s on %s: largest error %.2e\n", model->file, row[1], row[0],
                      r.max_rel_err);
        dtp_verify_result_free(&r);
        one_device_close(&d);
    }
}

static void test_windows__plans_split_space(void **state)
{
    static const plan_row ROWS[] = {
        {.mesh = "x:2", .machine = "l4_16", .options = {.rules = "h:x"}},
        {.mesh = "x:4", .machine = "l4_16", .options = {.rules = "h:x"}},
        {.mesh = "x:2;y:2", .machine = "l4_16", .options = {.rules = "h:x;w:y"}},
        {.mesh = "x:2",
         .machine = "l4_16",
         .options = {.mode = DTP_PLAN_TENSOR, .objective = DTP_OBJECTIVE_MEMORY}},
        {.mesh = "x:4",
         .machine = "l4_16",
         .options = {.mode = DTP_PLAN_RULES, .objective = DTP_OBJECTIVE_MEMORY}},
    };
    (void)state;
    for (size_t k = 0; k < N_MODELS; k++) {
        one_device d;
        one_device_open(&MODELS[k], &d);
        const plan_losses want = plan_run(&d, NULL, "one device");
        for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
            const char *what = plan_name(&d, &ROWS[i]);
            dtp_plan *plan = plan_make(&d, &ROWS[i]);
            dtp_verify_result r = plan_verify(&d, plan, what);
            print_message("%s: largest error %.2e\n", what, r.max_rel_err);
            dtp_verify_result_free(&r);
            const plan_losses got = plan_run(&d, plan, what);
            plan_losses_near(&got, &want, 1e-5, what);
            dtp_plan_destroy(plan);
        }
        one_device_close(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows__rules_split_space),
        cmocka_unit_test(test_windows__plans_split_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
