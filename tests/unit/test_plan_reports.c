/* What is asked about plans: explain, diff, pareto, sensitivity, the least usage of a problem. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cost_models/move_price.h"
#include "cost_models/plan_lowering.h"
#include "planner/candidate.h"
#include "planner/reports/explain.h"
#include "planner/tensor/least_usage.h"
#include "planner/reports/pareto.h"
#include "planner/reports/plan_diff.h"
#include "planner/reports/sensitivity.h"
#include "tests/oracle/rules_ilp_graphs.h"
#include "tests/unit/plan_fixture.h"

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

static dtp_plan_result plan_on(const dtp_graph *g, const char *mesh_text, int64_t limit)
{
    static dtp_mesh mesh;
    dtp_plan_request request = dtp_plan_request_init();
    mesh = fixture_mesh(mesh_text);
    request.mesh = &mesh;
    request.memory_limit_bytes = limit;
    return fixture_plan(g, machine, &request);
}

/* ---- explain ------------------------------------------------------------------------------------
 */

/* What solving again says: the optimum lies between the two, and is known where they are equal. */
typedef struct solved {
    bool none; /* there is no solution */
    int64_t bound, cost;
} solved;

enum { SOME_ITERATIONS = 60 };

/* With the tensor pinned to a layout, by a problem of its own; `proven`: to the end. */
static solved solve_pinned(const dtp_graph *g, const dtp_plan *plan, int32_t runs, dtp_tensor_id t,
                           const char *layout, bool proven)
{
    dtp_pricer pricer;
    dtp_tensor_problem *p = NULL;
    dtp_tensor_options options = dtp_tensor_options_init();
    dtp_select_options select = dtp_select_options_init();
    dtp_select_result r;
    solved out = {.none = true};
    dtp_pin pin = {.tensor = t, .node = -1};
    assert_int_equal(
        dtp_layout_parse(layout, &plan->mesh, &g->tensors[t].type, &g->dims, &pin.layout, NULL),
        DTP_OK);
    assert_int_equal(dtp_pricer_init(machine, &plan->mesh, &pricer, NULL), DTP_OK);
    options.runs = runs;
    options.memory_bytes = plan->memory_limit_bytes;
    options.n_pins = 1;
    options.pins = &pin;
    if (dtp_tensor_problem_create(g, &pricer, &options, &p, NULL) != DTP_OK) {
        return out;
    }
    select.iterations = proven ? select.iterations : SOME_ITERATIONS;
    assert_int_equal(dtp_select_solve(p->select, &select, &r, NULL), DTP_OK);
    assert_true(!proven || r.status == DTP_CERT_OPTIMAL || r.status == DTP_CERT_INFEASIBLE);
    out = (solved){.none = r.status == DTP_CERT_INFEASIBLE,
                   .bound = r.bound,
                   .cost = r.choice != NULL ? r.value.cost : INT64_MAX / 2};
    dtp_select_result_free(&r);
    dtp_tensor_problem_destroy(p);
    return out;
}

/* The difference lies between `low` and `high`, when solved again with the alternative. */
static void check_difference(const dtp_alternative *a, int64_t low, int64_t high, bool exact)
{
    const int64_t alone = dtp_cost_split_sum(&a->alone);
    assert_true(!a->none && a->at_least <= high);
    assert_true(!a->at_least_is_best || (low <= a->at_least && a->at_least <= high));
    assert_true(!exact || a->at_least_is_best);
    assert_true(!a->known || low <= a->at_most);
    assert_true(!a->at_least_is_best || (a->known && a->at_least == a->at_most));
    assert_true(a->apart || !a->alone_fits || (a->known && a->at_most <= alone));
}

/* The first so many alternatives of a tensor with a choice of its own. */
static int32_t check_tensor(const dtp_graph *g, const dtp_plan *plan, dtp_tensor_id t, bool exact,
                            bool proven, int32_t most, int32_t *n_exact)
{
    dtp_explanation x;
    dtp_err err = {0};
    dtp_arena *arena = dtp_arena_create();
    int32_t compared = 0;
    const dtp_explain_request request = {.graph = g,
                                         .machine = machine,
                                         .plan = plan,
                                         .plan_is_current = true,
                                         .exact = exact,
                                         .name = g->tensors[t].name};
    if (dtp_explain(&request, arena, &x, &err) != DTP_OK) {
        fail_msg("%s: %s", g->tensors[t].name, err.msg);
    }
    for (int32_t i = 0; i < x.n && i < most && !x.node; i++) {
        const dtp_alternative *a = &x.alternatives[i];
        if (!a->priced) {
            assert_non_null(a->excluded);
            continue;
        }
        const solved best = solve_pinned(g, plan, x.runs, t, a->text, proven);
        assert_true(!best.none || !a->chosen);
        assert_true(!a->none || best.none);
        if (!best.none) {
            check_difference(a, best.bound - x.cost_ps, best.cost - x.cost_ps, exact);
            *n_exact += a->at_least_is_best ? 1 : 0;
            compared++;
        }
    }
    dtp_arena_destroy(arena);
    return compared;
}

/* The optimum of a problem with one option of a choice; -1: there is none. */
static int64_t solve_held(dtp_select_problem *p, int32_t choice, int32_t option)
{
    const dtp_select_options options = dtp_select_options_init();
    const int32_t n = dtp_select_n_strategies(p, choice);
    int64_t *cost = p->cost + p->first[choice];
    int64_t *kept = malloc((size_t)n * sizeof *kept);
    dtp_select_result r;
    assert_non_null(kept);
    memcpy(kept, cost, (size_t)n * sizeof *kept);
    for (int32_t i = 0; i < n; i++) {
        cost[i] = i == option ? kept[i] : DTP_SELECT_FORBIDDEN;
    }
    assert_int_equal(dtp_select_solve(p, &options, &r, NULL), DTP_OK);
    assert_true(r.status == DTP_CERT_OPTIMAL || r.status == DTP_CERT_INFEASIBLE);
    const int64_t best = r.status == DTP_CERT_OPTIMAL ? r.value.cost : -1;
    dtp_select_result_free(&r);
    memcpy(cost, kept, (size_t)n * sizeof *kept);
    free(kept);
    return best;
}

static const dtp_alternative *find_alternative(const dtp_explanation *x, const char *text);

/* Every way to run a node, each solved again. */
static int32_t check_node_again(const dtp_graph *g, const dtp_plan *plan, dtp_node_id n, bool exact,
                                int32_t *n_exact)
{
    dtp_pricer pricer;
    dtp_tensor_problem *p = NULL;
    dtp_tensor_options options = dtp_tensor_options_init();
    dtp_explanation x;
    dtp_arena *arena = dtp_arena_create();
    int32_t compared = 0;
    const dtp_explain_request request = {.graph = g,
                                         .machine = machine,
                                         .plan = plan,
                                         .plan_is_current = true,
                                         .exact = exact,
                                         .name = g->nodes[n].name,
                                         .node = true};
    assert_int_equal(dtp_explain(&request, arena, &x, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(machine, &plan->mesh, &pricer, NULL), DTP_OK);
    options.memory_bytes = plan->memory_limit_bytes;
    assert_int_equal(dtp_tensor_problem_create(g, &pricer, &options, &p, NULL), DTP_OK);
    const int32_t c = p->choice_of_node[n];
    for (int32_t k = 0; k < p->choices[c].n_options; k++) {
        char text[DTP_STRATEGY_TEXT_BYTES];
        dtp_strategy_print(g, n, &plan->mesh, &p->choices[c].options[k].strategy, text);
        const dtp_alternative *a = find_alternative(&x, text);
        const int64_t best = solve_held(p->select, c, k);
        assert_true(a->none ? best < 0 : best >= 0 || !a->known);
        if (best >= 0) {
            check_difference(a, best - x.cost_ps, best - x.cost_ps, exact);
            *n_exact += a->at_least_is_best ? 1 : 0;
            compared++;
        }
    }
    dtp_tensor_problem_destroy(p);
    dtp_arena_destroy(arena);
    return compared;
}

static void test_explain__bounds_hold_when_solved_again(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    int32_t compared = 0, exact = 0;
    for (int pass = 0; pass < 2; pass++) {
        dtp_plan_result r = plan_on(g, "x:2;y:2", pass == 0 ? 0 : 114688);
        for (int32_t t = 0; t < g->n_tensors; t++) {
            compared += check_tensor(g, r.plan, t, t % 4 == 0, true, INT32_MAX, &exact);
        }
        for (int32_t n = pass; n < g->n_nodes; n += 2) {
            compared += check_node_again(g, r.plan, n, n % 8 < 2, &exact);
        }
        dtp_plan_result_free(&r);
    }
    print_message("%d alternatives solved again, %d differences exact\n", compared, exact);
    assert_true(compared > 400 && 10 * exact > 9 * compared);
    dtp_graph_destroy(g);
}

/* A large model whose plan has memory to spare, and one whose plan fills it. */
static void test_explain__bounds_hold_on_large_models(void **state)
{
    (void)state;
    static const struct {
        const char *model, *machine, *mesh;
        int64_t limit;
        int32_t exact; /* of a hundred, at least */
        const char *tensors[4];
    } cases[] = {
        {"llama3_8b.json",
         "h100_64.json",
         "x:8;y:8",
         0,
         75,
         {"layers.3.x1", "layers.5.attn.wq", "layers.0.mlp.up", "grad.layers.7.mlp.h.0"}},
        {"gpt2_small.json",
         "a100_8.json",
         "x:8",
         600000000,
         10,
         {"layers.1.mlp.w1", "layers.2.attn.q", "wte", "layers.4.mlp.up"}},
    };
    enum { ALTERNATIVES = 5 };
    dtp_machine *usual = machine;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        dtp_graph *g = fixture_model(cases[c].model);
        int32_t compared = 0, exact = 0;
        machine = fixture_machine(cases[c].machine);
        dtp_plan_result r = plan_on(g, cases[c].mesh, cases[c].limit);
        for (size_t i = 0; i < sizeof cases[c].tensors / sizeof cases[c].tensors[0]; i++) {
            const dtp_tensor_id t = dtp_graph_find(g, cases[c].tensors[i]);
            assert_true(t >= 0);
            compared += check_tensor(g, r.plan, t, false, true, ALTERNATIVES, &exact);
        }
        print_message("%s: %d alternatives solved again, %d differences exact\n", cases[c].model,
                      compared, exact);
        assert_true(compared >= 10 && 100 * exact >= cases[c].exact * compared);
        dtp_plan_result_free(&r);
        dtp_machine_destroy(machine);
        dtp_graph_destroy(g);
    }
    machine = usual;
}

/* A plan of which each half of the layers decides for itself. */
static void test_explain__layers_in_two_runs(void **state)
{
    (void)state;
    static const char *const names[] = {"layers.0.moe.up", "layers.3.moe.up"};
    const dtp_dim_override layers = {"layers", 4};
    const dtp_model_options options = {.n_overrides = 1, .overrides = &layers};
    dtp_graph *g = fixture_model_with("mixtral_8x7b.json", &options);
    dtp_machine *usual = machine;
    int32_t compared = 0, exact = 0;
    machine = fixture_machine("h100_64.json");
    dtp_plan_result r = plan_on(g, "x:2;y:32", INT64_C(15) << 30);
    assert_string_equal(r.plan->certificate.solver, "select, folded in 2 runs");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const dtp_tensor_id t = dtp_graph_find(g, names[i]);
        dtp_explanation x;
        dtp_arena *arena = dtp_arena_create();
        const dtp_explain_request request = {
            .graph = g, .machine = machine, .plan = r.plan, .name = names[i]};
        assert_int_equal(dtp_explain(&request, arena, &x, NULL), DTP_OK);
        assert_int_equal(x.runs, 2);
        assert_int_equal(x.instances, 2);
        compared += check_tensor(g, r.plan, t, false, false, 3, &exact);
        dtp_arena_destroy(arena);
    }
    print_message("%d alternatives solved again\n", compared);
    assert_true(compared >= 4);
    dtp_plan_result_free(&r);
    dtp_machine_destroy(machine);
    machine = usual;
    dtp_graph_destroy(g);
}

/* A problem on the plan's mesh, and the prices that it was made with. */
typedef struct price_fixture {
    dtp_pricer pricer;
    dtp_tensor_problem *problem;
    dtp_move_pricer *moves;
    int32_t *selection; /* of the plan */
} price_fixture;

static void price_setup(price_fixture *f, const dtp_graph *g, const dtp_plan *plan)
{
    const dtp_tensor_options options = dtp_tensor_options_init();
    bool found = false;
    assert_int_equal(dtp_pricer_init(machine, &plan->mesh, &f->pricer, NULL), DTP_OK);
    assert_int_equal(dtp_tensor_problem_create(g, &f->pricer, &options, &f->problem, NULL), DTP_OK);
    assert_int_equal(dtp_move_pricer_create(&f->pricer, &f->moves, NULL), DTP_OK);
    f->selection = calloc((size_t)f->problem->n_choices, sizeof *f->selection);
    assert_non_null(f->selection);
    assert_int_equal(dtp_tensor_selection(f->problem, &plan->sharding, f->selection, &found, NULL),
                     DTP_OK);
    assert_true(found);
}

static void price_teardown(price_fixture *f)
{
    free(f->selection);
    dtp_move_pricer_destroy(f->moves);
    dtp_tensor_problem_destroy(f->problem);
}

/* What the program of a selection costs when its redistributions take the machine's steps. */
static int64_t price_selection(const price_fixture *f, const dtp_graph *g)
{
    dtp_arena *arena = dtp_arena_create();
    dtp_sharding s;
    int64_t cost = 0;
    assert_int_equal(dtp_tensor_sharding(f->problem, f->selection, arena, &s, NULL), DTP_OK);
    assert_int_equal(
        dtp_additive_cost(g, &f->pricer, &s, dtp_move_pricer_redistributor(f->moves), &cost, NULL),
        DTP_OK);
    dtp_arena_destroy(arena);
    return cost;
}

static const dtp_alternative *find_alternative(const dtp_explanation *x, const char *text)
{
    for (int32_t i = 0; i < x->n; i++) {
        if (strcmp(x->alternatives[i].text, text) == 0) {
            return &x->alternatives[i];
        }
    }
    fail_msg("no alternative '%s'", text);
    return NULL;
}

/* Every way to run a node: the program with it, lowered whole, costs what explain says. */
static int32_t check_node(price_fixture *f, const dtp_graph *g, const dtp_plan *plan, dtp_node_id n)
{
    const int32_t c = f->problem->choice_of_node[n], kept = f->selection[c];
    const int64_t now = price_selection(f, g);
    dtp_arena *arena = dtp_arena_create();
    dtp_explanation x;
    int32_t compared = 0;
    const dtp_explain_request request = {.graph = g,
                                         .machine = machine,
                                         .plan = plan,
                                         .plan_is_current = true,
                                         .name = g->nodes[n].name,
                                         .node = true};
    assert_int_equal(dtp_explain(&request, arena, &x, NULL), DTP_OK);
    assert_true(x.node && x.alternatives[0].chosen);
    assert_int_equal(x.cost_ps, now);
    for (int32_t k = 0; k < f->problem->choices[c].n_options; k++) {
        char text[DTP_STRATEGY_TEXT_BYTES];
        dtp_strategy_print(g, n, &plan->mesh, &f->problem->choices[c].options[k].strategy, text);
        const dtp_alternative *a = find_alternative(&x, text);
        f->selection[c] = k;
        if (!a->apart) {
            assert_int_equal(price_selection(f, g) - now, dtp_cost_split_sum(&a->alone));
            assert_true(!a->alone_fits || a->at_least <= dtp_cost_split_sum(&a->alone));
            compared++;
        }
    }
    f->selection[c] = kept;
    dtp_arena_destroy(arena);
    return compared;
}

static void test_explain__alone_is_the_price_of_the_changed_program(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    dtp_plan_result r = plan_on(g, "x:2;y:2", 114688);
    price_fixture f;
    int32_t compared = 0;
    price_setup(&f, g, r.plan);
    for (int32_t n = 0; n < g->n_nodes; n++) {
        compared += check_node(&f, g, r.plan, n);
    }
    print_message("%d programs priced\n", compared);
    assert_true(compared > 40);
    price_teardown(&f);
    dtp_plan_result_free(&r);
    dtp_graph_destroy(g);
}

static void test_explain__unknown_names(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    dtp_plan_result r = plan_on(g, "x:4", 0);
    dtp_arena *arena = dtp_arena_create();
    dtp_explanation x;
    dtp_err err = {0};
    dtp_explain_request request = {
        .graph = g, .machine = machine, .plan = r.plan, .name = "logitz"};
    assert_int_equal(dtp_explain(&request, arena, &x, &err), DTP_NOT_FOUND);
    assert_non_null(strstr(err.msg, "did you mean 'logits'"));
    dtp_arena_destroy(arena);
    dtp_plan_result_free(&r);
    dtp_graph_destroy(g);
}

/* ---- diff ---------------------------------------------------------------------------------------
 */

/* The split costs add up to the additive price, the differences of nodes to that of the plans. */
static void test_plan_diff__adds_up(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    dtp_plan_result a = plan_on(g, "x:2;y:2", 0), b = plan_on(g, "x:2;y:2", 114688);
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
    dtp_plan_result a = plan_on(g, "x:2;y:2", 114688);
    dtp_arena *arena = dtp_arena_create();
    dtp_plan_diff diff;
    const dtp_diff_input inputs[2] = {{g, &a.plan->sharding, NULL}, {g, &a.plan->sharding, NULL}};
    assert_int_equal(dtp_plan_diff_make(inputs, machine, arena, &diff, NULL), DTP_OK);
    assert_int_equal(diff.n_tensors, 0);
    assert_int_equal(diff.n_nodes, 0);
    dtp_arena_destroy(arena);
    dtp_plan_result_free(&a);
    dtp_graph_destroy(g);
}

/* ---- pareto -------------------------------------------------------------------------------------
 */

static void test_pareto__no_point_beats_another(void **state)
{
    (void)state;
    dtp_graph *g = fixture_model("mlp_digits.json");
    static const dtp_plan_function functions[] = {dtp_plan_tensor, dtp_plan_rules};
    for (int f = 0; f < 2; f++) {
        dtp_pareto p;
        dtp_plan_request request = dtp_plan_request_init();
        const dtp_mesh mesh = fixture_mesh("x:2;y:2");
        request.mesh = &mesh;
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
        request.memory_limit_bytes = 2048;
        assert_int_equal(dtp_pareto_find(g, machine, &request, functions[f], 6, &p, NULL), DTP_OK);
        assert_int_equal(p.n, 0);
        assert_true(p.least_bytes > 2048);
        dtp_pareto_free(&p);
    }
    dtp_graph_destroy(g);
}

/* ---- sensitivity --------------------------------------------------------------------------------
 */

/* By how much a plan made for the scaled machine is faster there than `plan`. */
static double gain_at(const dtp_graph *g, const dtp_machine *m, const dtp_machine_param *param,
                      double factor, const dtp_plan *plan)
{
    dtp_machine *scaled = NULL;
    dtp_plan_result r;
    dtp_pricer pricer;
    dtp_prediction ours;
    dtp_plan_request request = dtp_plan_request_init();
    request.mesh = &plan->mesh;
    request.memory_limit_bytes = plan->memory_limit_bytes;
    assert_int_equal(dtp_machine_scaled(m, param, factor, &scaled, NULL), DTP_OK);
    assert_int_equal(dtp_pricer_init(scaled, &plan->mesh, &pricer, NULL), DTP_OK);
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
    plan_request.mesh = &mesh;
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

/* ---- least usage --------------------------------------------------------------------------------
 */

enum { NODES = 5, WAYS = 3 };

static dtp_select_problem *random_problem(uint64_t *seed)
{
    dtp_select_problem *p = NULL;
    int64_t cost[WAYS * WAYS], usage[WAYS];
    assert_int_equal(dtp_select_problem_create("random", 1 << 20, &p, NULL), DTP_OK);
    for (int32_t i = 0; i < NODES; i++) {
        for (int32_t s = 0; s < WAYS; s++) {
            cost[s] = random_below(seed, 100);
            usage[s] = random_below(seed, 50);
        }
        const int64_t begin = random_below(seed, 5);
        assert_int_equal(dtp_select_add_node(p, begin, begin + 1 + random_below(seed, 5), WAYS,
                                             cost, usage, NULL),
                         DTP_OK);
    }
    for (int32_t i = 1; i < NODES; i++) {
        for (int32_t k = 0; k < WAYS * WAYS; k++) {
            cost[k] = random_below(seed, 5) > 1 ? DTP_SELECT_FORBIDDEN : random_below(seed, 100);
        }
        assert_int_equal(dtp_select_add_edge(p, random_below(seed, i), i, cost, NULL), DTP_OK);
    }
    assert_int_equal(dtp_select_problem_check(p, NULL), DTP_OK);
    return p;
}

/* The smallest peak of any selection in which nothing is forbidden; -1: there is none. */
static int64_t brute_force(const dtp_select_problem *p)
{
    int64_t best = -1;
    int32_t choice[NODES] = {0};
    for (int32_t code = 0; code < 243; code++) {
        dtp_select_value value;
        for (int32_t i = 0, left = code; i < NODES; i++, left /= WAYS) {
            choice[i] = left % WAYS;
        }
        assert_int_equal(dtp_select_evaluate(p, choice, &value, NULL), DTP_OK);
        if (value.cost < DTP_SELECT_FORBIDDEN && (best < 0 || value.peak < best)) {
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
        const dtp_select_options options = dtp_select_options_init();
        dtp_least_usage l;
        dtp_select_problem *p = random_problem(&seed);
        const int64_t best = brute_force(p);
        print_message("seed %llu\n", (unsigned long long)first);
        assert_int_equal(dtp_least_usage_find(p, &options, 0, &l, NULL), DTP_OK);
        assert_int_equal(l.possible, best >= 0);
        if (best >= 0) {
            assert_int_equal(l.usage, best);
            assert_int_equal(l.bound, best);
            possible++;
        }
        dtp_least_usage_free(&l);
        dtp_select_problem_destroy(p);
    }
    assert_in_range(possible, 80, 195);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_explain__bounds_hold_when_solved_again),
        cmocka_unit_test(test_explain__layers_in_two_runs),
        cmocka_unit_test(test_explain__bounds_hold_on_large_models),
        cmocka_unit_test(test_explain__alone_is_the_price_of_the_changed_program),
        cmocka_unit_test(test_explain__unknown_names),
        cmocka_unit_test(test_plan_diff__adds_up),
        cmocka_unit_test(test_plan_diff__nothing_between_equal_plans),
        cmocka_unit_test(test_pareto__no_point_beats_another),
        cmocka_unit_test(test_sensitivity__ends_are_where_another_plan_takes_over),
        cmocka_unit_test(test_least_usage__equals_brute_force),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
