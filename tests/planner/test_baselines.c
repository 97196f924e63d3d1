/* Every baseline of every small model on virtual ranks against one device, in f64: outputs,
 * gradients and parameters after a step, and the predicted peak. Which baselines apply is part
 * of the expectation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "planner/baselines/baselines.h"
#include "tests/support/small_models.h"
#include "tests/support/verify_case.h"
#include "tests/support/quarter.h"

static const double TOLERANCE = 1e-9;
static int64_t n_verified;

static void verify_baseline(const dtp_graph *g, const dtp_sharding *s, const char *what)
{
    verify_case c = verify_case_init(what);
    c.backend = "ref";
    c.options.tolerance = TOLERANCE;
    c.options.steps = 1;
    verify_sharding(g, s, NULL, &c);
}

/* Whether a baseline must apply to a small model. */
static bool must_apply(const small_model *m, const char *baseline)
{
    return m->dense_sequence || strstr(baseline, "_sp") == NULL;
}

static int verify_model(const small_model *m, const char *mesh)
{
    const dtp_baseline_options options = {.machine = dtp_redistributor_generic(),
                                          .generic = dtp_redistributor_generic()};
    dtp_arena *arena = dtp_arena_create();
    dtp_graph *g = small_model_read(m, true);
    small_pricer p = small_pricer_read("a100_8", mesh);
    dtp_candidate *list = NULL;
    dtp_err err = {0};
    int32_t n = 0;
    int legal = 0;
    if (dtp_baselines_create(g, &p.pricer, &options, arena, &n, &list, &err) != DTP_OK) {
        fail_msg("%s on '%s': %s", m->name, mesh, err.msg);
    }
    for (int32_t i = 0; i < n; i++) {
        char what[256];
        (void)snprintf(what, sizeof what, "%s of %s on '%s'", list[i].name, m->name, mesh);
        if (list[i].legal != must_apply(m, list[i].name)) {
            fail_msg("%s: legal %d: %s", what, list[i].legal, list[i].legal ? "" : list[i].why);
        }
        if (list[i].legal) {
            if (quarter_has(n_verified++, INT32_MAX)) {
                verify_baseline(g, &list[i].sharding, what);
            }
            legal++;
        } else {
            assert_int_equal(list[i].sharding.n_nodes, 0);
            assert_true(strlen(list[i].why) > 0);
        }
    }
    (void)printf("%s on '%s': %d of %d baselines apply and agree with one device\n", m->name, mesh,
                 legal, n);
    small_pricer_free(&p);
    dtp_graph_destroy(g);
    dtp_arena_destroy(arena);
    return legal;
}

static void verify_models(const char *mesh, int least)
{
    int legal = 0;
    for (const small_model *m = small_models(); m->name != NULL; m++) {
        legal += verify_model(m, mesh);
    }
    assert_true(legal >= least);
}

static void test_baselines__agree_with_one_device_on_2(void **state)
{
    (void)state;
    verify_models("x:2", 42);
}

static void test_baselines__agree_with_one_device_on_4(void **state)
{
    (void)state;
    verify_models("x:4", 42);
}

static void test_baselines__agree_with_one_device_on_2_by_2(void **state)
{
    (void)state;
    verify_models("x:2;y:2", 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_baselines__agree_with_one_device_on_2),
        cmocka_unit_test(test_baselines__agree_with_one_device_on_4),
        cmocka_unit_test(test_baselines__agree_with_one_device_on_2_by_2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
