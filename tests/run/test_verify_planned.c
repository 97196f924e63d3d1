/* Plans of the digits MLP and the byte-level GPT for 1, 2, 3, 4 and 8 devices, with the mesh shape
 * searched: every one on virtual ranks against one device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dtp/device_mesh.h"
#include "tests/support/plan_case.h"

static const int32_t DEVICES[] = {1, 2, 3, 4, 8};
enum { N_DEVICES = sizeof DEVICES / sizeof DEVICES[0] };

static void verify_searched(const one_device *d, dtp_plan_objective objective)
{
    for (int i = 0; i < N_DEVICES; i++) {
        const plan_row row = {.machine = "a100_8",
                              .options = {.devices = DEVICES[i], .objective = objective}};
        const char *what = plan_name(d, &row);
        dtp_plan *plan = plan_make(d, &row);
        dtp_verify_result r = plan_verify(d, plan, what);
        assert_int_equal(r.ranks, DEVICES[i]);
        dtp_verify_result_free(&r);
        dtp_plan_destroy(plan);
    }
}

static void test_mlp__of_least_memory(void **unused)
{
    (void)unused;
    one_device d;
    one_device_open(&(plan_model){.file = "models/mlp_digits.json"}, &d);
    verify_searched(&d, DTP_OBJECTIVE_MEMORY);
    one_device_close(&d);
}

static void test_gpt__fastest_and_of_least_memory(void **unused)
{
    (void)unused;
    one_device d;
    one_device_open(
        &(plan_model){.file = "models/gpt_bytes.json", .dims = "length=32", .text = true}, &d);
    verify_searched(&d, DTP_OBJECTIVE_TIME);
    verify_searched(&d, DTP_OBJECTIVE_MEMORY);
    one_device_close(&d);
}

/* Ten rows, twelve heads, 257 bytes over three, four and eight devices. */
static void test_gpt__with_uneven_splits(void **unused)
{
    static const char *const meshes[] = {"x:8", "x:3", "x:2;y:2", "x:4"};
    one_device d;
    int32_t uneven = 0;
    (void)unused;
    one_device_open(&(plan_model){.file = "models/gpt_bytes.json",
                                  .dims = "batch=10 length=12 layers=2 heads=6 d_head=5 vocab=257",
                                  .text = true},
                    &d);
    for (int i = 0; i < 16; i++) {
        const plan_row row = {
            .mesh = meshes[i / 4],
            .machine = "a100_8",
            .options = {.mode = i % 2 == 0 ? DTP_PLAN_RULES : DTP_PLAN_TENSOR,
                        .objective = i / 2 % 2 == 0 ? DTP_OBJECTIVE_TIME : DTP_OBJECTIVE_MEMORY,
                        .microbatches = i == 8 ? "2" : NULL,
                        .uneven = true}};
        const char *what = plan_name(&d, &row);
        dtp_plan *plan = plan_make(&d, &row);
        assert_true(plan->uneven);
        for (dtp_tensor_id t = 0; t < d.model->n_tensors && i != 8; t++) {
            uneven += !dtp_layout_is_even(&plan->sharding.layouts[t], &plan->mesh,
                                          &d.model->tensors[t].type);
        }
        dtp_verify_result r = plan_verify(&d, plan, what);
        dtp_verify_result_free(&r);
        (void)plan_run(&d, plan, what);
        dtp_plan_destroy(plan);
    }
    assert_true(uneven > 100);
    one_device_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp__of_least_memory),
        cmocka_unit_test(test_gpt__fastest_and_of_least_memory),
        cmocka_unit_test(test_gpt__with_uneven_splits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
