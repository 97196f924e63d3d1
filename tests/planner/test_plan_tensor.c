/* Planning in tensor mode: baselines, limits, pins, mesh search, certificates, plan files. */
#include "planner/tensors/plan_tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/plan_lowering.h"
#include "cost_models/predict.h"
#include "planner/solver/solve.h"
#include "planner/problem/tensors/tensor_problem.h"
#include "tests/support/random_graphs.h"
#include "tests/support/plan_fixture.h"

static dtp_machine *h100, *a100;

static int setup(void **state)
{
    (void)state;
    h100 = fixture_machine("h100_64.json");
    a100 = fixture_machine("a100_8.json");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dtp_machine_destroy(h100);
    dtp_machine_destroy(a100);
    return 0;
}

static bool fits(const dtp_plan_request *request, const dtp_prediction *p)
{
    return request->options.memory_limit_bytes == 0 ||
           p->peak_bytes <= request->options.memory_limit_bytes;
}

/* What every plan must hold. */
static void check_plan(const dtp_graph *g, const dtp_plan_request *request, const dtp_plan *p)
{
    const dtp_certificate *c = &p->certificate;
    assert_int_equal(dtp_sharding_check(g, &p->sharding, NULL), DTP_OK);
    assert_true(c->status == DTP_CERT_OPTIMAL || c->status == DTP_CERT_FEASIBLE);
    assert_true(c->bound <= c->cost && c->bound >= 0);
    assert_true(c->status != DTP_CERT_OPTIMAL || c->bound == c->cost);
    assert_true(!c->has_untied || (c->untied_bound >= 0 && c->untied_bound <= c->bound));
    assert_true(fits(request, &p->predicted));
    for (int32_t i = 0; i < p->n_baselines; i++) {
        const dtp_baseline *b = &p->baselines[i];
        if (b->legal && fits(request, &b->predicted) &&
            request->options.objective == DTP_OBJECTIVE_TIME) {
            assert_true(p->predicted.step_time_s <= b->predicted.step_time_s);
        } else if (b->legal && fits(request, &b->predicted)) {
            assert_true(p->predicted.peak_bytes <= b->predicted.peak_bytes);
        }
    }
}

/* Read again, the plan file gives the same program at the same price. */
static void check_file(const dtp_graph *g, const dtp_plan *p)
{
    dtp_plan *again = NULL;
    dtp_pricer pricer;
    dtp_prediction predicted;
    dtp_plan_lowering lowering;
    int64_t cost;
    char *text = fixture_text(p, g);
    assert_int_equal(dtp_plan_read("plan", text, strlen(text), g, &again, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(h100, &p->mesh, &dtp_target_cpu, &pricer, NULL), DTP_OK);
    assert_int_equal(dtp_plan_lowering_init(&lowering, again, NULL), DTP_OK);
    assert_int_equal(dtp_sharding_predict(g, &pricer, &again->sharding, &lowering.options,
                                          &predicted, &cost, NULL),
                     DTP_OK);
    assert_int_equal(again->n_redistributions, p->n_redistributions);
    assert_int_equal(cost, p->certificate.cost);
    assert_true(predicted.step_time_s <= p->predicted.step_time_s &&
                predicted.step_time_s >= p->predicted.step_time_s);
    assert_int_equal(predicted.peak_bytes, p->predicted.peak_bytes);
    dtp_plan_destroy(again);
    free(text);
}

/* No rule set may be faster or cheaper than what tensor mode proves and returns. */
static void check_against_rules(const dtp_graph *g, const dtp_plan_request *request,
                                const dtp_plan *p)
{
    dtp_plan_result rules;
    assert_int_equal(dtp_plan_rules(g, h100, request, &rules, NULL), DTP_OK);
    if (rules.plan != NULL) {
        assert_true(p->predicted.step_time_s <= rules.plan->predicted.step_time_s);
    }
    dtp_plan_result_free(&rules);
}

static void test_plan_tensor__never_worse_than_baselines_or_rules(void **state)
{
    (void)state;
    static const char *const meshes[] = {"x:2", "x:4", "x:2;y:2", "x:3", "x:2;y:3"};
    int32_t planned = 0, tight_ones = 0;
    for (uint64_t seed = 4000; seed < 4060; seed++) {
        char *text = NULL;
        dtp_graph *g = random_graph(seed, &text);
        print_message("seed %llu\n", (unsigned long long)seed);
        assert_non_null(g);
        const dtp_mesh mesh = fixture_mesh(meshes[seed % 5]);
        dtp_plan_request request = dtp_plan_request_init();
        request.options.mesh = &mesh;
        dtp_plan_result r = fixture_plan(g, h100, &request);
        check_plan(g, &request, r.plan);
        check_file(g, r.plan);
        check_against_rules(g, &request, r.plan);
        request.options.memory_limit_bytes = r.plan->predicted.peak_bytes * 3 / 4;
        dtp_plan_result tight = fixture_plan(g, h100, &request);
        if (tight.plan != NULL) {
            check_plan(g, &request, tight.plan);
            check_file(g, tight.plan);
            check_against_rules(g, &request, tight.plan);
            assert_true(tight.plan->certificate.bound >= 0);
            tight_ones++;
        }
        planned++;
        dtp_plan_result_free(&tight);
        dtp_plan_result_free(&r);
        dtp_graph_destroy(g);
        free(text);
    }
    assert_int_equal(planned, 60);
    assert_true(tight_ones > 10);
}

static void test_plan_tensor__objective_memory(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    const dtp_mesh mesh = fixture_mesh("x:2;y:2");
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &mesh;
    request.options.objective = DTP_OBJECTIVE_MEMORY;
    dtp_plan_result r = fixture_plan(g, a100, &request);
    check_plan(g, &request, r.plan);
    assert_int_equal(r.plan->certificate.cost, r.plan->predicted.peak_bytes);
    assert_true(r.plan->certificate.bound > 0);
    dtp_plan_result_free(&r);
    dtp_graph_destroy(g);
}

/* The limit that is named works, and none below the bound does. */
static void test_plan_tensor__names_the_smallest_limit(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    const dtp_mesh mesh = fixture_mesh("x:2;y:2");
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &mesh;
    request.options.memory_limit_bytes = 4096;
    dtp_plan_result quick = fixture_plan(g, a100, &request);
    assert_true(quick.infeasible && quick.plan == NULL && quick.needs != NULL);
    assert_true(quick.smallest_bound > 4096 && quick.smallest_peak_bytes == 0);
    assert_int_equal(quick.n_conflict, 1);
    assert_string_equal(quick.conflict[0], "memory 4096");
    request.options.memory_limit_bytes = quick.smallest_bound; /* that much alone is no reason */
    dtp_plan_result r = fixture_plan(g, a100, &request);
    assert_true(r.infeasible && r.plan == NULL && r.needs == NULL);
    assert_true(r.smallest_bound >= quick.smallest_bound);
    assert_true(r.smallest_bound <= r.smallest_peak_bytes);
    dtp_plan_result_free(&quick);
    request.options.memory_limit_bytes = r.smallest_peak_bytes;
    dtp_plan_result works = fixture_plan(g, a100, &request);
    assert_false(works.infeasible);
    check_plan(g, &request, works.plan);
    request.options.memory_limit_bytes = r.smallest_bound - 1;
    dtp_plan_result below = fixture_plan(g, a100, &request);
    assert_true(below.infeasible);
    dtp_plan_result_free(&below);
    dtp_plan_result_free(&works);
    dtp_plan_result_free(&r);
    dtp_graph_destroy(g);
}

static void test_plan_tensor__pins_hold(void **state)
{
    (void)state;
    static const char *const texts[] = {"pin w1: hidden@y", "pin h: batch@x, hidden@y",
                                        "style logits.mm: rowwise(y)"};
    dtp_graph *g = fixture_model("mlp_digits.json");
    const dtp_mesh mesh = fixture_mesh("x:2;y:2");
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &mesh;
    request.n_texts = 2;
    request.texts = texts;
    dtp_plan_result r = fixture_plan(g, a100, &request);
    for (int32_t i = 0; i < 2; i++) {
        char text[DTP_LAYOUT_TEXT_BYTES];
        const dtp_tensor_id t = dtp_graph_find(g, i == 0 ? "w1" : "h");
        dtp_layout_print(&r.plan->sharding.layouts[t], &mesh, &g->tensors[t].type, &g->dims, text);
        assert_string_equal(text, i == 0 ? "hidden@y" : "batch@x, hidden@y");
        assert_string_equal(r.plan->pins[i], texts[i]);
    }
    dtp_plan_result_free(&r);
    dtp_graph_destroy(g);
}

/* Of three pins and a limit the two that contradict each other are named, and not the others. */
static void test_plan_tensor__names_the_conflict(void **state)
{
    (void)state;
    static const char *const texts[] = {"pin h: batch@x", "pin w1: hidden@x", "pin w1: replicated"};
    static const char *const large[] = {"pin w2: hidden@x", "pin w1: replicated"};
    dtp_graph *g = fixture_model("mlp_digits.json");
    const dtp_mesh mesh = fixture_mesh("x:4");
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &mesh;
    request.options.memory_limit_bytes = INT64_C(1) << 30;
    request.n_texts = 3;
    request.texts = texts;
    dtp_plan_result r = fixture_plan(g, a100, &request);
    assert_true(r.infeasible);
    assert_int_equal(r.n_conflict, 2);
    assert_string_equal(r.conflict[0], texts[1]);
    assert_string_equal(r.conflict[1], texts[2]);
    dtp_plan_result_free(&r);
    request.n_texts = 2;
    request.texts = large;
    request.options.memory_limit_bytes = 130000;
    r = fixture_plan(g, a100, &request);
    assert_true(r.infeasible);
    assert_int_equal(r.n_conflict, 2);
    assert_string_equal(r.conflict[0], large[1]);
    assert_string_equal(r.conflict[1], "memory 130000");
    dtp_plan_result_free(&r);
    dtp_graph_destroy(g);
}

static void test_plan_tensor__bad_pins_are_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {{"pin nosuch: replicated", "nosuch"},
                 {"pin w1: hidden@z", "z"},
                 {"pin w1: +sum(x)", "w1"},
                 {"style nosuch: colwise", "nosuch"}};
    dtp_graph *g = fixture_model("mlp_digits.json");
    const dtp_mesh mesh = fixture_mesh("x:4");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_plan_request request = dtp_plan_request_init();
        dtp_plan_result r;
        dtp_err err = {0};
        request.options.mesh = &mesh;
        request.n_texts = 1;
        request.texts = &cases[i].text;
        assert_true(dtp_status_is_input(dtp_plan_tensor(g, a100, &request, &r, &err)));
        assert_non_null(strstr(err.msg, cases[i].words));
        assert_null(r.plan);
    }
    dtp_graph_destroy(g);
}

/* Ordered factorisations of 4; those that are cut have nothing cheaper than the plan. */
static void test_plan_tensor__search_cuts_only_what_costs_more(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    dtp_plan_request request = dtp_plan_request_init();
    int32_t cut = 0;
    request.options.devices = 8;
    request.options.memory_limit_bytes = 150000;
    dtp_plan_result best = fixture_plan(g, a100, &request);
    assert_int_equal(best.n_meshes, 4);
    for (int32_t i = 0; i < best.n_meshes; i++) {
        const dtp_mesh_report *m = &best.meshes[i];
        dtp_plan_request alone = request;
        alone.options.mesh = &m->mesh;
        dtp_plan_result r = fixture_plan(g, a100, &alone);
        cut += m->outcome == DTP_MESH_PRUNED ? 1 : 0;
        if (m->outcome == DTP_MESH_PRUNED) {
            assert_true(r.plan == NULL || r.plan->certificate.cost >= m->bound);
        } else if (m->outcome == DTP_MESH_PLANNED) {
            const bool more = m->mesh.n_dims > best.plan->mesh.n_dims;
            assert_true((more ? 0.98 : 1.0) * best.plan->predicted.step_time_s <= m->step_time_s);
        } else {
            assert_true(m->outcome == DTP_MESH_INFEASIBLE && r.infeasible);
        }
        dtp_plan_result_free(&r);
    }
    print_message("%d of %d meshes cut\n", cut, best.n_meshes);
    dtp_plan_result_free(&best);
    dtp_graph_destroy(g);
}

static void test_plan_tensor__same_input_same_plan(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    const dtp_mesh mesh = fixture_mesh("x:2;y:2");
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &mesh;
    request.options.memory_limit_bytes = 120000;
    dtp_plan_result a = fixture_plan(g, a100, &request), b = fixture_plan(g, a100, &request);
    char *x = fixture_text(a.plan, g), *y = fixture_text(b.plan, g);
    assert_string_equal(x, y);
    free(x);
    free(y);
    dtp_plan_result_free(&a);
    dtp_plan_result_free(&b);
    dtp_graph_destroy(g);
}

/* ---- tying ---- */

/* The least additive cost when every instance decides for itself, as far as it is found. */
static dtp_solve_result solve_untied(const dtp_graph *g, const dtp_plan_request *request)
{
    dtp_pricer pricer;
    dtp_tensor_problem *p = NULL;
    dtp_solve_result r;
    dtp_tensor_options options = dtp_tensor_options_init();
    const dtp_solve_options solver = dtp_solve_options_init();
    options.runs = 0;
    options.memory_bytes = request->options.memory_limit_bytes;
    assert_int_equal(dtp_pricer_init(a100, request->options.mesh, &dtp_target_cpu, &pricer, NULL),
                     DTP_OK);
    assert_int_equal(dtp_tensor_problem_create(g, &pricer, &options, &p, NULL), DTP_OK);
    assert_int_equal(dtp_solve(p->select, &solver, &r, NULL), DTP_OK);
    assert_non_null(r.assignment);
    dtp_tensor_problem_destroy(p);
    return r;
}

/* Folding loses something on this model: layers differ in the best plan, which is found here. */
static void test_plan_tensor__says_what_folding_costs_at_most(void **state)
{
    (void)state;
    static const int64_t limits[] = {0, 900000000};
    dtp_graph *g = fixture_model("gpt2_small.json");
    const dtp_mesh mesh = fixture_mesh("x:4");
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        dtp_plan_request request = dtp_plan_request_init();
        request.options.mesh = &mesh;
        request.options.memory_limit_bytes = limits[i];
        dtp_plan_result r = fixture_plan(g, a100, &request);
        const dtp_certificate *c = &r.plan->certificate;
        dtp_solve_result apart = solve_untied(g, &request);
        check_plan(g, &request, r.plan);
        print_message("bound %lld <= untied %lld <= folded %lld\n", (long long)c->untied_bound,
                      (long long)apart.value.cost, (long long)c->cost);
        assert_true(c->has_untied && c->untied_bound <= apart.value.cost);
        assert_true(apart.value.cost < c->least_cost && c->least_cost <= c->cost);
        assert_true(c->untied_gap < (limits[i] == 0 ? 0.001 : 0.005));
        assert_true(i > 0 || apart.status == DTP_CERT_OPTIMAL);
        dtp_solve_result_free(&apart);
        dtp_plan_result_free(&r);
    }
    dtp_graph_destroy(g);
}

/* Where memory binds, half of the layers are decided otherwise; the plan is one of the problem in
 * two runs, and costs less than any whose layers are all alike. */
static void test_plan_tensor__layers_in_two_runs(void **state)
{
    (void)state;
    const dtp_dim_override layers = {"layers", 4};
    const dtp_model_options options = {
        .size = sizeof options, .n_overrides = 1, .overrides = &layers};
    dtp_graph *g = fixture_model_with("mixtral_8x7b.json", &options);
    dtp_machine *cluster = fixture_machine("h100_64.json");
    const dtp_mesh mesh = fixture_mesh("x:2;y:32");
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &mesh;
    request.options.memory_limit_bytes = INT64_C(15) << 30;
    dtp_plan_result r = fixture_plan(g, cluster, &request);
    const dtp_certificate *c = &r.plan->certificate;
    check_plan(g, &request, r.plan);
    assert_string_equal(c->solver, "selection, tied in 2 groups");
    assert_true(c->has_untied && c->untied_bound <= c->bound && c->bound <= c->least_cost);
    request.tying_bound = false;
    dtp_plan_result tied = fixture_plan(g, cluster, &request);
    assert_string_equal(tied.plan->certificate.solver, "selection, tied");
    assert_true(c->least_cost < tied.plan->certificate.least_cost);
    assert_true(c->least_cost < tied.plan->certificate.bound);
    /* A longer timeline is outweighed by the additive cost (planner/planning.c). */
    const double least = (double)c->least_cost;
    const double saved = ((double)tied.plan->certificate.cost - least) / least;
    assert_true(r.plan->predicted.step_time_s <=
                tied.plan->predicted.step_time_s * (1.0 + 2.0 * saved));
    dtp_plan_result_free(&tied);
    dtp_plan_result_free(&r);
    dtp_machine_destroy(cluster);
    dtp_graph_destroy(g);
}

/* Without tying the whole problem is solved: its bound is the optimum, and what it finds is not
 * worse than the tied plan. */
static void test_plan_tensor__untied(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("gpt2_small.json");
    const dtp_mesh mesh = fixture_mesh("x:4");
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &mesh;
    dtp_plan_result tied = fixture_plan(g, a100, &request);
    dtp_solve_result apart = solve_untied(g, &request);
    request.options.untie = true;
    dtp_plan_result r = fixture_plan(g, a100, &request);
    const dtp_certificate *c = &r.plan->certificate;
    check_plan(g, &request, r.plan);
    assert_false(c->has_untied);
    assert_string_equal(c->solver, "selection");
    assert_int_equal(apart.status, DTP_CERT_OPTIMAL);
    assert_int_equal(c->bound, apart.value.cost);
    assert_int_equal(c->least_cost, apart.value.cost);
    assert_true(c->least_cost < tied.plan->certificate.least_cost);
    assert_true(r.plan->predicted.step_time_s <= tied.plan->predicted.step_time_s);
    dtp_solve_result_free(&apart);
    dtp_plan_result_free(&tied);
    dtp_plan_result_free(&r);
    dtp_graph_destroy(g);
}

/* Nothing is said where nothing was tied, where it was not asked for, and in bytes. */
static void test_plan_tensor__says_nothing_where_folding_costs_nothing(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("gpt2_small.json"), *flat = fixture_model("mlp_digits.json");
    const dtp_mesh mesh = fixture_mesh("x:2");
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &mesh;
    dtp_plan_result r = fixture_plan(flat, a100, &request);
    assert_false(r.plan->certificate.has_untied);
    dtp_plan_result_free(&r);
    request.options.objective = DTP_OBJECTIVE_MEMORY;
    r = fixture_plan(g, a100, &request);
    assert_false(r.plan->certificate.has_untied);
    dtp_plan_result_free(&r);
    request.options.objective = DTP_OBJECTIVE_TIME;
    request.tying_bound = false;
    r = fixture_plan(g, a100, &request);
    assert_false(r.plan->certificate.has_untied);
    dtp_plan_result_free(&r);
    request.tying_bound = true;
    request.options.mesh = NULL;
    request.options.devices = 4;
    r = fixture_plan(g, a100, &request);
    assert_true(r.n_meshes > 1 && r.plan->certificate.has_untied);
    dtp_plan_result_free(&r);
    dtp_graph_destroy(flat);
    dtp_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_tensor__never_worse_than_baselines_or_rules),
        cmocka_unit_test(test_plan_tensor__objective_memory),
        cmocka_unit_test(test_plan_tensor__names_the_smallest_limit),
        cmocka_unit_test(test_plan_tensor__pins_hold),
        cmocka_unit_test(test_plan_tensor__names_the_conflict),
        cmocka_unit_test(test_plan_tensor__bad_pins_are_errors),
        cmocka_unit_test(test_plan_tensor__search_cuts_only_what_costs_more),
        cmocka_unit_test(test_plan_tensor__same_input_same_plan),
        cmocka_unit_test(test_plan_tensor__says_what_folding_costs_at_most),
        cmocka_unit_test(test_plan_tensor__layers_in_two_runs),
        cmocka_unit_test(test_plan_tensor__untied),
        cmocka_unit_test(test_plan_tensor__says_nothing_where_folding_costs_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
