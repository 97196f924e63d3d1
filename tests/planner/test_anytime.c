/* Planning ended at its k-th poll of the stop token, for many k: a plan whose certificate holds, or
 * DTP_STOPPED. The clock of this program counts how often it was asked, so that a deadline of k is
 * the k-th poll, the same on every machine. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "planner/variant_search.h"
#include "tests/support/plan_fixture.h"
#include "tests/support/quarter.h"

static _Atomic int64_t polls; /* the search and the bounds are two threads */

double dtp_now_s(void)
{
    return (double)++polls;
}

typedef struct anytime_case {
    const char *model, *machine, *mesh; /* NULL: the meshes of four devices */
    bool rules, variants, memory, untie;
    int64_t limit_bytes; /* 0 = none */
    const char *pin;
} anytime_case;

static dtp_status plan_until(const anytime_case *c, const dtp_graph *g, const dtp_machine *machine,
                             int64_t deadline, dtp_plan_result *out)
{
    const dtp_mesh mesh = fixture_mesh(c->mesh != NULL ? c->mesh : "x:1");
    const dtp_stop stop = {.end_s = (double)deadline};
    const dtp_variant_search search = {.remat = true, .microbatches = true};
    const dtp_plan_mode mode = c->rules ? dtp_plan_rules : dtp_plan_tensor;
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = c->mesh != NULL ? &mesh : NULL;
    request.options.devices = 4;
    request.options.threads = 1;
    request.options.untie = c->untie;
    request.options.objective = c->memory ? DTP_OBJECTIVE_MEMORY : DTP_OBJECTIVE_TIME;
    request.options.memory_limit_bytes = c->limit_bytes;
    request.n_texts = c->pin != NULL ? 1 : 0;
    request.texts = &c->pin;
    request.stop = &stop;
    polls = 0;
    return c->variants ? dtp_plan_variants(mode, g, machine, &request, &search, out, NULL)
                       : mode(g, machine, &request, out, NULL);
}

/* `whole`: the certificate without a limit. A bound of tied plans may be above the least cost of
 * plans without tying. */
static void check_plan(const anytime_case *c, const dtp_graph *g, const dtp_plan *plan,
                       const dtp_certificate *whole)
{
    const dtp_certificate *x = &plan->certificate;
    const bool tied = c->untie && strcmp(x->solver, whole->solver) != 0;
    const int64_t least = tied ? x->least_cost : whole->least_cost;
    assert_int_equal(x->ended, DTP_STOP_TIME_LIMIT);
    assert_true(x->bound <= least);
    assert_true(x->bound <= x->least_cost && x->least_cost <= x->cost);
    assert_true(x->status != DTP_CERT_OPTIMAL || x->cost == least);
    assert_true(c->limit_bytes == 0 || plan->predicted.peak_bytes <= c->limit_bytes);
    char *text = fixture_text(plan, g);
    assert_non_null(strstr(text, "\"ended\": \"time limit\""));
    free(text);
}

typedef struct tally {
    int64_t plans, stopped;
} tally;

/* Whether the solver of the certificate is that of the whole plan. */
static bool try_deadline(const anytime_case *c, const dtp_graph *g, const dtp_machine *machine,
                         int64_t deadline, const dtp_plan *whole, tally *sum)
{
    dtp_plan_result early;
    bool same = false;
    const dtp_status s = plan_until(c, g, machine, deadline, &early);
    sum->stopped += s == DTP_STOPPED ? 1 : 0;
    if (s == DTP_STOPPED) {
        return false;
    }
    assert_int_equal(s, DTP_OK);
    assert_true(early.plan != NULL || early.infeasible);
    if (early.plan != NULL) {
        dtp_graph *planned = NULL;
        assert_non_null(whole);
        assert_int_equal(dtp_plan_graph(early.plan, g, &planned, NULL), DTP_OK);
        check_plan(c, planned, early.plan, &whole->certificate);
        same = strcmp(early.plan->certificate.solver, whole->certificate.solver) == 0;
        dtp_graph_destroy(planned);
        sum->plans++;
    }
    dtp_plan_result_free(&early);
    return same;
}

static void run_case(const anytime_case *c)
{
    dtp_machine *machine = fixture_machine(c->machine);
    dtp_graph *g = fixture_model(c->model);
    dtp_plan_result whole;
    tally sum = {0};
    assert_int_equal(plan_until(c, g, machine, INT64_C(1) << 50, &whole), DTP_OK);
    int64_t all = polls, low = 0, i = 0;
    assert_true(whole.plan == NULL || whole.plan->certificate.ended == DTP_STOP_NONE);
    for (int64_t k = 1; k < all; k += 1 + k / 12) {
        if (quarter_has(i++, INT32_MAX) || k == 1) {
            (void)try_deadline(c, g, machine, k, whole.plan, &sum);
        }
    }
    printf("%s: %lld polls, %lld plans, %lld times none\n", c->model, (long long)all,
           (long long)sum.plans, (long long)sum.stopped);
    while (c->untie && low + 1 < all) { /* where the problem without tying begins */
        const int64_t k = low + (all - low) / 2;
        const bool begun = try_deadline(c, g, machine, k, whole.plan, &sum);
        low = begun ? low : k;
        all = begun ? k : all;
    }
    for (int64_t k = all; c->untie && k > all - 60; k -= 5) { /* while it is built */
        if (quarter_has(i++, INT32_MAX)) {
            (void)try_deadline(c, g, machine, k, whole.plan, &sum);
        }
    }
    /* the least memory: a plan without any search */
    assert_true((sum.stopped > 0 || c->memory) && (sum.plans > 0 || whole.plan == NULL));
    dtp_plan_result_free(&whole);
    dtp_graph_destroy(g);
    dtp_machine_destroy(machine);
}

static void test_anytime__tensor_mode(void **state)
{
    (void)state;
    run_case(&(anytime_case){.model = "gpt_bytes.json",
                             .machine = "a100_8.json",
                             .mesh = "x:2",
                             .limit_bytes = INT64_C(130) << 20,
                             .untie = true});
    run_case(&(anytime_case){.model = "mlp_digits.json",
                             .machine = "a100_8.json",
                             .mesh = "x:2;y:2",
                             .limit_bytes = 150000});
    run_case(&(anytime_case){.model = "mlp_digits.json",
                             .machine = "a100_8.json",
                             .mesh = "x:4",
                             .pin = "pin w1: hidden@x"});
}

static void test_anytime__least_memory(void **state)
{
    (void)state;
    run_case(&(anytime_case){
        .model = "mlp_digits.json", .machine = "a100_8.json", .mesh = "x:2;y:2", .memory = true});
    run_case(&(anytime_case){.model = "mlp_digits.json",
                             .machine = "a100_8.json",
                             .mesh = "x:2;y:2",
                             .limit_bytes = 106000});
}

static void test_anytime__rules_mode(void **state)
{
    (void)state;
    run_case(&(anytime_case){.model = "gpt_bytes.json",
                             .machine = "a100_8.json",
                             .mesh = "x:2;y:2",
                             .rules = true,
                             .limit_bytes = INT64_C(70) << 20});
    run_case(&(anytime_case){.model = "mlp_digits.json",
                             .machine = "a100_8.json",
                             .mesh = "x:2;y:2",
                             .rules = true,
                             .memory = true});
}

static void test_anytime__searches(void **state)
{
    (void)state;
    run_case(&(anytime_case){.model = "mlp_digits.json", .machine = "a100_8.json"});
    run_case(&(anytime_case){.model = "mlp_digits.json",
                             .machine = "a100_8.json",
                             .mesh = "x:4",
                             .rules = true,
                             .variants = true});
    run_case(&(anytime_case){
        .model = "mlp_digits.json", .machine = "a100_8.json", .mesh = "x:4", .variants = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_anytime__tensor_mode),
        cmocka_unit_test(test_anytime__least_memory),
        cmocka_unit_test(test_anytime__rules_mode),
        cmocka_unit_test(test_anytime__searches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
