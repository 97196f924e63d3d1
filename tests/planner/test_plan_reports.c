/* What is asked about plans: diff, pareto, sensitivity, the least usage of a problem. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/plan_lowering.h"
#include "cost_models/predict.h"
#include "planner/reports/pareto.h"
#include "planner/reports/plan_diff.h"
#include "planner/reports/sensitivity.h"
#include "planner/solver/minimum_memory.h"
#include "tests/support/random_graphs.h"
#include "tests/support/plan_fixture.h"

static dtp_machine *machine;

static int setup(void **state)
{
    (void)state;
    machine = fixture_machine("a100_8.json");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dtp_machine_destroy(machine);
    return 0;
}

/* ---- diff ---- */

/* The split costs add up to the additive price, the differences of nodes to that of the plans. */
static void test_plan_diff__adds_up(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    dtp_plan_result a = fixture_plan_on(g, machine, "x:2;y:2", 0),
                    b = fixture_plan_on(g, machine, "x:2;y:2", 114688);
    dtp_arena *arena = dtp_arena_create();
    dtp_plan_diff diff;
    dtp_plan_lowering x, y;
    assert_int_equal(dtp_plan_lowering_init(&x, a.plan, NULL), DTP_OK);
    assert_int_equal(dtp_plan_lowering_init(&y, b.plan, NULL), DTP_OK);
    const dtp_diff_input inputs[2] = {{g, &a.plan->sharding, &x.options},
                                      {g, &b.plan->sharding, &y.options}};
    assert_int_equal(dtp_plan_diff_make(inputs, machine, arena, &diff, NULL), DTP_OK);
    const int64_t cost[2] = {a.plan->certificate.cost, b.plan->certificate.cost};
    int64_t sum = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dtp_cost_split_sum(&diff.side[i].cost), cost[i]);
        assert_true(diff.side[i].needed_bytes <= diff.side[i].predicted.peak_bytes);
        assert_true(10 * diff.side[i].needed_bytes > 9 * diff.side[i].predicted.peak_bytes);
    }
    for (int32_t n = 0; n < diff.n_nodes; n++) {
        sum +=
            dtp_cost_split_sum(&diff.nodes[n].cost[1]) - dtp_cost_split_sum(&diff.nodes[n].cost[0]);
    }
    assert_int_equal(sum, cost[1] - cost[0]);
    assert_true(diff.n_tensors > 0);
    dtp_arena_destroy(arena);
    dtp_plan_result_free(&a);
    dtp_plan_result_free(&b);
    dtp_graph_destroy(g);
}

static void test_plan_diff__nothing_between_equal_plans(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    dtp_plan_result a = fixture_plan_on(g, machine, "x:2;y:2", 114688);
    dtp_arena *arena = dtp_arena_create();
    dtp_plan_diff diff;
    dtp_lower_options passes = dtp_lower_options_init(dtp_redistributor_generic());
    const dtp_diff_input inputs[2] = {{g, &a.plan->sharding, &passes},
                                      {g, &a.plan->sharding, &passes}};
    assert_int_equal(dtp_plan_diff_make(inputs, machine, arena, &diff, NULL), DTP_OK);
    assert_int_equal(diff.n_tensors, 0);
    assert_int_equal(diff.n_nodes, 0);
    dtp_arena_destroy(arena);
    dtp_plan_result_free(&a);
    dtp_graph_destroy(g);
}

/* ---- pareto ---- */

static void test_pareto__no_point_beats_another(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    static const dtp_plan_mode functions[] = {dtp_plan_tensor, dtp_plan_rules};
    for (int f = 0; f < 2; f++) {
        dtp_pareto p;
        dtp_plan_request request = dtp_plan_request_init();
        const dtp_mesh mesh = fixture_mesh("x:2;y:2");
        request.options.mesh = &mesh;
        assert_int_equal(dtp_pareto_find(g, machine, &request, functions[f], 6, &p, NULL), DTP_OK);
        assert_true(p.n >= 2 && p.n <= 6);
        for (int32_t i = 0; i < p.n; i++) {
            const dtp_prediction *q = &p.points[i].plan->predicted;
            assert_true(p.points[i].limit_bytes == 0 || q->peak_bytes <= p.points[i].limit_bytes);
            assert_true(p.points[i].n_top > 0);
            assert_true(p.points[i].top[0].bytes <= p.points[i].needed_bytes);
            if (i > 0) {
                const dtp_prediction *before = &p.points[i - 1].plan->predicted;
                assert_true(q->peak_bytes < before->peak_bytes);
                assert_true(q->step_time_s > before->step_time_s);
            }
        }
        assert_int_equal(p.points[p.n - 1].plan->predicted.peak_bytes, p.least_bytes);
        dtp_pareto_free(&p);
        request.options.memory_limit_bytes = 2048;
        assert_int_equal(dtp_pareto_find(g, machine, &request, functions[f], 6, &p, NULL), DTP_OK);
        assert_int_equal(p.n, 0);
        assert_true(p.least_bytes == 0 && p.least_bound > 2048);
        dtp_pareto_free(&p);
    }
    dtp_graph_destroy(g);
}

/* ---- sensitivity ---- */

/* By how much a plan made for the scaled machine is faster there than `plan`. */
static double gain_at(const dtp_graph *g, const dtp_machine *m, const dtp_machine_param *param,
                      double factor, const dtp_plan *plan)
{
    dtp_machine *scaled = NULL;
    dtp_plan_result r;
    dtp_pricer pricer;
    dtp_prediction ours;
    dtp_plan_request request = dtp_plan_request_init();
    request.options.mesh = &plan->mesh;
    request.options.memory_limit_bytes = plan->memory_limit_bytes;
    assert_int_equal(dtp_machine_scaled(m, param, factor, &scaled, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(scaled, &plan->mesh, &dtp_target_cpu, &pricer, NULL), DTP_OK);
    assert_int_equal(dtp_plan_tensor(g, scaled, &request, &r, NULL), DTP_OK);
    dtp_plan_lowering lowering;
    assert_int_equal(dtp_plan_lowering_init(&lowering, plan, NULL), DTP_OK);
    assert_int_equal(
        dtp_sharding_predict(g, &pricer, &plan->sharding, &lowering.options, &ours, NULL, NULL),
        DTP_OK);
    const double gain = 1.0 - r.plan->predicted.step_time_s / ours.step_time_s;
    dtp_plan_result_free(&r);
    dtp_machine_destroy(scaled);
    return gain;
}

static void check_end(const dtp_graph *g, const dtp_machine *m, const dtp_machine_param *param,
                      const dtp_takeover *t, const dtp_plan *plan)
{
    assert_true(gain_at(g, m, param, t->stays, plan) <= 1e-3);
    assert_true(!t->found || gain_at(g, m, param, t->goes, plan) > 1e-3);
    assert_true(!t->found || (t->gain > 1e-3 && t->n_tensors > 0));
}

static void test_sensitivity__ends_are_where_another_plan_takes_over(void **state)
{
    (void)state;
    dtp_machine *cpu = fixture_machine("cpu_2.json");
    dtp_graph *g = fixture_model("mlp_digits.json");
    const dtp_mesh mesh = fixture_mesh("x:2");
    dtp_plan_request plan_request = dtp_plan_request_init();
    plan_request.options.mesh = &mesh;
    dtp_plan_result r = fixture_plan(g, cpu, &plan_request);
    dtp_arena *arena = dtp_arena_create();
    dtp_sensitivity_request request = dtp_sensitivity_request_init();
    dtp_sensitivity s;
    int32_t found = 0;
    request.model = request.graph = g;
    request.machine = cpu;
    request.plan = r.plan;
    request.search = dtp_plan_tensor;
    request.steps = 4;
    assert_int_equal(dtp_sensitivity_find(&request, arena, &s, NULL), DTP_OK);
    assert_true(s.best_now && s.n >= 4);
    for (int32_t i = 0; i < s.n; i++) {
        check_end(g, cpu, &s.rows[i].param, &s.rows[i].below, r.plan);
        check_end(g, cpu, &s.rows[i].param, &s.rows[i].above, r.plan);
        found += s.rows[i].below.found + s.rows[i].above.found;
    }
    assert_true(found > 0);
    request.only = "nosuch";
    assert_int_equal(dtp_sensitivity_find(&request, arena, &s, NULL), DTP_NOT_FOUND);
    dtp_arena_destroy(arena);
    dtp_plan_result_free(&r);
    dtp_graph_destroy(g);
    dtp_machine_destroy(cpu);
}

/* ---- least usage ---- */

enum { NODES = 5, WAYS = 3 };

static dtp_problem *random_problem(uint64_t *seed)
{
    dtp_problem *p = NULL;
    int64_t cost[WAYS * WAYS], usage[WAYS];
    assert_int_equal(dtp_problem_create("random", 1 << 20, &p, NULL), DTP_OK);
    for (int32_t i = 0; i < NODES; i++) {
        for (int32_t s = 0; s < WAYS; s++) {
            cost[s] = random_below(seed, 100);
            usage[s] = random_below(seed, 50);
        }
        const int64_t begin = random_below(seed, 5);
        assert_int_equal(dtp_problem_add_variable(p, begin, begin + 1 + random_below(seed, 5), WAYS,
                                                  cost, usage, NULL),
                         DTP_OK);
    }
    for (int32_t i = 1; i < NODES; i++) {
        for (int32_t k = 0; k < WAYS * WAYS; k++) {
            cost[k] = random_below(seed, 5) > 1 ? DTP_FORBIDDEN : random_below(seed, 100);
        }
        assert_int_equal(dtp_problem_add_edge(p, random_below(seed, i), i, cost, NULL), DTP_OK);
    }
    assert_int_equal(dtp_problem_check(p, NULL), DTP_OK);
    return p;
}

/* The smallest peak of any selection in which nothing is forbidden; -1: there is none. */
static int64_t brute_force(const dtp_problem *p)
{
    int64_t best = -1;
    int32_t choice[NODES] = {0};
    for (int32_t code = 0; code < 243; code++) {
        dtp_problem_value value;
        for (int32_t i = 0, left = code; i < NODES; i++, left /= WAYS) {
            choice[i] = left % WAYS;
        }
        assert_int_equal(dtp_problem_evaluate(p, choice, &value, NULL), DTP_OK);
        if (value.cost < DTP_FORBIDDEN && (best < 0 || value.peak < best)) {
            best = value.peak;
        }
    }
    return best;
}

static void test_least_usage__equals_brute_force(void **state)
{
    (void)state;
    int32_t possible = 0;
    for (uint64_t k = 0; k < 200; k++) {
        const uint64_t first = 700 + k;
        uint64_t seed = first;
        const dtp_solve_options options = dtp_solve_options_init();
        dtp_minimum_memory l;
        dtp_problem *p = random_problem(&seed);
        const int64_t best = brute_force(p);
        print_message("seed %llu\n", (unsigned long long)first);
        assert_int_equal(dtp_minimum_memory_find(p, &options, 0, &l, NULL), DTP_OK);
        assert_int_equal(l.possible, best >= 0);
        if (best >= 0) {
            assert_int_equal(l.usage, best);
            assert_int_equal(l.bound, best);
            possible++;
        }
        dtp_minimum_memory_free(&l);
        dtp_problem_destroy(p);
    }
    assert_in_range(possible, 80, 195);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan_diff__adds_up),
        cmocka_unit_test(test_plan_diff__nothing_between_equal_plans),
        cmocka_unit_test(test_pareto__no_point_beats_another),
        cmocka_unit_test(test_sensitivity__ends_are_where_another_plan_takes_over),
        cmocka_unit_test(test_least_usage__equals_brute_force),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
