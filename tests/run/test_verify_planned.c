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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp__of_least_memory),
        cmocka_unit_test(test_gpt__fastest_and_of_least_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
