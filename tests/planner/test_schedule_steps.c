/* Plans of tensor mode that no single decision makes better by its timeline, as long as the sum of
 * prices stays near the least one: every other option of every decision is lowered and priced. */
#include "planner/tensors/plan_tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/strbuf.h"
#include "cost_models/candidate.h"
#include "planner/plan_rules.h"
#include "planner/problem/check.h"
#include "planner/problem/tensors/tensor_problem.h"
#include "tests/support/random_graphs.h"
#include "tests/support/plan_fixture.h"

/* Sums of prices near the least one; and moves of one round, so few that all of some rounds are
 * within the planner's work. */
static const double NEAR_LEAST = 1.005;
enum { MOST_MOVES = 33, FIRST_SEED = 1, LAST_SEED = 120 };

typedef struct oracle {
    const dtp_graph *graph;
    const dtp_plan *plan;
    int64_t limit;
    dtp_pricer pricer;
    dtp_tensor_problem *problem;
    int32_t *choice; /* of the plan */
    int32_t moves, better;
} oracle;

/* Of all cases. */
typedef struct counts {
    int32_t plans, checked, moves;
} counts;

static int64_t edge_price(const oracle *o, int32_t e)
{
    const dtp_problem *s = o->problem->select;
    const int32_t a = s->edge_a[e], b = s->edge_b[e];
    return s->edge_cost[s->edge_first[e] + (int64_t)o->choice[a] * dtp_problem_n_strategies(s, b) +
                        o->choice[b]];
}

/* Whether another option of a decision changes what is sent, at prices near the least sum. *sum: of
 * all prices then. */
static bool is_move(oracle *o, int32_t decision, int32_t option, int64_t *sum)
{
    const dtp_problem *s = o->problem->select;
    const int32_t was = o->choice[decision];
    dtp_problem_value value;
    bool changes = false;
    for (int32_t e = 0; e < s->n_edges && !changes; e++) {
        const int64_t before = edge_price(o, e);
        o->choice[decision] = option;
        changes = edge_price(o, e) != before;
        o->choice[decision] = was;
    }
    o->choice[decision] = option;
    assert_int_equal(dtp_problem_evaluate(s, o->choice, &value, NULL), DTP_OK);
    o->choice[decision] = was;
    *sum = value.cost;
    return changes && value.cost < DTP_FORBIDDEN &&
           value.cost <= (int64_t)(NEAR_LEAST * (double)o->plan->certificate.least_cost);
}

static dtp_prediction predict(const oracle *o)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_sharding sharding;
    dtp_prediction out;
    dtp_lower_options options = dtp_lower_options_init(dtp_tensor_redistributor(o->problem));
    assert_non_null(arena);
    assert_int_equal(dtp_tensor_sharding(o->problem, o->choice, arena, &sharding, NULL), DTP_OK);
    assert_int_equal(
        dtp_sharding_predict(o->graph, &o->pricer, &sharding, &options, &out, NULL, NULL), DTP_OK);
    dtp_arena_destroy(arena);
    return out;
}

/* What plans are compared by: hidden communication counts half. */
static double time_of(double step_s, int64_t sum_ps)
{
    return 0.5 * (step_s + 1e-12 * (double)sum_ps);
}

static void try_moves(oracle *o)
{
    const double time_s = time_of(o->plan->predicted.step_time_s, o->plan->certificate.cost);
    for (int32_t i = 0; i < o->problem->n_variables; i++) {
        const int32_t was = o->choice[i];
        for (int32_t k = 0; k < o->problem->variables[i].n_strategies; k++) {
            int64_t sum;
            if (k == was || !is_move(o, i, k, &sum)) {
                continue;
            }
            o->choice[i] = k;
            const dtp_prediction p = predict(o);
            o->choice[i] = was;
            const bool fits = o->limit == 0 || p.peak_bytes <= o->limit;
            o->moves++;
            o->better += fits && time_of(p.step_time_s, sum) < time_s * (1.0 - 1e-12) ? 1 : 0;
        }
    }
}

/* The plan as a selection; false where it is none, or not near the least sum. */
static bool select_plan(oracle *o)
{
    const dtp_certificate *c = &o->plan->certificate;
    bool found = false;
    o->choice = calloc((size_t)o->problem->n_variables + 1, sizeof *o->choice);
    assert_non_null(o->choice);
    assert_int_equal(dtp_tensor_assignment(o->problem, &o->plan->sharding, o->choice, &found, NULL),
                     DTP_OK);
    return found && (double)c->cost <= NEAR_LEAST * (double)c->least_cost;
}

/* Baselines and layout rules are taken for their timeline alone when nothing else is as fast. */
static bool is_given(const dtp_graph *g, const dtp_machine *machine, const dtp_plan *plan)
{
    const double most_s = plan->predicted.step_time_s * (1.0 + 1e-12);
    dtp_plan_request request = dtp_plan_request_init();
    dtp_plan_result rules;
    bool found = false;
    for (int32_t i = 0; i < plan->n_baselines; i++) {
        const dtp_baseline *b = &plan->baselines[i];
        found = found || (b->legal && b->predicted.step_time_s <= most_s);
    }
    request.mesh = &plan->mesh;
    request.memory_limit_bytes = plan->memory_limit_bytes;
    assert_int_equal(dtp_plan_rules(g, machine, &request, &rules, NULL), DTP_OK);
    found = found || (rules.plan != NULL && rules.plan->predicted.step_time_s <= most_s);
    dtp_plan_result_free(&rules);
    return found;
}

static void check_plan(const dtp_graph *g, const dtp_machine *machine, const dtp_plan *plan,
                       const char *name, counts *n)
{
    oracle o = {.graph = g, .plan = plan, .limit = plan->memory_limit_bytes};
    dtp_tensor_options options = dtp_tensor_options_init();
    options.memory_bytes = o.limit;
    assert_int_equal(dtp_pricer_init(machine, &plan->mesh, &o.pricer, NULL), DTP_OK);
    assert_int_equal(dtp_tensor_problem_create(g, &o.pricer, &options, &o.problem, NULL), DTP_OK);
    if (select_plan(&o)) {
        const dtp_prediction same = predict(&o);
        assert_true(same.step_time_s >= plan->predicted.step_time_s &&
                    same.step_time_s <= plan->predicted.step_time_s);
        try_moves(&o);
    }
    n->plans++;
    if (o.moves <= MOST_MOVES) {
        n->checked += o.moves > 0 ? 1 : 0;
        n->moves += o.moves;
        if (o.better > 0 && !is_given(g, machine, plan)) {
            fail_msg("%s: %d of %d moves are better", name, o.better, o.moves);
        }
    }
    free(o.choice);
    dtp_tensor_problem_destroy(o.problem);
}

/* `tight`: also within a limit that the plan exceeds. */
static void check_model(const dtp_graph *g, const dtp_machine *machine, const char *mesh,
                        const char *name, bool tight, counts *n)
{
    dtp_plan_result r = fixture_plan_on(g, machine, mesh, 0);
    check_plan(g, machine, r.plan, name, n);
    const int64_t below = r.plan->predicted.peak_bytes - 1;
    dtp_plan_result_free(&r);
    if (tight) {
        r = fixture_plan_on(g, machine, mesh, below);
        if (r.plan != NULL) {
            check_plan(g, machine, r.plan, name, n);
        }
        dtp_plan_result_free(&r);
    }
}

/* ---- models -------------------------------------------------------------------------------------
 */

static const char *const MESHES[] = {"x:2", "x:4", "x:2;y:2"};

/* Inputs, weights, and biases or none, of sizes that are powers of two. */
static void add_tensors(dtp_strbuf *b, uint64_t *random, int32_t layers, bool bias)
{
    dtp_strbuf_add(b, "{\"format\": \"dtp.model/1\", \"name\": \"mlp\", \"dims\": {");
    for (int32_t i = 0; i <= layers; i++) {
        dtp_strbuf_addf(b, "\"d%d\": %d, ", i, 64 << random_below(random, 7));
    }
    dtp_strbuf_addf(b, "\"batch\": %d}, \"inputs\": {", 64 << random_below(random, 8));
    dtp_strbuf_add(b, "\"x0\": {\"dims\": [\"batch\", \"d0\"], \"dtype\": \"f32\"},");
    dtp_strbuf_addf(b, "\"t\": {\"dims\": [\"batch\", \"d%d\"], \"dtype\": \"f32\"}},", layers);
    dtp_strbuf_add(b, "\"params\": {");
    for (int32_t i = 1; i <= layers; i++) {
        dtp_strbuf_addf(b, "%s\"w%d\": {\"dims\": [\"d%d\", \"d%d\"], \"init\": \"ones\"}",
                        i > 1 ? ", " : "", i, i - 1, i);
    }
    for (int32_t i = 1; i <= layers && bias; i++) {
        dtp_strbuf_addf(b, ", \"b%d\": {\"dims\": [\"d%d\"], \"init\": \"zeros\"}", i, i);
    }
    dtp_strbuf_add(b, "},");
}

static void add_nodes(dtp_strbuf *b, int32_t layers, bool bias)
{
    dtp_strbuf_add(b, "\"nodes\": [");
    for (int32_t i = 1; i <= layers; i++) {
        dtp_strbuf_addf(b,
                        "{\"id\": \"m%d\", \"op\": \"einsum\", \"in\": [\"x%d\", \"w%d\"], "
                        "\"out\": [\"batch\", \"d%d\"]},",
                        i, i - 1, i, i);
        if (bias) {
            dtp_strbuf_addf(b, "{\"id\": \"s%d\", \"op\": \"add\", \"in\": [\"m%d\", \"b%d\"]},", i,
                            i, i);
        }
        dtp_strbuf_addf(b, "{\"id\": \"x%d\", \"op\": \"relu\", \"in\": [\"%s%d\"]},", i,
                        bias ? "s" : "m", i);
    }
    dtp_strbuf_addf(b, "{\"id\": \"e\", \"op\": \"mul\", \"in\": [\"x%d\", \"t\"]},", layers);
    dtp_strbuf_addf(b,
                    "{\"id\": \"loss\", \"op\": \"reduce\", \"kind\": \"mean\", \"in\": [\"e\"], "
                    "\"over\": [\"batch\", \"d%d\"]}],",
                    layers);
}

/* A perceptron of one to three layers. */
static dtp_graph *random_mlp(uint64_t seed)
{
    uint64_t random = seed;
    dtp_strbuf b = {0};
    dtp_graph *g = NULL;
    dtp_err err = {0};
    const int32_t layers = 1 + random_below(&random, 3);
    const bool bias = random_below(&random, 2) == 0, sgd = random_below(&random, 2) == 0;
    add_tensors(&b, &random, layers, bias);
    add_nodes(&b, layers, bias);
    dtp_strbuf_addf(&b, "\"train\": {\"loss\": \"loss\", \"optimizer\": {\"%s\": {\"lr\": 0.1}}}}",
                    sgd ? "sgd" : "adamw");
    const char *text = dtp_strbuf_text(&b);
    if (dtp_model_parse("mlp", text, strlen(text), NULL, &g, &err) != DTP_OK) {
        fail_msg("%s", err.msg);
    }
    dtp_strbuf_free(&b);
    return g;
}

/* ---- tests --------------------------------------------------------------------------------------
 */

static void check_seed(const dtp_machine *machine, uint64_t seed, bool tight, counts *n)
{
    char name[128];
    dtp_graph *g = random_mlp(seed);
    (void)snprintf(name, sizeof name, "%s, seed %llu", machine->name, (unsigned long long)seed);
    check_model(g, machine, MESHES[seed % 3], name, tight, n);
    dtp_graph_destroy(g);
}

static void test_timeline_moves__none_makes_a_plan_faster(void **state)
{
    (void)state;
    static const char *const machines[] = {"a100_8.json", "h100_64.json", "l4_16.json"};
    counts n = {0};
    print_message("seeds %d to %d\n", FIRST_SEED, LAST_SEED);
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        dtp_machine *machine = fixture_machine(machines[i]);
        for (uint64_t seed = FIRST_SEED; seed <= LAST_SEED; seed++) {
            check_seed(machine, seed, seed % 4 == 0, &n);
        }
        dtp_machine_destroy(machine);
    }
    print_message("%d plans, %d of them checked with %d moves\n", n.plans, n.checked, n.moves);
    assert_true(n.checked > 200 && n.moves > 1000);
}

/* Models where a move is worth it only after another one. */
static void test_timeline_moves__are_tried_again_after_one_was_kept(void **state)
{
    (void)state;
    static const struct {
        const char *machine;
        uint64_t seed;
    } cases[] = {
        {"a100_8.json", 552}, {"h100_64.json", 644}, {"l4_16.json", 934}, {"l4_16.json", 1088}};
    counts n = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dtp_machine *machine = fixture_machine(cases[i].machine);
        print_message("seed %llu\n", (unsigned long long)cases[i].seed);
        check_seed(machine, cases[i].seed, false, &n);
        dtp_machine_destroy(machine);
    }
    assert_true(n.checked > 0);
}

static void test_timeline_moves__none_is_left_in_a_large_mlp(void **state)
{
    (void)state;
    static const dtp_dim_override sizes[] = {{"batch", 6144}, {"hidden", 3072}, {"pixels", 4096}};
    const dtp_model_options options = {.n_overrides = 3, .overrides = sizes};
    dtp_machine *machine = fixture_machine("h100_64.json");
    dtp_graph *g = fixture_model_with("mlp_digits.json", &options);
    counts n = {0};
    for (size_t i = 0; i < sizeof MESHES / sizeof MESHES[0]; i++) {
        check_model(g, machine, MESHES[i], MESHES[i], true, &n);
    }
    print_message("%d plans, %d of them checked with %d moves\n", n.plans, n.checked, n.moves);
    assert_true(n.checked > 1);
    dtp_graph_destroy(g);
    dtp_machine_destroy(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeline_moves__none_makes_a_plan_faster),
        cmocka_unit_test(test_timeline_moves__are_tried_again_after_one_was_kept),
        cmocka_unit_test(test_timeline_moves__none_is_left_in_a_large_mlp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
