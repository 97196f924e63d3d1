/* Recomputation and microbatches that nobody asked for: they are searched where the limit keeps the
 * model as it is from a faster usual layout, and not where it has room. */
#include "planner/variant_search.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "planner/tensors/plan_tensor.h"
#include "tests/support/tensor_cases.h"

static const dtp_variant_search NEEDED = {
    .remat = true, .microbatches = true, .max_microbatches = 4, .usual = true, .when_needed = true};
static const double SLOWER = 0.01; /* links, so that splits of activations cost more */

static dtp_plan_result plan(const tensor_fixture *f, const dtp_plan_request *request,
                            const dtp_variant_search *what)
{
    dtp_plan_result r;
    dtp_err err = {0};
    const dtp_status s = what != NULL ? dtp_plan_variants(dtp_plan_tensor, f->model, f->machine,
                                                          request, what, &r, &err)
                                      : dtp_plan_tensor(f->model, f->machine, request, &r, &err);
    if (s != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    return r;
}

/* At limits that keep the model as it is from its fastest layouts the plan is never slower than
 * without the search, and mostly faster. Without a limit nothing else is tried. */
static void test_memory_binds__variants_are_searched(void **state)
{
    (void)state;
    enum { LIMITS = 4 };
    tensor_fixture f;
    int32_t faster = 0;
    tensor_fixture_create(
        &(tensor_case){.model = TENSOR_GPT,
                       .mesh = "x:2;y:2",
                       .dims = "batch=64 length=64 vocab=64 layers=3 heads=4 d_head=32"},
        &f);
    for (int32_t k = 0; k < f.machine->n_levels; k++) {
        f.machine->levels[k].bw_Bps *= SLOWER;
    }
    dtp_plan_request request = dtp_plan_request_init();
    const dtp_mesh mesh = f.pricer.mesh;
    request.options.mesh = &mesh;
    request.options.objective = DTP_OBJECTIVE_MEMORY;
    dtp_plan_result r = plan(&f, &request, NULL);
    const int64_t least = r.plan != NULL ? r.plan->certificate.bound : 0;
    assert_true(least > 0);
    dtp_plan_result_free(&r);
    request.options.objective = DTP_OBJECTIVE_TIME;
    for (int32_t i = 1; i <= LIMITS; i++) {
        request.options.memory_limit_bytes = i == LIMITS ? 0 : least + least * i / 32;
        dtp_plan_result plain = plan(&f, &request, NULL);
        r = plan(&f, &request, &NEEDED);
        if (plain.plan == NULL || r.plan == NULL) {
            fail_msg("no plan within %" PRId64, request.options.memory_limit_bytes);
            break;
        }
        const double before_s = plain.plan->predicted.step_time_s;
        const double step_s = r.plan->predicted.step_time_s;
        print_message("limit %" PRId64 ": %.6g s as it is, %.6g s, %d tried\n",
                      request.options.memory_limit_bytes, before_s, step_s, r.n_tried);
        assert_true(step_s <= before_s);
        assert_int_equal(i == LIMITS, r.n_tried == 0);
        faster += step_s < 0.995 * before_s ? 1 : 0;
        dtp_plan_result_free(&plain);
        dtp_plan_result_free(&r);
    }
    assert_int_equal(faster, LIMITS - 1);
    tensor_fixture_destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory_binds__variants_are_searched)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
